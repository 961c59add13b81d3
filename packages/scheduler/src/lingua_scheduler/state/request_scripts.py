"""The scripts about requests that clients named: where the job of a request is, and its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_scheduler.state.packing import read_spec
from lingua_scheduler.state.records import FoundRequest
from lingua_scheduler.state.reply import Reply

if TYPE_CHECKING:
    from lingua_scheduler.state.keys import Cell
    from lingua_scheduler.state.policy import FleetPolicy
    from lingua_scheduler.state.script_runner import ScriptRunner

# An instance that binds a request to a cell submits the job at once. If the cell does not have the
# job after this time, the instance died in between.
BIND_PATIENCE_MS = 5_000


class RequestScripts:
    """Finds the job of a request, and binds a request to the cell of its job."""

    def __init__(self, runner: ScriptRunner, policy: FleetPolicy) -> None:
        self._runner = runner
        # How long the cell of a request may be without its job, and how long a binding is kept.
        self._bind_patience_ms = BIND_PATIENCE_MS
        longest_ms = policy.pending_ms + policy.attempts_max * policy.attempt_ms + policy.gap_ms
        self._bind_ms = 2 * (longest_ms + policy.binding_ms)

    async def find(self, cell: Cell, job: str, session: str) -> FoundRequest:
        """Look for a request's job and its answer, and whether a session has had the answer."""
        raw = await self._runner.run("request_find", cell, (job, session))
        told = tuple(map(int, raw[1].split()))
        if raw[0] != Reply.OK:
            return FoundRequest(Reply(raw[0]), told=told)
        _, _, state, outcome, attempt, seq, reason, spec, answer = raw
        return FoundRequest(
            Reply.OK,
            state=state.decode(),
            outcome=outcome.decode(),
            attempt=attempt,
            seq=seq,
            reason=reason.decode(),
            spec=read_spec(spec),
            answer=answer,
            job=job,
            told=told,
        )

    async def bind(
        self, cell: Cell, job: str, home: str = "", *, instead_of: str = ""
    ) -> tuple[str, int]:
        """Bind a request to the cell of its job, or only ask; returns that cell and since when.

        `instead_of` is a cell that was asked and does not have the job.
        """
        times = (self._bind_patience_ms, self._bind_ms)
        raw = await self._runner.run("request_bind", cell, (job, home, instead_of, *times))
        return (raw[1].decode(), raw[2]) if raw[0] == Reply.OK else ("", 0)
