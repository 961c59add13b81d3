"""Unmasked frames, as a server sends them, and the transport that picows gets."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable

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

    __slots__ = ("_transport", "close")

    def __init__(self, transport: asyncio.Transport, close: Callable[[], None]) -> None:
        self._transport = transport
        self.close = close

    def abort(self) -> None:
        """End the connection now."""
        self._transport.abort()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what is known of the connection."""
        return self._transport.get_extra_info(name, default)

    def get_write_buffer_size(self) -> int:
        """Return how many bytes the kernel has not accepted yet."""
        return self._transport.get_write_buffer_size()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write the answer to the handshake; frames go another way."""
        self._transport.write(data)

    def writelines(self, parts: Iterable[bytes | bytearray | memoryview]) -> None:
        """Write the same in parts."""
        self._transport.writelines(parts)
