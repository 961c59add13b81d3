"""Coverage: every admitted millisecond ends once, and the sums are exact."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingua_scheduler.session.ledger import (
    OTHER,
    RANK,
    REASONS_MAX,
    CoverageLedger,
    Fate,
)
from lingua_wire.shared import Coverage

pytestmark = pytest.mark.unit


def ended_ms(coverage: Coverage) -> int:
    """Return the sum of the four ends."""
    four = (coverage.delivered_ms, coverage.silent_ms, coverage.failed_ms, coverage.skipped_ms)
    return sum(four)


def coverage(admitted: int, **ended: int) -> Coverage:
    four = dict.fromkeys(("delivered_ms", "silent_ms", "failed_ms", "skipped_ms"), 0)
    return Coverage(admitted_ms=admitted, **{**four, **ended})


# One language.


@pytest.mark.parametrize("fate", list(RANK))
def test_an_utterance_ends_in_its_fate(fate: Fate) -> None:
    ledger = CoverageLedger()
    ledger.admit(0, 1500)
    assert ledger.settle(0, fate) == fate
    assert ledger.summary() == coverage(1500, **{f"{fate}_ms": 1500})


def test_until_it_ends_its_time_is_open() -> None:
    ledger = CoverageLedger()
    ledger.admit(0, 1000)
    ledger.admit(1, 500)
    ledger.settle(0, "delivered")
    assert (ledger.open_ms, ledger.open_utterances) == (500, 1)
    assert ledger.summary() == coverage(1500, delivered_ms=1000)


def test_silence_that_became_no_utterance_is_admitted_and_ended_at_once() -> None:
    ledger = CoverageLedger()
    ledger.silent(640)
    assert ledger.summary() == coverage(640, silent_ms=640)
    assert ledger.open_ms == 0


def test_the_first_end_counts_and_later_ones_change_nothing() -> None:
    ledger = CoverageLedger()
    ledger.admit(0, 1000)
    assert ledger.settle(0, "failed", "expired") == "failed"
    assert ledger.settle(0, "delivered") is None
    assert ledger.settle(0, "failed", "expired", lane="en") is None
    assert ledger.summary() == coverage(1000, failed_ms=1000)
    assert ledger.reasons() == {("failed", "expired"): 1000}


def test_an_index_never_admitted_ends_nothing() -> None:
    ledger = CoverageLedger()
    assert ledger.settle(7, "delivered") is None
    assert ledger.summary() == coverage(0)


def test_an_open_utterance_cannot_be_admitted_again() -> None:
    ledger = CoverageLedger()
    ledger.admit(0, 1000)
    with pytest.raises(AssertionError):
        ledger.admit(0, 1000)
    assert ledger.summary().admitted_ms == 1000


# Several languages.


@pytest.mark.parametrize(
    ("ends", "best"),
    [
        (("failed", "delivered"), "delivered"),
        (("delivered", "failed"), "delivered"),
        (("silent", "delivered"), "delivered"),
        (("skipped", "silent"), "silent"),
        (("failed", "skipped"), "skipped"),
        (("failed", "failed"), "failed"),
    ],
)
def test_an_utterance_of_two_lanes_counts_once_with_the_better_end(
    ends: tuple[Fate, Fate], best: Fate
) -> None:
    ledger = CoverageLedger()
    ledger.admit(0, 1000, lanes=2)
    assert ledger.settle(0, ends[0], lane="en") is None
    assert ledger.open_ms == 1000
    assert ledger.settle(0, ends[1], lane="ja") == best
    assert ledger.summary() == coverage(1000, **{f"{best}_ms": 1000})


def test_the_same_lane_twice_is_not_two_lanes() -> None:
    ledger = CoverageLedger()
    ledger.admit(0, 1000, lanes=2)
    ledger.settle(0, "failed", "expired", lane="en")
    assert ledger.settle(0, "delivered", lane="en") is None
    assert ledger.open_ms == 1000
    assert ledger.settle(0, "failed", "cancelled", lane="ja") == "failed"
    assert ledger.reasons() == {("failed", "expired"): 1000}


def test_lanes_without_names_are_counted() -> None:
    ledger = CoverageLedger()
    ledger.admit(0, 1000, lanes=2)
    assert ledger.settle(0, "failed", "expired") is None
    assert ledger.settle(0, "delivered") == "delivered"
    assert ledger.settle(0, "failed", "expired") is None
    assert ledger.summary() == coverage(1000, delivered_ms=1000)


def test_the_reason_is_that_of_the_end_that_counts() -> None:
    ledger = CoverageLedger()
    ledger.admit(0, 1000, lanes=3)
    ledger.settle(0, "failed", "expired", lane="en")
    ledger.settle(0, "skipped", "cancelled", lane="ja")
    ledger.settle(0, "failed", "failed", lane="fr")
    assert ledger.reasons() == {("skipped", "cancelled"): 1000}


# The end of a session.


def test_what_is_open_at_the_end_ends_with_its_best_lane_so_far() -> None:
    ledger = CoverageLedger()
    ledger.admit(0, 100)
    ledger.admit(1, 200, lanes=2)
    ledger.settle(1, "delivered", lane="en")
    ledger.admit(2, 400, lanes=2)
    ledger.settle(2, "failed", "expired", lane="en")
    assert ledger.settle_rest("skipped", "session_closed") == 3
    assert ledger.summary() == coverage(700, delivered_ms=200, skipped_ms=500)
    assert ledger.reasons() == {("skipped", "session_closed"): 500}
    assert (ledger.open_ms, ledger.open_utterances) == (0, 0)


# Exact sums in bounded memory.


def test_fractions_are_carried_and_not_lost() -> None:
    ledger = CoverageLedger()
    for index in range(3000):
        ledger.admit(index, 1 / 3)
        ledger.settle(index, "delivered")
    # Each third is 333 microseconds.
    assert ledger.summary() == coverage(999, delivered_ms=999)


def test_reasons_beyond_any_list_are_summed_as_other() -> None:
    ledger = CoverageLedger()
    for index in range(REASONS_MAX + 10):
        ledger.admit(index, 1)
        ledger.settle(index, "failed", f"reason {index}")
    assert len(ledger.reasons()) == REASONS_MAX + 1
    assert ledger.reasons()["failed", OTHER] == 10
    assert sum(ledger.reasons().values()) == ledger.summary().failed_ms


def test_what_ended_is_not_kept() -> None:
    ledger = CoverageLedger()
    for index in range(1000):
        ledger.admit(index, 10, lanes=2)
        ledger.settle(index, "delivered", lane="en")
        ledger.settle(index, "delivered", lane="ja")
        assert ledger._open == {}


DURATIONS = st.one_of(st.integers(0, 20_000), st.floats(0, 20_000))
UTTERANCES = st.lists(
    st.tuples(DURATIONS, st.lists(st.sampled_from(list(RANK)), min_size=1, max_size=3)),
    max_size=20,
)


@given(UTTERANCES, st.lists(DURATIONS, max_size=5), st.randoms(use_true_random=False))
def test_the_sums_are_exact_whatever_the_order_and_repetition(
    utterances: list[tuple[float, list[Fate]]], silences: list[float], chance: Random
) -> None:
    ledger = CoverageLedger()
    for index, (duration_ms, fates) in enumerate(utterances):
        ledger.admit(index, duration_ms, lanes=len(fates))
    for duration_ms in silences:
        ledger.silent(duration_ms)
    ends = [
        (index, fate, f"lane-{lane}")
        for index, (_, fates) in enumerate(utterances)
        for lane, fate in enumerate(fates)
    ]
    closed: dict[int, Fate] = {}
    chance.shuffle(ends)
    for index, fate, lane in [end for end in ends for _ in range(2)]:
        assert ended_ms(ledger.summary()) + ledger.open_ms == ledger.summary().admitted_ms
        final = ledger.settle(index, fate, "told", lane)
        if final is not None:
            assert index not in closed
            closed[index] = final
    assert closed == {
        index: max(fates, key=RANK.__getitem__) for index, (_, fates) in enumerate(utterances)
    }
    summary = ledger.summary()
    assert ledger.open_ms == 0
    assert ended_ms(summary) == summary.admitted_ms
    exact_ms = sum(duration for duration, _ in utterances) + sum(silences)
    assert abs(summary.admitted_ms - exact_ms) <= 0.51


# Speech of a former owner.


def test_a_later_owner_goes_on_with_the_sums_of_the_former() -> None:
    ledger = CoverageLedger()
    ledger.restore({"delivered": 2400, "silent": 100, "skipped": 0, "failed": 600})
    ledger.admit(7, 1000)
    ledger.settle(7, "delivered")
    assert ledger.summary() == coverage(4100, delivered_ms=3400, silent_ms=100, failed_ms=600)
    assert (ledger.open_ms, ledger.summary().earlier_ms) == (0, 0)


def test_what_the_former_owner_counted_is_not_counted_again() -> None:
    ledger = CoverageLedger()
    ledger.restore({"delivered": 2400})
    before = ledger.summary()
    assert ledger.settle(3, "delivered", lane="en") is None
    assert ledger.summary() == before
    assert ledger.settle_rest("failed", "session_ended") == 0


def test_what_was_open_ends_here_with_the_best_of_all_languages() -> None:
    ledger = CoverageLedger()
    ledger.restore_open(3, 500, 3, ("en", "de"), "silent")
    assert ledger.open_ms == 500
    # The former owner knew of these: they come once more, from the outbox.
    assert ledger.settle(3, "delivered", lane="en") is None
    assert ledger.settle(3, "failed", lane="ja") == "silent"
    assert ledger.summary() == coverage(500, silent_ms=500)


class Books:
    """What the store keeps of a session: every end, once, as `includes/account.lua` does."""

    def __init__(self) -> None:
        self.ended: dict[Fate, int] = dict.fromkeys(RANK, 0)
        self.open: dict[int, tuple[int, int, tuple[str, ...], Fate]] = {}

    def admit(self, index: int, duration_ms: int, lanes: int) -> None:
        self.open[index] = (duration_ms, lanes, (), "failed")

    def end(self, index: int, lane: str, fate: Fate) -> None:
        duration_ms, lanes, names, best = self.open.pop(index)
        best = max(best, fate, key=RANK.__getitem__) if names else fate
        if len(names) + 1 == lanes:
            self.ended[best] += duration_ms
        else:
            self.open[index] = (duration_ms, lanes, (*names, lane), best)

    def next_owner(self) -> CoverageLedger:
        ledger = CoverageLedger()
        ledger.restore(self.ended)
        for index, (duration_ms, lanes, names, best) in self.open.items():
            ledger.restore_open(index, duration_ms, lanes, names, best)
        return ledger


LANES = ("en", "de", "ja")
FATES = st.sampled_from(sorted(RANK))
SAID = st.lists(
    st.tuples(st.integers(0, 9000), st.lists(FATES, min_size=1, max_size=3)), max_size=12
)


@given(SAID, st.integers())
def test_whatever_moves_there_are_the_last_owner_tells_the_whole_truth(
    said: list[tuple[int, list[Fate]]], seed: int
) -> None:
    """Each end is in the store at some time; its owner hears of it later, or its successor does."""
    chance, books = Random(seed), Books()
    ledger = CoverageLedger()
    truth: dict[Fate, int] = dict.fromkeys(RANK, 0)
    ends: list[tuple[int, str, Fate]] = []
    for index, (duration_ms, fates) in enumerate(said):
        truth[max(fates, key=RANK.__getitem__)] += duration_ms
        books.admit(index, duration_ms, len(fates))
        ledger.admit(index, duration_ms, len(fates))
        ends += [(index, lane, fate) for lane, fate in zip(LANES, fates, strict=False)]
    chance.shuffle(ends)
    untold: list[tuple[int, str, Fate]] = []
    for index, lane, fate in ends:
        books.end(index, lane, fate)
        untold.append((index, lane, fate))
        if chance.random() < 0.3:
            # The owner dies; what was told or not, some of it comes again from the outbox.
            ledger = books.next_owner()
        while untold and chance.random() < 0.6:
            at, name, how = untold.pop(0)
            ledger.settle(at, how, lane=name)
    for at, name, how in untold:
        ledger.settle(at, how, lane=name)
    total = {f"{fate}_ms": duration_ms for fate, duration_ms in truth.items()}
    assert ledger.summary() == coverage(sum(truth.values()), **total)
    assert ledger.open_ms == 0
