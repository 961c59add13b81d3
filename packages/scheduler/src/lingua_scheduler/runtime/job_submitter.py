"""Jobs into the store: submitted until it answers, and the answer noted and acted upon."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from lingua_scheduler.errors import StoreUnavailable
from lingua_scheduler.state.reply import UNPLACEABLE, Reply

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lingua_scheduler.clock import Clock
    from lingua_scheduler.jobs.dispatcher import Dispatcher
    from lingua_scheduler.runtime.effects import Effects
    from lingua_scheduler.runtime.held_jobs import HeldJobs
    from lingua_scheduler.runtime.job import LiveJob
    from lingua_scheduler.runtime.job_log import JobLog
    from lingua_scheduler.runtime.job_table import JobTable
    from lingua_scheduler.runtime.placement_metrics import PlacementMetrics
    from lingua_scheduler.state.records import Placement, Submitted
    from lingua_scheduler.state.retry import StoreRetry
    from lingua_scheduler.tasks import Tasks

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
        """Submit the jobs of one utterance in one step: none is stored without the others."""
        first, rows = jobs[0], []
        for job in jobs:
            self.jobs.add(job)
            body = job.body() if self.is_shared else job.bare_body()
            rows.append((job.id, job.spec, body, 0))
        audio = first.audio if first.is_audio_kept else b""
        submit, perform = self.dispatcher.submit_all, self.effects.perform
        try:
            answers = await submit(first.home, rows, audio, perform)
        except StoreUnavailable:
            self.counts.unavailable()
            for job in jobs:
                job.stored()
            answers = await self.retry.until_stored(
                lambda: submit(first.home, rows, audio, perform), partial(self._unavailable, first)
            )
            for job, answer in zip(jobs, answers, strict=True):
                self._push_if_lost(job, answer)
        for job, answer in zip(jobs, answers, strict=True):
            self._submitted(job, answer)
        return answers

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
