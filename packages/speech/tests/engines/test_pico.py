"""The Pico voice: speech, markup that it must ignore, and stopping."""

from __future__ import annotations

import numpy as np
import pytest

from engines.watches import StopAfter
from lingua_speech import plugins
from lingua_speech.engine import EngineError, Sound, Stopped, Unwatched
from lingua_speech.engines.pico import Pico, make
from lingua_speech.plugins import Spec
from lingua_wire.errors import ConfigError

pytestmark = pytest.mark.unit

SENTENCES = {
    "en": "The meeting starts at nine and we will discuss the new contract.",
    "es": "La reunión empieza a las nueve y hablaremos del nuevo contrato.",
    "de": "Die Besprechung beginnt um neun und wir reden über den neuen Vertrag.",
    "fr": "La réunion commence à neuf heures et nous parlerons du nouveau contrat.",
    "it": "La riunione comincia alle nove e parleremo del nuovo contratto.",
}


@pytest.fixture(name="pico", scope="module")
def one_for_all() -> Pico:
    return make({})


def said(pico: Pico, text: str, language: str = "en") -> Sound:
    return pico.speak(text, language, Unwatched())


def length(pico: Pico, text: str, language: str) -> float:
    return said(pico, text, language).duration_ms


def level(sound: Sound) -> float:
    return float(np.sqrt(np.mean(np.frombuffer(sound.pcm, "<i2").astype(float) ** 2)))


@pytest.mark.parametrize("language", sorted(SENTENCES))
def test_a_sentence_has_the_length_and_level_of_speech_in_each_language(pico, language):
    sound = said(pico, SENTENCES[language], language)
    assert sound.sample_rate == 16_000
    assert 2_500 < sound.duration_ms < 7_000
    assert 2_000 < level(sound) < 9_000
    assert max(abs(np.frombuffer(sound.pcm, "<i2").astype(int))) < 32_767  # not clipped


def test_it_is_found_by_its_name_and_says_what_it_can():
    about = plugins.make(Spec.parse("tts=pico:rate=120")).about()
    assert about.languages == ("de", "en", "en-gb", "en-us", "es", "fr", "it")
    assert (about.engine, about.licence, about.version[:2]) == ("pico", "Apache-2.0", "0.")


def test_nothing_to_say_is_no_sound(pico):
    for text in ("", "   ", "...", "¿?", "\x00\x01", "😀"):
        assert said(pico, text) == Sound(b"", 16_000)


def test_a_tag_in_a_text_changes_nothing_now_or_later(pico):
    before = said(pico, "one two three").duration_ms
    tagged = said(pico, "<speed level='20'> one two three").duration_ms
    said(pico, "<pitch level='50'><volume level='1'>quiet")
    said(pico, "&lt;speed level='20'&gt; four")
    after = said(pico, "one two three")
    # The tag is spoken as words, at the usual speed.
    assert tagged < 6 * before
    assert after.duration_ms == pytest.approx(before, rel=0.02)
    assert level(after) == pytest.approx(level(said(pico, "one two three")), rel=0.05)


def test_control_characters_are_spaces(pico):
    dirty = said(pico, "one\x00two\x1b\x07\u202ethree\r\n")
    assert dirty.duration_ms == pytest.approx(said(pico, "one two three").duration_ms, rel=0.02)


def test_sentences_are_parted_by_a_short_pause_and_end_without_a_long_silence(pico):
    alone = said(pico, "Good morning.")
    both = said(pico, "Good morning. Good morning...")
    assert both.duration_ms == pytest.approx(2 * alone.duration_ms + 250, abs=60)


def test_a_long_text_stops_when_nobody_wants_it(pico):
    text = "This is one more sentence. " * 50
    watch = StopAfter(3)
    with pytest.raises(Stopped):
        pico.speak(text, "en", watch)
    assert watch.left == -1
    assert said(pico, text).duration_ms > 50_000


def test_a_text_without_any_mark_is_cut_into_pieces_too(pico):
    with pytest.raises(Stopped):
        pico.speak("word " * 300, "en", StopAfter(3))


def test_english_has_two_voices(pico):
    american, british = (length(pico, SENTENCES["en"], code) for code in ("en-us", "en-gb"))
    assert american > 1.01 * british
    assert length(pico, SENTENCES["en"], "en") == pytest.approx(american, rel=0.01)
    assert length(make({"english": "gb"}), SENTENCES["en"], "en") == pytest.approx(
        british, rel=0.01
    )


def test_a_region_it_does_not_know_is_said_by_the_language(pico):
    there, here = (length(pico, SENTENCES["es"], code) for code in ("es-mx", "es"))
    assert there == pytest.approx(here, rel=0.03)


def test_another_language_is_refused(pico):
    with pytest.raises(EngineError, match="no voice for 'pt'"):
        said(pico, "Bom dia", "pt")


def test_twice_the_rate_takes_about_half_the_time(pico):
    usual, fast = (
        said(pico, SENTENCES["es"], "es"),
        said(make({"rate": "200"}), SENTENCES["es"], "es"),
    )
    assert 0.4 < fast.duration_ms / usual.duration_ms < 0.65


@pytest.mark.parametrize(
    "options", [{"rate": "5"}, {"pitch": "high"}, {"english": "au"}, {"speed": "2"}]
)
def test_an_impossible_option_is_told_before_anything_starts(options):
    with pytest.raises(ConfigError):
        make(options)


@pytest.mark.parametrize("word", ["á" * 400, "ñ" * 130, "x" * 400])
def test_a_word_without_end_is_spoken_and_does_not_hang(pico: Pico, word: str) -> None:
    assert said(pico, word, "es").duration_ms > 1000


@pytest.mark.parametrize("language", sorted(SENTENCES))
def test_a_number_without_end_is_spoken(pico: Pico, language: str) -> None:
    assert said(pico, f"Call {'7' * 300} now.", language).duration_ms > 3000
