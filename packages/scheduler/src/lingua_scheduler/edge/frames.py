"""Unmasked frames, as a server sends them, and the transport that picows gets."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

# First bytes of unfragmented frames.
TEXT, BINARY, CLOSE, PING, PONG = 0x81, 0x82, 0x88, 0x89, 0x8A
MEDIUM_HEADER: Final = Struct(">BBH").pack
LONG_HEADER: Final = Struct(">BBQ").pack
# Longer messages are written in two parts instead of being copied; they also have the long header.
COPIED_BYTES_MAX: Final = 65_536
CLOSE_REASON_BYTES_MAX: Final = 123


def header_of(first: int, size: int) -> bytes:
    """Return the header of an unmasked frame."""
    if size < 126:
        return bytes((first, size))
    if size < COPIED_BYTES_MAX:
        return MEDIUM_HEADER(first, 126, size)
    return LONG_HEADER(first, 127, size)


def upgrade_request(key: str) -> bytes:
    """Return an upgrade request in the form that picows accepts; valid requests may differ."""
    return (
        "GET / HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n"
    ).encode("ascii")


def short_reason(reason: str) -> bytes:
    """Return the reason, cut between characters to the size limit of a close frame."""
    cut = reason.encode()[:CLOSE_REASON_BYTES_MAX]
    return cut.decode(errors="ignore").encode()


class PicowsOutlet:
    """The transport that picows gets: the real one, except that `close` calls us instead."""

    __slots__ = ("abort", "close", "get_extra_info", "get_write_buffer_size", "write", "writelines")

    def __init__(self, transport: asyncio.Transport, close: Callable[[], None]) -> None:
        self.abort = transport.abort
        self.close = close
        self.get_extra_info = transport.get_extra_info
        self.get_write_buffer_size = transport.get_write_buffer_size
        self.write = transport.write
        self.writelines = transport.writelines
