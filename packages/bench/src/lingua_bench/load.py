"""Pairs of submit and settle as fast as they are answered, and their cost.

A `PairLoad` makes one pair: `fleet.RealLoad` through the store, `ceiling.CeilingLoad` without
logic. Each worker has one session and at most one call in progress, so the number of workers is the
number of calls in flight. This module drives and counts the pairs; `placement.py` decides what is
measured when.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Generic, TypeVar

from lingua_scheduler.tasks import Tasks
from lingua_wire.errors import LinguaError

if TYPE_CHECKING:
    from lingua_scheduler.state.connection import Connection

# Sessions whose calls make up one batch.
BATCH_CALLS = 64
ACK_EVERY = 50
BODY, PAYLOAD = b"b" * 200, b"p" * 200
# No worker makes more pairs than this in one slice, whatever the clock does.
PAIRS_MAX = 100_000
# How long the last calls of a slice may take.
END_S = 30.0
# What the server counts outside of scripts, and the mark of the cell's clock.
OURS = ("fcall", "function", "info", "config", "get", "set")

Held = TypeVar("Held")


class WrongAnswer(LinguaError):
    """The store gave another answer than this load must get."""


@dataclass(slots=True)
class WorkerSession:
    """A worker's session and its progress."""

    session: str
    epoch: str
    # The next utterance; all before it are settled.
    index: int = 0
    # Script calls made so far.
    calls: int = 0


@dataclass(frozen=True, slots=True)
class LoadSample:
    """The result of one slice of load."""

    pairs: int
    calls: int
    seconds: float
    # CPU time of this whole process, the load's own work included.
    client_cpu_s: float


@dataclass(frozen=True, slots=True)
class Batch:
    """What the server counted while it ran one kind of script and nothing else."""

    us_per_call: float
    # Commands inside the script, per call.
    commands: dict[str, float]


class PairLoad(ABC, Generic[Held]):
    """A way to make pairs; `Held` is what a submit keeps for its settle."""

    def __init__(self, connection: Connection, speakers: list[WorkerSession]) -> None:
        self._connection = connection
        self.speakers = speakers

    @abstractmethod
    async def submit(self, speaker: WorkerSession) -> Held:
        """Make the first call of a pair."""

    @abstractmethod
    async def settle(self, speaker: WorkerSession, held: Held) -> None:
        """Make the second call of a pair and count the pair."""

    @abstractmethod
    async def acknowledge(self, speaker: WorkerSession) -> None:
        """Drop the session's outcomes so far."""

    async def pair(self, speaker: WorkerSession) -> None:
        """Make one pair, and acknowledge now and then, as a client does."""
        await self.settle(speaker, await self.submit(speaker))
        if speaker.index % ACK_EVERY == 0:
            await self.acknowledge(speaker)

    async def warm_up(self) -> None:
        """Make one pair per session: the first costs a little more, and scripts are loaded."""
        await asyncio.gather(*(self.pair(speaker) for speaker in self.speakers))

    async def run(self, width: int, seconds: float) -> LoadSample:
        """Make pairs with `width` workers for so long."""
        speakers = self.speakers[:width]
        pairs, calls = self.pairs_made, self.calls_made
        began_at, cpu_before_s = perf_counter(), process_time()
        stop_at = began_at + seconds

        async def work(speaker: WorkerSession) -> None:
            for _ in range(PAIRS_MAX):
                await self.pair(speaker)
                if perf_counter() >= stop_at:
                    return

        await asyncio.gather(*(work(speaker) for speaker in speakers))
        lasted_s, cpu_s = perf_counter() - began_at, process_time() - cpu_before_s
        return LoadSample(self.pairs_made - pairs, self.calls_made - calls, lasted_s, cpu_s)

    async def run_in_steps(self, width: int, seconds: float) -> LoadSample:
        """Make the same pairs as an instance does: in steps, whose calls may go together."""
        speakers = self.speakers[:width]
        errors: list[BaseException] = []
        tasks = Tasks(errors.append)
        pairs, calls = self.pairs_made, self.calls_made
        began_at, cpu_before_s = perf_counter(), process_time()
        stop_at = began_at + seconds

        async def work(speaker: WorkerSession) -> None:
            await self.pair(speaker)
            if perf_counter() < stop_at:
                tasks.begin(work(speaker))

        for speaker in speakers:
            tasks.begin(work(speaker))
        while len(tasks):
            await tasks.rest(seconds + END_S)
        lasted_s, cpu_s = perf_counter() - began_at, process_time() - cpu_before_s
        if errors:
            raise errors[0]
        return LoadSample(self.pairs_made - pairs, self.calls_made - calls, lasted_s, cpu_s)

    async def batch(self) -> tuple[Batch, Batch]:
        """Submit once per session, then settle; return what the server counted for each."""
        speakers = self.speakers[:BATCH_CALLS]
        before = await command_stats(self._connection)
        held = await asyncio.gather(*(self.submit(speaker) for speaker in speakers))
        between = await command_stats(self._connection)
        both = zip(speakers, held, strict=True)
        await asyncio.gather(*(self.settle(speaker, item) for speaker, item in both))
        after = await command_stats(self._connection)
        await asyncio.gather(*(self.acknowledge(speaker) for speaker in speakers))
        return batch_between(before, between), batch_between(between, after)

    @property
    def pairs_made(self) -> int:
        """Count all pairs so far."""
        return sum(speaker.index for speaker in self.speakers)

    @property
    def calls_made(self) -> int:
        """Count all script calls so far."""
        return sum(speaker.calls for speaker in self.speakers)


def batch_between(before: Counter[str], after: Counter[str]) -> Batch:
    """Return what happened between two counts of the server."""
    spent = after - before
    calls = spent["fcall"]
    if not calls:
        raise WrongAnswer("the server counted no script call")
    inside = {name: count / calls for name, count in spent.items() if not name.startswith(OURS)}
    return Batch(spent["fcall us"] / calls, dict(sorted(inside.items())))


async def command_stats(connection: Connection) -> Counter[str]:
    """Return how often the server ran each command, and the time its scripts took in all."""
    text = (await connection.every_master("INFO", "commandstats"))[0].decode()
    counts: Counter[str] = Counter()
    for line in text.splitlines():
        name, found, rest = line.removeprefix("cmdstat_").partition(":calls=")
        if found:
            calls, us, *_ = rest.split(",")
            counts[name] = int(calls)
            if name == "fcall":
                counts["fcall us"] = int(us.removeprefix("usec="))
    return counts


def require(condition: bool, problem: str) -> None:
    """Raise unless the condition holds."""
    if not condition:
        raise WrongAnswer(problem)
