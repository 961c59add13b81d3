"""The schedule of faults under real speech."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lingua_bench.speech.chaos import FULL, QUICK
from lingua_bench.speech.chaos_nemesis import SpeechChaosPlan, schedule

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("plan", [QUICK, FULL])
def test_every_kind_of_process_is_killed_and_one_is_stopped(plan: SpeechChaosPlan) -> None:
    faults = schedule(plan)
    assert tuple(fault.kind for fault in faults) == plan.kinds
    assert {"kill_asr", "kill_nmt", "kill_tts", "kill_node", "kill_scheduler", "stop_tts"} <= {
        fault.kind for fault in faults
    }
    assert [fault.at_s for fault in faults] == sorted(fault.at_s for fault in faults)


def test_a_seed_gives_the_same_moments_and_another_seed_others() -> None:
    assert schedule(FULL) == schedule(FULL)
    assert schedule(FULL) != schedule(replace(FULL, seed=2))


def test_schedulers_are_struck_in_turn() -> None:
    struck = [fault.scheduler for fault in schedule(FULL) if fault.kind == "kill_scheduler"]
    assert struck in ([0, 1, 0], [1, 0, 1])
