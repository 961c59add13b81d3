"""What others said, on its way into a listener's own outbox and from there to its owner.

A listener has one line: outcomes are put in the order they were sent, each once (the store knows
the latest of every speaker), and get a position of the listener's own. While the store is away the
line waits; it is bounded. Who delivers is the listener's owner, wherever that is.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lingua_scheduler.jobs.dispatcher import Delivery
from lingua_scheduler.live.outcome import encode_heard
from lingua_scheduler.state.records import Released
from lingua_scheduler.state.reply import Reply

if TYPE_CHECKING:
    from lingua_scheduler.live.room_keeper import RoomBoard
    from lingua_scheduler.messages.to_client import MissingResult, TranslationResult
    from lingua_scheduler.state.keys import Cell
    from lingua_scheduler.state.room_store import Origin, PutAnswer, RoomStore

HEARD = "heard"
# The lane of a text that is read in the language it was spoken in.
AS_SPOKEN = "~"
# Outcomes that may wait for one listener.
WAITING_MAX = 256
# Answers that may pass by themselves, and how long to hope so: a full outbox is one whose client is
# away (it comes back or its session ends); a session that is not there may be opened again.
PATIENCE_MS = {Reply.OUTBOX_FULL: 120_000, Reply.NO_SESSION: 5_000}
AGAIN_MS = 250


@dataclass(frozen=True, slots=True)
class Heard:
    """One outcome for listeners."""

    origin: Origin
    speaker: str
    index: int
    lane: str
    payload: bytes
    # It is only for who is in one of these rooms: codes with spaces between.
    rooms: str

    @classmethod
    def of(cls, message: TranslationResult | MissingResult, origin: Origin, rooms: str) -> Heard:
        """Make it of the speaker's message."""
        return cls(
            origin, message.session_id, message.utterance_index, message.tgt_lang or AS_SPOKEN,
            encode_heard(message), rooms,
        )  # fmt: skip

    @property
    def entry(self) -> bytes:
        """Return it as it lies in an outbox."""
        head = f"{HEARD} {self.index} {self.lane} {self.speaker} 0 -\n"
        return head.encode() + self.payload

    def released(self, seq: int) -> Released:
        """Return it as the listener's owner delivers it."""
        return Released(seq, HEARD, self.index, self.lane, self.speaker, 0, "-", self.payload)


class Hearing:
    """The lines of all listeners that somebody here speaks to."""

    def __init__(self, board: RoomBoard, store: RoomStore) -> None:
        self._board = board
        self._store = store
        # Listener -> home cell and outcome; the first is being put.
        self._lines: dict[str, deque[tuple[Cell, Heard]]] = {}

    def send(self, listener: str, home: Cell, heard: Heard) -> None:
        """Put an outcome into a listener's outbox, after those before it."""
        line = self._lines.get(listener)
        if line is None:
            self._lines[listener] = deque(((home, heard),))
            self._board.tasks.start(self._serve(listener))
        elif len(line) < WAITING_MAX:
            line.append((home, heard))
        else:
            self._lost(listener, heard, "behind")

    async def _serve(self, listener: str) -> None:
        line = self._lines[listener]
        try:
            while line:
                await self._put(listener, *line[0])
                line.popleft()
        finally:
            # An error of ours: what comes next is not to wait for ever.
            if line:
                line.popleft()
            if line:
                self._board.tasks.start(self._serve(listener))
            else:
                del self._lines[listener]

    async def _put(self, listener: str, home: Cell, heard: Heard) -> None:
        entry, waited_ms = heard.entry, 0

        async def put() -> PutAnswer:
            return await self._store.put(home, listener, heard.origin, entry, heard.rooms)

        answer = await self._board.insist(put)
        while waited_ms < PATIENCE_MS.get(answer.reply, 0):
            await asyncio.sleep(AGAIN_MS / 1000)
            waited_ms += AGAIN_MS
            answer = await self._board.insist(put)
        if answer.seq:
            # Also one that is there already: the answer that said so first may have been lost.
            outcomes = (heard.released(answer.seq),)
            self._board.deliver(Delivery(answer.owner, listener, answer.epoch, outcomes))
        elif answer.reply in PATIENCE_MS:
            self._lost(listener, heard, answer.reply.name.lower())

    def _lost(self, listener: str, heard: Heard, why: str) -> None:
        self._board.log(
            "room.unheard", session=listener, speaker=heard.speaker, index=heard.index, why=why
        )
