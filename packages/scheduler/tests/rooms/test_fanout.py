"""Outcomes to listeners: one result in memory, one message per instance, each delivered once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from lingua_scheduler.errors import StoreUnavailable
from lingua_scheduler.jobs.result_format import encode_result
from lingua_scheduler.peers.messages import ListenerOutcomeReady, OutboxPosition
from lingua_scheduler.rooms import fanout
from lingua_scheduler.rooms.fanout import Fanout, SharedResults
from lingua_scheduler.state.keys import Cells
from lingua_scheduler.state.records import ListenerOutcome, ListenerPosition
from lingua_scheduler.tasks import Tasks
from lingua_wire.to_client import MissingResult, TranslationResult
from runtime.stand_ins import EPOCH, KeepingOutlet, NotedTasks, Scene, content, heard

if TYPE_CHECKING:
    from lingua_scheduler.peers.messages import PeerMessage
    from lingua_scheduler.state.keys import Cell
    from lingua_wire.to_client import ToClient

pytestmark = pytest.mark.unit

CELL = Cells("test", 1).all[0]
KEPT = content("bonjour", "hello", b"sound", "pcm16", "t9")
ID = "s9|9|1"


class SlowStore:
    """Counts the reads of a result; answers when the test lets it."""

    def __init__(self, payload: bytes = b"", *, is_unavailable: bool = False) -> None:
        self.payload = payload
        self.is_unavailable = is_unavailable
        self.reads: list[str] = []
        self.answers = asyncio.Event()

    @property
    def outbox(self) -> SlowStore:
        return self

    async def read_result(self, cell: Cell, heard_id: str) -> bytes:
        assert cell == CELL
        self.reads.append(heard_id)
        await self.answers.wait()
        if self.is_unavailable:
            raise StoreUnavailable("here", "is unavailable")
        return self.payload


def results_over(store: SlowStore) -> SharedResults:
    return SharedResults(cast("Any", store))


def texts(sent: list[ToClient]) -> list[str]:
    """Return the outcomes a client was sent: the text, or why there is none."""
    return [
        message.text_translated if isinstance(message, TranslationResult) else message.reason
        for message in sent
        if isinstance(message, TranslationResult | MissingResult)
    ]


# Shared results


def test_one_read_is_enough_for_however_many_need_a_result() -> None:
    async def scenario() -> None:
        store = SlowStore(encode_result(KEPT))
        results = results_over(store)
        waiting = [asyncio.create_task(results.load(CELL, heard(n))) for n in range(1, 20)]
        await asyncio.sleep(0)
        store.answers.set()
        assert await asyncio.gather(*waiting) == [True] * 19
        assert await results.load(CELL, heard(99))
        assert store.reads == [ID]
        found = results.get(ID)
        assert found is not None
        assert (found.kept, found.sound.raw) == (KEPT, b"sound")

    asyncio.run(scenario())


def test_a_reader_that_stops_waiting_does_not_take_the_result_from_others() -> None:
    async def scenario() -> None:
        store = SlowStore(encode_result(KEPT))
        results = results_over(store)
        first, second = (asyncio.create_task(results.load(CELL, heard(n))) for n in (1, 2))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        store.answers.set()
        assert await second
        assert store.reads == [ID]

    asyncio.run(scenario())


def test_a_read_that_failed_is_not_the_answer_to_the_next() -> None:
    async def scenario() -> None:
        store = SlowStore(encode_result(KEPT), is_unavailable=True)
        store.answers.set()
        results = results_over(store)
        with pytest.raises(StoreUnavailable):
            await results.load(CELL, heard(1))
        store.is_unavailable = False
        assert await results.load(CELL, heard(1))

    asyncio.run(scenario())


def test_a_missing_result_is_reported_and_an_outcome_without_one_needs_no_read() -> None:
    async def scenario() -> None:
        store = SlowStore()
        store.answers.set()
        results = results_over(store)
        assert not await results.load(CELL, heard(1))
        assert await results.load(CELL, heard(1, kind="failed"))
        assert store.reads == [ID]

    asyncio.run(scenario())


def test_memory_is_bounded_and_the_latest_used_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fanout, "KEPT_BYTES", 10_000)
    results = results_over(cast("Any", None))
    payload = encode_result(content("t" * 900, "", b"s" * 2000, "pcm16", "t9"))
    for number in range(3):
        results.put(f"s9|9|{number}", payload)
    assert results.get("s9|9|0") is not None
    results.put("s9|9|3", payload)
    assert [number for number in range(4) if results.has(f"s9|9|{number}")] == [0, 2, 3]


def test_a_result_that_was_dropped_takes_no_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Text counts too: results without sound are bounded like those with sound.
    monkeypatch.setattr(fanout, "KEPT_BYTES", 10_000)
    results = results_over(cast("Any", None))
    payload = encode_result(content("t" * 900, "", b"", "pcm16", "t9"))
    room_for = 10_000 // len(payload)
    for number in range(500):
        results.put(f"s9|9|{number}", payload)
        results.put(f"s9|9|{number}", payload)
        held = sum(results.has(f"s9|9|{known}") for known in range(number + 1))
        assert held == min(number + 1, room_for)


# Announcements


class KeepingLink:
    """Keeps messages to other instances."""

    instance = "here"

    def __init__(self) -> None:
        self.written: list[tuple[str, PeerMessage]] = []

    def write(self, to: str, message: PeerMessage) -> None:
        self.written.append((to, message))

    async def send(self, to: str, message: PeerMessage) -> bool:
        raise AssertionError(f"a fanout only writes: {to} {message}")


class Announcer:
    """A `Fanout` with what it uses: sessions here, tasks, and messages to other instances."""

    def __init__(self, tasks: Tasks | NotedTasks | None = None) -> None:
        self.scene = Scene()
        self.tasks = NotedTasks() if tasks is None else tasks
        self.link = KeepingLink()
        self.captioned: list[str] = []
        self.results = self.scene.results
        self.fanout = Fanout(
            self.scene.instance.sessions,
            self.results,
            self.scene.instance.cells,
            self.link,
            cast("Any", self.tasks),
            self.captioned.append,
        )

    def announce(
        self, *listeners: ListenerPosition, kind: str = "completed", payload: bytes = b""
    ) -> None:
        mark = "" if kind == "completed" else "!"
        self.fanout.announce(
            ListenerOutcome(mark + ID, kind, "40 en j9 1 -", CELL.name, listeners, payload)
        )


def test_each_instance_gets_one_message_for_all_of_its_listeners() -> None:
    announcer = Announcer()
    where = [("a", "A", 1), ("b", "B", 2), ("c", "A", 3), ("s1", "here", 1), ("gone", "", 9)]
    announcer.announce(
        *(ListenerPosition(name, owner, EPOCH, seq) for name, owner, seq in where),
        payload=encode_result(KEPT),
    )
    line = "completed 40 en j9 1 -"
    assert announcer.link.written == [
        (
            "A",
            ListenerOutcomeReady(
                ID, line, CELL.name, (OutboxPosition("a", EPOCH, 1), OutboxPosition("c", EPOCH, 3))
            ),
        ),
        ("B", ListenerOutcomeReady(ID, line, CELL.name, (OutboxPosition("b", EPOCH, 2),))),
    ]
    assert texts(announcer.scene.outlet.sent) == ["hello"]


def test_a_result_that_is_not_at_hand_is_read_before_it_is_delivered() -> None:
    announcer = Announcer()
    announcer.announce(ListenerPosition("s1", "here", EPOCH, 1))
    assert announcer.tasks.started == ["_load_and_deliver"]
    assert announcer.scene.outlet.sent == []
    announcer.results.put(ID, encode_result(KEPT))
    announcer.announce(ListenerPosition("s1", "here", EPOCH, 1))
    assert texts(announcer.scene.outlet.sent) == ["hello"]


def test_an_outcome_without_a_result_is_delivered_at_once() -> None:
    announcer = Announcer()
    announcer.announce(ListenerPosition("s1", "here", EPOCH, 1), kind="failed")
    assert (announcer.tasks.started, texts(announcer.scene.outlet.sent)) == ([], ["failed"])


def test_a_large_room_is_served_in_several_turns_of_the_loop() -> None:
    async def scenario() -> None:
        announcer = Announcer(Tasks(on_error=errors.append))
        names = [f"l{number}" for number in range(10)]
        outlets = [KeepingOutlet() for _ in names]
        for name, outlet in zip(names, outlets, strict=True):
            announcer.scene.enter(name, outlet)
        loud = content("bonjour", "hello", bytes(fanout.TURN_BYTES // 3), "pcm16", "t9")
        announcer.announce(
            *(ListenerPosition(name, "here", EPOCH, 1) for name in names),
            payload=encode_result(loud),
        )
        served = []
        while not all(outlet.sent for outlet in outlets) and len(served) < 1000:
            served.append([bool(outlet.sent) for outlet in outlets].count(True))
            await asyncio.sleep(0)
        assert served[0] == 2
        assert sorted(set(served)) == [2, 4, 6, 8]
        assert [texts(outlet.sent) for outlet in outlets] == [["hello"]] * 10

    errors: list[BaseException] = []
    asyncio.run(scenario())
    assert errors == []


def test_a_message_for_sessions_that_left_is_ignored() -> None:
    announcer = Announcer()
    announcer.results.put(ID, encode_result(KEPT))
    announcer.fanout.receive(
        ListenerOutcomeReady(
            ID, "completed 40 en j9 1 -", CELL.name, (OutboxPosition("x", EPOCH, 1),)
        )
    )
    assert announcer.scene.outlet.sent == []
