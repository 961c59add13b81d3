"""Outcomes for the listeners of a room: announced to their owners, with the result read once.

The store has put an outcome into the outboxes of its listeners. The instance that caused it
announces that to the owners: directly to sessions here, by one message to each other instance. A
lost message costs the time until the listener's owner reads the outbox by itself. The result is in
the store once for all listeners of a cell, and in the memory of an instance once for all of its
listeners, with its audio encoded for the wire: rooms are large, and so is translated speech.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from lingua_scheduler.jobs.result import HEARD
from lingua_scheduler.jobs.result_format import decode_result
from lingua_scheduler.peers.messages import ListenerOutcomeReady, OutboxPosition
from lingua_wire.codec import EncodedAudio

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lingua_scheduler.rooms.member import OutcomeListener, PeerLink
    from lingua_scheduler.state.keys import Cell, Cells
    from lingua_scheduler.state.records import ListenerOutcome, Released
    from lingua_scheduler.state.store import Store
    from lingua_scheduler.tasks import Tasks
    from lingua_wire.to_client import TranslationResult

# How many bytes of results are kept in memory for listeners, for all rooms together.
KEPT_BYTES = 32 << 20
# How many bytes of one outcome are written to sockets in one turn of the loop, and the size of a
# result without its audio. A large room takes several turns: otherwise a fast reader would wait
# until all others were served.
TURN_BYTES = 1 << 20
TEXT_BYTES = 1024


class SharedResult(NamedTuple):
    """A result as every listener gets it, with its encoded audio apart."""

    kept: TranslationResult
    sound: EncodedAudio
    # Of the stored payload.
    size: int


class SharedResults:
    """The results that listeners needed last, each once for all its listeners."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._results: OrderedDict[str, SharedResult] = OrderedDict()
        self._bytes = 0
        # Results being read now: all listeners that need one wait for the same answer.
        self._reading: dict[str, asyncio.Task[bytes]] = {}

    def get(self, heard_id: str) -> SharedResult | None:
        """Return a result that is in memory, else None."""
        found = self._results.get(heard_id)
        if found is not None:
            self._results.move_to_end(heard_id)
        return found

    def put(self, heard_id: str, payload: bytes) -> SharedResult:
        """Keep a result."""
        known = self._results.get(heard_id)
        if known is not None:
            return known
        kept = decode_result(payload)
        result = self._results[heard_id] = SharedResult(
            kept, EncodedAudio(kept.tts_audio), len(payload)
        )
        self._bytes += len(payload)
        while self._bytes > KEPT_BYTES and len(self._results) > 1:
            _, oldest = self._results.popitem(last=False)
            self._bytes -= oldest.size
        return result

    def has(self, heard_id: str) -> bool:
        """Tell whether a result is in memory."""
        return heard_id in self._results

    async def load(self, home: Cell, outcome: Released) -> bool:
        """Read the result of an outcome for listeners of this cell; False: it is not kept."""
        kind, heard_id = reference_of(outcome)
        if kind != "completed" or heard_id in self._results:
            return True
        reading = self._reading.get(heard_id)
        if reading is None:
            reading = asyncio.ensure_future(self._store.outbox.read_result(home, heard_id))
            self._reading[heard_id] = reading
            reading.add_done_callback(lambda _: self._reading.pop(heard_id, None))
        payload = await asyncio.shield(reading)
        if payload:
            self.put(heard_id, payload)
        return bool(payload)


class Fanout:
    """Announces outcomes to the owners of their listeners."""

    def __init__(
        self,
        sessions: Mapping[str, OutcomeListener],
        results: SharedResults,
        cells: Cells,
        peers: PeerLink,
        tasks: Tasks,
        captioned: Callable[[str], None],
    ) -> None:
        self._sessions = sessions
        self._results = results
        self._cells = cells
        self._peers = peers
        self._tasks = tasks
        # Called with the listener that stands for a room's captions (`@code|language`).
        self._captioned = captioned

    def announce(self, heard: ListenerOutcome) -> None:
        """Announce an outcome in listeners' outboxes to their owners, here and elsewhere."""
        if heard.payload:
            self._results.put(heard.id, heard.payload)
        here: list[OutboxPosition] = []
        elsewhere: dict[str, list[OutboxPosition]] = {}
        for listener in heard.listeners:
            place = OutboxPosition(listener.session, listener.epoch, listener.seq)
            if listener.owner == self._peers.instance:
                here.append(place)
            elif listener.owner:
                elsewhere.setdefault(listener.owner, []).append(place)
        line = f"{heard.kind} {heard.head}"
        for owner, places in elsewhere.items():
            self._peers.write(
                owner, ListenerOutcomeReady(heard.id, line, heard.cell, tuple(places))
            )
        if here:
            self.receive(ListenerOutcomeReady(heard.id, line, heard.cell, tuple(here)))

    def receive(self, ready: ListenerOutcomeReady) -> None:
        """Deliver an outcome to listeners here; its result is read first if it is not in memory."""
        captions = [place.session for place in ready.places if place.session.startswith("@")]
        for name in captions:
            self._captioned(name)
        if len(captions) == len(ready.places):
            return
        outcome = ready.outcome()
        kind, heard_id = reference_of(outcome)
        if kind != "completed" or self._results.get(heard_id) is not None:
            self._deliver(ready, outcome)
        else:
            self._tasks.start(self._load_and_deliver(ready, outcome))

    async def _load_and_deliver(self, ready: ListenerOutcomeReady, outcome: Released) -> None:
        if await self._results.load(self._cells.named(ready.cell), outcome):
            self._deliver(ready, outcome)

    def _deliver(self, ready: ListenerOutcomeReady, outcome: Released) -> None:
        _, heard_id = reference_of(outcome)
        result = self._results.get(heard_id)
        size = TEXT_BYTES + (len(result.sound.raw) if result is not None else 0)
        count = max(1, TURN_BYTES // size)
        self._deliver_to(ready.places[:count], outcome)
        if len(ready.places) > count:
            self._tasks.start(self._deliver_on(ready.places[count:], count, outcome))

    async def _deliver_on(
        self, places: tuple[OutboxPosition, ...], count: int, outcome: Released
    ) -> None:
        """Deliver to the others, `count` of them in each turn of the loop."""
        for at in range(0, len(places), count):
            await asyncio.sleep(0)
            self._deliver_to(places[at : at + count], outcome)

    def _deliver_to(self, places: tuple[OutboxPosition, ...], outcome: Released) -> None:
        for place in places:
            session = self._sessions.get(place.session)
            if session is not None:
                session.deliver(place.epoch, (msgspec.structs.replace(outcome, seq=place.seq),))


def reference_of(outcome: Released) -> tuple[str, str]:
    """Return the kind of a listener's outcome and the id of its result."""
    assert outcome.kind == HEARD
    kind, _, heard_id = outcome.payload.decode().partition(" ")
    return kind, heard_id
