"""The token bucket: bursts, refill, waiting, and the bound in any window."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingua_scheduler.session.rate import TokenBucket

pytestmark = pytest.mark.unit


def taken_at(bucket: TokenBucket, now_ms: float, tries: int) -> int:
    """Try so many times at one moment; return how often a token was given."""
    return sum(bucket.take(now_ms) for _ in range(tries))


def test_a_full_bucket_gives_its_burst_and_no_more() -> None:
    assert taken_at(TokenBucket(10, 5), 0.0, tries=20) == 5


def test_tokens_come_back_at_the_rate() -> None:
    bucket = TokenBucket(10, 5)
    taken_at(bucket, 0.0, tries=5)
    assert taken_at(bucket, 99.0, tries=5) == 0
    assert taken_at(bucket, 100.0, tries=5) == 1
    assert taken_at(bucket, 300.0, tries=5) == 2


def test_a_long_rest_saves_no_more_than_the_burst() -> None:
    bucket = TokenBucket(10, 5)
    taken_at(bucket, 0.0, tries=5)
    assert taken_at(bucket, 1_000_000.0, tries=20) == 5


def test_several_tokens_are_taken_together_or_not_at_all() -> None:
    bucket = TokenBucket(10, 5)
    assert bucket.take(0.0, 3)
    assert not bucket.take(0.0, 3)
    assert bucket.take(0.0, 2)
    assert not bucket.take(0.0)


def test_more_than_the_bucket_holds_is_never_given() -> None:
    bucket = TokenBucket(10, 5)
    assert not bucket.take(0.0, 6)
    assert not bucket.take(1e9, 6)
    assert bucket.take(1e9, 5)


def test_a_refused_take_costs_nothing() -> None:
    bucket = TokenBucket(10, 1)
    assert bucket.take(0.0)
    assert taken_at(bucket, 99.0, tries=1000) == 0
    assert bucket.take(100.0)


def test_it_tells_how_long_to_wait() -> None:
    bucket = TokenBucket(10, 2)
    assert bucket.wait_ms(0.0) == 0.0
    taken_at(bucket, 0.0, tries=1)
    assert bucket.wait_ms(0.0) == 0.0
    taken_at(bucket, 0.0, tries=1)
    assert bucket.wait_ms(0.0) == pytest.approx(100.0)
    assert bucket.wait_ms(60.0) == pytest.approx(40.0)
    assert bucket.wait_ms(100.0) == 0.0


@pytest.mark.parametrize(("rate_per_s", "burst"), [(0, 1), (-1, 1), (1, 0.5)])
def test_a_bucket_that_can_give_nothing_is_a_mistake(rate_per_s: float, burst: float) -> None:
    with pytest.raises(AssertionError):
        TokenBucket(rate_per_s, burst)


RATES = st.floats(0.1, 100_000)
BURSTS = st.integers(1, 1000)
# Up to the size of a wall clock's milliseconds: the coarsest numbers a caller could use.
STARTS = st.sampled_from([0.0, 1e6, 1.8e12])
STEPS = st.lists(st.tuples(st.floats(0, 5000), st.integers(1, 30)), max_size=40)


@given(RATES, BURSTS, STARTS, STEPS)
def test_no_window_gets_more_than_burst_and_rate_allow(
    rate_per_s: float, burst: int, start_ms: float, steps: list[tuple[float, int]]
) -> None:
    bucket = TokenBucket(rate_per_s, burst)
    now_ms = start_ms
    given_at: list[tuple[float, int]] = []
    for passed_ms, tries in steps:
        now_ms += passed_ms
        given_at.append((now_ms, taken_at(bucket, now_ms, tries)))
    # Rounding of the clock's own numbers, in tokens.
    rounding = rate_per_s / 1000 * (0.002 + 0.001 * sum(count for _, count in given_at))
    for first, (from_ms, _) in enumerate(given_at):
        total = 0
        for until_ms, count in given_at[first:]:
            total += count
            assert total <= burst + (until_ms - from_ms) / 1000 * rate_per_s + rounding + 1e-6


def test_a_burst_long_after_the_clock_began_is_not_rounded_away() -> None:
    bucket, now_ms = TokenBucket(39_847, 20), 1.8e12
    for _ in range(1000):
        taken_at(bucket, now_ms, 30)
        now_ms += bucket.wait_ms(now_ms)
        assert bucket.take(now_ms)


@given(RATES, BURSTS, STARTS, STEPS)
def test_waiting_as_long_as_was_told_is_enough_and_never_in_vain(
    rate_per_s: float, burst: int, start_ms: float, steps: list[tuple[float, int]]
) -> None:
    bucket = TokenBucket(rate_per_s, burst)
    now_ms = start_ms
    for passed_ms, tries in steps:
        now_ms += passed_ms
        taken_at(bucket, now_ms, tries)
        wait_ms = bucket.wait_ms(now_ms)
        if wait_ms > 0.01:
            assert not bucket.take(now_ms + wait_ms - 0.01)
        now_ms += wait_ms
        assert bucket.take(now_ms)
