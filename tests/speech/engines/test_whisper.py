"""Whisper's pure parts: what it sees, its vocabulary, its doubts, its windows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingua_scheduler.errors import ConfigError
from lingua_scheduler.speech.engine import About, Hint, ModelMissing
from lingua_scheduler.speech.engines import whisper
from lingua_scheduler.speech.engines.whisper import decoding, guards, mel, recogniser, windows
from lingua_scheduler.speech.engines.whisper.tokens import Vocabulary, byte_letters

if TYPE_CHECKING:
    from pathlib import Path

    from lingua_scheduler.speech.sound import Samples

pytestmark = pytest.mark.unit

# Merges in order of rank: pairs of what is there before.
MERGES = [" t", "he", " the", "re", "in", "ó", " m", "an"]


@pytest.fixture(name="words", scope="module")
def small_vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    """Return all bytes, a few merges and the tokens that steer."""
    folder = tmp_path_factory.mktemp("vocabulary")
    letters = byte_letters()
    names = [letters[byte] for byte in range(256)]
    names += ["".join(letters[byte] for byte in merge.encode()) for merge in MERGES]
    names.append("<|endoftext|>")
    vocabulary = {name: number for number, name in enumerate(names)}
    steering = ["startoftranscript", "en", "translate", "transcribe", "startofprev"]
    steering += ["nocaptions", "notimestamps"]
    added = {f"<|{name}|>": len(names) + at for at, name in enumerate(steering)}
    rules = {
        "lang_to_id": {"<|en|>": added["<|en|>"]},
        "suppress_tokens": [1, 2],
        "begin_suppress_tokens": [3],
    }
    for name, content in (("vocab", vocabulary), ("added_tokens", added)):
        (folder / f"{name}.json").write_text(json.dumps(content))
    (folder / "generation_config.json").write_text(json.dumps(rules))
    return Vocabulary(folder)


@given(text=st.text(max_size=60))
def test_any_text_survives_the_way_to_tokens_and_back(words: Vocabulary, text: str) -> None:
    assert words.text(words.encode(text)) == text


def test_pairs_are_merged_in_the_order_of_their_rank(words: Vocabulary) -> None:
    assert [words.text([token]) for token in words.encode(" then re")] == [" the", "n", " ", "re"]


def test_half_a_character_at_the_end_is_not_shown(words: Vocabulary) -> None:
    tokens = words.encode("ñ")
    assert len(tokens) == 2
    assert words.text(tokens[:1]) == ""


def test_steering_and_suppressed_tokens_cannot_be_said(words: Vocabulary) -> None:
    first, later = words.masks(words.no_times + 10)
    assert np.flatnonzero(np.isinf(later)).tolist()[:2] == [1, 2]
    assert np.isinf(later[words.end + 1 :]).all()
    assert later[words.end] == 0
    assert np.isinf(first[3])
    assert later[3] == 0


def test_each_mel_band_looks_at_neighbouring_frequencies_only() -> None:
    bands = mel.filters()
    assert bands.shape == (80, 201)
    assert (bands >= 0).all()
    peaks = bands.argmax(axis=1)
    assert (np.diff(peaks) >= 0).all()
    # Triangles of equal area, where they are wide enough to be sampled well.
    areas = bands[40:].sum(axis=1) * 40
    assert areas == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("hz", [300, 1000, 3500])
def test_a_tone_is_seen_in_its_band(hz: int) -> None:
    times = np.arange(16_000) / 16_000
    seen = mel.log_mel(np.sin(2 * np.pi * hz * times).astype(np.float32), 100)
    assert seen.shape == (1, 80, 100)
    wanted = int(mel.filters()[:, round(hz / 40)].argmax())
    assert abs(int(seen[0, :, 50].argmax()) - wanted) <= 1


def test_what_is_seen_spans_eight_powers_of_ten_at_most() -> None:
    noise = np.random.default_rng(1).normal(0, 0.1, 8000).astype(np.float32)
    seen = mel.log_mel(noise, 200)
    assert seen.max() - seen.min() == pytest.approx(mel.RANGE / 4)


def test_a_longer_window_shows_the_same_at_its_beginning() -> None:
    noise = np.random.default_rng(1).normal(0, 0.1, 16_000).astype(np.float32)
    short, long = mel.log_mel(noise, 200), mel.log_mel(noise, 400)
    assert np.allclose(short[:, :, :190], long[:, :, :190], atol=1e-5)


@pytest.mark.parametrize(
    ("tokens", "cut"),
    [
        ([7, 8, 9] * 3, 6),
        ([1, 2, *[7, 8, 9] * 3], 6),
        ([7, 8, 9] * 2, 0),
        (list(range(10)) * 2, 10),
        ([5] * 7, 0),
        ([5] * 8, 7),
        ([1, *[5] * 12], 11),
        ([1, 2, *[7, 8, 9] * 5], 12),
        ([5, 6] * 8, 14),
        ([1, 2, 3, 4], 0),
        ([], 0),
    ],
)
def test_circles_are_cut_but_not_what_people_repeat(tokens: list[int], cut: int) -> None:
    assert guards.repeated(tokens) == cut


def test_a_text_that_begins_for_the_third_time_was_said_once() -> None:
    assert guards.said_anew([1, 2, 3, 1, 2, 3, 1]) == 3
    assert guards.said_anew([1, 2, 3, 1, 2, 3]) == 0
    assert guards.said_anew([1, 2, 3, 1, 2, 4, 1]) == 0
    assert guards.said_anew([1, 2, 1, 2, 1]) == 0


@pytest.mark.parametrize(
    ("text", "is_round"),
    [
        ("The last caller was. The last caller was.", True),
        ("No, no. No!", True),
        ("No, no, yes.", False),
        ("Hello.", False),
        ("", False),
    ],
)
def test_a_text_that_is_the_same_over_and_over_is_noticed(text: str, *, is_round: bool) -> None:
    assert guards.is_round(text) == is_round


def test_a_text_that_can_be_squeezed_says_the_same_over_and_over() -> None:
    assert guards.is_squeezable("and then we went on and " * 8)
    assert not guards.is_squeezable("no no no no")
    assert not guards.is_squeezable(
        "He might even have been made amiable himself, had he married a more amiable woman."
    )


def test_more_tokens_are_allowed_for_longer_sound_up_to_a_limit() -> None:
    assert guards.room(0) == (guards.TOKENS_AT_LEAST, 0)
    assert guards.room(2).most > guards.room(1).most
    assert guards.room(1000) == (guards.TOKENS_AT_MOST, guards.TOKENS_AT_MOST)
    assert guards.room(10).enough < 3 * 10 < guards.room(10).most


def test_a_text_much_too_short_for_its_sound_has_left_something_out() -> None:
    assert guards.fell_short(10, 18.0)
    assert not guards.fell_short(60, 18.0)
    assert not guards.fell_short(1, 3.0)


# The full stop, and the first word with a capital.
STOP, LARGE = 99, 98


def text_of(*sentences: list[int]) -> decoding._Text:
    """Return a text that might end after each sentence."""
    text = decoding._Text(frozenset({STOP}), {LARGE: 1})
    for sentence in sentences:
        text.note_possible_end()
        for token in sentence:
            text.add(token, -0.1)
    return text


def test_a_text_ends_where_it_might_and_a_known_beginning_follows() -> None:
    text = text_of([1, 2, 3, 4, STOP], [1, 2, 3])
    said = text.cut_where_said_before(4)
    assert said is not None
    assert (said.tokens, said.cut) == ([1, 2, 3, 4, STOP], "")


def test_a_new_sentence_after_a_possible_end_goes_on() -> None:
    assert text_of([1, 2, 3, 4, STOP], [5, 2, 3]).cut_where_said_before(4) is None
    assert text_of([1, 2, 3, 4, STOP], [5, 6, 7, STOP], [8, 9, 10]).cut_where_said_before(4) is None


def test_a_beginning_is_known_again_with_or_without_its_capital() -> None:
    said = text_of([LARGE, 2, 3, 4, 5], [1, 2, 3]).cut_where_said_before(4)
    assert said is not None
    assert said.tokens == [LARGE, 2, 3, 4, 5]


def test_before_there_is_enough_text_a_known_beginning_may_be_meant() -> None:
    assert text_of([1, 2, 3, 4, STOP], [1, 2, 3]).cut_where_said_before(6) is None


def test_the_beginning_of_any_sentence_before_is_known_again() -> None:
    said = text_of([1, 2, 3, 4, STOP], [5, 6, 7, 8, STOP], [5, 6, 7]).cut_where_said_before(4)
    assert said is not None
    assert said.tokens == [1, 2, 3, 4, STOP, 5, 6, 7, 8, STOP]


def test_a_sentence_that_is_no_more_than_its_beginning_is_known_again() -> None:
    said = text_of([1, 2, 3, 4, STOP], [5, 6, STOP], [5, 6, STOP]).cut_where_said_before(4)
    assert said is not None
    assert said.tokens == [1, 2, 3, 4, STOP, 5, 6, STOP]


def test_pauses_are_no_time_in_which_somebody_speaks() -> None:
    sound = np.full(16_000 * 6, 0.3, np.float32)
    assert windows.spoken_s(sound) == 6
    sound[16_000 * 1 : 16_000 * 3] = 0.001
    sound[16_000 * 4 : 16_000 * 4 + 3200] = 0.0
    assert windows.spoken_s(sound) == 4
    assert windows.spoken_s(np.zeros(1600, np.float32)) == 0.1


def test_a_sound_is_halved_at_the_quietest_place_of_its_middle() -> None:
    loud = np.full(16_000 * 8, 0.3, np.float32)
    loud[16_000 * 3 : 16_000 * 3 + 6400] = 0.0
    first, second = windows.halves(loud)
    assert 3.0 <= len(first) / 16_000 <= 3.4
    assert len(first) + len(second) == len(loud)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("[Music] Hello (laughs) there.", "Hello there."),
        ("(upbeat music)", ""),
        ("♪ la la ♪", "la la"),
        ("*sigh* Well.", "Well."),
        ("A plain text.", "A plain text."),
    ],
)
def test_sounds_in_brackets_are_left_out(text: str, left: str) -> None:
    assert guards.without_sounds(text) == left


@pytest.mark.parametrize(
    "text", ["Thank you.", "Thanks for watching!", "Subtítulos por la comunidad", "you", "...", ""]
)
def test_what_whisper_makes_of_noise_is_known(text: str) -> None:
    assert guards.is_stock(text)


def test_what_people_say_is_not_taken_for_noise() -> None:
    assert not guards.is_stock("Thank you for the coffee, doctor.")
    assert not guards.is_stock("You are welcome.")


def test_an_echo_of_the_text_before_is_noticed() -> None:
    before = "And then he said that it was too late."
    assert guards.is_echo("He said that it was", before)
    assert not guards.is_echo("He said that nothing", before)
    assert not guards.is_echo("He said", before)


def loud_with_a_pause(seconds: float, pause_at_s: float) -> Samples:
    samples = np.random.default_rng(2).normal(0, 0.1, int(seconds * 16_000)).astype(np.float32)
    at = int(pause_at_s * 16_000)
    samples[at - 3200 : at + 3200] *= 0.001
    return samples


def test_long_sound_is_cut_in_its_pauses_and_nothing_is_lost() -> None:
    samples = loud_with_a_pause(70, 20)
    found = windows.pieces(samples)
    assert len(found[0]) / 16_000 == pytest.approx(20, abs=0.2)
    assert all(len(piece) <= windows.WHOLE_S * 16_000 for piece in found)
    assert np.array_equal(np.concatenate(found), samples)


def test_short_sound_stays_whole() -> None:
    samples = loud_with_a_pause(28, 20)
    assert [len(piece) for piece in windows.pieces(samples)] == [len(samples)]


def test_the_window_is_as_long_as_the_sound_and_some_silence() -> None:
    assert windows.frames_for(np.zeros(10 * 16_000, np.float32), "short") == 1100
    assert windows.frames_for(np.zeros(1600, np.float32), "short") == 300
    assert windows.frames_for(np.zeros(10 * 16_000 + 1, np.float32), "short") == 1102
    assert windows.frames_for(np.zeros(29 * 16_000, np.float32), "short") == 3000
    assert windows.frames_for(np.zeros(1600, np.float32), "full") == 3000


@pytest.mark.parametrize(
    "options",
    [{"model": "huge"}, {"window": "tall"}, {"threads": "0"}, {"threads": "x"}, {"beams": "5"}],
)
def test_an_option_that_makes_no_sense_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        whisper.make(options)


def test_a_folder_without_the_model_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(ModelMissing, match="lingua models install"):
        whisper.make({"dir": str(tmp_path)})


@pytest.mark.parametrize(("ours", "its"), [("nb", "no"), ("fil", "tl"), ("pt-br", "pt")])
def test_a_language_that_whisper_calls_otherwise_is_translated_too(ours: str, its: str) -> None:
    about = About(engine="whisper", languages=(ours,), pairs=((ours, "en"),))
    hint = Hint(language=ours, translate_to="en")
    transcript = recogniser._Transcript({its: ours}, hint, is_told=False)
    assert transcript.is_translated(about, its)
    assert not transcript.is_translated(about, "xx")
