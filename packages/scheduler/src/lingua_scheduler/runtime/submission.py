"""The jobs of an utterance on their way into the store, until it takes or refuses each for good.

All languages of an utterance go in one step, so that none is stored without the others. A part of
the stream goes after the part before it: a client discards what comes before the last part that
was taken, so that an overtaken part would never be sent again. What the store refuses for now (a
full outbox, a lost session, an earlier part that is not stored) is mended or waited for here.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lingua_scheduler.errors import StoreUnavailable
from lingua_scheduler.runtime.job_builder import spec_of_owner
from lingua_scheduler.state.records import Submitted
from lingua_scheduler.state.reply import Reply

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from lingua_scheduler.runtime.acceptances import AcceptanceQueue
    from lingua_scheduler.runtime.job import LiveJob
    from lingua_scheduler.runtime.job_submitter import JobSubmitter
    from lingua_scheduler.runtime.job_table import JobTable
    from lingua_scheduler.runtime.requests import Requests
    from lingua_scheduler.runtime.session_state import SessionRecord
    from lingua_scheduler.session.utterance import StreamPosition
    from lingua_scheduler.state.retry import StoreRetry
    from lingua_scheduler.state.script import Word
    from lingua_scheduler.state.store import Store

# Refusals that pass by themselves: the utterance waits here and is submitted again.
PASSING = frozenset({Reply.IN_FLIGHT_LIMIT, Reply.OUTBOX_FULL})
LOST = frozenset({Reply.NO_SESSION, Reply.SESSION_CLOSED})
# After these the utterance is submitted again.
AGAIN = PASSING | LOST | {Reply.FENCED, Reply.TOO_EARLY}
AGAIN_S = 0.1


@dataclass(slots=True, kw_only=True, eq=False)
class Submission:
    """Brings the jobs of one session into the store."""

    record: SessionRecord
    store: Store
    retry: StoreRetry
    submitter: JobSubmitter
    jobs: JobTable
    requests: Requests
    acceptances: AcceptanceQueue
    # How the session is restored in the store, and how room is made in its outbox.
    reopen: Callable[[], Awaitable[None]]
    trim_outbox: Callable[[], Awaitable[None]]
    # Jobs whose submission the store has not answered.
    entering: int = 0

    async def submit(self, jobs: list[LiveJob]) -> list[Submitted]:
        """Submit the jobs of an utterance until the store takes or refuses each for good."""
        self.entering += len(jobs)
        for job in jobs:
            job.enter()
        try:
            if jobs[0].spec.sound and self.requests.is_spread:
                answers = [await self._claim(job) for job in jobs]
            else:
                try:
                    answers = await self.submitter.call(jobs)
                except StoreUnavailable:
                    answers = await self.submitter.call_until_stored(jobs)
                self.submitter.submitted(jobs, answers)
            for answer in answers:
                if answer.reply in AGAIN:
                    return await self._submit_again(jobs, answers)
            return answers
        finally:
            self.entering -= len(jobs)
            for job in jobs:
                job.entered()

    async def _submit_again(self, jobs: list[LiveJob], answers: list[Submitted]) -> list[Submitted]:
        """Submit those that the store refused for now, until none is left."""
        while again := [at for at, answer in enumerate(answers) if answer.reply in AGAIN]:
            if self.record.is_over:
                break
            refused = [jobs[at] for at in again]
            await self._mend(refused, answers[again[0]].reply)
            repeated = await self.submitter.submit_all(refused)
            for at, answer in zip(again, repeated, strict=True):
                answers[at] = answer
        return answers

    async def _claim(self, job: LiveJob) -> Submitted:
        """Submit a job of a named request, unless another cell has it."""
        found = await self.requests.elsewhere(job)
        if found is not None:
            return Submitted(Reply.DUPLICATE, state=found.state, known=found.spec)
        return await self.submitter.submit(job)

    async def _mend(self, jobs: list[LiveJob], reply: Reply) -> None:
        """Do what may let the store take jobs that it has refused for now."""
        record, first = self.record, jobs[0]
        if reply in PASSING:
            if reply is Reply.OUTBOX_FULL:
                await self.retry.until_stored(self.trim_outbox)
            await asyncio.sleep(AGAIN_S)
        elif reply is Reply.TOO_EARLY:
            await self.wait_for_turn(first.spec.index, first.stream_before)
        elif reply in LOST or first.spec.fence == record.fence:
            # Another is the owner, or the store lost our ownership: the higher fence counts.
            await self.reopen()
        # Otherwise the client has resumed here meanwhile: we are the owner by a later fence.
        for job in jobs:
            job.with_spec(spec_of_owner(job.spec, record.fence))

    async def wait_for_turn(self, index: int, before: StreamPosition) -> None:
        """Let earlier utterances go first; if none is left, the store lost the last of them."""
        if self._is_behind(index):
            await asyncio.sleep(AGAIN_S)
            return
        await self.note(
            {"heard": before.seq, "heard_ms": before.end_ms, "speech": before.speech_ms}
        )

    def _is_behind(self, index: int) -> bool:
        """Tell whether an earlier utterance is still on its way to the store."""
        first = self.acceptances.first_index
        if first is not None and first < index:
            return True
        jobs = self.jobs.of(self.record.id)
        return any(job.is_entering and job.spec.index < index for job in jobs)

    async def note(self, fields: Mapping[str, Word], heard_after: int = -1) -> Reply:
        """Note in the store what a later owner needs."""
        record = self.record
        return await self.retry.until_stored(
            lambda: self.store.sessions.note(
                record.home, record.id, record.fence, fields, heard_after=heard_after
            )
        )
