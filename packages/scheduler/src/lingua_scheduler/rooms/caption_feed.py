"""The captions of one room in one language, read from the store once for all readers here.

The store has the captions, numbered (`includes/caption.lua`). A feed reads those that follow the
last one it has: when the instance is told of one, and every two seconds by itself. It keeps the
latest in memory, encoded, so that a reader that comes back anywhere goes on after the number it
has, and a thousand readers cost the store no more than one. Nothing waits for a reader: one that
does not read is dropped and may come back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from lingua_scheduler.errors import StoreUnavailable
from lingua_scheduler.rooms.cache import room_from
from lingua_scheduler.rooms.caption_events import (
    CaptionEvent,
    CaptionMembers,
    CaptionsEnd,
    PartialCaption,
    caption_event,
    members_of,
    partial_in,
    place_of,
)
from lingua_scheduler.state.caption_scripts import CaptionScripts
from lingua_scheduler.state.reply import Reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from lingua_scheduler.session.rooms import Room
    from lingua_scheduler.state.room_scripts import RoomAnswer, RoomScripts
    from lingua_wire.to_client import PartialResult

# How often a feed looks by itself, and how often the store is told of its readers.
LOOK_S = 2.0
RENEW_S = 10.0
# How long a room may be missing before its readers are told that it ended: a store that was
# emptied gets its rooms back from the instances of their members.
MISSING_S = 3.0
MISSING_LOOK_S = 0.5
# How long a feed without readers stays, because a reader may come back.
GRACE_S = 10.0
# Readers that are written to in one turn of the loop, each by a system call, and the pause after
# them. Speech must not wait behind readers: 2,000 of them get a caption in a quarter of a second.
READERS_AT_ONCE = 8
PAUSE_S = 0.001
# Captions that a reader gets who has none yet.
LATE_CAPTIONS = 20


class CaptionReader(Protocol):
    """Somebody who reads along."""

    @property
    def is_open(self) -> bool:
        """Tell whether the reader is connected."""

    @property
    def is_behind(self) -> bool:
        """Tell whether so much is unread that texts that change anyway are left out."""

    def send(self, event: CaptionEvent) -> None:
        """Send an event; a reader that is far behind is dropped."""

    def beat(self) -> None:
        """Show that the connection lives, if nothing else does."""

    def close(self, reason: str) -> None:
        """Close the connection after what was sent."""


class FeedPlace(NamedTuple):
    """Whose captions are read, and where."""

    code: str
    tenant: str
    lang: str
    instance: str


class PartialTexts:
    """What speakers say now, the latest of each."""

    def __init__(self) -> None:
        # Speaker -> its latest text that was not sent, its latest caption's utterance, its name.
        self._waiting: dict[str, PartialResult] = {}
        self._spoken: dict[str, int] = {}
        self._names: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def take(self, message: PartialResult) -> None:
        """Take a text; the latest counts."""
        self._waiting[message.session_id] = message

    def name(self, names: dict[str, str]) -> None:
        """Note the names of the members."""
        self._names = names

    def spoke(self, speaker: str, index: int) -> None:
        """Note that an utterance has its caption: no partial text of it follows."""
        self._spoken[speaker] = index

    def shown_in(self, lang: str) -> list[PartialCaption]:
        """Return what waits, as readers of a language see it."""
        waiting, self._waiting = self._waiting, {}
        found = [
            partial_in(message, lang, self._names.get(message.session_id, ""))
            for message in waiting.values()
            if self._spoken.get(message.session_id, -1) < message.utterance_index
        ]
        return [shown for shown in found if shown is not None]


@dataclass(slots=True, kw_only=True, eq=False)
class CaptionFeed:
    """The readers of a room's captions in one language, on one instance."""

    place: FeedPlace
    store: RoomScripts
    # How many captions are kept here, and how many of them a new reader gets.
    kept_max: int
    late_max: int
    # Called with the room when its readers changed.
    on_changed: Callable[[Room], None]
    # Reader -> the number of the last caption it has.
    readers: dict[CaptionReader, int] = field(default_factory=dict)
    kept: deque[CaptionEvent] = field(default_factory=deque)
    # The numbering in the store, and the number of the latest caption here.
    born: str = ""
    last: int = 0
    members: CaptionEvent | None = None
    partials: PartialTexts = field(default_factory=PartialTexts)
    # Set when something is to be done; whether the room is to be read again.
    news: asyncio.Event = field(default_factory=asyncio.Event)
    is_stale: bool = False
    is_over: bool = False
    # The room has ended, not only this feed.
    has_ended: bool = False
    renewed_at_s: float = 0.0
    empty_since_s: float | None = None
    missing_since_s: float | None = None

    # Readers

    def attach(self, reader: CaptionReader, after: str) -> None:
        """Let somebody read: first what follows the event it has, else the latest captions."""
        born, number = place_of(after)
        if born == self.born:
            missed = [event for event in self.kept if event.number > number]
        else:
            missed = list(self.kept)[-self.late_max :] if self.late_max else []
        for event in missed:
            reader.send(event)
        if self.members is not None:
            reader.send(self.members)
        self.readers[reader] = self.last
        self.empty_since_s = None

    def detach(self, reader: CaptionReader) -> None:
        """Note that a reader has left."""
        self.readers.pop(reader, None)

    # What the feed is told

    def captioned(self) -> None:
        """Note that the store has more captions."""
        self.news.set()

    def room_changed(self) -> None:
        """Note that the room is to be read again."""
        self.is_stale = True
        self.news.set()

    def partial(self, message: PartialResult) -> None:
        """Take a partial text of a speaker; the latest counts."""
        self.partials.take(message)
        self.news.set()

    # Its life

    async def begin(self) -> RoomAnswer:
        """Read the room and its captions; the answer says if there is no such room."""
        answer = await self._tell(0)
        if answer.room is not None:
            self._take(answer)
            await self._fetch()
        return answer

    async def run(self) -> None:
        """Serve the readers until nobody reads or the room has ended."""
        while not self.is_over:
            try:
                async with asyncio.timeout(
                    LOOK_S if self.missing_since_s is None else MISSING_LOOK_S
                ):
                    await self.news.wait()
            except TimeoutError:
                self._drop_lost()
            self.news.clear()
            try:
                await self._look()
            except StoreUnavailable:
                await asyncio.sleep(MISSING_LOOK_S)

    async def leave(self) -> None:
        """Tell the store that nobody reads here any more."""
        await self._tell(-1)

    def close(self, reason: str) -> None:
        """Close all readers: they may come back elsewhere."""
        self.is_over = True
        for reader in list(self.readers):
            reader.close(reason)
        self.readers.clear()
        self.news.set()

    async def _look(self) -> None:
        await self._advance()
        await self._send_partials()
        now_s = asyncio.get_running_loop().time()
        if (
            self.is_stale
            or self.missing_since_s is not None
            or now_s - self.renewed_at_s >= RENEW_S
        ):
            await self._renew(now_s)
        if self.readers:
            return
        if self.empty_since_s is None:
            self.empty_since_s = now_s
        self.is_over = self.is_over or now_s - self.empty_since_s >= GRACE_S

    def _drop_lost(self) -> None:
        for reader in [reader for reader in self.readers if not reader.is_open]:
            self._lost(reader)

    def _lost(self, reader: CaptionReader) -> None:
        self.detach(reader)
        reader.close("the connection was lost")

    async def _beat(self) -> None:
        readers = list(self.readers)
        for at in range(0, len(readers), READERS_AT_ONCE):
            for reader in readers[at : at + READERS_AT_ONCE]:
                reader.beat()
            await asyncio.sleep(PAUSE_S)

    async def _tell(self, readers: int) -> RoomAnswer:
        place = self.place
        return await self.store.feed(place.code, place.tenant, place.lang, place.instance, readers)

    async def _renew(self, now_s: float) -> None:
        self.is_stale = False
        answer = await self._tell(len(self.readers))
        if now_s - self.renewed_at_s >= RENEW_S:
            await self._beat()
            self.renewed_at_s = now_s
        if answer.room is not None:
            self.missing_since_s = None
            before = self.members
            self._take(answer)
            if self.members is not before and self.members is not None:
                await self._send(self.members)
        elif self.missing_since_s is None:
            self.missing_since_s = now_s
        elif now_s - self.missing_since_s >= MISSING_S:
            await self._advance()
            self.has_ended = True
            await self._send(CaptionEvent(CaptionsEnd(reason="the room has ended")))
            self.close("the room has ended")

    def _take(self, answer: RoomAnswer) -> None:
        """Take a version of the room; the event of its members stays if they are the same."""
        assert answer.room is not None, "the caller has looked"
        room = room_from(answer.room)
        if answer.reply is Reply.OK:
            self.on_changed(room)
        shown = members_of(room)
        self.partials.name({member.speaker: member.name for member in shown.members})
        before = self.members.shown if self.members is not None else None
        if not isinstance(before, CaptionMembers) or before != shown:
            self.members = CaptionEvent(shown)

    # Captions

    async def _fetch(self) -> list[CaptionEvent]:
        """Read the captions that follow; a numbering that began anew is read from its first."""
        place = self.place
        page = await CaptionScripts(self.store).read(
            place.code, place.tenant, place.lang, born=self.born, after=self.last
        )
        if page is None or not page.captions:
            return []
        if page.born != self.born:
            self.born, self.last = page.born, 0
            self.kept.clear()
            self.readers = dict.fromkeys(self.readers, 0)
        found = [
            caption_event(page.born, number, place.lang, stored) for number, stored in page.captions
        ]
        for number, stored in page.captions:
            self.partials.spoke(stored.speaker, stored.utterance_index)
            self.last = number
        self.kept.extend(found)
        while len(self.kept) > self.kept_max:
            self.kept.popleft()
        return found

    async def _advance(self) -> None:
        while found := await self._fetch():
            for event in found:
                await self._send(event)

    async def _send_partials(self) -> None:
        for shown in self.partials.shown_in(self.place.lang):
            await self._send(CaptionEvent(shown), may_be_left_out=True)

    async def _send(self, event: CaptionEvent, *, may_be_left_out: bool = False) -> None:
        """Send an event to all readers, some in each turn of the loop."""
        readers = list(self.readers)
        for at in range(0, len(readers), READERS_AT_ONCE):
            if at:
                await asyncio.sleep(PAUSE_S)
            for reader in readers[at : at + READERS_AT_ONCE]:
                self._send_to(reader, event, may_be_left_out=may_be_left_out)

    def _send_to(
        self, reader: CaptionReader, event: CaptionEvent, *, may_be_left_out: bool
    ) -> None:
        has = self.readers.get(reader)
        if has is None or (event.number and event.number <= has):
            return
        if not reader.is_open:
            self._lost(reader)
            return
        if event.number:
            self.readers[reader] = event.number
        if not (may_be_left_out and reader.is_behind):
            reader.send(event)
