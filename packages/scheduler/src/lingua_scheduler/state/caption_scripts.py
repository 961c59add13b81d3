"""The captions of rooms in the store: how they are read; `includes/caption.lua` writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from lingua_scheduler.state.reply import Reply

if TYPE_CHECKING:
    from lingua_scheduler.state.room_scripts import RoomScripts

# Captions in one answer.
CAPTIONS_AT_ONCE = 200


class StoredCaption(msgspec.Struct, frozen=True, array_like=True):
    """A caption in the store: when it was said, by whom, and its text."""

    at_ms: int
    speaker: str
    name: str
    utterance_index: int
    text: str


class CaptionPage(NamedTuple):
    """Captions of a room in one language, by number."""

    # Names the numbering: numbers start over with another one; '' if there are no captions.
    born: str
    # The number of the latest one.
    last: int
    captions: tuple[tuple[int, StoredCaption], ...]


_decode_caption = msgspec.msgpack.Decoder(StoredCaption).decode


class CaptionScripts:
    """Reads captions, over the connection of the scripts about rooms."""

    def __init__(self, rooms: RoomScripts) -> None:
        self._rooms = rooms

    async def read(
        self, code: str, tenant: str, language: str, *, born: str = "", after: int = 0
    ) -> CaptionPage | None:
        """Read captions after a number; None if there is no such room."""
        words = (code, tenant, language, born, after, CAPTIONS_AT_ONCE)
        raw = await self._rooms.runner.run("room_captions", self._rooms.cell_of(code), words)
        if Reply(raw[0]) is Reply.FENCED:
            return None
        rows = raw[4]
        found = tuple((rows[at], _decode_caption(rows[at + 1])) for at in range(0, len(rows), 2))
        return CaptionPage(raw[2].decode(), raw[3], found)
