"""The state of searches for nodes in other cells.

`Search` is the state of one job: the nodes that were asked and those to ask next. `TurnsInFlight`
serialises the jobs of one turn, so that each finds the node of the previous one and arrives after
it. This is only an optimisation of the session's instance: the store (`job_commit.lua`) keeps a
turn on its node, whichever instance places its jobs.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lingua_scheduler.state.records import JobSpec, Submitted, WaitingJob

W = TypeVar("W")

# After this many named nodes a job is placed on any node.
ASKED_MAX = 8


@dataclass(slots=True)
class Search(Generic[W]):
    """The search for a node of any cell for one job."""

    waiting: WaitingJob
    # The actions on sockets of its steps.
    work: W
    # `cell/node` to ask before any other, and those that could not take it.
    named: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    # A node to avoid if another one can take it.
    avoid: str = ""
    # The home cell was not asked yet: a node of another cell comes first.
    passes_home: bool = False
    # The answer of the home cell, if it ends the search.
    answer: Submitted | None = None

    def asked_text(self) -> str:
        """Return the asked nodes for `job_commit.lua`."""
        if len(self.asked) > ASKED_MAX:
            return "*"
        return f",{','.join(self.asked)}," if self.asked else ""


@dataclass(slots=True)
class TurnInFlight:
    """A turn whose jobs are being placed."""

    jobs: int = 0
    # `cell/node` of the first job that was placed.
    holder: str = ""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class TurnsInFlight:
    """The turns of this instance's sessions whose jobs are being submitted."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], TurnInFlight] = {}

    @contextmanager
    def entered(self, spec: JobSpec) -> Iterator[TurnInFlight]:
        """Count a job as being submitted for its turn."""
        key = (spec.session, spec.turn)
        turn = self._open.setdefault(key, TurnInFlight())
        turn.jobs += 1
        try:
            yield turn
        finally:
            turn.jobs -= 1
            if not turn.jobs:
                del self._open[key]
