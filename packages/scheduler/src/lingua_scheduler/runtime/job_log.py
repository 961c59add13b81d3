"""The history of jobs for operators: log lines, and the latest ended jobs in memory.

A line has ids, reasons and times, never what was said. By default only problems are logged: a job
that was refused, moved, or ended without a result. With `log.jobs = "all"` every step is logged,
and the nodes that each placement considered. The usual path checks one flag and keeps one row for
each ended job, so that `lingua jobs show` finds it by its utterance or its trace afterwards.
"""

from __future__ import annotations

import re
from collections import deque
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from lingua_cli.logs import JOBS, EventLog, plain_words
from lingua_scheduler.config import LogSettings
from lingua_scheduler.runtime.job import trace_in
from lingua_scheduler.session.timeline import Marks  # noqa: TC001 msgspec reads it
from lingua_scheduler.state.reply import Reply

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lingua_scheduler.jobs.dispatcher import Move
    from lingua_scheduler.runtime.job import LiveJob
    from lingua_scheduler.runtime.session_state import SessionRecord
    from lingua_scheduler.state.job_record import JobRecord
    from lingua_scheduler.state.records import Placement, Released, Submitted
    from lingua_wire.from_node import JobResult

# How many ended jobs are kept: the last seconds of a busy instance, minutes of an idle one.
ENDED_MAX = 4096
# How many of them are packed together: thousands of small objects that are kept for some seconds,
# among others that are not, would make all memory of the usual path slower.
PACKED_TOGETHER = 64
WITHOUT_RESULT = frozenset({"failed", "expired", "cancelled", "missing"})
BECOMES = {Reply.PLACED: "placed", Reply.QUEUED: "queued", Reply.SETTLED: "ended"}
# The lowest score of each band of nodes that cannot take work; as in includes/node_score.lua.
BANDS = ((6e9, "offline"), (5e9, "draining"), (4e9, "not_ready"), (3e9, "over"), (2e9, "full"))
TIES = 1 << 20
# Texts that can be a code; a sentence cannot.
CODE = re.compile(r"[A-Za-z0-9_.:-]{1,64}")

Fields = dict[str, str | int]


class EndedJob(NamedTuple):
    """A job whose outcome was delivered from here; `at_ms` by the wall clock."""

    job: str
    session: str
    tenant: str
    utterance: int
    lane: str
    trace: str
    kind: str
    reason: str
    attempt: int
    node: str
    marks: Marks | None
    at_ms: int


_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(list[EndedJob]).decode


