"""Jobs into the store: submitted until it answers, and the answer noted and acted upon."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from lingua_scheduler.errors import StoreUnavailable
from lingua_scheduler.state.reply import UNPLACEABLE, Reply

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from lingua_scheduler.clock import Clock
    from lingua_scheduler.jobs.dispatcher import Dispatcher
    from lingua_scheduler.runtime.effects import Effects
    from lingua_scheduler.runtime.held_jobs import HeldJobs
    from lingua_scheduler.runtime.job import LiveJob
    from lingua_scheduler.runtime.job_log import JobLog
    from lingua_scheduler.runtime.job_table import JobTable
    from lingua_scheduler.runtime.placement_metrics import PlacementMetrics
    from lingua_scheduler.state.records import JobSpec, Placement, Submitted
    from lingua_scheduler.state.retry import StoreRetry
    from lingua_scheduler.tasks import Tasks

# A job as the store is given it: id, spec, body, and how it is parked.
SubmittedRow: TypeAlias = "tuple[str, JobSpec, bytes, int]"
# Answers to a submit that end a job because no node could take it.
GIVEN_UP = frozenset({Reply.QUEUE_FULL, Reply.SETTLED})


@dataclass(slots=True, kw_only=True, eq=False)
class JobSubmitter:
    """Submits the jobs of this instance's sessions."""

    dispatcher: Dispatcher
    retry: StoreRetry
    effects: Effects
    jobs: JobTable
    held: HeldJobs
    counts: PlacementMetrics
    log: JobLog
    clock: Clock
    tasks: Tasks
    # Other instances share the store: they push a job by what it keeps of it.
    is_shared: bool

    async def submit(self, job: LiveJob) -> Submitted:
        """Submit a job; repeated while the store is unavailable."""
        (answer,) = await self.submit_all((job,))
        return answer

    async def submit_all(self, jobs: Sequence[LiveJob]) -> list[Submitted]:
        """Submit the jobs of one utterance; repeated while the store is unavailable."""
        try:
            answers = await self.call(jobs)
        except StoreUnavailable:
            answers = await self.call_until_stored(jobs)
        self.submitted(jobs, answers)
        return answers

    def call(self, jobs: Sequence[LiveJob]) -> Awaitable[list[Submitted]]:
        """Ask the store once to take the jobs of one utterance: all of them, or none.

        This and the next two are the steps of `submit_all`, for who takes them without a coroutine
        of its own.
        """
        for job in jobs:
            self.jobs.add(job)
        return self._send(jobs[0], self._rows_of(jobs))

    async def call_until_stored(self, jobs: Sequence[LiveJob]) -> list[Submitted]:
        """Ask again, after a call that the store did not answer."""
        self.counts.unavailable()
        for job in jobs:
            job.stored()
        # A job that ends meanwhile is not added again.
        first, rows = jobs[0], self._rows_of(jobs)
        answers = await self.retry.until_stored(
            lambda: self._send(first, rows), partial(self._unavailable, first)
        )
        for job, answer in zip(jobs, answers, strict=True):
            self._push_if_lost(job, answer)
        return answers

    def _rows_of(self, jobs: Sequence[LiveJob]) -> list[SubmittedRow]:
        """Return what the store is given of jobs."""
        is_shared = self.is_shared
        return [(job.id, job.spec, job.body() if is_shared else job.bare_body(), 0) for job in jobs]

    def _send(self, first: LiveJob, rows: Sequence[SubmittedRow]) -> Awaitable[list[Submitted]]:
        audio = first.audio if first.is_audio_kept else b""
        return self.dispatcher.submit_all(first.home, rows, audio, self.effects.perform)

    def submitted(self, jobs: Sequence[LiveJob], answers: list[Submitted]) -> None:
        """Note the store's answers, and do what they ask for."""
        for job, answer in zip(jobs, answers, strict=True):
            self._submitted(job, answer)

    def _unavailable(self, job: LiveJob) -> None:
        self.counts.unavailable()
        job.owner.notifier.store_lost()

    def _push_if_lost(self, job: LiveJob, answer: Submitted) -> None:
        """Push a job whose lost answer named its node: no other instance will."""
        is_ours = answer.known is not None and answer.known.is_place_of(job.spec)
        if is_ours and answer.node and not answer.outcome:
            self.tasks.start(self.effects.push_again(job, answer.attempt, answer.node))

    def _submitted(self, job: LiveJob, answer: Submitted) -> None:
        """Note the store's answer, and do what it asks for."""
        now = self.clock.now_ms()
        self.counts.called("job_submit", now - job.times.submit)
        placement = answer.placement
        if placement is not None:
            job.run.placed(now)
            if job.may_be_stored and self._is_news(job, placement):
                job.run.restart()  # the store lost it, with its later attempts
            self.counts.placed(placement)
            self.effects.push(placement, now)
        else:
            self._unplaced(job, answer, now)
            self.effects.follow(answer.effects)

    def _unplaced(self, job: LiveJob, answer: Submitted, now_ms: float) -> None:
        """Note that no node got a job at once."""
        if answer.reply is Reply.QUEUED:
            job.run.queued(now_ms)
            if self.log.logs_all:
                self.log.queued(job, answer)
        if answer.code in UNPLACEABLE or answer.reply in GIVEN_UP:
            self.counts.unplaced("submit", answer.label)

    def _is_news(self, job: LiveJob, placement: Placement) -> bool:
        """Tell whether a job that is submitted anew is not on that node here already."""
        return self.held.get(job.id) is not job or not job.run.is_placed_as(placement)
