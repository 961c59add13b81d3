"""Whisper with its model, on recorded speech and on other sounds."""

from __future__ import annotations

import re
import wave
from typing import TYPE_CHECKING

import numpy as np
import pytest

from engines.watches import RecordingWatch, StopAfter
from lingua_speech.engine import EngineError, Hint, Sound, Stopped, Unwatched
from lingua_speech.engines import whisper
from lingua_speech.models import default_store
from lingua_speech.sound import hearing, pcm16

if TYPE_CHECKING:
    from pathlib import Path

    from lingua_speech.sound import Samples

pytestmark = pytest.mark.speech

ENGLISH = Hint(language="en")
EITHER = Hint(allowed=("en", "es"))


@pytest.fixture(name="engine", scope="module")
def loaded_model() -> whisper.Whisper:
    """Return Whisper base; its model is installed if it is missing."""
    installed("whisper-base")
    return whisper.make({"model": "base"})


def installed(name: str) -> Path:
    store = default_store()
    if not store.has(name):
        store.install(name)
    return store.path(name)


@pytest.fixture(name="recordings", scope="module")
def spoken_english() -> list[tuple[Sound, str]]:
    """Return recordings with their transcripts."""
    return recorded("recordings-librivox-en")


def recorded(name: str) -> list[tuple[Sound, str]]:
    folder = installed(name)
    lines = (folder / "transcripts.tsv").read_text("utf-8").splitlines()
    return [(read(folder / "wav" / f"{k}.wav"), text) for k, text in map(split, lines)]


def split(line: str) -> tuple[str, str]:
    key, _, text = line.partition("\t")
    return key, text


def read(path: Path) -> Sound:
    with wave.open(str(path)) as file:
        return Sound(file.readframes(file.getnframes()), file.getframerate())


def sound_of(samples: Samples) -> Sound:
    return Sound(pcm16(samples.astype(np.float32)), 16_000)


def words(text: str) -> list[str]:
    plain = re.sub(r"[^a-z']+", " ", text.lower())
    return re.sub(r"\bmister\b", "mr", plain).split()


def wrong(said: str, heard: str) -> int:
    """Return how many words must be changed, added or removed."""
    ours, theirs = words(said), words(heard)
    costs = list(range(len(theirs) + 1))
    for row, one in enumerate(ours, 1):
        before, costs[0] = costs[:], row
        for at, other in enumerate(theirs, 1):
            swapped = before[at - 1] + (one != other)
            costs[at] = min(swapped, before[at] + 1, costs[at - 1] + 1)
    return costs[-1]


def test_at_most_three_words_of_a_hundred_are_wrong(
    engine: whisper.Whisper, recordings: list[tuple[Sound, str]]
) -> None:
    heard = [(text, engine.recognise(sound, ENGLISH, Unwatched())) for sound, text in recordings]
    errors = sum(wrong(text, one.text) for text, one in heard)
    assert errors / sum(len(words(text)) for text, _ in heard) <= 0.03
    assert all(one.confidence is not None and one.confidence > 0.7 for _, one in heard)


def test_a_telephone_is_understood_and_its_language_found(engine: whisper.Whisper) -> None:
    spoken = [one for one in recorded("recordings-prompts-en") if len(words(one[1])) > 7][:6]
    for sound, text in spoken:
        heard = engine.recognise(sound, EITHER, Unwatched())
        assert heard.language == "en"
        assert sum(heard.scores.values()) == pytest.approx(1, abs=1e-3)
        assert wrong(text, heard.text) <= len(words(text)) / 2, (text, heard.text)


def test_spanish_is_told_from_english_and_translated_into_it(engine: whisper.Whisper) -> None:
    spoken = recorded("recordings-prompts-es")
    sound = next(one for one, text in spoken if text.startswith("Lo siento, pero no fue posible"))
    hint = Hint(allowed=("en", "es"), translate_to="en")
    heard = engine.recognise(sound, hint, Unwatched())
    assert heard.language == "es"
    assert heard.scores["es"] > 0.9
    assert "lo siento" in heard.text.lower()
    assert "sorry" in heard.translation.lower()


def test_only_allowed_languages_are_heard_and_a_region_is_kept(
    engine: whisper.Whisper, recordings: list[tuple[Sound, str]]
) -> None:
    sound = recordings[0][0]
    heard = engine.recognise(sound, Hint(allowed=("es", "en-gb")), Unwatched())
    assert heard.language == "en-gb"
    assert set(heard.scores) == {"es", "en-gb"}


def test_a_language_that_whisper_does_not_know_is_refused(
    engine: whisper.Whisper, recordings: list[tuple[Sound, str]]
) -> None:
    with pytest.raises(EngineError, match="none of tlh"):
        engine.recognise(recordings[0][0], Hint(language="tlh"), Unwatched())


def not_speech() -> dict[str, Samples]:
    chance = np.random.default_rng(1)
    times = np.arange(32_000)
    return {
        "nothing": np.zeros(0),
        "silence": np.zeros(32_000),
        "faint noise": chance.normal(0, 0.001, 16_000),
        "noise": chance.normal(0, 0.1, 32_000),
        "a tone": 0.3 * np.sin(2 * np.pi * 440 / 16_000 * times),
        "hum": 0.1 * np.sin(2 * np.pi * 50 / 16_000 * times) + chance.normal(0, 0.002, 32_000),
        "clicks": (times % 4000 < 8) * 0.8 + chance.normal(0, 0.001, 32_000),
    }


