"""From a cut to the store: numbers, the window of what is under way, submission, refusals.

One per session. An utterance is admitted when its jobs are in the store; from then on it ends in
exactly one outcome per language. What the window does not allow yet waits here, in order and
bounded. Only the session's owner may submit: a former one is refused by its fence and gives up.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from lingua_scheduler.errors import InvalidMessage
from lingua_scheduler.live.assembly import (
    job_of,
    others_of,
    spec_after,
    spec_for_readers,
    spec_heard,
    stream_of,
)
from lingua_scheduler.live.piece import STREAM_BEGIN, Piece, StreamEnd
from lingua_scheduler.live.reopening import Reopening
from lingua_scheduler.live.requests import Requests
from lingua_scheduler.live.submission import Submission
from lingua_scheduler.messages.codes import ErrorCode
from lingua_scheduler.session.rate import TokenBucket
from lingua_scheduler.state.records import AS_SPOKEN, Answer, JobSpec, Submitted
from lingua_scheduler.state.reply import ADMITTED, Reply

if TYPE_CHECKING:
    from lingua_scheduler.config import Settings
    from lingua_scheduler.live.board import JobBoard
    from lingua_scheduler.live.hall import Hall
    from lingua_scheduler.live.job import LiveJob
    from lingua_scheduler.live.profile import Target
    from lingua_scheduler.live.requests import Asked
    from lingua_scheduler.live.session import LiveSession
    from lingua_scheduler.messages.from_client import Utterance
    from lingua_scheduler.session.ledger import Fate
    from lingua_scheduler.state.records import Resumed
    from lingua_scheduler.state.script import Word

# A client may begin anywhere up to here; the store's own bound is far beyond it.
INDEX_MAX = 1 << 32


class Admission:
    """The utterances of one session between the segmenter and their outcomes."""

    def __init__(
        self, session: LiveSession, board: JobBoard, hall: Hall, settings: Settings
    ) -> None:
        self._session = session
        self._board = board
        self._hall = hall
        self._clock = board.clock
        self._metrics = board.metrics
        self._jobs = settings.jobs
        self._cuts = settings.segmentation
        # In local mode nobody else could read it back: this process has it in memory.
        self._retains_audio = settings.jobs.retain_audio and settings.deployment_mode != "local"
        self._backlog_max = settings.sessions.backlog_max
        self._pause_at = -(-3 * self._backlog_max // 4)
        self._bucket = TokenBucket(
            settings.sessions.utterances_per_s_max, settings.sessions.utterances_per_s_max
        )
        self._whole = board.metrics.web_task_finalized_total.labels(reason="send")
        # The next free utterance index, and those a client left out that may still come.
        self.next_index = 0
        self._skipped: set[int] = set()
        # Those of them that came after all and are not submitted yet.
        self._late: set[int] = set()
        # What is known of whole utterances, and those that wait to be known.
        self.requests = Requests(session, self, board, settings)
        # Lane -> the next index it has not heard of.
        self._lane_next: dict[str, int] = {}
        # What a later owner goes on from: the next free index, the last admitted chunk and its end.
        self.top = 0
        self.heard = (-1, 0)
        # Where the stream ends as far as it was submitted, in the store or on its way there.
        self._submitted_to = STREAM_BEGIN
        # How much of the stream was given jobs, up to there and in all; and what had none: all of
        # it, and in the stream.
        self.speech_ms = 0
        self.heard_speech_ms = 0
        self.passed_ms = (0, 0)
        # Utterances in the store without all their outcomes: index -> lanes still open.
        self.open: dict[int, int] = {}
        # Since when there are such.
        self.waiting_since_ms = 0.0
        self.backlog: deque[Piece] = deque()
        # Pieces of the stream in the order of their audio, and so is the client told of them: what
        # is before a chunk it was told of it may forget.
        self._untold: deque[Piece] = deque()
        # Languages of pieces that the store has not answered for; set while it owes no answer.
        self._unanswered = 0
        self.taken = asyncio.Event()
        self.taken.set()
        # Set for a moment whenever it is known who hears another one.
        self._asked = asyncio.Event()
        self._reopening = Reopening(session, self, board)
        self.reopen, self.submit_again = self._reopening.reopen, self._reopening.submit_again
        self._submission = Submission(session, board, self.requests, self.reopen, self._untold)
        self.idle = asyncio.Event()
        self.idle.set()
        self.paused = False

    def go_on(self, former: Resumed) -> None:
        """Take up where another instance was."""
        self._lane_next = dict(former.lanes)
        # A place that was filled for one that was refused is taken as well.
        self.next_index = self.top = max(former.next_index, *self._lane_next.values(), 0)
        self.heard = (former.heard, former.heard_ms)
        self.speech_ms = self.heard_speech_ms = former.speech.in_stream
        self._submitted_to = StreamEnd(former.heard, former.heard_ms, self.speech_ms)
        self.passed_ms = (former.speech.passed, former.speech.passed_in_stream)
        self.requests.must_ask = True
        for index in former.open:
            self.open[index] = self.open.get(index, 0) + 1
        if self.open:
            self.waiting_since_ms = self._clock.now_ms()
            self.idle.clear()

    # Whole utterances

    def utterance(self, message: Utterance) -> None:
        """Take one whole utterance."""
        session, now = self._session, self._clock.now_ms()
        teller = session.teller
        if self._board.draining:
            teller.draining(message)
            return
        if not self._bucket.take(now):
            teller.refuse(ErrorCode.RATE_LIMITED, "too many utterances per second", message)
            return
        profile = session.profile.for_utterance(message)
        profile.audio.check_utterance(len(message.audio))
        if not self.has_room():
            self._refuse_full(message)
            return
        self.requests.take(message, session.profile.for_utterance(message))

    def whole(self, asked: Asked) -> int:
        """Admit a whole utterance that is new; returns the index it gets."""
        session, message, profile = self._session, asked.message, asked.profile
        index, now = self._index_for(message), self._clock.now_ms()
        self._whole.inc()
        length = int(profile.audio.duration_ms(len(message.audio)))
        piece = Piece(
            index, message.audio, profile, (), message.trace_id or session.trace_id,
            "manual" if message.manual_cut else "whole", now, now, 0, length,
            f"{session.id}-u{index}",
        )  # fmt: skip
        if message.request_id is not None:
            piece.request_id, piece.sound = message.request_id, str(asked.sound)
        if index != message.utterance_index:
            piece.requested_index = message.utterance_index
        self.admit(piece)
        return index

    def place(self, asked: Asked, lanes: tuple[str, ...]) -> list[JobSpec]:
        """Give a whole utterance its place in the order: its answer is there, it needs no job."""
        session, message = self._session, asked.message
        index = self._index_for(message)
        length = int(asked.profile.audio.duration_ms(len(message.audio)))
        session.ledger.admit(index, length, lanes=len(lanes))
        self.idle.clear()
        if not self.open:
            self.waiting_since_ms = self._clock.now_ms()
        self.open[index] = len(lanes)
        self._late.discard(index)
        return [
            self.in_lane(
                JobSpec(
                    session=session.id, index=index, lane=lane, demand="", ms=length,
                    lanes=len(lanes),
                )
            )
            for lane in lanes
        ]  # fmt: skip

    def _refuse_full(self, message: Utterance) -> None:
        """Too much waits: for those before it, or for a store that cannot be reached."""
        code, why = ErrorCode.BUSY, "too many utterances wait"
        if not self._board.store_is_there:
            code = ErrorCode.SCHEDULER_DEPENDENCY_DOWN
            why = code.hint
        self._session.teller.refuse(code, why, message)

    def _index_for(self, message: Utterance) -> int:
        """Return the index a whole utterance gets."""
        asked = message.utterance_index
        if asked > INDEX_MAX:
            raise InvalidMessage(f"utterance_index {asked} is too far ahead of any speech")
        if asked in self._skipped:
            self._skipped.discard(asked)
            self._late.add(asked)
        elif asked < self.next_index:
            asked = self.next_index
        elif asked >= self.next_index + self._jobs.in_flight_max and self.next_index:
            raise InvalidMessage(
                f"utterance_index {asked} is too far ahead: the next one is {self.next_index}"
            )
        elif self.next_index:
            self._skipped.update(range(self.next_index, asked))
        self.next_index = max(self.next_index, asked + 1)
        return asked

    # The window

    def admit(self, piece: Piece) -> None:
        """Take an utterance that has its number: submit it, or let it wait for its turn."""
        self._metrics.utterances_total.inc()
        self.idle.clear()
        self.taken.clear()
        # Others wait for one that comes late, so that it must not wait for them.
        is_late = piece.index in self._late
        if self._hall.is_in_room(self._session):
            # Who is there now is known to the store; those behind it wait so long.
            piece.is_asking = True
            (self.backlog.appendleft if is_late else self.backlog.append)(piece)
            self._board.tasks.start(self._ask_for_audience(piece))
            return
        piece.targets = piece.profile.own_targets()
        if (self.backlog and not is_late) or not self._in_window(piece.index):
            self.backlog.append(piece)
            self._press()
            if piece.in_turn:
                self._board.tasks.start(self._make_room())
            return
        self._submit(piece)

    async def _ask_for_audience(self, piece: Piece) -> None:
        """Find out who hears an utterance of a member of a room, and in which languages."""
        hall, session = self._hall, self._session
        audience = await hall.audience_of(session, piece.profile)
        piece.targets, piece.readers = audience.targets, audience.readers
        if audience.is_room:
            piece.profile = piece.profile.in_room()
        piece.is_asking = False
        self._asked.set()
        self._asked.clear()
        self.pump()
        self._press()

    def give_up(self) -> None:
        """The session is another's now: nothing waits here any more."""
        self.backlog.clear()
        self.idle.set()
        self.taken.set()
        self._asked.set()

    async def addressed(self) -> None:
        """Wait until it is known of all that was cut who hears it."""
        while not self._session.lapsed and any(piece.is_asking for piece in self.backlog):
            await self._asked.wait()

    def _may_go(self, piece: Piece) -> bool:
        return not piece.is_asking and self._in_window(piece.index)

    def _pass(self, piece: Piece, length: int) -> None:
        """An utterance that needs no job has ended; a later owner must know that, too."""
        session = self._session
        session.ledger.settle(piece.index, "skipped", "same_language")
        whole, in_stream = self.passed_ms
        self.passed_ms = (whole + length, in_stream + (length if piece.last_seq is not None else 0))
        if piece.last_seq is not None:
            self._untold.append(piece)
        if session.is_resumable:
            piece.unanswered = 1
            self._unanswered += 1
            self._board.tasks.start(self._note_passed(piece))
        else:
            piece.is_taken = True
            self._tell_accepted(piece)

    async def _note_passed(self, piece: Piece) -> None:
        session = self._session
        note: dict[str, Word] = {"passed": self.passed_field}
        if piece.last_seq is not None:
            # Its client forgets it: it must not be asked for again, and then be heard by others.
            top = piece.index + 1
            note |= {"top": top, "heard": piece.last_seq, "heard_ms": piece.end_ms}
        reply = await self._submission.note(note, piece.before.seq)
        while reply is Reply.TOO_EARLY and not session.lapsed:
            await self._submission.wait_for_turn(piece.index, piece.before)
            reply = await self._submission.note(note, piece.before.seq)
        piece.unanswered -= 1
        self._unanswered -= 1
        # Else its client says it again elsewhere.
        piece.is_taken = reply not in (Reply.FENCED, Reply.TOO_EARLY)
        if piece.is_taken and piece.last_seq is not None:
            self._note_heard(piece.last_seq, piece.end_ms, self.heard_speech_ms)
        self._tell_accepted(piece)
        self._note_taken()

    def _note_heard(self, seq: int, end_ms: int, speech_ms: int) -> None:
        """Take note of how much of the stream the store has."""
        if seq > self.heard[0]:
            self.heard, self.heard_speech_ms = (seq, end_ms), speech_ms

    @property
    def passed_field(self) -> str:
        """Return how the store keeps what had no job."""
        whole, in_stream = self.passed_ms
        return f"{whole} {in_stream}"

    def _in_window(self, index: int) -> bool:
        if not self.open:
            return True
        return index - min(self.open) < self._jobs.in_flight_max

    @property
    def is_owed(self) -> bool:
        """Tell whether anything was cut that the store has not taken or refused yet."""
        return bool(self._submission.entering or self.backlog or self._untold or len(self.requests))

    def has_room(self) -> bool:
        """Tell whether one more utterance may wait."""
        return len(self.backlog) + len(self.requests) < self._backlog_max

    def _press(self) -> None:
        waiting, teller = len(self.backlog), self._session.teller
        # Some way before nothing more is taken: what is on its way still has a place.
        if waiting >= self._pause_at and not self.paused:
            self.paused = True
            teller.pressure("PAUSE")
        elif waiting == self._backlog_max // 2 and not self.paused:
            teller.pressure("SLOW_DOWN")

    def pump(self) -> None:
        """Submit what waited, as far as the window allows."""
        if self._session.lapsed:
            self.backlog.clear()
            self.requests.clear()
            self.taken.set()
        while self.backlog and self._may_go(self.backlog[0]):
            self._submit(self.backlog.popleft())
        if self.backlog and self.backlog[0].in_turn:
            self._board.tasks.start(self._make_room())
        if self.paused and len(self.backlog) <= self._backlog_max // 2:
            self.paused = False
            self._session.teller.pressure("RESUME")
        if not self.open and not self.backlog and not len(self.requests):
            self.idle.set()
        self._note_taken()

    def settled(self, index: int, fate: Fate, reason: str, lane: str) -> None:
        """One language of an utterance has had its outcome."""
        self._session.ledger.settle(index, fate, reason, lane)
        left = self.open.get(index)
        if left is None:
            # Its place was filled: it is waited for no longer.
            self._skipped.discard(index)
            return
        if left > 1:
            self.open[index] = left - 1
            return
        del self.open[index]
        self.pump()

    # Submission

    def _submit(self, piece: Piece) -> None:
        session, length = self._session, piece.end_ms - piece.start_ms
        session.ledger.admit(piece.index, length, lanes=max(1, len(piece.targets)))
        if piece.last_seq is not None:
            self._follow_stream(piece, length)
        if not piece.targets:
            # Everyone who listens speaks this language: their ears need no node.
            self._pass(piece, length)
            return
        if not self.open:
            self.waiting_since_ms = self._clock.now_ms()
        self.open[piece.index] = len(piece.targets)
        self.top = max(self.top, piece.index + 1)
        piece.unanswered = len(piece.targets)
        self._unanswered += piece.unanswered
        if piece.last_seq is not None:
            self._untold.append(piece)
        last = len(piece.targets) - 1
        readers_from = self.unheard_before(AS_SPOKEN, piece.index) if piece.readers else -1
        jobs = []
        for number, target in enumerate(piece.targets):
            # With the last language all of the piece is in the store: its audio is admitted.
            job = self._make(piece, target, is_whole=number == last)
            if piece.readers:
                job.spec = spec_for_readers(job.spec, readers_from)
            jobs.append(job)
        self._board.tasks.start(self._submit_jobs(piece, jobs))

    def _follow_stream(self, piece: Piece, length: int) -> None:
        """Take note of where a piece of the stream begins and ends.

        A later owner asks the client for what comes after the last one in the store: if one were
        there before those that precede it, the client would forget these, and nobody say them.
        """
        if piece.targets:
            self.speech_ms += length
        if self._session.is_resumable and piece.last_seq is not None:
            piece.before = self._submitted_to
            self._submitted_to = StreamEnd(piece.last_seq, piece.end_ms, self.speech_ms)

    async def _submit_jobs(self, piece: Piece, jobs: list[LiveJob]) -> None:
        """Bring an utterance into the store, in all its languages or not at all.

        If some were in without the others, whoever goes on with the session would take the audio
        from the client again, and those languages would say it twice.
        """
        first, *others = jobs
        first_answer, *answers = await self._submission.insist(jobs)
        for job, answer in zip(others, answers, strict=True):
            self._board.tasks.start(self._answered(piece, job, answer))
        await self._answered(piece, first, first_answer)

    async def _answered(self, piece: Piece, job: LiveJob, answer: Submitted) -> None:
        """The store has said what becomes of one language of an utterance."""
        session, answer = self._session, await self._entered(job, answer)
        piece.unanswered -= 1
        self._unanswered -= 1
        piece.is_taken |= answer.reply in ADMITTED
        self._tell_accepted(piece)
        self._note_taken()
        if answer.reply not in ADMITTED:
            return
        if piece.in_turn and (answer.reply is Reply.QUEUED or self.backlog):
            await self._make_room()
        if answer.code in (Reply.NO_POOL_FOR_LANG_PAIR, Reply.EMPTY_POOL):
            session.teller.unserved(job, answer)

    def _note_taken(self) -> None:
        if not self._unanswered and not self.backlog:
            self.taken.set()

    def _tell_accepted(self, piece: Piece) -> None:
        """Tell that a piece is in the store, in all its languages, and those before it too."""
        session, untold = self._session, self._untold
        if piece.last_seq is None and not piece.unanswered and piece.is_taken:
            session.teller.accepted(piece)
        while untold and not untold[0].unanswered:
            told = untold.popleft()
            if told.is_taken and told.last_seq is not None:
                session.teller.accepted(told)
                session.acked_audio = max(session.acked_audio, told.last_seq)

    async def enter(self, job: LiveJob) -> Submitted:
        """Bring a job into the store; one that is not taken gets its outcome at once."""
        (answer,) = await self._submission.insist([job])
        return await self._entered(job, answer)

    async def _entered(self, job: LiveJob, answer: Submitted) -> Submitted:
        """Do what the store's last word on a job means for it."""
        if answer.reply in ADMITTED:
            self._note_heard(job.spec.heard, job.spec.heard_ms, job.spec.speech)
        if answer.reply is Reply.FENCED:
            if self._board.jobs.get(job.id) is job:
                del self._board.jobs[job.id]  # it came after the session was dropped
            self._session.drop()
        elif answer.reply is Reply.DUPLICATE:
            answer = await self._met(job, answer)
        elif answer.reply not in ADMITTED:
            await self._refused(job, answer)
        else:
            job.may_be_in = True
        return answer

    async def _met(self, job: LiveJob, answer: Submitted) -> Submitted:
        """The store has such a job: this very one, or that of the same request sent elsewhere."""
        jobs, known = self._board.jobs, answer.known
        if known is None or not known.is_place_of(job.spec):
            if jobs.get(job.id) is job:
                del jobs[job.id]
            return await self.requests.follow(job, answer)
        job.may_be_in = True
        if answer.state == "RELEASED":
            await self._board.insist(self._session.deliverer.catch_up)
            if jobs.get(job.id) is job:
                # It ended under a former epoch, and was counted then: only its place is open.
                await self._refused(job, answer, is_counted=True)
        return answer

    async def _make_room(self) -> None:
        """A long speech fills its old node with slices it buffers: the oldest has had its time."""
        board = self._board
        while (job := board.buffered_slice(self._session)) is not None:
            age_ms = self._clock.now_ms() - job.marks.push
            await asyncio.sleep(max(0.0, self._cuts.max_duration_ms - age_ms) / 1000)
            if board.jobs.get(job.id) is job and job.state == "assigned":
                await board.end_buffered_slice(job)
                return

    async def _refused(self, job: LiveJob, answer: Submitted, *, is_counted: bool = False) -> None:
        """The store does not take the job: its place in the order gets an explicit outcome."""
        board, spec, session = self._board, job.spec, self._session
        if board.jobs.get(job.id) is job:
            del board.jobs[job.id]
        if session.lapsed:
            # Nobody waits for its outcome, and nobody would ever take it out of the outbox.
            self.settled(spec.index, "failed", answer.reply.name, spec.lane)
            return
        session.teller.not_taken(job, answer)
        board.journal.refused(job, answer)
        self.requests.forget(job.request_id)
        put = Answer(
            ms=0 if is_counted else spec.ms, lanes=spec.lanes, others=others_of(spec),
            stream=stream_of(spec),
        )  # fmt: skip
        if await self.fill(spec, put):
            self._note_heard(spec.heard, spec.heard_ms, spec.speech)

    async def fill(self, spec: JobSpec, answer: Answer) -> bool:
        """Give a place in the order the outcome that it has without a job; tells whether it has."""
        board, session = self._board, self._session
        reply = Reply.FENCED
        while reply is Reply.FENCED and not session.lapsed:
            fence = session.fence
            answered, work = await board.insist(
                partial(
                    board.dispatcher.fill, session.home, session.id, spec.lane, answer=answer,
                    index=spec.index, unwanted_from=spec.unwanted_from, fence=fence,
                )
            )  # fmt: skip
            board.perform(work)
            reply = answered.reply
            if reply is Reply.FENCED and fence == session.fence:
                await self.reopen()  # another is the owner, or the store forgot that we are
        if reply is Reply.SETTLED:
            return True
        self.settled(spec.index, "failed", reply.name, spec.lane)
        return False

    # Lanes

    def _make(self, piece: Piece, target: Target, *, is_whole: bool) -> LiveJob:
        job = job_of(self._session, piece, target, self._cuts, retain_audio=self._retains_audio)
        self._late.discard(piece.index)
        job.spec = self.in_lane(job.spec)
        if is_whole and piece.last_seq is not None:
            job.spec = spec_heard(job.spec, piece.last_seq, piece.end_ms, self.speech_ms)
        job.marks.submit = self._clock.now_ms()
        job.received_at_ms = self._clock.wall_ms()
        return job

    def forget_lanes(self) -> None:
        """The store knows of none: the first utterance of each tells where it begins."""
        self._lane_next.clear()

    def in_lane(self, spec: JobSpec) -> JobSpec:
        """Declare what this lane will never hear of: indices that other languages had alone."""
        known = self.unheard_before(spec.lane, spec.index)
        return spec if spec.unwanted_from == known else spec_after(spec, known)

    def unheard_before(self, lane: str, index: int) -> int:
        """Return from where on a lane has not heard of indices before this one and never will.

        -1 if there are none, or only such as may still come: these are waited for.
        """
        known = self._lane_next.get(lane, 0)
        self._lane_next[lane] = max(known, index + 1)
        before = range(known, index)
        if all(at in self._skipped or at in self._late for at in before):
            return -1
        # Whoever was left out among others' indices gets a new index if it comes after all.
        self._skipped = {at for at in self._skipped if at not in before}
        return known