class JobLog:
    """Logs what happens to the jobs of one instance."""

    def __init__(self, settings: LogSettings | None = None, log: EventLog | None = None) -> None:
        settings = settings or LogSettings()
        self._log = log or EventLog(JOBS)
        self._quotes = settings.node_errors == "words"
        # Every step is logged; checked before a line is built.
        self.logs_all = settings.jobs == "all"
        # Plain rows, and packed ones; an `EndedJob` is made only when one is asked for.
        self._fresh: list[tuple[object, ...]] = []
        self._packed: deque[bytes] = deque(maxlen=ENDED_MAX // PACKED_TOGETHER)

    def latest_ends(self) -> Iterator[EndedJob]:
        """Return the jobs that ended lately, the oldest first."""
        packed, fresh = list(self._packed), list(self._fresh)
        return chain(chain.from_iterable(map(_unpack, packed)), map(EndedJob._make, fresh))

    # Placement

    def placed(self, placement: Placement, job: LiveJob | None) -> None:
        """Log that a node was found; called only if every step is logged."""
        fields: Fields = who(job) if job is not None else {"job": placement.job}
        fields |= {"attempt": placement.attempt, "node": placement.node, "pool": placement.pool}
        fields |= {"how": placement.how or _unruled(placement), "instance": placement.instance}
        if job is not None:
            fields["since_cut_ms"] = round(job.times.push - job.times.cut)
        self._log("job.placed", **fields)
        self._looked(placement.job, placement.attempt, placement.looked)

    def queued(self, job: LiveJob, answer: Submitted) -> None:
        """Log that a job waits for a node; called only if every step is logged."""
        code = answer.code.name if answer.code is not None else ""
        self._log("job.queued", **who(job), code=code, reason=answer.label)
        self._looked(job.id, 1, answer.looked)

    def _looked(self, job: str, attempt: int, looked: tuple[str, ...]) -> None:
        for row in looked:
            pool, node, score = row.split(" ")
            self._log("job.looked", job=job, attempt=attempt, pool=pool, node=node, why=why(score))

    def refused(self, job: LiveJob, answer: Submitted) -> None:
        """Log that the store refused a job."""
        self._log("job.refused", **who(job), code=answer.reply.name, reason=answer.label)

    def moved(self, move: Move, of: LiveJob | JobRecord | None, held_ms: int = 0) -> None:
        """Log that a job was taken from its node, or waited too long for one."""
        fields: Fields = who(of) if of is not None else {"job": move.job}
        fields |= {"attempt": move.attempt, "node": move.node, "reason": move.reason}
        fields["becomes"] = BECOMES.get(move.reply, move.reply.name.lower())
        if move.to is not None:
            fields["to"] = move.to.node
        elif move.label:
            fields["label"] = move.label
        if held_ms:
            fields["held_ms"] = held_ms
        self._log("job.moved", **fields)

    def node_error(self, node: str, job: LiveJob | None, result: JobResult) -> None:
        """Log that a node reported an error; its own words appear at most in this line."""
        fields: Fields = who(job) if job is not None else {"job": result.job_id[:128]}
        fields |= {"attempt": result.attempt_id, "node": node, "code": "-"}
        if result.error is not None:
            code = result.error.code
            fields["code"] = code if CODE.fullmatch(code) else "unreadable"
            if self._quotes:
                fields["says"] = plain_words(result.error.message)
        self._log("job.node_error", **fields)

    # Outcomes

    def ended(
        self, session: SessionRecord, outcome: Released, job: LiveJob | None, at_ms: int
    ) -> None:
        """Keep, and log if needed, an outcome that is delivered."""
        trace, node, marks = session.trace_id, "", None
        if job is not None:
            trace, node, marks = job.assign.trace_id, job.run.current.node, job.times
        fresh = self._fresh
        fresh.append(
            (
                outcome.job,
                session.id,
                session.tenant,
                outcome.utterance,
                outcome.lane,
                trace,
                outcome.kind,
                outcome.reason,
                outcome.attempt,
                node,
                marks,
                at_ms,
            )
        )
        if len(fresh) == PACKED_TOGETHER:
            self._packed.append(_pack(fresh))
            fresh.clear()
        if self.logs_all or outcome.kind in WITHOUT_RESULT:
            self._log_end(session.id, outcome, trace, node, marks)

    def ended_unheard(self, session: str, outcome: Released, job: LiveJob | None) -> None:
        """Log an outcome of a session that has no owner now."""
        if self.logs_all or outcome.kind in WITHOUT_RESULT:
            trace = job.assign.trace_id if job is not None else ""
            node = job.node if job is not None else ""
            self._log_end(session, outcome, trace, node, None)

    def _log_end(
        self, session: str, outcome: Released, trace: str, node: str, marks: Marks | None
    ) -> None:
        fields: Fields = {"session": session, "trace": trace, "job": outcome.job}
        fields |= {"utterance": outcome.utterance, "lane": outcome.lane, "outcome": outcome.kind}
        fields |= {"reason": outcome.reason, "attempt": outcome.attempt, "node": node}
        if marks is not None:
            fields |= durations(marks)
        self._log("job.ended", **fields)


def who(of: LiveJob | JobRecord) -> Fields:
    """Return the fields that identify a job in every line."""
    if isinstance(of, tuple):
        session, job, trace = of.spec.session, of.job, trace_of(of)
    else:
        session, job, trace = of.owner.id, of.id, of.assign.trace_id
    spec = of.spec
    return {
        "session": session,
        "trace": trace,
        "job": job,
        "utterance": spec.index,
        "lane": spec.lane,
    }


def trace_of(record: JobRecord) -> str:
    """Return the trace of a job that is known by its record in the store only."""
    return trace_in(record.body)


def durations(marks: Marks) -> Fields:
    """Return how long the known stages of a job took."""
    spans = {
        "queue_ms": (marks.queued, marks.placed),
        "retry_ms": (marks.first_push, marks.push),
        "node_ms": (marks.push, marks.result),
        "total_ms": (marks.speech_end, marks.delivered or marks.settled or marks.result),
    }
    return {
        name: max(0, round(until - since))
        for name, (since, until) in spans.items()
        if since and until
    }


def _unruled(placement: Placement) -> str:
    """Return how a node was found if not by a rule of the cell."""
    if placement.cell != placement.home:
        return "another_cell"
    return "was_waiting" if placement.pool else "pushed_again"


def why(score: str) -> str:
    """Return how a placement judged a node, from its score."""
    if score == "tried":
        return "tried"
    number = float(score)
    band = next((name for lowest, name in BANDS if number >= lowest), None)
    return band or f"load_{int(number) // TIES}"
