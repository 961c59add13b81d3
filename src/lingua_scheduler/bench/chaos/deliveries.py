"""What the nodes tell the nemesis: a result of something said in a room is ready to be sent.

A node holds such a result until it is released, which is at once unless the nemesis waits for one:
so a kill is in the moment of its delivery by construction, however busy the machine is.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from lingua_scheduler.bench.chaos import speech
from lingua_scheduler.bench.chaos.people import OWNERS
from lingua_scheduler.bench.chaos.process import HarnessFailed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from lingua_scheduler.bench.chaos.cast import Instance

DATAGRAM_BYTES: Final = 4096


class Moment(NamedTuple):
    """A result waits on its node: what it is of, who has the node, who has the speaker."""

    said: str
    host: Instance | None
    owner: Instance | None
    # Where its node listens.
    node: bytes


class Deliveries:
    """Hears of every such result; gives out the next one when somebody asks, releases others."""

    def __init__(self, name: str, place: Path, instances: Sequence[Instance]) -> None:
        self.name = name
        self._place = place
        self._instances = instances
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)  # noqa: FBT003
        self._socket.bind(f"\0{name}")
        # Those who ask for a moment: two faults at a time may, and each gets one of its own.
        self._waiting: deque[asyncio.Future[Moment]] = deque()
        asyncio.get_running_loop().add_reader(self._socket, self._read)

    async def next(self, bound_s: float) -> Moment:
        """Wait for the next moment; whoever gets it releases the result."""
        waiting: asyncio.Future[Moment] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        try:
            async with asyncio.timeout(bound_s):
                return await waiting
        except TimeoutError:
            raise HarnessFailed(f"no result for a room within {bound_s:g} s") from None

    def release(self, moment: Moment) -> None:
        """Let the node send its result."""
        self._release(moment.said, moment.node)

    def _release(self, said: str, node: bytes) -> None:
        with contextlib.suppress(OSError):  # the node is gone, with its result
            self._socket.sendto(said.encode(), node)

    def close(self) -> None:
        """Hear no more."""
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                words, node = self._socket.recvfrom(DATAGRAM_BYTES)
                said, _, url = words.decode().partition(" ")
                waiting = self._next_waiting()
                if waiting is not None:
                    waiting.set_result(Moment(said, self._host(url), self._owner(said), node))
                else:
                    self._release(said, node)

    def _next_waiting(self) -> asyncio.Future[Moment] | None:
        """Return who asked first and has not given up."""
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                return waiting
        return None

    def _host(self, url: str) -> Instance | None:
        return next((one for one in self._instances if one.node_url() == url), None)

    def _owner(self, said: str) -> Instance | None:
        """Return whose client the speaker is, as the people's process wrote it down."""
        named = speech.read(said)
        assert named is not None
        with (self._place / OWNERS).open("rb") as file:
            file.seek(named.speaker - speech.FIRST_PERSON)
            number = int.from_bytes(file.read(1), "big")
        return self._instances[number - 1] if number else None


@contextlib.contextmanager
def hearing_deliveries(place: Path, instances: Sequence[Instance]) -> Iterator[Deliveries]:
    """Hear them under a name of this run's own."""
    deliveries = Deliveries(f"lingua-chaos-{os.getpid()}-{id(place)}", place, instances)
    try:
        yield deliveries
    finally:
        deliveries.close()
