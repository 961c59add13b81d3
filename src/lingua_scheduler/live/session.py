"""One speaker's session on this instance: audio in, utterances submitted, outcomes out in order.

Called from the frame callback: nothing here waits. What needs the store runs as a task of the
board. An utterance is admitted when its jobs are in the store; from then on it ends in exactly one
outcome per language, delivered here by position (`seq`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lingua_scheduler.errors import InvalidMessage
from lingua_scheduler.live.assembly import job_of, spec_after
from lingua_scheduler.live.delivery import Deliverer
from lingua_scheduler.live.teller import Teller
from lingua_scheduler.messages.codes import ErrorCode
from lingua_scheduler.messages.to_client import Gap
from lingua_scheduler.session.ledger import CoverageLedger
from lingua_scheduler.session.rate import TokenBucket
from lingua_scheduler.session.segmenter import Cut, Segmenter, SequenceGap
from lingua_scheduler.state.reply import Reply

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lingua_scheduler.config import Settings
    from lingua_scheduler.live.board import JobBoard
    from lingua_scheduler.live.hall import Hall
    from lingua_scheduler.live.job import LiveJob
    from lingua_scheduler.live.profile import Profile, Target
    from lingua_scheduler.live.teller import Outlet
    from lingua_scheduler.messages.from_client import SessionUpdate, Utterance
    from lingua_scheduler.session.ledger import Fate
    from lingua_scheduler.session.segmenter import Event
    from lingua_scheduler.state.keys import Cell
    from lingua_scheduler.state.records import JobSpec, Released, Submitted

ADMITTED = frozenset({Reply.PLACED, Reply.QUEUED, Reply.SETTLED, Reply.HELD, Reply.DUPLICATE})
# Refusals that pass by themselves: the utterance waits here and is submitted again.
PASSING = frozenset({Reply.IN_FLIGHT_LIMIT, Reply.OUTBOX_FULL})
LOST = frozenset({Reply.NO_SESSION, Reply.SESSION_CLOSED})
AGAIN_S = 0.1
KNOWN_INDICES_MAX = 1024
# A client may begin anywhere up to here; the store's own bound is far beyond it.
INDEX_MAX = 1 << 32
FINALIZED_AS = {"manual": "send", "timeout": "timeout", "session_close": "close"}


@dataclass(frozen=True, slots=True)
class Opened:
    """What the store and the token said when the session was opened."""

    id: str
    home: Cell
    epoch: str
    tenant: str
    trace_id: str


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
    accepted: bool = False


class LiveSession:
    """A session with its segmenter, its window of open utterances and its deliveries."""

    def __init__(  # noqa: PLR0913 the parts it connects
        self,
        opened: Opened,
        profile: Profile,
        outlet: Outlet,
        *,
        board: JobBoard,
        hall: Hall,
        settings: Settings,
        segmenter: Segmenter,
    ) -> None:
        self.id = opened.id
        self.home = opened.home
        self.epoch = opened.epoch
        self.tenant = opened.tenant
        self.trace_id = opened.trace_id
        self.profile = profile
        self.teller = Teller(opened.id, outlet, board, settings.jobs.retry_after_ms)
        self.opened_at_ms = board.clock.wall_ms()
        self.ledger = CoverageLedger()
        self.deliverer = Deliverer(self, board, hall)
        self._board = board
        self._hall = hall
        self._clock = board.clock
        self._metrics = board.metrics
        self._jobs = settings.jobs
        self._cuts = settings.segmentation
        # In local mode nobody else could read it back: this process has it in memory.
        self._retains_audio = settings.jobs.retain_audio and settings.deployment_mode != "local"
        self._lease_ms = settings.sessions.lease_ms
        self._backlog_max = settings.sessions.backlog_max
        self._bucket = TokenBucket(
            settings.sessions.utterances_per_s_max, settings.sessions.utterances_per_s_max
        )
        self._whole = board.metrics.web_task_finalized_total.labels(reason="send")
        self._segmenter = segmenter
        self._is_pcm16 = profile.audio.name == "pcm16"
        # A change of languages that waits for the end of what is being said.
        self._next_profile: Profile | None = None
        # The next free utterance index, and those a client left out that may still come.
        self.next_index = 0
        self._skipped: set[int] = set()
        # Those of them that came after all and are not submitted yet.
        self._late: set[int] = set()
        # Whole utterances by request id, or by the index they came with: sound, index they got.
        self._known: dict[str | int, tuple[int, int]] = {}
        # Lane -> the next index it has not heard of.
        self._lane_next: dict[str, int] = {}
        # Utterances in the store without all their outcomes: index -> lanes still open.
        self.open: dict[int, int] = {}
        # Since when there are such.
        self.waiting_since_ms = 0.0
        self._backlog: deque[Piece] = deque()
        self._idle = asyncio.Event()
        self._idle.set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms = 0.0
        self._turn_ids: dict[int, str] = {}
        self._sliced_turn = -1
        self._silent_told_ms = 0
        self.closing = False
        # The store was told that it ends: what is not in yet does not get in.
        self.lapsed = False
        self._paused = False

    # Audio

    def audio(
        self, data: bytes, *, seq: int | None, is_final: bool, client_ts_ms: int | None = None
    ) -> None:
        """Take one chunk of speech."""
        if self._is_pcm16 and len(data) % 2:
            raise InvalidMessage("a chunk of pcm16 has two bytes per sample, got an odd number")
        if seq is not None and not self._in_sequence(seq):
            return
        metrics = self._metrics
        metrics.audio_chunks_total.inc()
        metrics.audio_bytes_total.inc(len(data))
        if self._board.draining:
            self._refuse_audio(data, "shutdown")
            return
        if self._paused and data and not self._has_room():
            self._refuse_audio(data, "backpressure")
            data = b""
        segmenter, now = self._segmenter, self._clock.now_ms()
        events = segmenter.chunk(
            data, is_final=is_final, now_ms=now, client_ts_ms=client_ts_ms, seq=seq
        )
        if events:
            self._take(events, now)
        elif is_final and segmenter.is_idle:
            metrics.empty_finalize_total.inc()
        due = segmenter.deadline_ms
        if due is not None and (self._timer is None or due < self._timer_at_ms):
            self._arm(due, now)

    def tts_started(self) -> None:
        """The client plays a translation."""
        now = self._clock.now_ms()
        self.deliverer.groups.tts_started(self._clock.wall_ms())
        self._take(self._segmenter.tts_started(now), now)

    def tts_ended(self) -> None:
        """The client stopped playing."""
        now = self._clock.now_ms()
        self.deliverer.groups.tts_ended(self._clock.wall_ms())
        self._take(self._segmenter.tts_ended(now), now)
        self._rearm(now)

    def _in_sequence(self, seq: int) -> bool:
        found = self._segmenter.take_seq(seq)
        if found == "ok":
            return True
        if isinstance(found, SequenceGap):
            at = self._segmenter.admitted_ms
            self.teller.addition(
                Gap(
                    start_ms=at, end_ms=at, reason="lost_chunks",
                    first_seq=found.missing_from, last_seq=found.missing_to,
                )
            )  # fmt: skip
            return True
        return False

    def _refuse_audio(self, data: bytes, reason: str) -> None:
        at = self._segmenter.admitted_ms
        length = int(self.profile.audio.duration_ms(len(data)))
        self.teller.addition(Gap(start_ms=at, end_ms=at + length, reason=reason))
        self.teller.busy()

    def _arm(self, due_ms: float, now_ms: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at_ms = due_ms
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(max(0.0, due_ms - now_ms) / 1000, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now = self._clock.now_ms()
        self._take(self._segmenter.tick(now), now)
        self._rearm(now)

    def _rearm(self, now_ms: float) -> None:
        due = self._segmenter.deadline_ms
        if due is not None and (self._timer is None or due < self._timer_at_ms):
            self._arm(due, now_ms)

    def _take(self, events: Iterable[Event], now_ms: float) -> None:
        for event in events:
            if isinstance(event, Cut):
                self._admit_cut(event, now_ms)
                if event.closes_turn:
                    self._change_profile()
            else:
                turn = self._turn_ids.pop(event.turn, "")
                if turn:
                    self._close_turn(turn)
                self._change_profile()

    def _change_profile(self) -> None:
        if self._next_profile is not None:
            self.profile, self._next_profile = self._next_profile, None

    def _close_turn(self, turn: str) -> None:
        """End a turn without a closing piece; a slice of it that still waits closes it itself."""
        for piece in reversed(self._backlog):
            if piece.turn == turn:
                piece.is_slice = False
                return
        self._board.tasks.start(self._end_turn(turn))

    async def _end_turn(self, turn: str) -> None:
        board = self._board
        _, work = await board.insist(lambda: board.dispatcher.end_turn(self.home, self.id, turn))
        board.perform(work)

    def _admit_cut(self, cut: Cut, now_ms: float) -> None:
        self._metrics.web_task_finalized_total.labels(
            reason=FINALIZED_AS.get(cut.trigger, cut.trigger)
        ).inc()
        self._note_silence()
        turn = self._turn_ids.get(cut.turn)
        if turn is None:
            turn = self._turn_ids[cut.turn] = f"{self.id}-t{cut.turn}"
        if cut.closes_turn:
            del self._turn_ids[cut.turn]
        if cut.is_slice:
            self._sliced_turn = cut.turn
        index = self.next_index
        self.next_index = index + 1
        piece = Piece(
            index, cut.audio, self.profile, (), self.trace_id, cut.trigger,
            cut.speech_end_at_ms, now_ms, cut.start_ms, cut.end_ms, turn,
            cut.turn == self._sliced_turn, cut.is_slice,
            cut.first_seq, cut.last_seq, cut.first_client_ts_ms,
        )  # fmt: skip
        self._admit(piece)

    # Whole utterances

    def utterance(self, message: Utterance) -> None:
        """Take one whole utterance."""
        now = self._clock.now_ms()
        if self._board.draining:
            self.teller.refuse(ErrorCode.SESSION_CLOSED, "the instance stops: reconnect", message)
            return
        if not self._bucket.take(now):
            self.teller.refuse(ErrorCode.RATE_LIMITED, "too many utterances per second", message)
            return
        if not message.audio:
            raise InvalidMessage("audio is empty")
        if not self._has_room():
            self.teller.refuse(ErrorCode.BUSY, "too many utterances wait", message)
            return
        profile = self.profile.for_utterance(message)
        index = self._index_for(message)
        if index is None:
            return
        self._whole.inc()
        length = int(profile.audio.duration_ms(len(message.audio)))
        piece = Piece(
            index, message.audio, profile, (), message.trace_id or self.trace_id,
            "manual" if message.manual_cut else "whole", now, now, 0, length, f"{self.id}-u{index}",
        )  # fmt: skip
        piece.request_id = message.request_id
        if index != message.utterance_index:
            piece.requested_index = message.utterance_index
        self._admit(piece)

    def _index_for(self, message: Utterance) -> int | None:
        """Return the index an utterance gets; None if it is a repetition that is answered."""
        asked = message.utterance_index
        # A request id says by itself what is a repetition; without one it must sound the same.
        name: str | int = message.request_id or asked
        sound = 0 if message.request_id else hash((message.trace_id, message.audio))
        known = self._known.get(name)
        if known is not None and known[0] == sound:
            self._metrics.duplicate_job_blocked_total.inc()
            self._board.tasks.start(self.deliverer.repeat(known[1]))
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

    # Admission

    def _admit(self, piece: Piece) -> None:
        self._metrics.utterances_total.inc()
        audience = self._hall.audience_of(self, piece.profile)
        piece.targets = audience.targets
        if audience.is_room:
            piece.profile = piece.profile.in_room()
        length = piece.end_ms - piece.start_ms
        self.ledger.admit(piece.index, length, lanes=max(1, len(piece.targets)))
        if audience.same_language:
            self.deliverer.transcripts.expect(
                piece.index, len(piece.targets), audience.same_language, self._skipped
            )
        if not piece.targets:
            # Everyone who listens speaks this language: their ears need no node.
            self.ledger.settle(piece.index, "skipped", "same_language")
            self.teller.accepted(piece)
            return
        self._idle.clear()
        # Others wait for one that comes late, so that it must not wait for them.
        is_late = piece.index in self._late
        if (self._backlog and not is_late) or not self._in_window(piece.index):
            self._backlog.append(piece)
            self._press()
            if piece.in_turn:
                self._board.tasks.start(self._make_room())
            return
        self._submit(piece)

    def _in_window(self, index: int) -> bool:
        if not self.open:
            return True
        return index - min(self.open) < self._jobs.in_flight_max

    def _has_room(self) -> bool:
        return len(self._backlog) < self._backlog_max

    def _press(self) -> None:
        waiting = len(self._backlog)
        if waiting >= self._backlog_max and not self._paused:
            self._paused = True
            self.teller.pressure("PAUSE")
        elif waiting == self._backlog_max // 2 and not self._paused:
            self.teller.pressure("SLOW_DOWN")

    def pump(self) -> None:
        """Submit what waited, as far as the window allows."""
        if self.lapsed:
            self._backlog.clear()
        while self._backlog and self._in_window(self._backlog[0].index):
            self._submit(self._backlog.popleft())
        if self._backlog and self._backlog[0].in_turn:
            self._board.tasks.start(self._make_room())
        if self._paused and len(self._backlog) <= self._backlog_max // 2:
            self._paused = False
            self.teller.pressure("RESUME")
        if not self.open and not self._backlog:
            self._idle.set()

    def _submit(self, piece: Piece) -> None:
        if not self.open:
            self.waiting_since_ms = self._clock.now_ms()
        self.open[piece.index] = len(piece.targets)
        for target in piece.targets:
            self._board.tasks.start(self._submit_job(piece, target))

    async def _submit_job(self, piece: Piece, target: Target) -> None:
        job = self._make(piece, target)
        answer = await self._enter(job)
        if answer.reply not in ADMITTED:
            return
        self.teller.accepted(piece)
        if piece.in_turn and (answer.reply is Reply.QUEUED or self._backlog):
            await self._make_room()
        if answer.code in (Reply.NO_POOL_FOR_LANG_PAIR, Reply.EMPTY_POOL):
            self.teller.unserved(job, answer)

    async def _enter(self, job: LiveJob) -> Submitted:
        """Bring a job into the store; one that is not taken gets its outcome at once."""
        board = self._board
        job.entering = True
        answer = await board.submit(job)
        while not self.lapsed and (answer.reply in PASSING or answer.reply in LOST):
            if answer.reply in LOST:
                await self.reopen()
            else:
                await board.insist(self.deliverer.trim)
                await asyncio.sleep(AGAIN_S)
            answer = await board.submit(job)
        job.entering = False
        if answer.reply not in ADMITTED or await self._is_anothers(job, answer):
            await self._refused(job, answer)
        return answer

    async def _is_anothers(self, job: LiveJob, answer: Submitted) -> bool:
        """Tell whether a duplicate is of another utterance, or has ended under a former epoch."""
        if answer.reply is not Reply.DUPLICATE:
            return False
        if answer.state == "RELEASED":
            await self._board.insist(self.deliverer.catch_up)
            return self._board.jobs.get(job.id) is job
        return self._board.jobs.get(job.id, job) is not job

    async def _make_room(self) -> None:
        """A long speech fills its old node with slices it buffers: the oldest has had its time."""
        while (job := self._board.buffered_slice(self)) is not None:
            age_ms = self._clock.now_ms() - job.marks.push
            await asyncio.sleep(max(0.0, self._cuts.max_duration_ms - age_ms) / 1000)
            if self._board.jobs.get(job.id) is job and job.state == "assigned":
                await self._board.end_buffered_slice(job)
                return

    async def reopen(self) -> None:
        """The store forgot the session: it starts over under a new epoch, where we stand."""
        board = self._board
        reply, epoch = await board.insist(
            lambda: board.store.session_open(
                self.home, self.id, board.instance, tenant=self.tenant, lease_ms=self._lease_ms
            )
        )
        if reply is Reply.FENCED or epoch == self.epoch:
            return
        self.epoch = epoch
        self.deliverer.start_over(epoch)
        self._lane_next.clear()
        # In order, so that the first one of each lane tells where the lane begins.
        for job in board.jobs_of(self):
            job.spec = self._in_lane(job.spec)
            job.attempt, job.node = 0, ""
            if not job.entering:
                board.tasks.start(self._enter(job))

    async def recover(self) -> None:
        """Look for outcomes that nobody told us of, or for a store that knows nothing of us."""
        reply = await self.deliverer.catch_up()
        if reply is Reply.NO_SESSION and not self.lapsed:
            await self.reopen()

    async def _refused(self, job: LiveJob, answer: Submitted) -> None:
        """The store does not take the job: its place in the order gets an explicit outcome."""
        board, spec = self._board, job.spec
        if board.jobs.get(job.id) is job:
            del board.jobs[job.id]
        self.teller.not_taken(job, answer)
        answered, work = await board.insist(
            lambda: board.dispatcher.fill(
                self.home, self.id, spec.lane, index=spec.index, unwanted_from=spec.unwanted_from
            )
        )
        board.perform(work)
        if answered.reply is not Reply.SETTLED:
            self.settled(spec.index, "failed", answered.reply.name, spec.lane)

    def _make(self, piece: Piece, target: Target) -> LiveJob:
        job = job_of(self, piece, target, self._cuts, retain_audio=self._retains_audio)
        self._late.discard(piece.index)
        job.spec = self._in_lane(job.spec)
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

    # Outcomes

    def deliver(self, epoch: str, outcomes: tuple[Released, ...]) -> None:
        """Take released outcomes; they go out in the order of their positions."""
        self.deliverer.take(epoch, outcomes)

    def settled(self, index: int, fate: Fate, reason: str, lane: str) -> None:
        """One language of an utterance has had its outcome."""
        self.ledger.settle(index, fate, reason, lane)
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

    # Changes and the end

    def update(self, change: SessionUpdate) -> None:
        """Change languages from the next utterance on."""
        if not (change.src_lang or change.tgt_lang or change.tgt_langs):
            return
        profile = (self._next_profile or self.profile).changed(change)
        if self._segmenter.is_idle:
            self.profile = profile
        else:
            self._next_profile = profile

    @property
    def outlet(self) -> Outlet | None:
        """Return the client's socket, while it is there."""
        return self.teller.outlet

    def detach(self) -> None:
        """The client's socket is gone."""
        self.teller.outlet = None

    @property
    def backlog(self) -> int:
        """Return how many utterances wait for those before them."""
        return len(self._backlog)

    def end_speech(self) -> None:
        """No more audio comes: what is buffered becomes an utterance."""
        now = self._clock.now_ms()
        self._take(self._segmenter.flush(now), now)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._note_silence()

    def _note_silence(self) -> None:
        silent = int(self._segmenter.silent_ms) - self._silent_told_ms
        if silent > 0:
            self._silent_told_ms += silent
            self.ledger.silent(silent)

    async def until_settled(self, timeout_ms: float) -> bool:
        """Wait until every admitted utterance has had its outcome; tells whether that is so."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True
