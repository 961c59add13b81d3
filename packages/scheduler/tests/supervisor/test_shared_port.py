from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import pytest

from lingua_cli.logs import EventLog
from lingua_scheduler.supervisor.messages import NODE, OTHER, SESSION
from lingua_scheduler.supervisor.shared_port import SharedPort, kind_of, open_port
from servers import until

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

pytestmark = pytest.mark.store

BOUND_S = 10.0


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"GET /ws/node HTTP/1.1\r\n", NODE),
        (b"GET /ws/node?token=t HTTP/1.1\r\n", NODE),
        (b"GET /ws/session HTTP/1.1\r\n", SESSION),
        (b"GET /v1/realtime/translations HTTP/1.1\r\n", SESSION),
        (b"GET /health HTTP/1.1\r\n", OTHER),
        (b"GET", OTHER),
        (b"\x16\x03\x01", OTHER),
    ],
)
def test_the_first_bytes_show_the_kind(head: bytes, kind: int) -> None:
    assert kind_of(head) == kind


class Takers:
    """Takes connections, while it wants any."""

    def __init__(self) -> None:
        self.wants = True
        self.taken: list[tuple[socket.socket, int]] = []

    def take(self, connection: socket.socket, kind: int) -> bool:
        if self.wants:
            self.taken.append((connection.dup(), kind))
        return self.wants

    @property
    def kinds(self) -> list[int]:
        return [kind for _, kind in self.taken]


def play(
    scenario: Callable[[SharedPort, Takers], Coroutine[Any, Any, None]], *, is_tls: bool = False
) -> None:
    async def whole() -> None:
        takers = Takers()
        log = EventLog("supervisor")
        port = SharedPort(open_port("127.0.0.1", 0), takers.take, log, is_tls=is_tls)
        try:
            await scenario(port, takers)
        finally:
            port.close()
            for connection, _ in takers.taken:
                connection.close()

    asyncio.run(whole())


def test_a_connection_is_given_away_by_its_kind_and_with_all_its_bytes() -> None:
    async def scenario(port: SharedPort, takers: Takers) -> None:
        port.accept()
        with socket.create_connection(("127.0.0.1", port.number)) as client:
            client.sendall(b"GET /ws/node HTTP/1.1\r\n")
            await until(lambda: takers.kinds == [NODE], BOUND_S, "it is given away")
            assert takers.taken[0][0].recv(100) == b"GET /ws/node HTTP/1.1\r\n"

    play(scenario)


def test_a_silent_connection_is_given_away_too() -> None:
    async def scenario(port: SharedPort, takers: Takers) -> None:
        port.accept()
        with socket.create_connection(("127.0.0.1", port.number)):
            await until(lambda: takers.kinds == [OTHER], BOUND_S, "it is given away")

    play(scenario)


def test_a_connection_that_was_closed_at_once_troubles_nobody() -> None:
    async def scenario(port: SharedPort, takers: Takers) -> None:
        port.accept()
        socket.create_connection(("127.0.0.1", port.number)).close()
        with socket.create_connection(("127.0.0.1", port.number)) as client:
            client.sendall(b"GET /ws/session HTTP/1.1\r\n")
            await until(lambda: takers.kinds == [SESSION], BOUND_S, "the other is given away")

    play(scenario)


def test_with_tls_nothing_is_looked_at() -> None:
    async def scenario(port: SharedPort, takers: Takers) -> None:
        port.accept()
        with socket.create_connection(("127.0.0.1", port.number)) as client:
            client.sendall(b"GET /ws/node HTTP/1.1\r\n")
            await until(lambda: takers.kinds == [OTHER], BOUND_S, "it is given away")

    play(scenario, is_tls=True)


def test_connections_that_nobody_takes_wait_and_none_is_lost() -> None:
    async def scenario(port: SharedPort, takers: Takers) -> None:
        takers.wants = False
        port.accept()
        clients = [socket.create_connection(("127.0.0.1", port.number)) for _ in range(5)]
        for client in clients:
            client.sendall(b"GET /ws/node HTTP/1.1\r\n")
        await asyncio.sleep(0)
        takers.wants = True

        def are_taken() -> bool:
            port.accept()
            return takers.kinds == [NODE] * 5

        await until(are_taken, BOUND_S, "all are given away")
        for client in clients:
            client.close()

    play(scenario)
