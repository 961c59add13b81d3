"""Outcomes to one client: its own, and what others said to it; in order, each once.

The store puts outcomes into the client's outbox with positions (`seq`); answers of several steps
may overtake each other on their way here, so that they are put in order again by position. What
others hear of the client's own words is there too, as "passed": when it is, everybody has it. What
was delivered stays in the outbox until the client has confirmed it, or as much of it as may be on
its way to a socket that is dead already: for a client that comes back or asks again. A client that
is behind with reading gets the next outcome when it has read on; until then it waits in the outbox.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_scheduler.live.hearing import reference_of
from lingua_scheduler.live.outcome import (
    HEARD,
    Shown,
    decode_result,
    heard_message,
    heard_timeline,
    missing_message,
    passed_message,
    result_message,
)
from lingua_scheduler.messages.codes import CloseCode, ErrorCode
from lingua_scheduler.messages.to_client import TranslationResult
from lingua_scheduler.session.group import GroupTracker
from lingua_scheduler.session.timeline import timeline
from lingua_scheduler.state.records import AS_SPOKEN, speaker_of
from lingua_scheduler.state.reply import Reply

if TYPE_CHECKING:
    from lingua_scheduler.config import Settings
    from lingua_scheduler.live.board import JobBoard
    from lingua_scheduler.live.hall import Hall
    from lingua_scheduler.live.hearing import HeardResult
    from lingua_scheduler.live.job import LiveJob
    from lingua_scheduler.live.outcome import StoredResult
    from lingua_scheduler.live.session import LiveSession
    from lingua_scheduler.live.teller import Outlet
    from lingua_scheduler.messages.to_client import MissingResult
    from lingua_scheduler.session.ledger import Fate
    from lingua_scheduler.state.records import Released

FATES: dict[str, Fate] = {
    "completed": "delivered",
    "completed_no_text": "silent",
    "failed": "failed",
    "expired": "failed",
    "cancelled": "skipped",
    "missing": "failed",
}
# Delivered outcomes kept in the outbox, and how many more gather before it is trimmed.
KEPT = 32
TRIM_EVERY = 64
# A client's confirmations are passed on when they are worth so many.
TRIM_CONFIRMED = 16
# How long a position may be missing before it is read from the outbox.
OVERDUE_MS = 1000
# How long a session waits for any outcome before it looks for one that was not told.
LOOK_MS = 2000
# The same for a listener who waits for nothing of its own.
LISTEN_MS = 2000
# How long a client may be behind with reading before it is dropped.
BEHIND_MS_MAX = 10_000
# Speakers whose words form groups of their own for a listener.
HEARD_GROUPS_MAX = 16
# Speakers and lanes whose last index is remembered for a listener.
HEARD_DONE_MAX = 1024
OUTBOX_PAGE = 64


# Why the scheduler itself took a job from a node -> the code that clients know.
MOVED_CODES = {
    "timeout": ErrorCode.JOB_TIMEOUT,
    "no_ack": ErrorCode.JOB_TIMEOUT,
    "pending_timeout": ErrorCode.JOB_TIMEOUT,
    "node_lost": ErrorCode.NODE_UNAVAILABLE,
    "node_restarted": ErrorCode.NODE_UNAVAILABLE,
    "not_running": ErrorCode.NODE_UNAVAILABLE,
    "push_failed": ErrorCode.NODE_UNAVAILABLE,
    "lease_lapsed": ErrorCode.NODE_UNAVAILABLE,
}


def code_of(outcome: Released) -> str:
    """Return the code a client is told of a job that failed or expired."""
    if outcome.kind == "expired":
        return ErrorCode.JOB_TIMEOUT
    return MOVED_CODES.get(outcome.reason, outcome.reason)


class Deliverer:
    """The outcomes of one session on their way out."""

    def __init__(
        self, session: LiveSession, board: JobBoard, hall: Hall, settings: Settings
    ) -> None:
        self._session = session
        # What one language may have under way: all of it may go to a socket that is dead already.
        self._under_way = settings.jobs.in_flight_max + settings.sessions.backlog_max
        self._board = board
        self._hall = hall
        self._results = board.results
        self.groups = GroupTracker(session.id)
        self._heard_groups: dict[str, GroupTracker] = {}
        # What a node may be told of the conversation so far.
        self.context = ""
        # The position of the last outcome delivered, and those that came too early.
        self.seq = 0
        self._early: dict[int, Released] = {}
        self._early_since_ms = 0.0
        # When the outbox was read last, or an outcome came.
        self._looked_at_ms = 0.0
        self._acked = 0
        # Lane -> the last index delivered: what a store that went back releases again is known.
        self.done: dict[str, int] = {}
        # The same of what others have heard, which may come after later ones of our own.
        self._passed: dict[str, int] = {}
        # Speaker and lane -> the last index of it that was heard here, for the same reason.
        self._heard_done: dict[tuple[str, str], int] = {}
        # Results that were to be heard here and are not kept any more.
        self._unkept: set[str] = set()
        # Since when the client is behind with reading; 0: it is not.
        self._behind_since_ms = 0.0
        # Utterance -> positions of its outcomes, for the latest ones.
        self._positions: dict[int, list[int]] = {}
        # The latest utterance that entered a group, and its place there.
        self._grouped: tuple[int, str, int] = (-1, "", 0)

    def take(self, epoch: str, outcomes: tuple[Released, ...]) -> None:
        """Deliver outcomes whose turn has come; keep those that came too early."""
        if epoch != self._session.epoch or (self._behind_since_ms and self._is_behind):
            return  # not ours, or it waits in the outbox
        for outcome in outcomes:
            if outcome.seq > self.seq:
                if not self._early:
                    self._early_since_ms = self._board.clock.now_ms()
                self._early[outcome.seq] = outcome
        while self._early and (following := self._early.get(self.seq + 1)) is not None:
            if self._must_wait(following):
                break
            del self._early[following.seq]
            self._emit(following)
        if self.seq - self._acked >= self._kept + TRIM_EVERY:
            self._trim_to(self.seq - self._kept)

    def _must_wait(self, outcome: Released) -> bool:
        """Tell whether an outcome stays in the outbox for now, from where it is read again."""
        if not self._is_behind:
            self._behind_since_ms = 0.0
            return outcome.kind == HEARD and not self._is_at_hand(outcome)
        if not self._behind_since_ms:
            self._behind_since_ms = self._board.clock.now_ms()
        self._early.clear()
        return True

    @property
    def _is_behind(self) -> bool:
        outlet = self._session.outlet
        return outlet is not None and outlet.is_behind

    def _is_at_hand(self, outcome: Released) -> bool:
        kind, heard_id = reference_of(outcome)
        return kind != "completed" or heard_id in self._unkept or self._results.has(heard_id)

    @property
    def _kept(self) -> int:
        """Return how many delivered outcomes are kept for a client that confirms none."""
        if not self._session.is_resumable:
            return KEPT
        return KEPT + self._under_way * max(1, len(self.done))

    def confirmed(self, seq: int) -> None:
        """The client has everything up to a position; now and then the outbox is told so."""
        if seq <= self.seq and seq - self._acked >= TRIM_CONFIRMED:
            self._trim_to(seq)

    def _trim_to(self, seq: int) -> None:
        self._acked = seq
        self._board.tasks.start(self._ack(seq))

    def is_overdue(self, now_ms: float) -> bool:
        """Tell whether a position is missing for so long that it must be fetched."""
        if self._behind_since_ms:
            return self._has_read_on(now_ms)
        if self._early:
            return now_ms - self._early_since_ms > OVERDUE_MS
        session = self._session
        admission = session.admission
        if not admission.open:
            # Others may have said something: a listener looks now and then, also one that left.
            is_listening = bool(self._heard_done) or self._hall.rooms.room_of(session.id)
            return bool(is_listening) and now_ms - self._looked_at_ms > LISTEN_MS
        return now_ms - max(admission.waiting_since_ms, self._looked_at_ms) > LOOK_MS

    def _has_read_on(self, now_ms: float) -> bool:
        """Tell whether a client that was behind may get more; one that never reads is let go."""
        outlet = self._session.outlet
        if outlet is None or not outlet.is_behind:
            self._behind_since_ms = 0.0
            return True
        if now_ms - self._behind_since_ms > BEHIND_MS_MAX:
            self._behind_since_ms = now_ms
            outlet.close(CloseCode.SLOW_READER, "slow reader")
        return False

    async def catch_up(self) -> Reply:
        """Read from the outbox what was released but not told to this instance."""
        session, epoch = self._session, self._session.epoch
        self._looked_at_ms = self._board.clock.now_ms()
        while True:
            page = await self._board.store.outbox_read(
                session.home, session.id, epoch=epoch, after_seq=self.seq, limit=OUTBOX_PAGE
            )
            if epoch != session.epoch:
                return Reply.OK  # it started over meanwhile
            if page.trimmed > self.seq:
                self.seq = page.trimmed  # nobody can be told of those any more
                continue
            before = self.seq
            for outcome in page.entries:
                await self._load(outcome)
                self.take(epoch, (outcome,))
            if self._behind_since_ms or self.seq in (before, page.last_seq):
                return page.reply

    async def _load(self, outcome: Released) -> None:
        """Have at hand what an outcome refers to, if it is of another speaker."""
        if outcome.kind != HEARD:
            return
        _, heard_id = reference_of(outcome)
        if not await self._results.load(self._session.home, outcome):
            # It was kept as long as anybody could come back for it.
            self._unkept.add(heard_id)

    async def replay(self, after_seq: int, outlet: Outlet) -> bool:
        """Send again what was delivered after a position; tells whether it was to be had.

        Whoever attaches the socket does so right after this, before anything else is delivered.
        """
        session, epoch, at = self._session, self._session.epoch, after_seq
        while at < self.seq:
            page = await self._board.store.outbox_read(
                session.home, session.id, epoch=epoch, after_seq=at, limit=OUTBOX_PAGE
            )
            if page.trimmed > at:
                at = page.trimmed
                continue
            if epoch != session.epoch or not page.entries:
                return False
            for outcome in page.entries:
                if outcome.seq <= self.seq:
                    await self._again(outcome, outlet)
            at = page.entries[-1].seq
        return True

    async def _again(self, outcome: Released, outlet: Outlet) -> None:
        """Send an outcome that was sent before."""
        if outcome.is_passed:
            outlet.send(passed_message(self._session.id, outcome, self._session.epoch))
        elif outcome.kind == HEARD:
            await self._load(outcome)
            message, result = self._heard(outcome)
            if isinstance(message, TranslationResult) and result is not None:
                outlet.send_with(message, result.sound)
            else:
                outlet.send(message)
        else:
            outlet.send(self._message(outcome))

    def start_over(self, epoch: str) -> None:
        """The session began anew in the store: positions count from one again."""
        assert epoch == self._session.epoch
        self.seq = self._acked = 0
        self._early.clear()
        self._positions.clear()
        self._behind_since_ms = 0.0

    async def trim(self) -> None:
        """Make room in the outbox, which may be smaller than what is kept of it otherwise."""
        # A client that is away has not seen them: there is room when it is back, or gives up.
        if self._session.outlet is not None:
            self._acked = self.seq
            await self._ack(self._acked)

    async def repeat(self, index: int) -> None:
        """Send the outcomes of an utterance again, as far as they are kept."""
        session = self._session
        for seq in tuple(self._positions.get(index, ())):
            page = await self._board.store.outbox_read(
                session.home, session.id, epoch=session.epoch, after_seq=seq - 1, limit=1
            )
            for outcome in page.entries:
                if session.outlet is not None:
                    await self._again(outcome, session.outlet)

    def tell_again(self, outcome: Released) -> None:
        """Tell the speaker once more what it was told of an outcome of its own."""
        session = self._session
        if outcome.is_passed:
            session.teller.addition(passed_message(session.id, outcome, session.epoch))
        else:
            session.teller.tell(self._message(outcome))

    async def _ack(self, seq: int) -> None:
        session = self._session
        await self._board.store.outbox_ack(
            session.home, session.id, session.epoch, seq, fence=session.fence
        )

    def _emit(self, outcome: Released) -> None:
        self.seq = outcome.seq
        session, now = self._session, self._board.clock.now_ms()
        self._looked_at_ms = now
        if outcome.kind == HEARD:
            self._emit_heard(outcome)
            return
        job = self._board.jobs.pop(outcome.job, None)
        done = self._passed if outcome.is_passed else self.done
        if outcome.utterance <= done.get(outcome.lane, -1):
            # The store went back and released it again: it was delivered before.
            session.admission.settled(
                outcome.utterance, FATES[outcome.kind], outcome.reason, outcome.lane
            )
            return
        done[outcome.lane] = outcome.utterance
        self.done[outcome.lane] = max(outcome.utterance, self.done.get(outcome.lane, -1))
        self._note(outcome)
        if job is not None and outcome.kind in ("failed", "expired") and not job.told:
            session.teller.failed(job, code_of(outcome))
        if outcome.is_passed:
            self._emit_passed(outcome, job)
        else:
            session.teller.tell(self._message(outcome, job, now))
        session.admission.settled(
            outcome.utterance, FATES[outcome.kind], outcome.reason, outcome.lane
        )
        self._count(outcome, job, now)

    def _emit_heard(self, outcome: Released) -> None:
        """Deliver what somebody else said, unless the store forgot that it was delivered."""
        _, heard_id = reference_of(outcome)
        self._unkept.discard(heard_id)
        where, done = (speaker_of(heard_id), outcome.lane), self._heard_done
        if outcome.utterance <= done.get(where, -1):
            return
        done.pop(where, None)
        done[where] = outcome.utterance
        if len(done) > HEARD_DONE_MAX:
            del done[next(iter(done))]
        message, result = self._heard(outcome, groups=self._heard_groups)
        if isinstance(message, TranslationResult) and result is not None:
            self._session.teller.tell_with(message, result.sound)
        else:
            self._session.teller.tell(message)

    def _heard(
        self, outcome: Released, groups: dict[str, GroupTracker] | None = None
    ) -> tuple[TranslationResult | MissingResult, HeardResult | None]:
        """Return what somebody else said as it is told here, without its sound, and the result."""
        _, heard_id = reference_of(outcome)
        result, wall = self._results.get(heard_id), self._board.clock.wall_ms()
        kept, shown = None, Shown()
        if result is not None:
            kept = result.kept
            shown = Shown(heard_timeline(kept, wall))
            if groups is not None and kept.text_asr:
                shown = self._grouped_with(speaker_of(heard_id), kept, shown)
        message = heard_message(outcome, self._session.epoch, kept, shown=shown, at_ms=wall)
        return message, None if outcome.lane == AS_SPOKEN else result

    def _grouped_with(self, speaker: str, kept: StoredResult, shown: Shown) -> Shown:
        """Put a result into the group of its speaker's latest words."""
        groups = self._heard_groups
        tracker = groups.pop(speaker, None) or GroupTracker(speaker)
        groups[speaker] = tracker
        if len(groups) > HEARD_GROUPS_MAX:
            del groups[next(iter(groups))]
        clock = self._board.clock
        found = tracker.result(kept.text_asr, kept.text_translated, clock.now_ms(), clock.wall_ms())
        return shown if found is None else Shown(shown.timeline, *found)

    def playing(self, *, starts: bool) -> None:
        """The client plays a translation, or has played it: groups stay open meanwhile."""
        now = self._board.clock.now_ms()
        for group in (self.groups, *self._heard_groups.values()):
            if starts:
                group.tts_started(now)
            else:
                group.tts_ended(now)

    def _emit_passed(self, outcome: Released, job: LiveJob | None) -> None:
        """Tell the speaker that its listeners have an outcome, and keep what it was about."""
        self._session.teller.addition(
            passed_message(self._session.id, outcome, self._session.epoch)
        )
        if outcome.payload:
            self._join_group(outcome, decode_result(outcome.payload))
        if job is not None:
            self._board.keep(job)

    def _note(self, outcome: Released) -> None:
        self._positions.setdefault(outcome.utterance, []).append(outcome.seq)
        if len(self._positions) > KEPT:
            del self._positions[next(iter(self._positions))]

    def _message(
        self, outcome: Released, job: LiveJob | None = None, now_ms: float = 0
    ) -> TranslationResult | MissingResult:
        session, wall = self._session, self._board.clock.wall_ms()
        if outcome.kind != "completed":
            return missing_message(
                session.id, outcome, session.epoch, trace_id=session.trace_id, at_ms=wall
            )
        kept = decode_result(outcome.payload)
        shown = Shown() if job is None else self._shown(outcome, job, kept, now_ms)
        return result_message(
            session.id, session.epoch, outcome, kept, shown=shown, sent_at_ms=wall
        )

    def _shown(self, outcome: Released, job: LiveJob, kept: StoredResult, now_ms: float) -> Shown:
        job.marks.released = job.marks.delivered = now_ms
        self._join_group(outcome, kept)
        index, group, part = self._grouped
        if index != outcome.utterance:
            return Shown(timeline(job.marks))
        return Shown(timeline(job.marks), group, part)

    def _join_group(self, outcome: Released, kept: StoredResult) -> None:
        if self._grouped[0] != outcome.utterance and kept.text_asr:
            clock = self._board.clock
            found = self.groups.result(
                kept.text_asr, kept.text_translated, clock.now_ms(), clock.wall_ms()
            )
            if found is not None:
                self._grouped = (outcome.utterance, *found)
                self.context = self.groups.context_text()

    def _count(self, outcome: Released, job: LiveJob | None, now_ms: float) -> None:
        metrics = self._board.metrics
        self._board.ended[outcome.kind].inc()
        self._board.journal.ended(self._session, outcome, job, self._board.clock.wall_ms())
        if outcome.reason == "gap_timeout":
            metrics.result_gap_timeout_total.inc()
        if job is None:
            return
        marks = job.marks
        metrics.end_to_end_seconds.observe((now_ms - marks.speech_end) / 1000)
        if marks.settled:
            metrics.order_wait_seconds.observe((now_ms - marks.settled) / 1000)
            metrics.result_to_deliver_seconds.observe((marks.settled - marks.result) / 1000)
