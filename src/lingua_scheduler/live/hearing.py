"""What others said: from the outboxes of listeners to their owners, and what it was.

The store has put an outcome into the outboxes of its listeners; whoever made it do so tells their
owners: sessions here directly, those elsewhere by one letter to each instance. A letter that is
lost costs the time until the listener looks by itself. The result is in the store once for all
listeners of a cell, and in the memory of an instance once for all of its listeners, with its sound
as it goes over the wire: rooms are large, and so is translated speech.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from lingua_scheduler.between.letters import Place, Said
from lingua_scheduler.live.outcome import HEARD, decode_result
from lingua_scheduler.messages.codec import Sound

if TYPE_CHECKING:
    from collections.abc import Callable

    from lingua_scheduler.between.letters import Letter
    from lingua_scheduler.live.outcome import StoredResult
    from lingua_scheduler.live.session import LiveSession
    from lingua_scheduler.live.tasks import Tasks
    from lingua_scheduler.state.keys import Cell, Cells
    from lingua_scheduler.state.records import Heard, Released
    from lingua_scheduler.state.store import Store

# What is kept in memory of results that listeners get, all rooms together.
KEPT_BYTES = 32 << 20
# What one turn of the loop hands to sockets of one outcome, and what a result has beside its sound.
# A large room takes several turns: else whoever reads well waits until all others were served.
TURN_BYTES = 1 << 20
TEXT_BYTES = 1024


class HeardResult(NamedTuple):
    """A result as every listener gets it: what was said, and its sound apart."""

    kept: StoredResult
    sound: Sound
    # Of what the store keeps of it.
    size: int


class HeardResults:
    """Results for listeners that were needed last, each once, however many listen."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._results: OrderedDict[str, HeardResult] = OrderedDict()
        self._bytes = 0
        # Those being read now: whoever needs one too waits for the same answer.
        self._reading: dict[str, asyncio.Task[bytes]] = {}

    def get(self, heard_id: str) -> HeardResult | None:
        """Return a result that is at hand."""
        found = self._results.get(heard_id)
        if found is not None:
            self._results.move_to_end(heard_id)
        return found

    def put(self, heard_id: str, payload: bytes) -> HeardResult:
        """Keep a result."""
        known = self._results.get(heard_id)
        if known is not None:
            return known
        kept = decode_result(payload)
        result = self._results[heard_id] = HeardResult(kept, Sound(kept.tts_audio), len(payload))
        self._bytes += len(payload)
        while self._bytes > KEPT_BYTES and len(self._results) > 1:
            _, oldest = self._results.popitem(last=False)
            self._bytes -= oldest.size
        return result

    def has(self, heard_id: str) -> bool:
        """Tell whether a result is at hand."""
        return heard_id in self._results

    async def load(self, home: Cell, outcome: Released) -> bool:
        """Have at hand what an outcome for listeners of this cell refers to; False: it is gone."""
        kind, heard_id = reference_of(outcome)
        if kind != "completed" or heard_id in self._results:
            return True
        reading = self._reading.get(heard_id)
        if reading is None:
            reading = asyncio.ensure_future(self._store.heard(home, heard_id))
            self._reading[heard_id] = reading
            reading.add_done_callback(lambda _: self._reading.pop(heard_id, None))
        payload = await asyncio.shield(reading)
        if payload:
            self.put(heard_id, payload)
        return bool(payload)


class Hearing:
    """Tells the owners of listeners what came for them."""

    def __init__(
        self,
        instance: str,
        sessions: dict[str, LiveSession],
        cells: Cells,
        results: HeardResults,
        tasks: Tasks,
        write: Callable[[str, Letter], None],
    ) -> None:
        self._instance = instance
        self._sessions = sessions
        self._cells = cells
        self._results = results
        self._tasks = tasks
        self._write = write

    def tell(self, heard: Heard) -> None:
        """Tell owners, here and elsewhere, that an outcome is in their listeners' outboxes."""
        if heard.payload:
            self._results.put(heard.id, heard.payload)
        here: list[Place] = []
        elsewhere: dict[str, list[Place]] = {}
        for listener in heard.listeners:
            place = Place(listener.session, listener.epoch, listener.seq)
            if listener.owner == self._instance:
                here.append(place)
            elif listener.owner:
                elsewhere.setdefault(listener.owner, []).append(place)
        line = f"{heard.kind} {heard.head}"
        for owner, places in elsewhere.items():
            self._write(owner, Said(heard.id, line, heard.cell, tuple(places)))
        if here:
            self.told(Said(heard.id, line, heard.cell, tuple(here)))

    def told(self, said: Said) -> None:
        """Listeners here have got an outcome: deliver it, read first if it is not at hand."""
        outcome = said.outcome()
        kind, heard_id = reference_of(outcome)
        if kind != "completed" or self._results.get(heard_id) is not None:
            self._deliver(said, outcome)
        else:
            self._tasks.start(self._load_and_deliver(said, outcome))

    async def _load_and_deliver(self, said: Said, outcome: Released) -> None:
        if await self._results.load(self._cells.named(said.cell), outcome):
            self._deliver(said, outcome)

    def _deliver(self, said: Said, outcome: Released) -> None:
        _, heard_id = reference_of(outcome)
        result = self._results.get(heard_id)
        size = TEXT_BYTES + (len(result.sound.raw) if result is not None else 0)
        count = max(1, TURN_BYTES // size)
        self._deliver_to(said.places[:count], outcome)
        if len(said.places) > count:
            self._tasks.start(self._deliver_on(said.places[count:], count, outcome))

    async def _deliver_on(self, places: tuple[Place, ...], count: int, outcome: Released) -> None:
        """Deliver to the others, so many in each turn of the loop."""
        for at in range(0, len(places), count):
            await asyncio.sleep(0)
            self._deliver_to(places[at : at + count], outcome)

    def _deliver_to(self, places: tuple[Place, ...], outcome: Released) -> None:
        for place in places:
            session = self._sessions.get(place.session)
            if session is not None:
                session.deliver(place.epoch, (outcome._replace(seq=place.seq),))


def reference_of(outcome: Released) -> tuple[str, str]:
    """Return the kind of a heard outcome and what it is kept under."""
    assert outcome.kind == HEARD
    kind, _, heard_id = outcome.payload.decode().partition(" ")
    return kind, heard_id
