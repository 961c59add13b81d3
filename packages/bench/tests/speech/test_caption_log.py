"""What captions would have shown is kept from the events of a client, and measured."""

from __future__ import annotations

from array import array

import pytest

from lingua_bench.speech.caption_log import CaptionLog
from lingua_bench.speech.material import JoinedRecording
from lingua_bench.speech.report import recognition_of
from lingua_client import Partial
from lingua_translate import InterpretationReport, Rendition, TranslatedUtterance
from lingua_wire.recording import Recording
from lingua_wire.shared import PartialTranslation
from lingua_wire.to_client import PartialResult

pytestmark = pytest.mark.unit


def partial(text: str, spanish: str) -> Partial:
    return Partial(
        PartialResult(
            session_id="s1",
            utterance_index=0,
            revision=1,
            start_ms=0,
            upto_ms=100,
            stable=text,
            unstable="",
            translations=(PartialTranslation(tgt_lang="es", stable=spanish),),
        )
    )


def tone(ms: int, level: int = 8000) -> bytes:
    """Return a loud sound, which counts as voice."""
    return array("h", [level, -level] * (8 * ms)).tobytes()


def logged(recording: Recording | None = None) -> tuple[CaptionLog, InterpretationReport]:
    """Return the log of an utterance with a partial, of a noise, and of a failure."""
    log = CaptionLog("es", recording or Recording(tone(5000), 16_000), lambda: 101.8)
    said = TranslatedUtterance(0, 1000, 3500, 3000, voice_end_s=103.0)
    said.so_far = partial("good", "buenos")
    log.partial(said, "good")
    said.so_far, said.text_asr = None, "Good morning."
    said.renditions["es"] = Rendition("es", "Buenos días.", arrived_s=104.0, pcm=b"\0\0")
    log.rendered(said, said.renditions["es"])
    noise = TranslatedUtterance(1)
    log.partial(noise, "hm")
    failed = TranslatedUtterance(1, 4000, 5000, 5000, voice_end_s=105.0)
    failed.renditions["es"] = Rendition("es", reason="failed", arrived_s=106.0)
    log.rendered(failed, failed.renditions["es"])
    return log, InterpretationReport([said, failed])


def test_the_captions_of_utterances_with_a_result_are_measured() -> None:
    log, _ = logged()
    (figures,) = log.figures()
    assert figures.words == 2
    # 2 s of voice, which ended at 103 s: "good" ended after 5 of its 14 letters and gaps.
    assert figures.stable_ms == pytest.approx((101_800 - 101_714.3, 1000.0), abs=1)
    assert figures.translated_ms[1] == pytest.approx(1000.0, abs=1)
    assert figures.erasure == 0


def test_no_word_ends_before_the_voice_or_in_a_pause() -> None:
    # The utterance from 1 s to 3 s: half a second of silence, half of voice, a pause, the rest.
    quiet = tone(1500, level=2)
    pcm = quiet + tone(500) + tone(500, level=2) + tone(500) + quiet
    log, _ = logged(Recording(pcm, 16_000))
    (figures,) = log.figures()
    # "good" ends after 5 of 14 parts of the second with voice, which begins at 101.5 s.
    assert figures.stable_ms[0] == pytest.approx(0.0, abs=1)
    assert figures.shown_ms[0] == figures.stable_ms[0]
    # "morning." ends with the voice.
    assert figures.stable_ms[1] == pytest.approx(1000.0, abs=40)


def test_the_results_of_a_talk_have_the_numbers_of_its_captions() -> None:
    log, report = logged()
    joined = JoinedRecording(Recording(b"", 16_000), "good morning", 2000)
    found = recognition_of("talk en>es", joined, report, log)
    # "morning" ended with the voice and was shown a second later.
    assert found.caption_lag_p95_s == 1.0
    assert found.translated_lag_p50_s == 1.0
    assert found.erasure == 0
