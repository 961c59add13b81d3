"""From a cut to the store: numbers, the window of what is under way, submission, refusals.

One per session. An utterance is admitted when its jobs are in the store; from then on it ends in
exactly one outcome per language. What the window does not allow yet waits here, in order and
bounded. Only the session's owner may submit: a former one is refused by its fence and gives up.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from lingua_scheduler.errors import InvalidMessage
from lingua_scheduler.live.assembly import job_of, spec_after, spec_of_owner
from lingua_scheduler.messages.codes import ErrorCode
from lingua_scheduler.session.rate import TokenBucket
from lingua_scheduler.state.reply import Reply

if TYPE_CHECKING:
    from lingua_scheduler.config import Settings
    from lingua_scheduler.live.board import JobBoard
    from lingua_scheduler.live.hall import Hall
    from lingua_scheduler.live.job import LiveJob
    from lingua_scheduler.live.profile import Profile, Target
    from lingua_scheduler.live.session import LiveSession
    from lingua_scheduler.messages.from_client import Utterance
    from lingua_scheduler.session.ledger import Fate
    from lingua_scheduler.state.records import JobSpec, Resumed, Submitted

ADMITTED = frozenset({Reply.PLACED, Reply.QUEUED, Reply.SETTLED, Reply.HELD, Reply.DUPLICATE})
# Refusals that pass by themselves: the utterance waits here and is submitted again.
PASSING = frozenset({Reply.IN_FLIGHT_LIMIT, Reply.OUTBOX_FULL})
LOST = frozenset({Reply.NO_SESSION, Reply.SESSION_CLOSED})
AGAIN_S = 0.1
KNOWN_INDICES_MAX = 1024
# A client may begin anywhere up to here; the store's own bound is far beyond it.
INDEX_MAX = 1 << 32


@dataclass(slots=True)
class Piece:
    """An utterance on its way to the store."""

    index: int
    audio: bytes
    profile: Profile
    targets: tuple[Target, ...]
    trace_id: str
    trigger: str
    speech_end_ms: float
    cut_ms: float
    start_ms: int = 0
    end_ms: int = 0
    turn: str = ""
    # A slice of a longer speech, or the piece that closes one: its jobs belong on one node.
    in_turn: bool = False
    is_slice: bool = False
    first_seq: int | None = None
    last_seq: int | None = None
    first_client_ts_ms: int | None = None
    requested_index: int | None = None
    request_id: str | None = None
    # Languages the store has not answered for yet, and whether it took any.
    unanswered: int = 0
    is_taken: bool = False
    accepted: bool = False


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
        # Whole utterances by request id, or by the index they came with: sound, index they got.
        self._known: dict[str | int, tuple[int, int]] = {}
        # Lane -> the next index it has not heard of.
        self._lane_next: dict[str, int] = {}
        # What a later owner goes on from: the next free index, the last admitted chunk and its end.
        self.top = 0
        self.heard = (-1, 0)
        # Utterances in the store without all their outcomes: index -> lanes still open.
        self.open: dict[int, int] = {}
        # Since when there are such.
        self.waiting_since_ms = 0.0
        self.backlog: deque[Piece] = deque()
        # Pieces of the stream in the order of their audio, and so is the client told of them: what
        # is before a chunk it was told of it may forget.
        self._untold: deque[Piece] = deque()
        # Jobs whose admission the store has not confirmed yet.
        self.entering = 0
        # One at a time finds out where the store stands.
        self._reopening = asyncio.Lock()
        self.idle = asyncio.Event()
        self.idle.set()
        self.paused = False

    def go_on(self, former: Resumed) -> None:
        """Take up where another instance was."""
        self.next_index = self.top = former.next_index
        self.heard = (former.heard, former.heard_ms)
        self._lane_next = dict(former.lanes)
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
            teller.refuse(ErrorCode.SESSION_CLOSED, "the instance stops: reconnect", message)
            return
        if not self._bucket.take(now):
            teller.refuse(ErrorCode.RATE_LIMITED, "too many utterances per second", message)
            return
        if not message.audio:
            raise InvalidMessage("audio is empty")
        if not self.has_room():
            self._refuse_full(message)
            return
        profile = session.profile.for_utterance(message)
        index = self._index_for(message)
        if index is None:
            return
        self._whole.inc()
        length = int(profile.audio.duration_ms(len(message.audio)))
        piece = Piece(
            index, message.audio, profile, (), message.trace_id or session.trace_id,
            "manual" if message.manual_cut else "whole", now, now, 0, length,
            f"{session.id}-u{index}",
        )  # fmt: skip
        piece.request_id = message.request_id
        if index != message.utterance_index:
            piece.requested_index = message.utterance_index
        self.admit(piece)

    def _refuse_full(self, message: Utterance) -> None:
        """Too much waits: for those before it, or for a store that cannot be reached."""
        code, why = ErrorCode.BUSY, "too many utterances wait"
        if not self._board.store_is_there:
            code = ErrorCode.SCHEDULER_DEPENDENCY_DOWN
            why = code.hint
        self._session.teller.refuse(code, why, message)

    def _index_for(self, message: Utterance) -> int | None:
        """Return the index an utterance gets; None if it is a repetition that is answered."""
        asked = message.utterance_index
        # A request id says by itself what is a repetition; without one it must sound the same.
        name: str | int = message.request_id or asked
        sound = 0 if message.request_id else hash((message.trace_id, message.audio))
        known = self._known.get(name)
        if known is not None and known[0] == sound:
            self._metrics.duplicate_job_blocked_total.inc()
            self._board.tasks.start(self._session.deliverer.repeat(known[1]))
            return None
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
        self._known[name] = (sound, asked)
        if len(self._known) > KNOWN_INDICES_MAX:
            del self._known[next(iter(self._known))]
        return asked

    # The window

    def admit(self, piece: Piece) -> None:
        """Take an utterance that has its number: submit it, or let it wait for its turn."""
        session = self._session
        self._metrics.utterances_total.inc()
        audience = self._hall.audience_of(session, piece.profile)
        piece.targets = audience.targets
        if audience.is_room:
            piece.profile = piece.profile.in_room()
        length = piece.end_ms - piece.start_ms
        session.ledger.admit(piece.index, length, lanes=max(1, len(piece.targets)))
        if audience.same_language:
            session.deliverer.transcripts.expect(
                piece.index, len(piece.targets), audience.same_language, self._skipped
            )
        if not piece.targets:
            # Everyone who listens speaks this language: their ears need no node.
            session.ledger.settle(piece.index, "skipped", "same_language")
            session.teller.accepted(piece)
            return
        self.idle.clear()
        # Others wait for one that comes late, so that it must not wait for them.
        is_late = piece.index in self._late
        if (self.backlog and not is_late) or not self._in_window(piece.index):
            self.backlog.append(piece)
            self._press()
            if piece.in_turn:
                self._board.tasks.start(self._make_room())
            return
        self._submit(piece)

    def _in_window(self, index: int) -> bool:
        if not self.open:
            return True
        return index - min(self.open) < self._jobs.in_flight_max

    @property
    def is_owed(self) -> bool:
        """Tell whether anything was cut that the store has not taken or refused yet."""
        return bool(self.entering or self.backlog or self._untold)

    def has_room(self) -> bool:
        """Tell whether one more utterance may wait."""
        return len(self.backlog) < self._backlog_max

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
        while self.backlog and self._in_window(self.backlog[0].index):
            self._submit(self.backlog.popleft())
        if self.backlog and self.backlog[0].in_turn:
            self._board.tasks.start(self._make_room())
        if self.paused and len(self.backlog) <= self._backlog_max // 2:
            self.paused = False
            self._session.teller.pressure("RESUME")
        if not self.open and not self.backlog:
            self.idle.set()

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
        if not self.open:
            self.waiting_since_ms = self._clock.now_ms()
        self.open[piece.index] = len(piece.targets)
        self.top = max(self.top, piece.index + 1)
        piece.unanswered = len(piece.targets)
        if piece.last_seq is not None:
            self._untold.append(piece)
        last = len(piece.targets) - 1
        for number, target in enumerate(piece.targets):
            # With the last language all of the piece is in the store: its audio is admitted.
            job = self._make(piece, target, is_whole=number == last)
            self._board.tasks.start(self._submit_job(piece, job))

    async def _submit_job(self, piece: Piece, job: LiveJob) -> None:
        answer = await self.enter(job)
        session = self._session
        piece.unanswered -= 1
        piece.is_taken |= answer.reply in ADMITTED
        self._tell_accepted(piece)
        if answer.reply not in ADMITTED:
            return
        if piece.in_turn and (answer.reply is Reply.QUEUED or self.backlog):
            await self._make_room()
        if answer.code in (Reply.NO_POOL_FOR_LANG_PAIR, Reply.EMPTY_POOL):
            session.teller.unserved(job, answer)

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
        self.entering += 1
        job.entering = True
        try:
            answer = await self._insist(job)
        finally:
            self.entering -= 1
            job.entering = False
        if answer.reply in ADMITTED and job.spec.heard > self.heard[0]:
            self.heard = (job.spec.heard, job.spec.heard_ms)
        if answer.reply is Reply.FENCED:
            if self._board.jobs.get(job.id) is job:
                del self._board.jobs[job.id]  # it came after the session was dropped
            self._session.drop()
        elif answer.reply not in ADMITTED or await self._is_anothers(job, answer):
            await self._refused(job, answer)
        else:
            job.may_be_in = True
        return answer

    async def _insist(self, job: LiveJob) -> Submitted:
        """Submit until the store takes the job or refuses it for good."""
        board, session = self._board, self._session
        answer = await board.submit(job)
        while not session.lapsed:
            if answer.reply in LOST:
                await self.reopen()
            elif answer.reply in PASSING:
                await board.insist(session.deliverer.trim)
                await asyncio.sleep(AGAIN_S)
            elif answer.reply is not Reply.FENCED:
                return answer
            elif job.spec.fence == session.fence:
                # Another is its owner, or the store forgot that we are: the higher number counts.
                await self.reopen()
            else:
                # The client came back to us meanwhile: we are its owner, by a later number.
                job.spec = spec_of_owner(job.spec, session.fence)
            answer = await board.submit(job)
        return answer

    async def _is_anothers(self, job: LiveJob, answer: Submitted) -> bool:
        """Tell whether a duplicate is of another utterance, or has ended under a former epoch."""
        if answer.reply is not Reply.DUPLICATE:
            return False
        if not job.may_be_in:
            return True  # a former owner of the session took it: its outcome has that place
        if answer.state == "RELEASED":
            await self._board.insist(self._session.deliverer.catch_up)
            return self._board.jobs.get(job.id) is job
        return self._board.jobs.get(job.id, job) is not job

    async def _make_room(self) -> None:
        """A long speech fills its old node with slices it buffers: the oldest has had its time."""
        board = self._board
        while (job := board.buffered_slice(self._session)) is not None:
            age_ms = self._clock.now_ms() - job.marks.push
            await asyncio.sleep(max(0.0, self._cuts.max_duration_ms - age_ms) / 1000)
            if board.jobs.get(job.id) is job and job.state == "assigned":
                await board.end_buffered_slice(job)
                return

    async def _refused(self, job: LiveJob, answer: Submitted) -> None:
        """The store does not take the job: its place in the order gets an explicit outcome."""
        board, spec, session = self._board, job.spec, self._session
        if board.jobs.get(job.id) is job:
            del board.jobs[job.id]
        if session.lapsed:
            # Nobody waits for its outcome, and nobody would ever take it out of the outbox.
            self.settled(spec.index, "failed", answer.reply.name, spec.lane)
            return
        session.teller.not_taken(job, answer)
        fence = session.fence
        answered, work = await board.insist(
            lambda: board.dispatcher.fill(
                session.home, session.id, spec.lane,
                index=spec.index, unwanted_from=spec.unwanted_from, fence=fence,
            )
        )  # fmt: skip
        board.perform(work)
        if answered.reply is Reply.FENCED:
            if fence == session.fence:
                await self.reopen()  # another is the owner, or the store forgot that we are
            await self._refused(job, answer)
        elif answered.reply is not Reply.SETTLED:
            self.settled(spec.index, "failed", answered.reply.name, spec.lane)

    # A store that lost its memory

    async def reopen(self, *, restart: bool = False) -> None:
        """The store forgot the session, or part of it: go on where we stand.

        With `restart` it went back behind what was delivered: positions start over.
        """
        board, session = self._board, self._session
        epoch_before = session.epoch
        async with self._reopening:
            if session.lapsed or session.epoch != epoch_before:
                return  # somebody was quicker
            reply, epoch, _ = await board.insist(lambda: session.open_in_store(restart=restart))
            if reply is Reply.FENCED:
                session.drop()
                return
            if epoch == epoch_before:
                return
            session.new_epoch(epoch)
        if reply is not Reply.OPENED:
            await self._fill_delivered()
            return
        self._lane_next.clear()
        # In order, so that the first one of each lane tells where the lane begins.
        for job in board.jobs_of(session):
            job.spec = self._in_lane(spec_of_owner(job.spec, session.fence))
            job.attempt, job.node = 0, ""
            if not job.entering:
                board.tasks.start(self.enter(job))

    async def _fill_delivered(self) -> None:
        """Places whose outcomes are out already, and which the store forgot, are not waited for."""
        board, session = self._board, self._session
        for lane, last in session.deliverer.done.items():
            reply, index = Reply.SETTLED, last
            while reply is not Reply.INDEX_RELEASED and index >= 0:
                where = {"index": index, "unwanted_from": -1, "fence": session.fence}
                answer, work = await board.insist(
                    partial(board.dispatcher.fill, session.home, session.id, lane, **where)
                )
                board.perform(work)
                reply, index = answer.reply, index - 1

    def submit_again(self) -> None:
        """The store may have lost what it confirmed last: whatever it knows already is a repeat."""
        for job in self._board.jobs_of(self._session):
            if not job.entering:
                job.spec = spec_of_owner(job.spec, self._session.fence)
                self._board.tasks.start(self.enter(job))

    # Lanes

    def _make(self, piece: Piece, target: Target, *, is_whole: bool) -> LiveJob:
        job = job_of(self._session, piece, target, self._cuts, retain_audio=self._retains_audio)
        self._late.discard(piece.index)
        job.spec = self._in_lane(job.spec)
        if is_whole and piece.last_seq is not None:
            job.spec = spec_of_owner(
                job.spec, self._session.fence, heard=piece.last_seq, heard_ms=piece.end_ms
            )
        job.marks.submit = self._clock.now_ms()
        job.received_at_ms = self._clock.wall_ms()
        return job

    def _in_lane(self, spec: JobSpec) -> JobSpec:
        """Declare what this lane will never hear of: indices that other languages had alone."""
        known = self._lane_next.get(spec.lane, 0)
        self._lane_next[spec.lane] = max(known, spec.index + 1)
        before = range(known, spec.index)
        if all(index in self._skipped or index in self._late for index in before):
            # None of them, or those that may still come: they are waited for.
            return spec if spec.unwanted_from < 0 else spec_after(spec, -1)
        # Whoever was left out among others' indices gets a new index if it comes after all.
        self._skipped = {index for index in self._skipped if index not in before}
        return spec_after(spec, known)
