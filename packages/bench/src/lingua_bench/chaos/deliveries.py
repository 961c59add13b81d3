"""Nodes report results for rooms to the nemesis before they send them.

A node holds such a result until it is released, which is at once unless the nemesis waits for one.
A kill during a delivery is therefore certain by construction, however busy the machine is.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from lingua_bench.chaos import marked_audio
from lingua_bench.chaos.participants import OWNERS
from lingua_bench.chaos.process import HarnessFailed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from lingua_bench.chaos.scheduler_process import SchedulerProcess

DATAGRAM_BYTES: Final = 4096


class HeldResult(NamedTuple):
    """A result held on its node: its utterance, the node's instance, the speaker's instance."""

    said: str
    host: SchedulerProcess | None
    owner: SchedulerProcess | None
    # The address of the node's socket.
    node: bytes


class Deliveries:
    """Receives every report; gives the next one to a waiting fault, and releases all others."""

    def __init__(self, name: str, place: Path, instances: Sequence[SchedulerProcess]) -> None:
        self.name = name
        self._place = place
        self._instances = instances
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)  # noqa: FBT003
        self._socket.bind(f"\0{name}")
        # Faults that wait for a held result; each gets one of its own.
        self._waiting: deque[asyncio.Future[HeldResult]] = deque()
        asyncio.get_running_loop().add_reader(self._socket, self._read)

    async def next(self, bound_s: float) -> HeldResult:
        """Wait for the next held result; the caller must release it."""
        waiting: asyncio.Future[HeldResult] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        try:
            async with asyncio.timeout(bound_s):
                return await waiting
        except TimeoutError:
            raise HarnessFailed(f"no result for a room within {bound_s:g} s") from None

    def release(self, moment: HeldResult) -> None:
        """Let the node send its result."""
        self._release(moment.said, moment.node)

    def _release(self, said: str, node: bytes) -> None:
        with contextlib.suppress(OSError):  # the node ended, and its result is lost
            self._socket.sendto(said.encode(), node)

    def close(self) -> None:
        """Close the socket."""
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                words, node = self._socket.recvfrom(DATAGRAM_BYTES)
                said, _, url = words.decode().partition(" ")
                waiting = self._next_waiting()
                if waiting is not None:
                    waiting.set_result(HeldResult(said, self._host(url), self._owner(said), node))
                else:
                    self._release(said, node)

    def _next_waiting(self) -> asyncio.Future[HeldResult] | None:
        """Return the fault that waits longest and has not given up."""
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                return waiting
        return None

    def _host(self, url: str) -> SchedulerProcess | None:
        return next((one for one in self._instances if one.node_url() == url), None)

    def _owner(self, said: str) -> SchedulerProcess | None:
        """Return the instance of the speaker, as the process of the participants recorded it."""
        named = marked_audio.read(said)
        assert named is not None
        with (self._place / OWNERS).open("rb") as file:
            file.seek(named.speaker - marked_audio.FIRST_PARTICIPANT)
            number = int.from_bytes(file.read(1), "big")
        return self._instances[number - 1] if number else None


@contextlib.contextmanager
def receiving_deliveries(
    place: Path, instances: Sequence[SchedulerProcess]
) -> Iterator[Deliveries]:
    """Receive reports under a name of this run."""
    deliveries = Deliveries(f"lingua-chaos-{os.getpid()}-{id(place)}", place, instances)
    try:
        yield deliveries
    finally:
        deliveries.close()
