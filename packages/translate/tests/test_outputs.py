"""A report as captions, JSON and audio; missing translations are shown in their place."""

from __future__ import annotations

import json
from array import array
from contextlib import closing
from pathlib import Path

import pytest

from lingua_translate import (
    InterpretationReport,
    Rendition,
    TranslatedUtterance,
    own_share_ms,
    quantile,
)
from lingua_translate.outputs import (
    SpeechFile,
    as_json,
    captions_of,
    path_for,
    resampled,
    summary,
)
from lingua_wire.errors import LinguaError
from lingua_wire.recording import Recording, read
from lingua_wire.shared import Coverage, ServiceTimings, Timeline

pytestmark = pytest.mark.unit

TIMELINE = Timeline(
    endpointing_ms=400,
    queue_ms=7,
    place_ms=1,
    push_ms=2,
    accept_ms=3,
    asr_ms=200,
    nmt_ms=5,
    tts_ms=50,
    node_other_ms=9,
    settle_ms=4,
    order_wait_ms=11,
    total_ms=692,
)


def said(index: int, start: float, voice_end: float, *renditions: Rendition) -> TranslatedUtterance:
    return TranslatedUtterance(
        index,
        start,
        voice_end + 400,
        voice_end,
        text_asr=f"said {index}",
        renditions={one.target: one for one in renditions},
    )


def es(text: str = "", **fields: object) -> Rendition:
    return Rendition("es", text, **fields)  # type: ignore[arg-type]


def test_captions_have_the_times_of_the_voice_and_say_what_is_missing() -> None:
    report = InterpretationReport(
        [
            said(0, 100, 900, es("hola")),
            said(1, 1000, 1900, es(reason="no_node")),
            said(2, 2000, 2900, es(reason="silence_detected")),
            said(3, 3000, 3900, Rendition("fr", "salut")),
        ]
    )
    assert [(c.start_ms, c.end_ms, c.text) for c in captions_of(report, "es")] == [
        (100, 900, "hola"),
        (1000, 1900, "[missing: no_node]"),
    ]


def test_of_a_talk_in_two_languages_both_are_shown() -> None:
    report = InterpretationReport(
        [said(0, 0, 900, es("hola")), said(1, 1000, 1900, Rendition("en", "hi"))]
    )
    assert [caption.text for caption in captions_of(report)] == ["hola", "hi"]


def spoken(path: Path, *utterances: TranslatedUtterance) -> Recording:
    with closing(SpeechFile(path)) as file:
        for one in utterances:
            file.add(one.start_ms, one.renditions["es"])
    return read(path)


def test_speech_begins_with_its_utterance_or_after_the_one_before(tmp_path: Path) -> None:
    first, second, third = (array("h", [level] * 1600).tobytes() for level in (1, 2, 3))
    speech = spoken(
        tmp_path / "a.wav",
        said(0, 50, 90, es("a", pcm=first, sample_rate=16_000)),
        said(1, 100, 150, es("b", pcm=second, sample_rate=16_000)),
        said(2, 500, 600, es("c", pcm=third, sample_rate=16_000)),
    )
    samples = array("h", speech.pcm)
    runs = [samples.index(level) / 16 for level in (1, 2, 3)]
    assert runs == [50, 150, 500]
    assert len(samples) == 600 * 16
    assert set(samples[250 * 16 : 500 * 16]) == {0}


def test_where_nothing_is_spoken_there_is_no_file(tmp_path: Path) -> None:
    with closing(SpeechFile(tmp_path / "a.wav")) as file:
        file.add(0, es("a"))
        assert file.duration_ms == 0
    assert list(tmp_path.iterdir()) == []


def test_voices_of_several_rates_are_brought_to_the_first(tmp_path: Path) -> None:
    slow = array("h", range(0, 8000, 10)).tobytes()
    speech = spoken(
        tmp_path / "a.wav",
        said(0, 0, 90, es("a", pcm=bytes(3200), sample_rate=16_000)),
        said(1, 100, 150, es("b", pcm=slow, sample_rate=8000)),
    )
    assert (speech.sample_rate, speech.duration_ms) == (16_000, 200)
    assert array("h", speech.pcm)[1600:2600].tolist() == list(range(0, 5000, 5))
    assert array("h", resampled(speech.pcm[3200:], 16_000, 8000)).tolist()[:3] == [0, 10, 20]


def test_each_language_has_its_file_if_there_are_several() -> None:
    assert path_for(Path("a/talk.srt"), "es", ["es"]) == Path("a/talk.srt")
    assert path_for(Path("a/talk.srt"), "es", ["es", "fr"]) == Path("a/talk.es.srt")
    assert path_for(Path("-"), "es", ["es", "fr"]) == Path("-")


def test_everything_but_the_audio_is_in_the_json() -> None:
    one = es(
        "hola",
        pcm=b"xx",
        sample_rate=16_000,
        latency_ms=812.4,
        timeline=TIMELINE,
        timings=ServiceTimings(asr_ms=200, nmt_ms=5, tts_ms=50),
        languages={"en": 0.9},
    )
    coverage = Coverage(admitted_ms=900, delivered_ms=800, silent_ms=100, failed_ms=0, skipped_ms=0)
    report = InterpretationReport(
        [said(0, 100.4, 900, one)], coverage=coverage, audio_ms=1000, took_s=1.5
    )
    found = json.loads(as_json(report, "en"))
    assert (found["source"], found["targets"]) == ("en", ["es"])
    (utterance,) = found["utterances"]
    assert (utterance["start_ms"], utterance["voice_end_ms"], utterance["text"]) == (
        100,
        900,
        "said 0",
    )
    rendition = utterance["renditions"]["es"]
    assert rendition.pop("timeline")["total_ms"] == 692
    assert rendition == {
        "text": "hola",
        "latency_ms": 812,
        "asr_ms": 200,
        "mt_ms": 5,
        "tts_ms": 50,
        "scheduler_ms": 7,
        "languages": {"en": 0.9},
    }
    assert found["summary"]["latency"]["total"] == {"p50_ms": 812.4, "p95_ms": 812.4}
    assert found["summary"]["coverage"]["delivered_ms"] == 800


def test_the_schedulers_own_share_is_neither_the_node_nor_waiting() -> None:
    assert own_share_ms(TIMELINE) == 1 + 2 + 4


def test_a_report_counts_what_failed_but_not_silence() -> None:
    report = InterpretationReport(
        [said(0, 0, 1, es(reason="silence_detected")), said(1, 0, 1, es(reason="no_node"))]
    )
    assert report.failures == 1
    report.lost_ms = 5
    report.error = LinguaError("gone")
    assert report.failures == 3
    assert summary(report)["error"] == "gone"


def test_missing_outcomes_do_not_count_as_fast_ones() -> None:
    report = InterpretationReport(
        [
            said(0, 0, 1, es(reason="no_node", latency_ms=1)),
            said(1, 0, 1, es("a", latency_ms=9)),
        ]
    )
    assert report.latencies_ms()["total"] == [9]


@pytest.mark.parametrize(
    ("values", "part", "found"),
    [([], 0.5, 0), ([3], 0.95, 3), ([1, 2, 3, 4], 0.5, 3), (list(range(100)), 0.95, 95)],
)
def test_quantiles(values: list[float], part: float, found: float) -> None:
    assert quantile(values, part) == found
