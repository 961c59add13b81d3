"""Outcomes for listeners in other cells: none is delayed by others, lost or duplicated."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from jobs.deployment import (
    AN_HOUR_MS,
    Crashed,
    Deployment,
    Speaker,
    TracedRunner,
    TracedStore,
    deployed,
)
from lingua_scheduler.errors import StoreUnavailable
from lingua_scheduler.jobs import relay as relay_module
from lingua_scheduler.jobs.relay import OutcomeRelay, listeners_by_cell
from lingua_scheduler.state.policy import FleetPolicy
from lingua_scheduler.state.records import UndeliveredOutcome

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lingua_scheduler.jobs.dispatcher import Work
    from lingua_scheduler.state.keys import Cell
    from lingua_scheduler.state.link import Address
    from lingua_scheduler.state.script import Word

pytestmark = pytest.mark.store

# More calls than any of these scenarios needs: an endless loop ends here.
CALLS_MAX = 400


class DividedRunner(TracedRunner):
    """Runs scripts, but some cells cannot be reached."""

    def __init__(self, connection: Any) -> None:
        super().__init__(connection)
        self.away: set[str] = set()

    async def traced(self, name: str, cell: Cell, args: tuple[Word, ...]) -> list[Any]:
        assert len(self.calls) < CALLS_MAX, "it goes round in circles"
        if cell.name in self.away:
            self.calls.append((name, cell.name))
            raise StoreUnavailable(cell.name, "is away")
        return await super().traced(name, cell, args)


class DividedStore(TracedStore):
    """A store some of whose cells cannot be reached from here."""

    def __init__(self, connection: Any, policy: FleetPolicy) -> None:
        super().__init__(connection, policy, DividedRunner(connection))


class Room:
    """A speaker in the first cell, and listeners in all of them."""

    def __init__(self, deployment: Deployment, speaker: Speaker, node: str) -> None:
        self.deployment = deployment
        self.speaker = speaker
        self.node = node
        self.relay = OutcomeRelay(deployment.store, deployment.cells)
        self.listeners: dict[str, Speaker] = {}

    @property
    def store(self) -> Any:
        return self.deployment.store

    async def enter(self, cell: int, name: str) -> str:
        """Let somebody listen; return the place."""
        home = self.deployment.cells.all[cell]
        await self.store.sessions.open(home, name, f"i-{name}", lease_ms=AN_HOUR_MS)
        self.listeners[name] = Speaker(self.deployment, home, name)
        return f"{home.name}/{name}"

    async def say(self, index: int, *places: str) -> Work:
        """Say something to listeners; return what the settling step asks for."""
        placed = await self.speaker.placed(index, audience=" ".join(places))
        _, work = await self.deployment.dispatcher.settle(
            self.speaker.home, placed.job, placed.attempt, placed.node, kind="completed",
            payload=(b"sound %d" % index, b"text %d" % index),
        )  # fmt: skip
        return work

    async def run(self, relay: OutcomeRelay | None = None) -> Work:
        return await (relay or self.relay).run(self.speaker.home, self.speaker.session)

    async def heard(self, name: str) -> list[int]:
        entries = await self.listeners[name].outcomes()
        assert {entry.kind for entry in entries} <= {"heard"}
        return [entry.utterance for entry in entries]

    async def passed(self) -> list[int]:
        """Return what the speaker was told that everybody has."""
        entries = await self.speaker.outcomes()
        assert all(entry.is_passed for entry in entries)
        return [entry.utterance for entry in entries]

    async def rings(self) -> bool:
        """Tell whether a timer stands for what is still to be brought."""
        return bool(await self.deployment.timers("x"))


def play(addresses: list[Address], scenario: Callable[[Room], Awaitable[None]]) -> None:
    """Run a scenario over three cells of a real server."""

    async def whole() -> None:
        policy = FleetPolicy(in_flight_max=50)
        async with deployed(*addresses, policy=policy, kind=DividedStore) as d:
            home = d.cells.all[0]
            node = await d.ready_node(home, slots=50)
            await scenario(Room(d, await d.speaker(home), node))

    asyncio.run(whole())


def told(work: Work) -> list[tuple[str, int, bytes]]:
    """Return who must be told what: owner, position, payload at hand."""
    return [
        (listener.owner, listener.seq, heard.payload)
        for heard in work.heard
        for listener in heard.listeners
    ]


def test_listeners_are_sorted_by_their_cells() -> None:
    item = UndeliveredOutcome(
        "s|1|1", "completed", "0 en j 1 -", 0, b"", b"", ("c1/a", "c2/b", "c1/c")
    )
    assert listeners_by_cell(item) == {"c1": ["a", "c"], "c2": ["b"]}


def test_the_settling_step_asks_for_the_way_to_other_cells(addresses: list[Address]) -> None:
    async def scenario(room: Room) -> None:
        here, there = await room.enter(0, "bob"), await room.enter(1, "cid")
        work = await room.say(0, here)
        assert (told(work), work.relay) == ([("i-bob", 1, b"sound 0")], [])
        work = await room.say(1, here, there)
        assert told(work) == [("i-bob", 2, b"sound 1")]
        assert work.relay == [(room.speaker.home.name, room.speaker.session)]
        work = await room.run()
        assert told(work) == [("i-cid", 1, b"sound 1")]
        # The speaker is told that it passed; nothing is left to ask for.
        (delivery,) = work.deliver
        assert [outcome.utterance for outcome in delivery.released] == [1]
        assert work.relay == []
        assert not await room.rings()

    play(addresses, scenario)


def test_three_cells_hear_everything_in_order(addresses: list[Address]) -> None:
    async def scenario(room: Room) -> None:
        places = [await room.enter(cell, f"l{cell}{n}") for cell in range(3) for n in range(2)]
        for index in range(5):
            await room.say(index, *places)
        work = await room.run()
        for name in room.listeners:
            assert await room.heard(name) == list(range(5))
        assert await room.passed() == list(range(5))
        assert sorted(told(work)) == sorted(
            (f"i-l{cell}{n}", index + 1, b"sound %d" % index)
            for cell in (1, 2) for n in range(2) for index in range(5)
        )  # fmt: skip

    play(addresses, scenario)


def test_a_cell_that_cannot_be_reached_holds_nobody_else_up(addresses: list[Address]) -> None:
    async def scenario(room: Room) -> None:
        places = [await room.enter(cell, f"l{cell}") for cell in range(3)]
        room.store.traced.away = {"c2"}
        for index in range(4):
            await room.say(index, *places)
        room.store.called()
        await room.run()
        assert await room.heard("l1") == await room.heard("l0") == [0, 1, 2, 3]
        assert await room.passed() == []
        assert await room.rings()
        # Later it goes on, by the timer of any instance.
        room.store.traced.away = set()
        room.deployment.advance(1000)
        other = room.deployment.instance()
        work = await room.deployment.sweep(other.sweeper)
        assert await room.heard("l2") == [0, 1, 2, 3]
        assert await room.heard("l1") == [0, 1, 2, 3]
        assert await room.passed() == [0, 1, 2, 3]
        assert [owner for owner, _, _ in told(work)] == ["i-l2"] * 4
        assert not await room.rings()

    play(addresses, scenario)


def test_what_was_reached_is_not_brought_again_in_the_same_run(addresses: list[Address]) -> None:
    async def scenario(room: Room) -> None:
        # One who is not there holds up only itself; with several things said.
        places = [await room.enter(1, "cid"), "c2/nobody"]
        for index in range(3):
            await room.say(index, *places)
        room.store.called()
        await room.run()
        puts = [cell for name, cell in room.store.called() if name == "outbox_put"]
        assert puts.count("c1") == 3
        assert await room.heard("cid") == [0, 1, 2]
        room.deployment.advance(5000)
        await room.run()
        assert await room.passed() == [0, 1, 2]

    play(addresses, scenario)


def test_a_home_that_cannot_be_reached_is_said_and_tried_again(addresses: list[Address]) -> None:
    async def scenario(room: Room) -> None:
        there = await room.enter(1, "cid")
        await room.say(0, there)
        room.store.traced.away = {"c0"}
        with pytest.raises(StoreUnavailable):
            await room.run()
        room.store.traced.away = set()
        await room.run()
        assert (await room.heard("cid"), await room.passed()) == ([0], [0])

    play(addresses, scenario)


def test_runs_at_the_same_time_bring_everything_once(addresses: list[Address]) -> None:
    async def scenario(room: Room) -> None:
        places = [await room.enter(cell, f"l{cell}") for cell in (1, 2)]
        relays = [OutcomeRelay(room.store, room.deployment.cells) for _ in range(3)]
        works = []
        for index in range(6):
            await room.say(index, *places)
            works += await asyncio.gather(*(room.run(relay) for relay in (*relays, *relays)))
        for name in ("l1", "l2"):
            assert await room.heard(name) == list(range(6))
        assert await room.passed() == list(range(6))
        # Of each position exactly one of them tells its owner.
        rows = sorted((owner, seq) for work in works for owner, seq, _ in told(work))
        assert rows == [(f"i-{name}", seq) for name in ("l1", "l2") for seq in range(1, 7)]
        released = [o.seq for work in works for d in work.deliver for o in d.released]
        assert sorted(released) == list(range(1, 7))

    play(addresses, scenario)


def test_what_is_said_during_a_run_is_brought_by_it(addresses: list[Address]) -> None:
    async def scenario(room: Room) -> None:
        there = await room.enter(1, "cid")
        await room.say(0, there)

        async def more() -> None:
            work = await room.say(1, there)
            assert work.relay
            assert await room.run() is not None

        room.store.before("outbox_put", more)
        await room.run()
        assert await room.heard("cid") == [0, 1]
        assert await room.passed() == [0, 1]
        assert room.relay._under_way == {}

    play(addresses, scenario)


@pytest.mark.parametrize("count", range(1, 8))
def test_whoever_dies_between_two_steps_the_timer_finishes(
    addresses: list[Address], count: int
) -> None:
    async def scenario(room: Room) -> None:
        places = [await room.enter(cell, f"l{cell}") for cell in range(3)]
        for index in range(2):
            await room.say(index, *places)
        left = count

        async def crash_at_last() -> None:
            nonlocal left
            left -= 1
            if not left:
                raise Crashed
            for script in ("relay_run", "outbox_put"):
                room.store.before(script, crash_at_last)

        for script in ("relay_run", "outbox_put"):
            room.store.before(script, crash_at_last)
        with pytest.raises(Crashed):
            await room.run()
        room.store.traced.before.clear()
        room.deployment.advance(1000)
        await room.deployment.sweep(room.deployment.instance().sweeper)
        for name in room.listeners:
            assert await room.heard(name) == [0, 1]
        assert await room.passed() == [0, 1]
        assert not await room.rings()

    play(addresses, scenario)


def test_a_large_room_is_brought_in_parts(
    addresses: list[Address], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_module, "LISTENERS_AT_ONCE", 3)

    async def scenario(room: Room) -> None:
        places = [await room.enter(1, f"l{n}") for n in range(8)]
        await room.say(0, *places)
        room.store.called()
        await room.run()
        assert [name for name, _ in room.store.called()].count("outbox_put") == 3
        for name in room.listeners:
            assert await room.heard(name) == [0]
        assert await room.passed() == [0]

    play(addresses, scenario)


def test_somebody_absent_in_one_part_of_a_large_room_is_waited_for(
    addresses: list[Address], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_module, "LISTENERS_AT_ONCE", 1)

    async def scenario(room: Room) -> None:
        there = await room.enter(1, "cid")
        await room.say(0, "c1/late", there)
        await room.run()
        assert await room.heard("cid") == [0]
        assert await room.passed() == []
        await room.enter(1, "late")
        await room.run()
        assert (await room.heard("late"), await room.heard("cid")) == ([0], [0])
        assert await room.passed() == [0]

    play(addresses, scenario)
