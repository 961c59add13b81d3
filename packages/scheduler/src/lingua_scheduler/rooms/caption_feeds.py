"""All feeds of captions of an instance: one for each room and language that somebody reads here."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lingua_scheduler.errors import StoreUnavailable
from lingua_scheduler.rooms.caption_feed import LATE_CAPTIONS, CaptionFeed, FeedPlace
from lingua_scheduler.session.rooms import RoomProblem
from lingua_wire.codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from lingua_scheduler.config import Settings
    from lingua_scheduler.rooms.cache import RoomCache
    from lingua_scheduler.rooms.guesses import Guesses
    from lingua_scheduler.tasks import Tasks
    from lingua_wire.to_client import PartialResult

# Feeds of one instance.
FEEDS_MAX = 1_000
PROBLEMS = {"no_room": ErrorCode.ROOM_NOT_FOUND, "full": ErrorCode.ROOM_FULL}


@dataclass(slots=True, kw_only=True, eq=False)
class CaptionFeeds:
    """Opens feeds, and tells them what the instance learns of their rooms."""

    settings: Settings
    tasks: Tasks
    # Gives the rooms of this instance, which are built after the feeds that follow them.
    rooms: Callable[[], RoomCache]
    # Wrong codes of those who are no members.
    guesses: Guesses
    # Code -> language -> feed.
    feeds: dict[str, dict[str, CaptionFeed]] = field(default_factory=dict)
    # One at a time: readers that come at once share a feed.
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def cache(self) -> RoomCache:
        """Return the rooms of this instance."""
        return self.rooms()

    def __len__(self) -> int:
        return sum(len(feeds) for feeds in self.feeds.values())

    @property
    def readers(self) -> int:
        """Return how many read captions here."""
        return sum(len(feed.readers) for feeds in self.feeds.values() for feed in feeds.values())

    def check_room(self) -> None:
        """Raise `RoomProblem` if there are so many readers that no other one is let in."""
        if self.readers >= self.settings.rooms.readers_max:
            raise RoomProblem(ErrorCode.BUSY)

    def known(self, code: str, lang: str, tenant: str) -> CaptionFeed | None:
        """Return a feed that is open here."""
        feed = self.feeds.get(code, {}).get(lang)
        return feed if feed is not None and feed.place.tenant == tenant else None

    async def open(self, code: str, lang: str, tenant: str) -> CaptionFeed:
        """Return the feed of a room in a language, or raise `RoomProblem`."""
        known = self.known(code, lang, tenant)
        if known is not None:
            return known
        async with self.opening:
            known = self.known(code, lang, tenant)
            return known if known is not None else await self._open(code, lang, tenant)

    async def _open(self, code: str, lang: str, tenant: str) -> CaptionFeed:
        rooms, cache = self.settings.rooms, self.cache
        if len(self) >= FEEDS_MAX:
            raise RoomProblem(ErrorCode.BUSY)
        feed = CaptionFeed(
            place=FeedPlace(code, tenant, lang, cache.peers.instance),
            store=cache.store,
            kept_max=max(rooms.captions_kept, LATE_CAPTIONS),
            late_max=min(rooms.captions_kept, LATE_CAPTIONS),
            on_changed=cache.changed,
        )
        answer = await feed.begin()
        if answer.room is None:
            raise RoomProblem(PROBLEMS[answer.why])
        self.feeds.setdefault(code, {})[lang] = feed
        self.tasks.start(self._serve(feed))
        return feed

    async def _serve(self, feed: CaptionFeed) -> None:
        try:
            await feed.run()
        finally:
            # At once: a reader that comes now gets another feed.
            feeds = self.feeds.get(feed.place.code, {})
            if feeds.get(feed.place.lang) is feed:
                del feeds[feed.place.lang]
            if not feeds:
                self.feeds.pop(feed.place.code, None)
            feed.close("the feed ends here")
        try:
            async with self.opening:
                if feed.place.lang not in self.feeds.get(feed.place.code, {}):
                    await feed.leave()
        except StoreUnavailable:
            return  # it is forgotten there after a while

    # What the instance learns

    def captioned(self, listener: str) -> None:
        """Note that captions were written: `@code|language`."""
        feed = self._feed_of(listener)
        if feed is not None:
            feed.captioned()

    def _feed_of(self, listener: str) -> CaptionFeed | None:
        code, _, lang = listener.removeprefix("@").partition("|")
        return self.feeds.get(code, {}).get(lang)

    def room_changed(self, code: str) -> None:
        """Note that a room changed or ended."""
        for feed in self.feeds.get(code, {}).values():
            feed.room_changed()

    def verify(self) -> None:
        """Tell the store of all feeds again: it may have lost them."""
        for code in self.feeds:
            self.room_changed(code)

    def partial(self, listener: str, message: PartialResult) -> None:
        """Take what a speaker says now, for the readers of `@code|language`."""
        feed = self._feed_of(listener)
        if feed is not None:
            feed.partial(message)

    # The end

    def close(self, reason: str) -> None:
        """Close all readers: this instance stops."""
        for feeds in list(self.feeds.values()):
            for feed in list(feeds.values()):
                feed.close(reason)
