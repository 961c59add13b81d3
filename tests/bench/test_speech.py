"""The parts of `lingua bench speech` that only count; the whole: tests/speech/test_whole.py."""

from __future__ import annotations

import math
from array import array
from pathlib import Path

import pytest

from lingua_scheduler.bench.speech.borders import missing_words
from lingua_scheduler.bench.speech.material import Spoken, softened, talk, trimmed
from lingua_scheduler.bench.speech.report import Heard, SpeechReport, Translated
from lingua_scheduler.bench.speech.run import family, memory_mb
from lingua_scheduler.recording import Recording

pytestmark = pytest.mark.unit

RATE = 8000


def tone(ms: int, level: float = 0.5) -> bytes:
    count = RATE * ms // 1000
    wave = (round(32_000 * level * math.sin(0.3 * at)) for at in range(count))
    return array("h", wave).tobytes()


def silence(ms: int) -> bytes:
    return bytes(2 * (RATE * ms // 1000))


# Words at borders


def test_the_same_words_in_slices_miss_nothing() -> None:
    assert missing_words("One two three, four five.", ["one two", "three four five"]) == (0, 0)


def test_a_word_that_is_gone_between_two_slices_is_missing_at_a_border() -> None:
    slices = ["one two", "four five six seven eight"]
    assert missing_words("one two three four five six seven eight", slices) == (1, 0)


def test_a_word_that_is_gone_in_the_middle_of_a_slice_is_missing_elsewhere() -> None:
    said = "a b c d e f g h i j k l m n o p"
    slices = ["a b c d e f g", "h i j k m n o p"]
    assert missing_words(said, slices) == (0, 1)


def test_a_misheard_word_is_not_missing() -> None:
    assert missing_words("one two three four", ["one too", "three four"]) == (0, 0)


def test_words_that_came_twice_are_not_missing() -> None:
    assert missing_words("one two three four", ["one two", "two three four"]) == (0, 0)


# Recordings


def test_silence_around_a_recording_is_cut_off() -> None:
    whole = Recording(silence(500) + tone(300) + silence(400), RATE)
    length_ms = len(trimmed(whole).pcm) / 2 / RATE * 1000
    assert 300 <= length_ms <= 400


def test_a_silent_recording_stays_as_it_is() -> None:
    quiet = Recording(silence(500), RATE)
    assert trimmed(quiet) is quiet


def test_a_talk_is_its_parts_with_pauses_and_counts_only_speech() -> None:
    parts = [
        Spoken("a", "one", Recording(tone(200), RATE)),
        Spoken("b", "two", Recording(tone(300), RATE)),
    ]
    whole = talk(parts, pause_ms=100)
    assert (whole.text, whole.speech_ms) == ("one two", 500)
    assert whole.recording.pcm == (
        silence(100) + tone(200) + silence(100) + tone(300) + silence(100)
    )


def test_a_softened_recording_begins_and_ends_at_nothing_and_is_otherwise_the_same() -> None:
    loud = Recording(array("h", [20_000] * RATE).tobytes(), RATE)
    soft = array("h", softened(loud).pcm)
    assert (soft[0], soft[-1], soft[RATE // 2]) == (0, 0, 20_000)
    assert len(soft) == RATE


# What is quoted


def heard(**changes: float) -> Heard:
    numbers = {name: 0 for name in Heard.__dataclass_fields__ if name != "name"}
    return Heard(name="talk", **(numbers | changes))  # type: ignore[arg-type]


def translated(direction: str, score: float) -> Translated:
    return Translated(direction, 2, score, 0, 0, 0, 0, 0)


def test_the_summary_has_the_numbers_of_the_first_talk_and_of_each_direction() -> None:
    report = SpeechReport(
        heard=[heard(wer=0.02, first_audio_p50_s=0.8, rtf=0.1), heard(wer=0.5)],
        translated=[translated("en>es", 55.5), translated("es>en", 50.25)],
        rss_mb=400.04,
    )
    found = report.summary()
    assert (found["wer_en"], found["chrf_en_es"], found["chrf_es_en"]) == (0.02, 55.5, 50.25)
    assert (found["first_audio_p50_s"], found["rtf"], found["rss_mb"]) == (0.8, 0.1, 400.0)
    assert report.objects()[-1] == found
    assert [row.get("kind") for row in report.objects()[:-1]] == ["heard"] * 2 + ["translated"] * 2


def test_the_memory_of_a_process_with_its_children_is_more_than_nothing() -> None:
    own = int(Path("/proc/self").resolve().name)
    assert own in family(own)
    assert memory_mb(own) > 1
