"""The numbers that `lingua bench speech` quotes."""

from __future__ import annotations

import pytest

from lingua_bench.speech.report import RecognitionResult, SpeechReport, Translated

pytestmark = pytest.mark.unit


def heard(**changes: float) -> RecognitionResult:
    numbers = {name: 0 for name in RecognitionResult.__dataclass_fields__ if name != "name"}
    return RecognitionResult(name="talk", **(numbers | changes))  # type: ignore[arg-type]


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
