"""What an instance remembers while it looks for nodes in other cells. Pure bookkeeping.

`Search` is one job's way: who was asked for it and who is asked next. `Turns` lets the jobs of one
turn go that way one after the other, so that each finds the node of the one before and reaches it
behind that. It is a courtesy of the instance that has the session: that a turn stays on its node
is decided in the store (`job_commit.lua`), whoever places its jobs.
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

# After so many named nodes a job is placed wherever there is room.
ASKED_MAX = 8


@dataclass(slots=True)
class Search(Generic[W]):
    """One job on its way to a node of any cell."""

    waiting: WaitingJob
    # What its steps ask for on sockets.
    work: W
    # `cell/node` to be asked before any other, and those that could not take it.
    named: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    # A node to stay away from while another can take it.
    avoid: str = ""
    # The home cell was not asked yet: a node elsewhere comes first.
    passes_home: bool = False
    # What the home cell said, if that ends the search.
    answer: Submitted | None = None

    def asked_text(self) -> str:
        """Return who was asked, as `job_commit.lua` reads it."""
        if len(self.asked) > ASKED_MAX:
            return "*"
        return f",{','.join(self.asked)}," if self.asked else ""


@dataclass(slots=True)
class Turn:
    """A turn whose jobs are on their way."""

    jobs: int = 0
    # `cell/node` of the first that was placed on this way.
    holder: str = ""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Turns:
    """The turns of this instance's sessions that have jobs on their way into the store."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], Turn] = {}

    @contextmanager
    def entered(self, spec: JobSpec) -> Iterator[Turn]:
        """Count a job of its turn as on its way."""
        key = (spec.session, spec.turn)
        turn = self._open.setdefault(key, Turn())
        turn.jobs += 1
        try:
            yield turn
        finally:
            turn.jobs -= 1
            if not turn.jobs:
                del self._open[key]
