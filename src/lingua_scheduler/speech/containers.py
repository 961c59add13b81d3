"""What audio says of itself: which file it is, and of which Ogg stream it is a later piece. Pure.

What clients call `opus` may be a file, or go on from utterance to utterance with its head in the
first one only. The heads of sessions are kept for a while, for pieces of the same stream that come
to this node; nothing is guessed: a piece names its stream. Decoding is `engines/files.py`.
"""

from __future__ import annotations

import struct
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

OGG: Final = b"OggS"
# A page: its mark, version, flags, position, stream, number, checksum, count of segments.
PAGE: Final = struct.Struct("<4sBBqIIIB")
PAGE_BYTES_MAX: Final = PAGE.size + 255 + 255 * 255
FIRST: Final = 2

HEAD_BYTES_MAX: Final = 16 << 10
HEADS_MAX: Final = 1024
AGE_S: Final = 600.0


def format_of(data: bytes) -> str:
    """Return what a file says it is: ogg, webm, flac or wav; nothing if it says nothing."""
    if data[:4] == OGG and len(data) >= PAGE.size and data[5] & FIRST:
        return "ogg"
    if data[:4] == b"\x1a\x45\xdf\xa3":
        return "webm"
    if data[:4] == b"fLaC":
        return "flac"
    return "wav" if data[:4] == b"RIFF" and data[8:12] == b"WAVE" else ""


class Head(NamedTuple):
    """The first pages of an Ogg stream: what is in it, but nothing of it."""

    stream: int
    pages: bytes
    expires_at: float


class Heads:
    """The heads of the Ogg streams that sessions speak in."""

    def __init__(
        self, *, heads_max: int = HEADS_MAX, clock: Callable[[], float] = monotonic
    ) -> None:
        self._heads_max = heads_max
        self._clock = clock
        # By session, the longest unused first.
        self._heads: dict[str, Head] = {}

    def __len__(self) -> int:
        return len(self._heads)

    def whole(self, session_id: str, audio: bytes) -> bytes:
        """Return audio as a file if it is one, or a later piece of its session's stream."""
        now = self._clock()
        self._forget(now)
        if format_of(audio) == "ogg":
            if pages := head_of(audio):
                self._keep(session_id, Head(_stream_of(audio, 0), pages, now + AGE_S))
            return audio
        head = self._heads.get(session_id)
        at = -1 if head is None or format_of(audio) else page_of(audio, head.stream)
        if head is None or at < 0:
            return audio
        self._keep(session_id, head._replace(expires_at=now + AGE_S))
        return head.pages + audio[at:]

    def _keep(self, session_id: str, head: Head) -> None:
        self._heads.pop(session_id, None)
        self._heads[session_id] = head

    def _forget(self, now: float) -> None:
        for session_id, head in tuple(self._heads.items()):
            if head.expires_at > now and len(self._heads) < self._heads_max:
                return
            del self._heads[session_id]


def head_of(ogg: bytes) -> bytes:
    """Return the pages before the first with sound; nothing if they are too large to be kept."""
    at = 0
    while at + PAGE.size <= len(ogg):
        mark, _, _, position, _, _, _, segments = PAGE.unpack_from(ogg, at)
        if mark != OGG or position:
            break
        at += PAGE.size + segments + sum(ogg[at + PAGE.size : at + PAGE.size + segments])
    return ogg[:at] if at <= min(HEAD_BYTES_MAX, len(ogg)) else b""


def page_of(audio: bytes, stream: int) -> int:
    """Return where the first page of a stream begins; -1 if it is not near the beginning."""
    at = audio.find(OGG, 0, PAGE_BYTES_MAX)
    while at >= 0 and (at + PAGE.size > len(audio) or _stream_of(audio, at) != stream):
        at = audio.find(OGG, at + 1, PAGE_BYTES_MAX)
    return at


def _stream_of(audio: bytes, at: int) -> int:
    return int(PAGE.unpack_from(audio, at)[4])
