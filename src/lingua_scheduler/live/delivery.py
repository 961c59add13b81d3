"""Outcomes to people: in order, to the speaker or to the listeners, once.

The store releases outcomes with positions (`seq`); answers of several steps may overtake each
other on their way here, so that they are put in order again by position. What was delivered stays
in the outbox until the client has confirmed it, or as much of it as may be on its way to a socket
that is dead already: for a client that comes back or asks again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_scheduler.live.outcome import (
    Shown,
    decode_heard,
    decode_result,
    missing_message,
    result_message,
)
from lingua_scheduler.live.transcripts import Transcripts
from lingua_scheduler.messages.codes import ErrorCode
from lingua_scheduler.messages.to_client import OutcomePassed
from lingua_scheduler.session.group import GroupTracker
from lingua_scheduler.session.timeline import timeline
from lingua_scheduler.state.reply import Reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from lingua_scheduler.config import Settings
    from lingua_scheduler.live.board import JobBoard
    from lingua_scheduler.live.hall import Hall
    from lingua_scheduler.live.job import LiveJob
    from lingua_scheduler.live.outcome import StoredResult
    from lingua_scheduler.live.session import LiveSession
    from lingua_scheduler.messages.to_client import MissingResult, ToClient, TranslationResult
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
LISTEN_MS = 5000
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
        self.groups = GroupTracker(session.id)
        self.transcripts = Transcripts(hall)
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
        # Positions, of those still kept, that were for listeners and not for the speaker.
        self._for_others: set[int] = set()
        # Utterance -> positions of its outcomes, for the latest ones.
        self._positions: dict[int, list[int]] = {}
        # The latest utterance that entered a group, and its place there.
        self._grouped: tuple[int, str, int] = (-1, "", 0)

    def take(self, epoch: str, outcomes: tuple[Released, ...]) -> None:
        """Deliver outcomes whose turn has come; keep those that came too early."""
        if epoch != self._session.epoch:
            return
        for outcome in outcomes:
            if outcome.seq == self.seq + 1:
                self._early.pop(outcome.seq, None)
                self._emit(outcome)
            elif outcome.seq > self.seq:
                if not self._early:
                    self._early_since_ms = self._board.clock.now_ms()
                self._early[outcome.seq] = outcome
        while self._early and (following := self._early.pop(self.seq + 1, None)) is not None:
            self._emit(following)
        if self.seq - self._acked >= self._kept + TRIM_EVERY:
            self._trim_to(self.seq - self._kept)

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
        self._for_others = {place for place in self._for_others if place > seq}
        self._board.tasks.start(self._ack(seq))

    def is_overdue(self, now_ms: float) -> bool:
        """Tell whether a position is missing for so long that it must be fetched."""
        if self._early:
            return now_ms - self._early_since_ms > OVERDUE_MS
        session = self._session
        admission = session.admission
        if not admission.open:
            # Others may have said something: a listener looks now and then.
            is_listening = self._hall.rooms.room_of(session.id) is not None
            return is_listening and now_ms - self._looked_at_ms > LISTEN_MS
        return now_ms - max(admission.waiting_since_ms, self._looked_at_ms) > LOOK_MS

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
            self.take(epoch, page.entries)
            if len(page.entries) < OUTBOX_PAGE:
                return page.reply

    async def replay(self, after_seq: int, send: Callable[[ToClient], None]) -> bool:
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
                if outcome.seq in self._for_others:
                    send(self._passed(outcome))
                elif outcome.seq <= self.seq:
                    send(self._message(outcome))
            at = page.entries[-1].seq
        return True

    def start_over(self, epoch: str) -> None:
        """The session began anew in the store: positions count from one again."""
        assert epoch == self._session.epoch
        self.seq = self._acked = 0
        self._early.clear()
        self._positions.clear()
        self._for_others.clear()

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
        if outcome.kind == "heard":
            session.teller.tell(decode_heard(outcome, session.epoch))
            return
        job = self._board.jobs.pop(outcome.job, None)
        if outcome.utterance <= self.done.get(outcome.lane, -1):
            # The store went back and released it again: it was delivered before.
            session.admission.settled(
                outcome.utterance, FATES[outcome.kind], outcome.reason, outcome.lane
            )
            return
        self.done[outcome.lane] = outcome.utterance
        self._note(outcome)
        message = self._message(outcome, job, now)
        if job is not None and outcome.kind in ("failed", "expired") and not job.told:
            session.teller.failed(job, code_of(outcome), None)
        listeners = job.listeners if job is not None else self._listeners_of(outcome)
        if listeners is None:
            session.teller.tell(message)
        else:
            self._for_others.add(outcome.seq)
            session.teller.addition(self._passed(outcome))
            self._hall.send_to(listeners, message, (session.id, session.epoch, outcome.seq))
        self.transcripts.outcome(outcome, message)
        session.admission.settled(
            outcome.utterance, FATES[outcome.kind], outcome.reason, outcome.lane
        )
        self._count(outcome, job, now)

    def _passed(self, outcome: Released) -> OutcomePassed:
        """Return what the speaker is told of an outcome that others hear: its position."""
        session = self._session
        return OutcomePassed(
            session_id=session.id, utterance_index=outcome.utterance, tgt_lang=outcome.lane,
            epoch=session.epoch, seq=outcome.seq,
        )  # fmt: skip

    def _listeners_of(self, outcome: Released) -> tuple[str, ...] | None:
        """Return who waits for an outcome that had no job: those of a room, or the speaker."""
        return self._hall.listeners_of(self._session, outcome.lane)

    def _note(self, outcome: Released) -> None:
        self._positions.setdefault(outcome.utterance, []).append(outcome.seq)
        if len(self._positions) > KEPT:
            del self._positions[next(iter(self._positions))]

    def _message(
        self, outcome: Released, job: LiveJob | None = None, now_ms: float = 0
    ) -> TranslationResult | MissingResult:
        session, wall = self._session, self._board.clock.wall_ms()
        if outcome.kind not in ("completed", "heard"):
            return missing_message(
                session.id, outcome, session.epoch, trace_id=session.trace_id, at_ms=wall
            )
        if outcome.kind == "heard":
            return decode_heard(outcome, session.epoch)
        kept = decode_result(outcome.payload)
        shown = Shown() if job is None else self._shown(outcome, job, kept, now_ms)
        return result_message(
            session.id, session.epoch, outcome, kept, shown=shown, sent_at_ms=wall
        )

    def _shown(self, outcome: Released, job: LiveJob, kept: StoredResult, now_ms: float) -> Shown:
        job.marks.released = job.marks.delivered = now_ms
        if self._grouped[0] != outcome.utterance and kept.text_asr:
            wall = self._board.clock.wall_ms()
            found = self.groups.result(kept.text_asr, kept.text_translated, wall)
            if found is not None:
                self._grouped = (outcome.utterance, *found)
                self.context = self.groups.context_text()
        index, group, part = self._grouped
        if index != outcome.utterance:
            return Shown(timeline(job.marks))
        return Shown(timeline(job.marks), group, part)

    def _count(self, outcome: Released, job: LiveJob | None, now_ms: float) -> None:
        metrics = self._board.metrics
        self._board.ended[outcome.kind].inc()
        if outcome.kind == "missing":
            metrics.result_gap_timeout_total.inc()
        if job is None:
            return
        marks = job.marks
        metrics.end_to_end_seconds.observe((now_ms - marks.speech_end) / 1000)
        if marks.settled:
            metrics.order_wait_seconds.observe((now_ms - marks.settled) / 1000)
            metrics.result_to_deliver_seconds.observe((marks.settled - marks.result) / 1000)
