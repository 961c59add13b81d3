"""Pairing codes: random, single use, five minutes, and not to be guessed."""

from __future__ import annotations

from itertools import pairwise

import pytest

from lingua_scheduler.live import pairing as pairing_module
from lingua_scheduler.live.pairing import GUESSES_PER_S, VALID_MS, InvalidPairingCode, Pairing
from live.stand_ins import HandClock

pytestmark = pytest.mark.unit

WRONG = "wrong, used or too old"
TOO_MANY = "too many pairing codes"
BURST = GUESSES_PER_S * 4


def wrong_code(*codes: str) -> str:
    """Return six digits that were not issued."""
    return next(f"{n:06d}" for n in range(len(codes) + 1) if f"{n:06d}" not in codes)


def test_a_code_has_six_digits_and_gives_its_node() -> None:
    pairing = Pairing(HandClock())
    code = pairing.issue("node-a")
    assert len(code) == 6
    assert code.isascii()
    assert code.isdigit()
    assert pairing.redeem(code) == "node-a"


def test_a_code_is_good_for_one_session() -> None:
    pairing = Pairing(HandClock())
    code = pairing.issue("node-a")
    pairing.redeem(code)
    with pytest.raises(InvalidPairingCode, match=WRONG):
        pairing.redeem(code)


@pytest.mark.parametrize("guess", ["", "12345", "not a code", "1234567"])
def test_what_is_no_code_gives_no_node(guess: str) -> None:
    pairing = Pairing(HandClock())
    pairing.issue("node-a")
    with pytest.raises(InvalidPairingCode, match=WRONG):
        pairing.redeem(guess)


def test_a_code_is_good_for_five_minutes_and_not_longer() -> None:
    clock = HandClock()
    pairing = Pairing(clock)
    first, second = pairing.issue("node-a"), pairing.issue("node-b")
    clock.at_ms += 5 * 60_000 - 1
    assert pairing.redeem(first) == "node-a"
    clock.at_ms += 1
    with pytest.raises(InvalidPairingCode, match=WRONG):
        pairing.redeem(second)


def test_codes_differ_and_each_gives_its_own_node() -> None:
    clock = HandClock()
    pairing = Pairing(clock)
    issued = {pairing.issue(f"node-{n}"): f"node-{n}" for n in range(BURST)}
    assert len(issued) == BURST
    assert {code: pairing.redeem(code) for code in issued} == issued


def test_codes_do_not_follow_from_the_time_or_from_each_other() -> None:
    first = [Pairing(HandClock()).issue("node-a") for _ in range(20)]
    assert len(set(first)) > 1
    pairing = Pairing(HandClock())
    numbers = [int(pairing.issue("node-a")) for _ in range(20)]
    steps = {b - a for a, b in pairwise(numbers)}
    assert len(steps) > 1


def test_guesses_are_limited_and_a_refused_one_uses_no_code_up() -> None:
    clock = HandClock()
    pairing = Pairing(clock)
    code = pairing.issue("node-a")
    for _ in range(BURST):
        with pytest.raises(InvalidPairingCode, match=WRONG):
            pairing.redeem(wrong_code(code))
    with pytest.raises(InvalidPairingCode, match=TOO_MANY):
        pairing.redeem(code)
    clock.at_ms += 1000 / GUESSES_PER_S
    assert pairing.redeem(code) == "node-a"
    with pytest.raises(InvalidPairingCode, match=TOO_MANY):
        pairing.redeem(wrong_code(code))


def test_within_a_codes_life_few_of_all_codes_can_be_tried() -> None:
    clock = HandClock()
    pairing = Pairing(clock)
    code = pairing.issue("node-a")
    guess, tried = wrong_code(code), 0
    for _ in range(VALID_MS // 100):
        clock.at_ms += 100
        try:
            pairing.redeem(guess)
        except InvalidPairingCode as problem:
            tried += WRONG in str(problem)
    # One guess in a million is right: even this many leave a thief less than 1 in 500.
    assert 0 < tried < 2000


def test_old_codes_are_forgotten_when_new_ones_are_issued() -> None:
    clock = HandClock()
    pairing = Pairing(clock)
    for _ in range(10):
        pairing.issue("node-a")
    clock.at_ms += VALID_MS
    pairing.issue("node-a")
    assert len(pairing._codes) == 1


def test_too_many_codes_push_the_oldest_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairing_module, "CODES_MAX", 50)
    pairing = Pairing(HandClock())
    codes = [pairing.issue("node-a") for _ in range(50)]
    assert pairing.redeem(codes[0]) == "node-a"
    full = [*codes[1:], pairing.issue("node-a")]
    last = pairing.issue("node-b")
    assert list(pairing._codes) == [*full[1:], last]
    assert pairing.redeem(last) == "node-b"
