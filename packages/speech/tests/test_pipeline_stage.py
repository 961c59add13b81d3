"""The time limits of workers: shorter than the scheduler waits for a job."""

from __future__ import annotations

import pytest

from lingua_scheduler.state.policy import Policy
from lingua_speech import pipeline_stage
from lingua_speech.pipeline import REPORT_S
from lingua_speech.presets import WorkerSettings

pytestmark = pytest.mark.unit

ATTEMPT_S = Policy().attempt_ms / 1000


def test_a_node_takes_an_attempt_to_last_as_long_as_it_does_by_default() -> None:
    assert WorkerSettings().attempt_s == ATTEMPT_S


@pytest.mark.parametrize("audio_s", [0, 1, 10, 13, 20, 26])
def test_two_tries_at_an_utterance_fit_into_an_attempt(audio_s: float) -> None:
    within_s = pipeline_stage.recognition_s(audio_s * 1000)
    assert within_s >= 5
    assert 2 * within_s + REPORT_S <= ATTEMPT_S
    text = "word " * int(audio_s * 3)
    assert 2 * pipeline_stage.translation_s(text) + REPORT_S <= ATTEMPT_S
    assert 2 * pipeline_stage.synthesis_s(text) + REPORT_S <= ATTEMPT_S


def test_what_takes_longer_than_an_attempt_is_ended_by_its_job_and_costs_no_worker() -> None:
    assert pipeline_stage.recognition_s(120_000) > ATTEMPT_S - REPORT_S
    assert pipeline_stage.translation_s("x" * 10_000) > ATTEMPT_S - REPORT_S
    assert pipeline_stage.synthesis_s("x" * 10_000) > ATTEMPT_S - REPORT_S
