"""The deadline of a cut: the pause, the hangover that overrides it, and playback."""

from __future__ import annotations

from math import inf

import pytest

from lingua_scheduler.session.cut_timer import TTS_MAX_MS, CutTimer

pytestmark = pytest.mark.unit


def test_there_is_no_deadline_before_the_first_chunk() -> None:
    assert CutTimer(3000).due_ms == inf


def test_the_pause_is_counted_from_the_latest_chunk() -> None:
    timer = CutTimer(3000)
    timer.restart(100)
    timer.restart(500)
    assert timer.due_ms == 3500


def test_a_hangover_is_not_moved_by_chunks_and_ends_with_the_cut() -> None:
    timer = CutTimer(3000)
    timer.restart(100)
    timer.start_hangover("manual", 300)
    timer.restart(200)
    timer.arm(is_needed=True)
    assert (timer.hangover, timer.due_ms) == ("manual", 300)
    timer.end_hangover()
    timer.arm(is_needed=True)
    assert (timer.hangover, timer.due_ms) == (None, 3200)
    timer.arm(is_needed=False)
    assert timer.due_ms == inf


def test_playback_suspends_the_pause_for_a_bounded_time() -> None:
    timer = CutTimer(3000)
    timer.restart(100)
    timer.start_playback(200)
    timer.arm(is_needed=True)
    assert timer.is_playing(200 + TTS_MAX_MS - 1)
    assert not timer.is_playing(200 + TTS_MAX_MS)
    assert timer.due_ms == 200 + TTS_MAX_MS + 3000


def test_the_pause_is_counted_from_the_end_of_playback() -> None:
    timer = CutTimer(3000)
    timer.restart(100)
    timer.start_playback(200)
    timer.end_playback(5000)
    timer.arm(is_needed=True)
    assert not timer.is_playing(5000)
    assert timer.due_ms == 8000
