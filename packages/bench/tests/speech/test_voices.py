"""How voices are measured: the sentences, and a real recogniser with a small network."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from engines.tiny_models import kokoro
from lingua_bench.commands.bench_speech import voices_page
from lingua_bench.speech.voices import (
    QUICK,
    Understood,
    VoiceReport,
    measure_voices,
    sentences,
)

pytestmark = pytest.mark.speech


def test_each_language_has_as_many_sentences_and_none_has_figures() -> None:
    texts = sentences()
    assert set(texts) == {"en", "es", "fr", "it", "de", "pt"}
    assert {len(said) for said in texts.values()} == {24}
    assert not any(sign.isdigit() for said in texts.values() for sign in "".join(said))
    assert all(len(set(said)) == len(said) for said in texts.values())


def test_a_voice_is_listened_to_and_one_that_is_not_here_is_told(tmp_path: Path) -> None:
    kokoro(tmp_path / "model", ("pf_dora",))
    voice = f"tts=kokoro:dir={tmp_path / 'model'},languages=pt"
    gone = f"tts=kokoro:dir={tmp_path / 'none'}"
    told: list[str] = []
    report = asyncio.run(measure_voices((voice, gone), told.append, is_quick=True))
    (row,) = report.rows
    assert (row.language, row.sentences) == ("pt", QUICK)
    # Its tones are not words.
    assert row.wer > 0.5
    assert 0 < row.rtf < 1
    assert row.first_audio_p50_ms > 0
    assert list(report.left_out) == [gone]
    assert told == [f"{voice} says it in pt"]


def test_the_report_is_a_table_and_ends_with_the_numbers_to_quote() -> None:
    row = Understood("pico", "es", 24, 0.0393, 0.006, 18.7, 80.5)
    report = VoiceReport((row,), {})
    assert report.objects()[-1] == {"wer_es_pico": 0.0393}
    assert report.objects()[0]["kind"] == "voice"
    assert "3.9 %" in voices_page(report)