@pytest.mark.parametrize("name", list(not_speech()))
def test_what_is_no_speech_gives_no_text(engine: whisper.Whisper, name: str) -> None:
    heard = engine.recognise(sound_of(not_speech()[name]), EITHER, Unwatched())
    assert heard.text == ""
    assert heard.translation == ""


def test_half_a_syllable_gives_no_text(
    engine: whisper.Whisper, recordings: list[tuple[Sound, str]]
) -> None:
    samples = hearing(recordings[0][0])[8000:8800]
    assert engine.recognise(sound_of(samples), ENGLISH, Unwatched()).text == ""


def test_silence_around_speech_changes_nothing(
    engine: whisper.Whisper, recordings: list[tuple[Sound, str]]
) -> None:
    sound, text = recordings[-1]
    room = np.random.default_rng(1).normal(0, 0.0005, 24_000)
    padded = np.concatenate([room, hearing(sound), room])
    assert wrong(text, engine.recognise(sound_of(padded), ENGLISH, Unwatched()).text) == 0


def test_speech_longer_than_the_window_is_heard_to_its_end(
    engine: whisper.Whisper, recordings: list[tuple[Sound, str]]
) -> None:
    order = [0, 2, 3, 4, 1, 3]
    samples = np.concatenate([hearing(recordings[at][0]) for at in order])
    assert len(samples) > 30 * 16_000
    text = " ".join(recordings[at][1] for at in order)
    heard = engine.recognise(sound_of(samples), ENGLISH, Unwatched())
    assert wrong(text, heard.text) <= 0.1 * len(words(text))


def test_what_is_known_so_far_grows_into_the_text(
    engine: whisper.Whisper, recordings: list[tuple[Sound, str]]
) -> None:
    watch = RecordingWatch()
    heard = engine.recognise(recordings[1][0], ENGLISH, watch)
    assert len(watch.partials) > 5
    assert watch.partials[-1] == heard.text
    assert all(heard.text.startswith(partial) for partial in watch.partials)


@pytest.mark.parametrize("looks", [0, 1, 5])
def test_it_stops_when_nobody_wants_the_answer_and_works_on_after(
    engine: whisper.Whisper, recordings: list[tuple[Sound, str]], looks: int
) -> None:
    sound, text = recordings[4]
    with pytest.raises(Stopped):
        engine.recognise(sound, ENGLISH, StopAfter(looks))
    assert wrong(text, engine.recognise(sound, ENGLISH, Unwatched()).text) == 0


def test_the_text_before_is_told_but_not_repeated(recordings: list[tuple[Sound, str]]) -> None:
    engine = whisper.make({"model": "base", "context": "yes"})
    sound, text = recordings[4]
    hint = Hint(language="en", context=recordings[3][1], continues=True)
    assert wrong(text, engine.recognise(sound, hint, Unwatched()).text) == 0


def test_it_tells_what_it_is_and_translates_only_into_english(engine: whisper.Whisper) -> None:
    about = engine.about()
    assert (about.engine, about.model, about.licence) == ("whisper", "whisper-base", "MIT")
    assert {"en", "es"} <= set(about.languages)
    assert ("es", "en") in about.pairs
    assert all(into == "en" and source != "en" for source, into in about.pairs)
    assert whisper.make({"translate": "no", "languages": "en+nl"}).about().pairs == ()


def test_known_words_begin_the_text_and_the_rest_is_found(
    engine: whisper.Whisper, recordings: list[tuple[Sound, str]]
) -> None:
    for sound, _ in recordings:
        whole = engine.recognise(sound, ENGLISH, Unwatched())
        known = " ".join(whole.text.split()[:4])
        rest = engine.recognise(sound, Hint(language="en", is_draft=True, known=known), Unwatched())
        assert rest.text.startswith(known)
        assert wrong(whole.text, rest.text) <= 1
        assert len(rest.words) == len(rest.text.split())


def test_words_that_were_plainly_not_said_are_not_taken_for_known(
    engine: whisper.Whisper, recordings: list[tuple[Sound, str]]
) -> None:
    sound, _ = recordings[0]
    whole = engine.recognise(sound, ENGLISH, Unwatched())
    misled = Hint(language="en", is_draft=True, known="Seventeen purple bicycles never sleep")
    assert engine.recognise(sound, misled, Unwatched()).text == whole.text


def test_words_are_not_known_before_the_language_is(
    engine: whisper.Whisper, recordings: list[tuple[Sound, str]]
) -> None:
    sound, _ = recordings[1]
    whole = engine.recognise(sound, EITHER, Unwatched())
    hint = Hint(allowed=EITHER.allowed, is_draft=True, known="He was not")
    assert engine.recognise(sound, hint, Unwatched()).text == whole.text


def test_a_draft_that_repeats_itself_is_not_tried_again(
    engine: whisper.Whisper,
    recordings: list[tuple[Sound, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    windows: list[int] = []
    encode = engine._network.encode

    def counted(samples: Samples, frames: int) -> object:
        windows.append(frames)
        return encode(samples, frames)

    monkeypatch.setattr(engine._network, "encode", counted)
    sound, _ = recordings[3]
    for upto_ms in range(1000, 6000, 50):
        part = Sound(sound.pcm[: 32 * upto_ms], 16_000)
        windows.clear()
        engine.recognise(part, ENGLISH, Unwatched())
        if len(windows) == 1:
            continue
        windows.clear()
        heard = engine.recognise(part, Hint(language="en", is_draft=True), Unwatched())
        if heard.remarks == ("repetition_cut",):
            assert len(windows) == 1
            return
    pytest.fail("no part of the recording repeats itself")
