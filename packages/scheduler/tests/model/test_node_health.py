"""A node's lifecycle beat by beat: ready, degraded, offline and back.

These rules are the reference of the model's twin (`twin.py`), which the scripts are compared with.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.node_health import Health, after_beat, after_silence

pytestmark = pytest.mark.unit


@dataclass(frozen=True)
class Rules:
    good_beats: int = 1
    bad_beats: int = 3
    bad_beats_window: int = 5
    warmup_ms: int = 60_000


DEFAULT = Rules()
PATIENT = Rules(good_beats=3)


def after(health: Health, beats: str, rules: Rules = DEFAULT, *, step_ms: int = 1000) -> Health:
    """Apply beats, `+` good and `-` bad, one every `step_ms`."""
    for beat in beats:
        now_ms = health.beat_at_ms + step_ms
        health = after_beat(health, good=beat == "+", now_ms=now_ms, rules=rules)
    return health


READY = after(Health(), "+")


# Registering.


def test_a_node_begins_registering() -> None:
    assert Health().status == "registering"


def test_one_good_beat_makes_it_ready_by_default() -> None:
    assert READY.status == "ready"
    assert READY.bad == ()
    assert READY.beat_at_ms == 1000


@pytest.mark.parametrize(
    ("beats", "status"),
    [
        ("+", "registering"),
        ("++", "registering"),
        ("+++", "ready"),
        ("++-", "registering"),
        ("++-++", "registering"),
        ("++-+++", "ready"),
    ],
)
def test_as_many_good_beats_in_a_row_as_asked_make_it_ready(beats: str, status: str) -> None:
    assert after(Health(), beats, PATIENT).status == status


def test_bad_beats_of_the_warm_up_do_not_count_later() -> None:
    assert after(Health(), "--+--").status == "ready"


def test_a_node_that_does_not_warm_up_in_time_is_degraded() -> None:
    begun = Health(registered_at_ms=500)
    almost = after_beat(begun, good=False, now_ms=60_499, rules=DEFAULT)
    assert almost.status == "registering"
    assert after_beat(almost, good=False, now_ms=60_500, rules=DEFAULT).status == "degraded"


def test_a_node_that_is_ready_at_the_end_of_its_warm_up_is_ready() -> None:
    assert after_beat(Health(), good=True, now_ms=60_000, rules=DEFAULT).status == "ready"


# Ready and degraded.


@pytest.mark.parametrize(
    ("beats", "status"),
    [
        ("--", "ready"),
        ("---", "degraded"),
        ("-+-+-", "degraded"),
        ("-++--", "degraded"),
        ("-+++--", "ready"),
        ("--+++-", "ready"),
        ("--+++--", "ready"),
        ("--+++---", "degraded"),
    ],
    ids=[
        "two bad",
        "three in a row",
        "three of five",
        "three of five, late",
        "the first has left the window",
        "two have left the window",
        "still only two of five",
        "three at the end",
    ],
)
def test_a_ready_node_is_degraded_after_three_bad_beats_of_five(beats: str, status: str) -> None:
    assert after(READY, beats).status == status


def test_only_the_window_is_remembered() -> None:
    assert after(READY, "+" * 20).bad == (False,) * 5


def test_a_degraded_node_stays_so_while_its_beats_are_bad() -> None:
    assert after(READY, "------").status == "degraded"


def test_the_first_good_beat_recovers_a_degraded_node_with_a_clean_record() -> None:
    recovered = after(READY, "---+")
    assert recovered.status == "ready"
    assert recovered.bad == ()
    assert after(recovered, "--").status == "ready"
    assert after(recovered, "---").status == "degraded"


# Offline.


@pytest.mark.parametrize(
    "health", [Health(), READY, after(READY, "---")], ids=["registering", "ready", "degraded"]
)
def test_silence_takes_any_node_offline(health: Health) -> None:
    silent = after_silence(health)
    assert (silent.status, silent.good, silent.bad) == ("offline", 0, ())
    assert silent.beat_at_ms == health.beat_at_ms
    assert silent.registered_at_ms == health.registered_at_ms


def test_a_node_that_was_offline_and_beats_again_is_registering() -> None:
    assert after(after_silence(READY), "-").status == "registering"
    assert after(after_silence(READY), "+", PATIENT).status == "registering"


def test_a_node_that_was_offline_becomes_ready_by_good_beats_again() -> None:
    assert after(after_silence(READY), "+").status == "ready"
    assert after(after_silence(READY), "++", PATIENT).status == "registering"
    assert after(after_silence(READY), "+++", PATIENT).status == "ready"


# Any life.

RULES = st.builds(
    Rules, st.integers(1, 3), st.integers(1, 3), st.integers(3, 5), st.sampled_from([1, 3000])
)


@given(st.text("+-.", max_size=20), RULES)
def test_a_good_beat_never_harms_a_ready_node_and_a_bad_one_never_helps(
    life: str, rules: Rules
) -> None:
    health = Health()
    for event in life:
        before = health.status
        health = after_silence(health) if event == "." else after(health, event, rules)
        assert len(health.bad) <= rules.bad_beats_window
        if event == "+":
            assert not (before == "ready" and health.status != "ready")
        elif event == "-":
            assert not (before != "ready" and health.status == "ready")
        else:
            assert health.status == "offline"
