"""Injects faults and records each of them; the two nemeses of the harness are built on it."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Final

from lingua_bench.chaos.history import InjectedFault, Recorder

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random

FAULTS_FILE: Final = "nemesis.faults"


class FaultRunner:
    """Injects one fault after another; a subclass knows the kinds of faults."""

    def __init__(self, place: Path, chance: Random) -> None:
        self.chance = chance
        self.recorder = Recorder(place / FAULTS_FILE)
        self.done = 0

    async def do(self, kind: str) -> None:
        """Inject a fault and wait until what it harmed works again."""
        await self.inject(kind)
        self.done += 1

    async def inject(self, kind: str) -> None:
        """Inject a fault of this kind and record it."""
        raise NotImplementedError

    def note(self, kind: str, target: str, at: float, stopped_at: float = 0.0) -> InjectedFault:
        """Record a fault that is over now."""
        fault = InjectedFault(at, kind, target, monotonic(), stopped_at)
        self.recorder.note(fault)
        return fault

    def close(self) -> None:
        """Close the history."""
        self.recorder.close()
