import time

import pytest

from lingua_scheduler.clock import SystemClock

pytestmark = pytest.mark.unit


def test_the_forward_clock_counts_milliseconds_of_the_monotonic_clock() -> None:
    before = time.monotonic() * 1000
    now = SystemClock().now_ms()
    assert before <= now <= time.monotonic() * 1000


def test_the_forward_clock_never_goes_back() -> None:
    clock = SystemClock()
    readings = [clock.now_ms() for _ in range(1000)]
    assert readings == sorted(readings)


def test_the_wall_clock_counts_whole_milliseconds_since_1970() -> None:
    before = int(time.time() * 1000)
    now = SystemClock().wall_ms()
    assert isinstance(now, int)
    assert before <= now <= int(time.time() * 1000)
