"""The one port of a service with several workers: accepts, looks at the kind, gives away.

The supervisor alone listens. A connection that no worker can take yet waits in the kernel. The kind
is read from the first bytes without consuming them; with TLS they say nothing, and a peer that
sends nothing at once is not waited for.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import TYPE_CHECKING

from lingua_scheduler.edge.server import NODE_PATH, REALTIME_PATH, SESSION_PATH
from lingua_scheduler.edge.tcp_listener import BACKLOG
from lingua_scheduler.supervisor.messages import NODE, OTHER, SESSION

if TYPE_CHECKING:
    from collections.abc import Callable

    from lingua_cli.logs import EventLog

ACCEPTS_PER_TURN = 64
# How long a new connection may take to show its kind.
LOOK_S = 0.1
# The pause after this process could not open one more file.
EXHAUSTED_S = 0.5
EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
HEAD_BYTES = 64
_KINDS = (
    (f"GET {NODE_PATH}".encode(), NODE),
    (f"GET {SESSION_PATH}".encode(), SESSION),
    (f"GET {REALTIME_PATH}".encode(), SESSION),
)


def kind_of(head: bytes) -> int:
    """Return the kind of a connection by the first bytes of its request."""
    return next((kind for start, kind in _KINDS if head.startswith(start)), OTHER)


def open_port(host: str, port: int) -> list[socket.socket]:
    """Listen on every address of a host; OSError if one of them cannot be used."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    opened: list[socket.socket] = []
    try:
        for family, kind, number, _, address in dict.fromkeys(found):
            sock = socket.socket(family, kind, number)
            opened.append(sock)
            sock.setblocking(False)  # noqa: FBT003 - the only parameter
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            # A free port is chosen once, for all addresses.
            taken = opened[0].getsockname()[1] if len(opened) > 1 else port
            sock.bind((address[0], taken, *address[2:]))
            sock.listen(BACKLOG)
    except OSError:
        for sock in opened:
            sock.close()
        raise
    return opened


class SharedPort:
    """The listening sockets of a service, and connections whose kind is not known yet."""

    def __init__(
        self,
        listening: list[socket.socket],
        give: Callable[[socket.socket, int], bool],
        log: EventLog,
        *,
        is_tls: bool,
    ) -> None:
        self.number: int = listening[0].getsockname()[1]
        self._listening = listening
        # Hands a connection to a worker; False if none takes it now.
        self._give = give
        self._log = log
        self._is_tls = is_tls
        self._loop = asyncio.get_running_loop()
        self._is_accepting = False
        self._is_closed = False
        # New connections that are looked at, and connections that no worker took.
        self._looking: dict[socket.socket, asyncio.TimerHandle] = {}
        self._left: list[tuple[socket.socket, int]] = []

    def accept(self) -> None:
        """Accept from now on, first what was left; may be repeated."""
        if self._is_closed:
            return
        left, self._left = self._left, []
        for connection, kind in left:
            self.give(connection, kind)
        if not self._is_accepting and not self._left:
            self._is_accepting = True
            for sock in self._listening:
                self._loop.add_reader(sock.fileno(), self._accept, sock)

    def pause(self) -> None:
        """Leave new connections to the kernel."""
        if self._is_accepting:
            self._is_accepting = False
            for sock in self._listening:
                self._loop.remove_reader(sock.fileno())

    def close(self) -> None:
        """Stop listening; connections that no worker has are closed."""
        self.pause()
        self._is_closed = True
        for sock in self._listening:
            sock.close()
        for connection in tuple(self._looking):
            self._stop_looking(connection)
            connection.close()
        for connection, _ in self._left:
            connection.close()
        self._left.clear()

    def give(self, connection: socket.socket, kind: int) -> None:
        """Hand a connection to a worker; if none takes it, keep it and accept no further ones."""
        if self._give(connection, kind):
            # The worker has a descriptor of its own.
            connection.close()
        else:
            self._left.append((connection, kind))
            self.pause()

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            if not self._is_accepting:
                return
            try:
                connection, _ = listening.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno not in EXHAUSTED:
                    continue  # the peer has gone, or its network has
                self._log.error("serve.too_many_files", error=error)
                self.pause()
                self._loop.call_later(EXHAUSTED_S, self.accept)
                return
            connection.setblocking(False)  # noqa: FBT003 - the only parameter
            if self._is_tls:
                self.give(connection, OTHER)
            else:
                self._look(connection)

    def _look(self, connection: socket.socket) -> None:
        """Hand a connection over when its kind is known; one that was closed is dropped."""
        try:
            head = connection.recv(HEAD_BYTES, socket.MSG_PEEK)
        except BlockingIOError:
            if connection not in self._looking:
                timer = self._loop.call_later(LOOK_S, self._stop_waiting, connection)
                self._looking[connection] = timer
                self._loop.add_reader(connection.fileno(), self._look, connection)
            return
        except OSError:
            head = b""
        self._stop_looking(connection)
        if head:
            self.give(connection, kind_of(head))
        else:
            connection.close()

    def _stop_waiting(self, connection: socket.socket) -> None:
        self._stop_looking(connection)
        self.give(connection, OTHER)

    def _stop_looking(self, connection: socket.socket) -> None:
        if (timer := self._looking.pop(connection, None)) is not None:
            timer.cancel()
            self._loop.remove_reader(connection.fileno())
