"""What a supervisor and its workers say to each other, and the pair of sockets between them.

A worker has two sockets of its supervisor. Messages go through the control socket in both
directions; its end of file says that the other side has ended. Accepted connections go through the
hand-over socket, one byte and one descriptor each.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from lingua_scheduler.secret import Secret, SecretUrl

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lingua_scheduler.config import Settings

FRAME_BYTES_MAX = 1 << 28
LENGTH_BYTES = 4
# Kinds of connections, as far as the supervisor knows them before they are handed over.
NODE, SESSION, OTHER = range(3)
KINDS = (NODE, SESSION, OTHER)


class SupervisorMessage(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A message of a supervisor or of a worker."""


# To a worker


class StartOrder(SupervisorMessage, frozen=True, kw_only=True):
    """The first message: what the worker is."""

    # The settings as JSON, with the secrets in them: this socket is private to the two processes.
    settings: bytes
    service: str
    log_level: str
    log_json: bool


class DrainOrder(SupervisorMessage, frozen=True, kw_only=True):
    """Finish or hand over everything, then end."""

    # The siblings that drain at the same time; empty if they stay and take over.
    leaving: tuple[str, ...]


class EndOrder(SupervisorMessage, frozen=True, kw_only=True):
    """End: the siblings are finished."""

    # Do not finish anything first.
    at_once: bool = False


class ReleaseOrder(SupervisorMessage, frozen=True, kw_only=True):
    """Send this many nodes away: they come back to a sibling that has fewer."""

    nodes: int


class PageAsked(SupervisorMessage, frozen=True, kw_only=True):
    """A question of a sibling; a worker sends the same to ask its siblings."""

    id: int
    page: str
    about: dict[str, str | int]


class PagesAnswered(SupervisorMessage, frozen=True, kw_only=True):
    """The answers of the siblings to a question."""

    id: int
    bodies: tuple[bytes, ...]


# From a worker


class WorkerReady(SupervisorMessage, frozen=True, kw_only=True):
    """The worker serves."""


class WorkerLoad(SupervisorMessage, frozen=True, kw_only=True):
    """What the worker has now; also shows that it lives."""

    # How many connections it has taken over so far, and how many of them are open, by kind.
    taken: int
    open: tuple[int, int, int]
    nodes: int


class SessionsFinished(SupervisorMessage, frozen=True, kw_only=True):
    """The sessions of a draining worker are finished, or their time is over."""

    all_of_it: bool


class PageAnswered(SupervisorMessage, frozen=True, kw_only=True):
    """The answer to a question of a sibling."""

    id: int
    body: bytes


class LastWords(SupervisorMessage, frozen=True, kw_only=True):
    """The metrics of a worker that ends: the sum over all workers must not decrease."""

    metrics: bytes
    all_of_it: bool


ToWorker = StartOrder | DrainOrder | EndOrder | ReleaseOrder | PageAsked | PagesAnswered
FromWorker = WorkerReady | WorkerLoad | SessionsFinished | PageAsked | PageAnswered | LastWords
M = TypeVar("M")


class ControlSocket(Generic[M]):
    """One end of the control socket: typed messages, each with its length before it."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, incoming: Any
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder: msgspec.msgpack.Decoder[M] = msgspec.msgpack.Decoder(incoming)

    @classmethod
    async def open(cls, sock: socket.socket, incoming: Any) -> ControlSocket[M]:
        """Use a connected socket."""
        return cls(*await asyncio.open_unix_connection(sock=sock), incoming)

    def send(self, message: SupervisorMessage) -> None:
        """Send a message; one to a process that has ended is dropped."""
        body = msgspec.msgpack.encode(message)
        assert len(body) <= FRAME_BYTES_MAX
        if not self._writer.is_closing():
            self._writer.write(len(body).to_bytes(LENGTH_BYTES, "big") + body)

    async def messages(self) -> AsyncIterator[M]:
        """Yield messages until the other side ends."""
        while True:
            try:
                length = int.from_bytes(await self._reader.readexactly(LENGTH_BYTES), "big")
                body = await self._reader.readexactly(length)
            except (asyncio.IncompleteReadError, OSError):
                return
            yield self._decoder.decode(body)

    async def sent(self) -> None:
        """Wait until the messages so far are on their way."""
        try:
            await self._writer.drain()
        except OSError:
            return

    def close(self) -> None:
        """Close this end."""
        self._writer.close()


def settings_to_json(settings: Settings) -> bytes:
    """Return settings as JSON, with the secrets in them."""
    return msgspec.json.encode(settings, enc_hook=_revealed)


def settings_from_json(text: bytes, kind: type[Settings]) -> Settings:
    """Return the settings of a JSON text."""
    return msgspec.json.decode(text, type=kind, dec_hook=lambda kind, value: kind(value))


def _revealed(value: object) -> str:
    return value.reveal() if isinstance(value, Secret | SecretUrl) else str(value)


def hand_over(pipe: socket.socket, connection: socket.socket, kind: int) -> None:
    """Give a connection to the process at the other end; BlockingIOError if it takes none."""
    socket.send_fds(pipe, [bytes((kind,))], [connection.fileno()])


def take_over(pipe: socket.socket) -> tuple[socket.socket | None, int]:
    """Return a connection and its kind; BlockingIOError if there is none.

    None instead of the connection if this process may not open one more file.
    """
    flags = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
    data, descriptors, _, _ = socket.recv_fds(pipe, 1, 1, flags)
    if not data:
        raise EOFError
    if not descriptors:
        return None, data[0]
    connection = socket.socket(fileno=descriptors[0])
    connection.setblocking(False)  # noqa: FBT003 - the only parameter
    return connection, data[0]
