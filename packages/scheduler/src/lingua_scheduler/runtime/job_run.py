"""The run of a job: its state, its current attempt, and when each step happened.

Every change goes through a method here, which asks the state machine (`jobs/job.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from lingua_scheduler.jobs.job import (
    FINAL_STATES,
    TRANSITIONS,
    JobState,
    job_status,
    job_transition,
)
from lingua_scheduler.session.timeline import Marks

if TYPE_CHECKING:
    from lingua_scheduler.state.records import Placement

# Looked up once, not for every job.
CREATED, DISPATCHED, FINISHED = JobState.CREATED, JobState.DISPATCHED, JobState.FINISHED


class LiveAttempt(msgspec.Struct, gc=False):
    """The current attempt of a job, as this instance knows it; number 0: none yet."""

    number: int = 0
    node: str = ""
    pushed_at_ms: int = 0
    # When the time of the attempt is over, by this instance's clock; 0: not known.
    ends_ms: float = 0
    # The last state of it that was sent to the store.
    marked: str = ""


class JobRun(msgspec.Struct):
    """Where a job is on its way."""

    times: Marks = msgspec.field(default_factory=Marks)
    current: LiveAttempt = msgspec.field(default_factory=LiveAttempt)
    state: JobState = JobState.CREATED
    # The kind of the outcome, once it is known here.
    outcome: str = ""

    @property
    def status(self) -> str:
        """Return the client's word for the state."""
        return job_status(self.state, self.current.node, self.outcome)

    @property
    def is_final(self) -> bool:
        """Tell whether the outcome is known here."""
        return self.state in FINAL_STATES

    def is_placed_as(self, placement: Placement) -> bool:
        """Tell whether a placement is the current attempt."""
        current = self.current
        return placement.attempt == current.number and placement.node == current.node

    def queued(self, now_ms: float) -> None:
        """Note that the job waits in the store's queue."""
        self.times.queued = now_ms

    def placed(self, now_ms: float) -> None:
        """Note that the store found a node for the job."""
        self.times.placed = now_ms

    def restart(self) -> None:
        """Begin with attempt one again: the store lost the job, or its later attempts."""
        self.current = LiveAttempt()
        self.state = JobState.CREATED
        self.outcome = ""

    def begin_attempt(self, placement: Placement, now_ms: float, ends_ms: float) -> None:
        """Take a placement as the current attempt."""
        if self.state is not CREATED:
            if self.state in FINAL_STATES:
                self.restart()  # the store lost its outcome
            self.state = job_transition(self.state, CREATED)
        self.current = LiveAttempt(placement.attempt, placement.node, int(now_ms), ends_ms)
        self.state = DISPATCHED  # which the table allows after CREATED

    def pushed(self, now_ms: float) -> bool:
        """Note that the job goes to its node; tells whether for the first time."""
        times, is_first = self.times, not self.times.first_push
        times.push = now_ms
        if is_first:
            times.first_push = now_ms
        return is_first

    def accept(self, now_ms: float) -> bool:
        """Note that the node of the current attempt has the job; False if it was known."""
        times = self.times
        if times.accepted and times.accepted >= times.push:
            return False
        times.accepted = now_ms
        return True

    def advance(self, state: JobState) -> None:
        """Follow the progress of the attempt; a report that is late changes nothing."""
        if (self.state, state) in TRANSITIONS:
            self.state = state

    def follow(self, attempt: int, node: str) -> None:
        """Note the current attempt as the node's instance reported it."""
        current = self.current
        if (attempt, node) != (current.number, current.node):
            self.current = LiveAttempt(attempt, node, current.pushed_at_ms, current.ends_ms)

    def mark(self, attempt: int, state: str) -> None:
        """Note the state of an attempt that was sent to the store."""
        if self.current.number == attempt:
            self.current.marked = state

    def finish(self, outcome: str) -> None:
        """Note the outcome; a later one changes nothing."""
        if self.state not in FINAL_STATES:
            self.state = FINISHED  # which the table allows after every other state
            self.outcome = outcome

    def settled(self, outcome: str, reported_at_ms: float, now_ms: float) -> None:
        """Note the outcome, which is in the store."""
        self.times.result, self.times.settled = reported_at_ms, now_ms
        self.finish(outcome)

    def released(self, now_ms: float) -> None:
        """Note that the outcome is delivered."""
        self.times.released = self.times.delivered = now_ms
