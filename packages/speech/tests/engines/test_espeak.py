"""The espeak-ng voices: languages, levels, stopping in mid-sentence, several in one process."""

from __future__ import annotations

from threading import Thread

import numpy as np
import pytest

from engines.watches import StopAfter
from lingua_speech import plugins
from lingua_speech.engine import EngineError, Sound, Stopped, Unwatched
from lingua_speech.engines.espeak import Espeak, make
from lingua_speech.plugins import Spec
from lingua_wire.errors import ConfigError
from lingua_wire.languages import language as one_form

pytestmark = pytest.mark.unit

SENTENCES = {
    "en": "The meeting starts at nine and we will discuss the new contract.",
    "es": "La reunión empieza a las nueve y hablaremos del nuevo contrato.",
    "pt-br": "A reunião começa às nove e vamos falar do novo contrato.",
    "ru": "Встреча начинается в девять, и мы обсудим новый договор.",
    "ar": "يبدأ الاجتماع في التاسعة وسنناقش العقد الجديد.",
    "zh": "会议九点开始，我们将讨论新的合同。",  # noqa: RUF001
}


@pytest.fixture(name="espeak", scope="module")
def one_for_all() -> Espeak:
    return make({})


def said(espeak: Espeak, text: str, language: str = "en") -> Sound:
    return espeak.speak(text, language, Unwatched())


def samples(sound: Sound) -> np.ndarray:
    return np.frombuffer(sound.pcm, "<i2").astype(float)


@pytest.mark.parametrize("language", sorted(SENTENCES))
def test_a_sentence_has_the_length_and_level_of_speech_in_each_language(espeak, language):
    sound = said(espeak, SENTENCES[language], language)
    assert sound.sample_rate == 22_050
    assert 2_000 < sound.duration_ms < 7_000
    assert 1_500 < np.sqrt(np.mean(samples(sound) ** 2)) < 9_000
    assert np.abs(samples(sound)).max() < 32_767


def test_the_sound_has_the_pitch_of_a_voice(espeak):
    vowel = samples(said(espeak, "aaaaah"))[4_000:12_000]
    likeness = np.correlate(vowel, vowel, "full")[len(vowel) :]
    period = 100 + int(likeness[100:400].argmax())
    assert 60 < 22_050 / period < 200


def test_it_declares_the_languages_it_really_speaks():
    espeak = plugins.make(Spec.parse("tts=espeak"))
    languages = espeak.about().languages
    assert len(languages) > 100
    assert {"en", "es", "fr", "de", "it", "pt-br", "ru", "zh", "ar", "hi"} <= set(languages)
    assert all(one_form(code) == code for code in languages)
    silent = [code for code in languages if said(espeak, "a", code).duration_ms < 30]
    assert silent == []


@pytest.mark.parametrize(("code", "spoken"), [("en", "en-us"), ("pt", "pt-br")])
def test_a_language_without_a_region_has_the_voice_that_is_understood_best(espeak, code, spoken):
    names = espeak._library.voices
    assert names[code] == names[spoken]
    assert {names["pt-pt"], names["en-gb"]}.isdisjoint({names["pt"], names["en"]})


def test_nothing_to_say_is_no_sound(espeak):
    for text in ("", " ", "…", "\x00"):
        assert said(espeak, text) == Sound(b"", 22_050)


def test_markup_and_phoneme_blocks_are_not_obeyed(espeak):
    plain = said(espeak, "one two three").duration_ms
    assert said(espeak, "<break time='30s'/> one two three").duration_ms < 8_000
    said(espeak, "<speak><prosody rate='20%' volume='1'>slow")
    assert said(espeak, "[[w'0n]]").duration_ms > 800  # spelled out, not "one"
    assert said(espeak, "one two three").duration_ms == pytest.approx(plain, rel=0.03)


def test_it_stops_in_the_middle_of_a_sentence_and_speaks_again(espeak):
    watch = StopAfter(5)
    with pytest.raises(Stopped):
        espeak.speak("word " * 50, "en", watch)
    assert watch.left == -1
    assert said(espeak, "one two three").duration_ms > 500


def test_two_engines_of_one_process_do_not_mix_their_sound(espeak):
    fast = make({"rate": "330"})
    text = SENTENCES["en"]
    wanted = said(espeak, text).duration_ms, said(fast, text).duration_ms
    heard: list[tuple[float, float]] = []

    def speak() -> None:
        heard.extend((said(espeak, text).duration_ms, said(fast, text).duration_ms) for _ in "123")

    threads = [Thread(target=speak) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wanted[1] < 0.7 * wanted[0]
    assert len(heard) == 9
    assert all(pair == pytest.approx(wanted, rel=0.03) for pair in heard)


def test_a_region_it_does_not_know_is_said_by_the_language_and_others_are_refused(espeak):
    assert said(espeak, "Hallo", "de-at").duration_ms > 200
    with pytest.raises(EngineError, match="no voice for 'xx'"):
        said(espeak, "hello", "xx")


def test_a_language_can_be_given_another_voice(espeak):
    woman = make({"voice.es": "es-419+f2"})
    assert said(woman, SENTENCES["es"], "es").pcm != said(espeak, SENTENCES["es"], "es").pcm
    assert said(espeak, SENTENCES["en"]).duration_ms > 2_000


@pytest.mark.parametrize(
    "options", [{"voice.es": "nobody"}, {"rate": "9"}, {"loud": "yes"}, {"volume": "x"}]
)
def test_an_impossible_option_is_told_before_anything_starts(options):
    with pytest.raises(ConfigError):
        make(options)
