"""From a cut to the store: the window of what is in flight, submission, refusals.

One per session. An utterance is admitted when its jobs are in the store; from then on it ends in
exactly one outcome per language. Utterances outside the window wait in the backlog. Only the
session's owner may submit: a former owner is refused by its fence and gives up.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lingua_scheduler.flag import Flag
from lingua_scheduler.runtime.job_builder import (
    build_job,
    others_of,
    spec_for_readers,
    stream_of,
)
from lingua_scheduler.session.utterance import STREAM_START, StreamPosition
from lingua_scheduler.state.records import AS_SPOKEN, LaneFill, Submitted
from lingua_scheduler.state.reply import ADMITTED, Reply

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lingua_scheduler.clock import Clock
    from lingua_scheduler.config import SegmentationSettings
    from lingua_scheduler.rooms.audience import AudienceFinder
    from lingua_scheduler.runtime.acceptances import AcceptanceQueue
    from lingua_scheduler.runtime.backlog import UtteranceBacklog
    from lingua_scheduler.runtime.buffered_slices import BufferedSlices
    from lingua_scheduler.runtime.in_flight import InFlightWindow
    from lingua_scheduler.runtime.job import LiveJob
    from lingua_scheduler.runtime.job_builder import JobContext
    from lingua_scheduler.runtime.job_log import JobLog
    from lingua_scheduler.runtime.job_table import JobTable
    from lingua_scheduler.runtime.place_filler import PlaceFiller
    from lingua_scheduler.runtime.requests import Requests
    from lingua_scheduler.runtime.session_state import SessionRecord
    from lingua_scheduler.runtime.stream_progress import StreamProgress
    from lingua_scheduler.runtime.submission import Submission
    from lingua_scheduler.runtime.utterance import PendingUtterance
    from lingua_scheduler.runtime.utterance_indices import UtteranceIndices
    from lingua_scheduler.runtime.utterance_replies import UtteranceReplies
    from lingua_scheduler.session.ledger import CoverageLedger, Fate
    from lingua_scheduler.state.records import JobSpec, ResumedSession
    from lingua_scheduler.state.script import Word
    from lingua_scheduler.tasks import Tasks

# Answers to a submit that mean that the store has taken a job that it did not have.
TAKEN = ADMITTED - {Reply.DUPLICATE}
# Why a job that was taken waits, if no known node serves it.
UNSERVED = (Reply.NO_POOL_FOR_LANG_PAIR, Reply.EMPTY_POOL)


@dataclass(slots=True, kw_only=True, eq=False)
class AdmissionParts:
    """The parts of one session that its admission works with."""

    record: SessionRecord
    ledger: CoverageLedger
    indices: UtteranceIndices
    progress: StreamProgress
    window: InFlightWindow
    backlog: UtteranceBacklog
    acceptances: AcceptanceQueue
    replies: UtteranceReplies
    submission: Submission
    filler: PlaceFiller
    requests: Requests


@dataclass(slots=True, kw_only=True, eq=False)
class Admission:
    """The utterances of one session between the segmenter and their outcomes."""

    parts: AdmissionParts
    audience: AudienceFinder
    jobs: JobTable
    slices: BufferedSlices
    cuts: SegmentationSettings
    # What the session adds to a job at a time.
    context: Callable[[float], JobContext]
    # Another instance is the owner; outcomes may be in the outbox that were not announced.
    give_up_session: Callable[[], None]
    catch_up: Callable[[], Awaitable[object]]
    on_utterance: Callable[[], None]
    clock: Clock
    tasks: Tasks
    log: JobLog
    # Set while nothing that was admitted waits for an outcome.
    idle: Flag = field(default_factory=Flag)
    # Set for a moment whenever the audience of another utterance is known.
    addressed: Flag = field(default_factory=Flag)

    def __post_init__(self) -> None:
        self.idle.set()

    def restore(self, former: ResumedSession) -> None:
        """Continue where a former owner stopped."""
        parts = self.parts
        parts.indices.restore(former)
        parts.progress.restore(former, parts.indices.next)
        parts.requests.known.restore()
        parts.window.restore(former.open, self.clock.now_ms())
        if parts.window.open:
            self.idle.clear()

    # The window

    def admit(self, utterance: PendingUtterance) -> None:
        """Admit an utterance that has its index: submit it, or let it wait for its turn."""
        parts = self.parts
        self.on_utterance()
        self.idle.clear()
        parts.acceptances.cut()
        is_late = utterance.index in parts.indices.late
        if self.audience.is_in_room(parts.record.id):
            # The store knows who is in the room now; later utterances wait for its answer.
            utterance.addressing()
            parts.backlog.add(utterance, is_first=is_late)
            self.tasks.start(self._find_audience(utterance))
            return
        utterance.address(utterance.profile.own_targets())
        if (parts.backlog.waiting and not is_late) or not parts.window.admits(utterance.index):
            parts.backlog.add(utterance)
            parts.backlog.press()
            if utterance.in_turn:
                self.tasks.start(self._make_room())
            return
        self._submit(utterance, utterance.cut_ms)

    async def _find_audience(self, utterance: PendingUtterance) -> None:
        """Find the audience of a room member's utterance, and its languages."""
        found = await self.audience.of_utterance(self.parts.record.id, utterance.profile)
        profile = utterance.profile.in_room() if found.is_room else None
        utterance.address(found.targets, found.readers, profile)
        self.addressed.set()
        self.addressed.clear()
        self.pump()
        self.parts.backlog.press()

    async def until_addressed(self) -> None:
        """Wait until the audience of everything that was cut is known."""
        while not self.parts.record.is_over and self.parts.backlog.is_addressing:
            await self.addressed.wait()

    def give_up(self) -> None:
        """Release everything that waits: another instance owns the session."""
        self.drop_backlog()
        self.parts.acceptances.give_up()
        self.addressed.set()

    def drop_backlog(self) -> None:
        """Drop utterances that wait to be submitted: their outcomes are not wanted."""
        self.parts.backlog.clear()
        self.idle.set()

    @property
    def is_owed(self) -> bool:
        """Tell whether any cut utterance has not been taken or refused by the store yet."""
        parts = self.parts
        return bool(
            parts.submission.entering
            or len(parts.backlog)
            or len(parts.acceptances)
            or len(parts.requests)
        )

    def has_room(self) -> bool:
        """Tell whether one more utterance may wait."""
        parts = self.parts
        waiting = len(parts.backlog.waiting) + len(parts.requests.line)
        return waiting < parts.backlog.waiting_max

    def close_turn(self, turn: str) -> bool:
        """Let a waiting slice close its turn; tells whether there is one."""
        for utterance in reversed(list(self.parts.backlog)):
            if utterance.turn_id == turn:
                utterance.close_turn()
                return True
        return False

    def pump(self) -> None:
        """Submit waiting utterances, as far as the window allows."""
        parts, backlog = self.parts, self.parts.backlog
        if parts.record.is_over:
            backlog.clear()
            parts.requests.clear()
            parts.acceptances.give_up()
        waiting = backlog.waiting
        while waiting and self._may_go(waiting[0]):
            self._submit(backlog.pop(), self.clock.now_ms())
        if waiting and waiting[0].in_turn:
            self.tasks.start(self._make_room())
        if backlog.is_paused:
            backlog.relax()
        if not waiting:
            if not parts.window.open and not parts.requests.line:
                self.idle.set()
            parts.acceptances.note_idle()

    def _may_go(self, utterance: PendingUtterance) -> bool:
        return not utterance.is_addressing and self.parts.window.admits(utterance.index)

    def settled(self, index: int, fate: Fate, reason: str, lane: str, now_ms: float) -> None:
        """Note the outcome of one language of an utterance."""
        parts = self.parts
        parts.ledger.settle(index, fate, reason, lane)
        is_last = parts.window.settle(index)
        if is_last is None:
            parts.indices.filled(index)
        elif is_last:
            parts.requests.known.settle(index, now_ms)
            self.pump()

    def expect(self, index: int, lanes: int) -> None:
        """Wait for the outcomes of a place that is filled without a job."""
        self.idle.clear()
        self.parts.window.add(index, lanes, self.clock.now_ms())
        if self.parts.indices.late:
            self.parts.indices.submitted(index)

    # Submission

    def _submit(self, utterance: PendingUtterance, now_ms: float) -> None:
        parts, index, lanes = self.parts, utterance.index, len(utterance.targets)
        length_ms = utterance.end_ms - utterance.start_ms
        parts.ledger.admit(index, length_ms, lanes or 1)
        if utterance.last_seq is not None:
            parts.progress.submit(utterance, is_resumable=parts.record.is_resumable)
        if not lanes:
            # All listeners speak this language: they need no node.
            self._skip(utterance, length_ms)
            return
        parts.progress.index_submitted(index)
        context = self.context(now_ms)
        parts.window.add(index, lanes, now_ms)
        parts.acceptances.submitted(utterance, lanes)
        self.tasks.begin(self._submit_jobs(utterance, self._jobs_of(utterance, context)))

    def _jobs_of(self, utterance: PendingUtterance, context: JobContext) -> list[LiveJob]:
        """Return the jobs of an utterance, one for each language."""
        parts, index, targets = self.parts, utterance.index, utterance.targets
        indices = parts.indices
        readers_from = indices.unheard_before(AS_SPOKEN, index) if utterance.readers else -1
        if indices.late:
            indices.submitted(index)
        heard, jobs = STREAM_START, []
        for target in targets:
            if target is targets[-1] and utterance.last_seq is not None:
                # With its last language all of the utterance is in the store.
                speech_ms = parts.progress.speech_ms
                heard = StreamPosition(utterance.last_seq, utterance.end_ms, speech_ms)
            job = build_job(
                context,
                utterance,
                target,
                self.cuts,
                unwanted_from=indices.unheard_before(target.lane, index),
                heard=heard,
            )
            if utterance.readers:
                job.with_spec(spec_for_readers(job.spec, readers_from))
            jobs.append(job)
        return jobs

    def _skip(self, utterance: PendingUtterance, length_ms: int) -> None:
        """End an utterance that needs no job; a later owner must know that."""
        parts = self.parts
        parts.ledger.settle(utterance.index, "skipped", "same_language")
        parts.requests.known.settle(utterance.index, self.clock.now_ms())
        parts.progress.skip(length_ms, is_streamed=utterance.is_streamed)
        if parts.record.is_resumable:
            parts.acceptances.submitted(utterance, 1)
            self.tasks.start(self._note_skipped(utterance))
        else:
            parts.acceptances.submitted(utterance, 0)
            utterance.taken()
            parts.acceptances.report(utterance)

    async def _note_skipped(self, utterance: PendingUtterance) -> None:
        parts, before, last_seq = self.parts, utterance.before, utterance.last_seq
        note: dict[str, Word] = {"passed": parts.progress.passed_field}
        if last_seq is not None:
            # Its client discards it: a later owner must not ask for it again and send it to others.
            top = utterance.index + 1
            note |= {"top": top, "heard": last_seq, "heard_ms": utterance.end_ms}
        reply = await parts.submission.note(note, before.seq)
        while reply is Reply.TOO_EARLY and not parts.record.is_over:
            await parts.submission.wait_for_turn(utterance.index, before)
            reply = await parts.submission.note(note, before.seq)
        # Otherwise its client sends it again elsewhere.
        is_taken = reply not in (Reply.FENCED, Reply.TOO_EARLY)
        if is_taken and last_seq is not None:
            parts.progress.store(last_seq, utterance.end_ms, parts.progress.stored.speech_ms)
        parts.acceptances.answered(utterance, is_taken)
        if not parts.backlog.waiting:
            parts.acceptances.note_idle()

    async def _submit_jobs(self, utterance: PendingUtterance, jobs: list[LiveJob]) -> None:
        """Bring an utterance into the store, in all its languages or not at all.

        If some were stored without the others, the next owner of the session would ask the client
        for the audio again, and those languages would get it twice.
        """
        answers = await self.parts.submission.submit(jobs)
        for job, answer in zip(jobs, answers, strict=True):
            if answer.reply in TAKEN:
                self._taken(job)
                self._answered(utterance, job, answer)
            else:
                self.tasks.begin(self._not_taken(utterance, job, answer))

    async def _not_taken(
        self, utterance: PendingUtterance, job: LiveJob, answer: Submitted
    ) -> None:
        """Act on the store's answer for a language that it refused, or had already."""
        self._answered(utterance, job, await self._entered(job, answer))

    def _answered(self, utterance: PendingUtterance, job: LiveJob, answer: Submitted) -> None:
        """Note the final answer for one language of an utterance."""
        parts = self.parts
        is_taken = answer.reply in ADMITTED
        parts.acceptances.answered(utterance, is_taken)
        if not parts.backlog.waiting:
            parts.acceptances.note_idle()
        if not is_taken:
            return
        if utterance.in_turn and (answer.reply is Reply.QUEUED or parts.backlog.waiting):
            self.tasks.begin(self._make_room())
        if answer.code in UNSERVED:
            parts.replies.unserved(job, answer)

    async def enter(self, job: LiveJob) -> Submitted:
        """Submit a job to the store; a job that is refused gets its outcome at once."""
        (answer,) = await self.parts.submission.submit([job])
        return await self._entered(job, answer)

    async def _entered(self, job: LiveJob, answer: Submitted) -> Submitted:
        """Act on the store's final answer for a job."""
        if answer.reply in TAKEN:
            self._taken(job)
        elif answer.reply is Reply.FENCED:
            self.jobs.remove(job)  # if the answer came after the session was given up
            self.give_up_session()
        elif answer.reply is Reply.DUPLICATE:
            self._note_stored(job.spec)
            answer = await self._met(job, answer)
        else:
            await self._refused(job, answer)
        return answer

    def _taken(self, job: LiveJob) -> None:
        """Note that the store has a job that it did not have before."""
        if job.spec.heard >= 0:
            self._note_stored(job.spec)
        job.stored()

    def _note_stored(self, spec: JobSpec) -> None:
        self.parts.progress.store(spec.heard, spec.heard_ms, spec.speech)

    async def _met(self, job: LiveJob, answer: Submitted) -> Submitted:
        """Handle a job that the store already has: this one, or another of the same request."""
        known = answer.known
        if known is None or not known.is_place_of(job.spec):
            self.jobs.remove(job)
            return await self.parts.requests.follow(job, answer)
        job.stored()
        if answer.state == "RELEASED":
            await self.catch_up()
            if self.jobs.get(job.id) is job:
                # It ended in a former epoch and was counted then: only its place is open.
                await self._refused(job, answer, is_counted=True)
        return answer

    async def _make_room(self) -> None:
        """End a slice that its node buffers, so that a long speech goes on."""
        await self.slices.make_room(self.parts.record.id, self.cuts.max_duration_ms)

    async def _refused(self, job: LiveJob, answer: Submitted, *, is_counted: bool = False) -> None:
        """Give the place of a job that the store refused an explicit outcome."""
        parts, spec = self.parts, job.spec
        self.jobs.remove(job)
        if parts.record.is_over:
            # No client waits for its outcome, and nothing would remove it from the outbox.
            self.unfilled(spec, answer.reply)
            return
        parts.replies.not_taken(job, answer)
        self.log.refused(job, answer)
        parts.requests.forget(job.request_id)
        outcome = LaneFill(
            ms=0 if is_counted else spec.ms,
            lanes=spec.lanes,
            others=others_of(spec),
            stream=stream_of(spec),
        )
        if await parts.filler.fill(spec, outcome):
            self._note_stored(spec)

    def unfilled(self, spec: JobSpec, reply: Reply) -> None:
        """Note that a place could not be filled: its outcome is not waited for any more."""
        self.settled(spec.index, "failed", reply.name, spec.lane, self.clock.now_ms())
