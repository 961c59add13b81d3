"""Identifies audio files, and joins later pieces of an Ogg stream to its header. Pure.

Clients that name the format `opus` may send a file, or a stream that continues from utterance to
utterance with its header in the first one only. The header of each session is kept for a while, for
later pieces of the same stream that arrive at this node. A piece names its stream, so nothing is
guessed. `engines/files.py` decodes the audio.
"""

from __future__ import annotations

import struct
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

OGG: Final = b"OggS"
# A page: capture pattern, version, flags, position, stream, sequence, checksum, segments.
PAGE: Final = struct.Struct("<4sBBqIIIB")
PAGE_BYTES_MAX: Final = PAGE.size + 255 + 255 * 255
FIRST_PAGE: Final = 2

HEADER_BYTES_MAX: Final = 16 << 10
HEADERS_MAX: Final = 1024
AGE_S: Final = 600.0


def format_of(data: bytes) -> str:
    """Return the format of a file: ogg, webm, flac, wav, or '' if it is unknown."""
    if data[:4] == OGG and len(data) >= PAGE.size and data[5] & FIRST_PAGE:
        return "ogg"
    if data[:4] == b"\x1a\x45\xdf\xa3":
        return "webm"
    if data[:4] == b"fLaC":
        return "flac"
    return "wav" if data[:4] == b"RIFF" and data[8:12] == b"WAVE" else ""


class OggHeader(NamedTuple):
    """The first pages of an Ogg stream, before its audio."""

    stream: int
    pages: bytes
    expires_at: float


class OggHeaders:
    """The headers of the Ogg streams of sessions."""

    def __init__(
        self, *, headers_max: int = HEADERS_MAX, clock: Callable[[], float] = monotonic
    ) -> None:
        self._headers_max = headers_max
        self._clock = clock
        # By session, the least recently used first.
        self._headers: dict[str, OggHeader] = {}

    def __len__(self) -> int:
        return len(self._headers)

    def complete(self, session_id: str, audio: bytes) -> bytes:
        """Return audio with its header, if it is a later piece of the session's stream."""
        now = self._clock()
        self._expire(now)
        if format_of(audio) == "ogg":
            if pages := header_of(audio):
                self._keep(session_id, OggHeader(_stream_of(audio, 0), pages, now + AGE_S))
            return audio
        header = self._headers.get(session_id)
        at = -1 if header is None or format_of(audio) else page_of(audio, header.stream)
        if header is None or at < 0:
            return audio
        self._keep(session_id, header._replace(expires_at=now + AGE_S))
        return header.pages + audio[at:]

    def _keep(self, session_id: str, header: OggHeader) -> None:
        self._headers.pop(session_id, None)
        self._headers[session_id] = header

    def _expire(self, now: float) -> None:
        for session_id, header in tuple(self._headers.items()):
            if header.expires_at > now and len(self._headers) < self._headers_max:
                return
            del self._headers[session_id]


def header_of(ogg: bytes) -> bytes:
    """Return the pages before the first one with audio; empty if they are too large to keep."""
    at = 0
    while at + PAGE.size <= len(ogg):
        pattern, _, _, position, _, _, _, segments = PAGE.unpack_from(ogg, at)
        if pattern != OGG or position:
            break
        at += PAGE.size + segments + sum(ogg[at + PAGE.size : at + PAGE.size + segments])
    return ogg[:at] if at <= min(HEADER_BYTES_MAX, len(ogg)) else b""


def page_of(audio: bytes, stream: int) -> int:
    """Return the offset of the first page of a stream; -1 if it is not near the beginning."""
    at = audio.find(OGG, 0, PAGE_BYTES_MAX)
    while at >= 0 and (at + PAGE.size > len(audio) or _stream_of(audio, at) != stream):
        at = audio.find(OGG, at + 1, PAGE_BYTES_MAX)
    return at


def _stream_of(audio: bytes, at: int) -> int:
    return int(PAGE.unpack_from(audio, at)[4])
