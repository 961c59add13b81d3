"""Pairing codes: random, single use, five minutes, in the store, and not to be guessed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from itertools import pairwise

import pytest

import servers
from lingua_scheduler.runtime.pairing import GUESSES_PER_S, VALID_MS, InvalidPairingCode, Pairing
from lingua_scheduler.state.keys import Cell, family_of
from lingua_scheduler.state.link import LinkOptions
from lingua_scheduler.state.single import SingleConnection
from runtime.stand_ins import HandClock
from servers import Server

pytestmark = pytest.mark.store

WRONG = "wrong, used or too old"
TOO_MANY = "too many pairing codes"
BURST = GUESSES_PER_S * 4
CELL = Cell("pairs", 0)
# What a code's life in the store may be short of five minutes when the test looks at it.
SLACK_MS = 60_000


class Pairings:
    """The pairing of several instances over one store."""

    def __init__(self, connection: SingleConnection) -> None:
        self.connection = connection
        self.clock = HandClock()

    def open(self) -> Pairing:
        return Pairing(self.connection, CELL, self.clock)

    async def ask(self, verb: str, code: str, *words: str | int) -> int:
        found: int = await self.connection.command(CELL.slot, verb, CELL.key("pair", code), *words)
        return found


@pytest.fixture(scope="module", name="server")
def one_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with servers.start_server(tmp_path_factory.mktemp("pairing")) as started:
        yield started


def play(server: Server, scenario: Callable[[Pairings], Awaitable[None]]) -> None:
    """Run a scenario on an emptied server."""

    async def whole() -> None:
        connection = await SingleConnection.open(
            server.address, LinkOptions(call_timeout_ms=10_000)
        )
        try:
            await connection.every_master("FLUSHALL")
            await scenario(Pairings(connection))
        finally:
            await connection.close()

    asyncio.run(whole())


def wrong_code(*codes: str) -> str:
    """Return six digits that were not issued."""
    return next(f"{n:06d}" for n in range(len(codes) + 1) if f"{n:06d}" not in codes)


async def assert_refused(pairing: Pairing, code: str, why: str = WRONG) -> None:
    with pytest.raises(InvalidPairingCode, match=why):
        await pairing.redeem(code)


def test_a_code_has_six_digits_and_gives_its_node(server: Server) -> None:
    async def scenario(pairings: Pairings) -> None:
        pairing = pairings.open()
        code = await pairing.issue("node-a")
        assert len(code) == 6
        assert code.isascii()
        assert code.isdigit()
        assert await pairing.redeem(code) == "node-a"

    play(server, scenario)


def test_a_code_of_one_instance_is_good_on_another(server: Server) -> None:
    async def scenario(pairings: Pairings) -> None:
        code = await pairings.open().issue("node-a")
        assert await pairings.open().redeem(code) == "node-a"

    play(server, scenario)


def test_a_code_is_good_for_one_session(server: Server) -> None:
    async def scenario(pairings: Pairings) -> None:
        one, other = pairings.open(), pairings.open()
        code = await one.issue("node-a")
        await one.redeem(code)
        await assert_refused(one, code)
        await assert_refused(other, code)

    play(server, scenario)


def test_of_many_who_use_a_code_at_once_one_gets_the_node(server: Server) -> None:
    async def scenario(pairings: Pairings) -> None:
        one, other = pairings.open(), pairings.open()
        code = await one.issue("node-a")
        tries = [pairing.redeem(code) for pairing in (one, other) * 5]
        found = await asyncio.gather(*tries, return_exceptions=True)
        assert found.count("node-a") == 1
        assert sum(isinstance(one, InvalidPairingCode) for one in found) == 9

    play(server, scenario)


@pytest.mark.parametrize("guess", ["", "12345", "not a code", "1234567", "\u0661\u0662\u0663456"])
def test_what_is_no_code_gives_no_node(server: Server, guess: str) -> None:
    async def scenario(pairings: Pairings) -> None:
        pairing = pairings.open()
        await pairing.issue("node-a")
        await assert_refused(pairing, guess)

    play(server, scenario)


def test_a_guess_that_is_no_code_asks_the_store_for_nothing(server: Server) -> None:
    async def scenario(pairings: Pairings) -> None:
        # Where the key of that guess would be, something is: it is not what is asked for.
        await pairings.ask("SET", "*", "node-a")
        await assert_refused(pairings.open(), "*")
        assert await pairings.ask("EXISTS", "*") == 1

    play(server, scenario)


def test_a_code_is_good_for_five_minutes_and_not_longer(server: Server) -> None:
    async def scenario(pairings: Pairings) -> None:
        pairing = pairings.open()
        code = await pairing.issue("node-a")
        left_ms = await pairings.ask("PTTL", code)
        assert VALID_MS == 5 * 60_000
        assert VALID_MS - SLACK_MS < left_ms <= VALID_MS
        # The server's clock cannot be moved: its time is up now.
        await pairings.ask("PEXPIRE", code, 0)
        await assert_refused(pairing, code)

    play(server, scenario)


def test_a_code_that_is_in_use_is_not_given_again(server: Server) -> None:
    async def scenario(pairings: Pairings) -> None:
        pairing = pairings.open()
        # A tenth of all codes: of 200 new ones some would be among them.
        fill = (
            "for n = ARGV[1], ARGV[1] + 9999 do"
            " redis.call('SET', KEYS[1] .. string.format('%06d', n), '') end"
        )
        for first in range(0, 100_000, 10_000):
            key = CELL.key("pair") + ":"
            await pairings.connection.command(CELL.slot, "EVAL", fill, 1, key, first)
        issued = [await pairing.issue("node-a") for _ in range(200)]
        assert min(map(int, issued)) >= 100_000
        assert len(set(issued)) == 200

    play(server, scenario)


def test_codes_differ_and_each_gives_its_own_node(server: Server) -> None:
    async def scenario(pairings: Pairings) -> None:
        pairing = pairings.open()
        issued = {await pairing.issue(f"node-{n}"): f"node-{n}" for n in range(BURST)}
        assert len(issued) == BURST
        assert {code: await pairing.redeem(code) for code in issued} == issued

    play(server, scenario)


def test_codes_do_not_follow_from_the_time_or_from_each_other(server: Server) -> None:
    async def scenario(pairings: Pairings) -> None:
        first = [await pairings.open().issue("node-a") for _ in range(20)]
        assert len(set(first)) > 1
        pairing = pairings.open()
        numbers = [int(await pairing.issue("node-a")) for _ in range(20)]
        assert len({b - a for a, b in pairwise(numbers)}) > 1

    play(server, scenario)


def test_guesses_are_limited_and_a_refused_one_uses_no_code_up(server: Server) -> None:
    async def scenario(pairings: Pairings) -> None:
        pairing = pairings.open()
        code = await pairing.issue("node-a")
        for _ in range(BURST):
            await assert_refused(pairing, wrong_code(code))
        await assert_refused(pairing, code, TOO_MANY)
        pairings.clock.at_ms += 1000 / GUESSES_PER_S
        assert await pairing.redeem(code) == "node-a"
        await assert_refused(pairing, wrong_code(code), TOO_MANY)

    play(server, scenario)


def test_within_a_codes_life_few_of_all_codes_can_be_tried(server: Server) -> None:
    async def scenario(pairings: Pairings) -> None:
        pairing = pairings.open()
        code = await pairing.issue("node-a")
        guess, tried = wrong_code(code), 0
        for _ in range(VALID_MS // 100):
            pairings.clock.at_ms += 100
            try:
                await pairing.redeem(guess)
            except InvalidPairingCode as problem:
                tried += WRONG in str(problem)
        # One guess in a million is right: even this many leave a thief less than 1 in 500.
        assert 0 < tried < 2000

    play(server, scenario)


def test_a_code_is_where_the_dictionary_of_keys_says(server: Server) -> None:
    async def scenario(pairings: Pairings) -> None:
        code = await pairings.open().issue("node-a")
        (key,) = await pairings.connection.command(CELL.slot, "KEYS", "*")
        assert key.decode() == CELL.key("pair", code)
        family = family_of(key.decode(), "pairs")
        assert family is not None
        assert family.pattern == "pair:<code>"

    play(server, scenario)
