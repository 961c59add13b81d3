"""Outcomes to one client: its own, and those of others; in order, each once.

The store puts outcomes into the client's outbox with positions (`seq`). Answers of several steps
may overtake each other on their way here, so that they are ordered again by position. An outcome of
the client's own speech that went to its listeners is in the outbox too, as "passed": then every
listener has it. Delivered outcomes stay in the outbox until the client has confirmed them; without
confirmations, as many are kept as may have been sent to a dead socket. So a client that resumes or
asks again gets them. A client that is behind with reading gets the next outcome when it has read
more; until then the outcome waits in the outbox.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lingua_scheduler.jobs.result import (
    HEARD,
    Shown,
    heard_message,
    heard_timeline,
    missing_message,
    passed_message,
    result_message,
)
from lingua_scheduler.jobs.result_format import decode_result
from lingua_scheduler.rooms.fanout import reference_of
from lingua_scheduler.runtime.session_state import SessionState
from lingua_scheduler.session.timeline import timeline
from lingua_scheduler.state.records import AS_SPOKEN, speaker_of
from lingua_scheduler.state.reply import Reply
from lingua_wire.codes import CloseCode, ErrorCode
from lingua_wire.to_client import TranslationResult

if TYPE_CHECKING:
    from collections.abc import Callable

    from lingua_scheduler.clock import Clock
    from lingua_scheduler.rooms.fanout import SharedResult, SharedResults
    from lingua_scheduler.runtime.client_notifier import ClientNotifier
    from lingua_scheduler.runtime.delivered import DeliveredOutcomes
    from lingua_scheduler.runtime.delivery_report import DeliveryReport
    from lingua_scheduler.runtime.in_flight import InFlightWindow
    from lingua_scheduler.runtime.job import LiveJob
    from lingua_scheduler.runtime.job_table import JobTable
    from lingua_scheduler.runtime.outcome_groups import OutcomeGroups
    from lingua_scheduler.runtime.outlet import Outlet
    from lingua_scheduler.runtime.session_state import SessionRecord
    from lingua_scheduler.session.ledger import Fate
    from lingua_scheduler.state.records import Released
    from lingua_scheduler.state.store import Store
    from lingua_scheduler.tasks import Tasks
    from lingua_wire.to_client import MissingResult

FATES: dict[str, Fate] = {
    "completed": "delivered",
    "completed_no_text": "silent",
    "failed": "failed",
    "expired": "failed",
    "cancelled": "skipped",
    "missing": "failed",
}
FAILURES = ("failed", "expired")
# Delivered outcomes kept in the outbox, and how many more gather before it is trimmed.
KEPT = 32
TRIM_EVERY = 64
# The outbox is trimmed when the client has confirmed this many more.
TRIM_CONFIRMED = 16
# How long a position may be missing before it is read from the outbox.
OVERDUE_MS = 1000
# How long a session waits for any outcome before it looks for one that was not announced.
LOOK_MS = 2000
# The same for a listener that has no own utterance in flight.
LISTEN_MS = 2000
# How long a client may be behind with reading before it is dropped.
BEHIND_MS_MAX = 10_000
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
    """Return the code that a client is sent for a job that failed or expired."""
    if outcome.kind == "expired":
        return ErrorCode.JOB_TIMEOUT
    return MOVED_CODES.get(outcome.reason, outcome.reason)


@dataclass(slots=True)
class DeliveryTimes:
    """When things last happened to a session's deliveries; 0: they have not."""

    # The first of the outcomes that came too early.
    early_since_ms: float = 0.0
    # The outbox was read, or an outcome came.
    looked_at_ms: float = 0.0
    # Since when the client is behind with reading.
    behind_since_ms: float = 0.0

    def early(self, now_ms: float) -> None:
        """Note the first outcome that came too early."""
        self.early_since_ms = now_ms

    def looked(self, now_ms: float) -> None:
        """Note that the outbox was read, or that an outcome came."""
        self.looked_at_ms = now_ms

    def behind(self, now_ms: float, *, anew: bool = False) -> None:
        """Note that the client is behind with reading."""
        if anew or not self.behind_since_ms:
            self.behind_since_ms = now_ms

    def caught_up(self) -> None:
        """Note that the client is not behind with reading."""
        self.behind_since_ms = 0.0


@dataclass(slots=True, kw_only=True, eq=False)
class Deliverer:
    """The outcomes of one session on their way out."""

    record: SessionRecord
    notifier: ClientNotifier
    window: InFlightWindow
    groups: OutcomeGroups
    delivered: DeliveredOutcomes
    store: Store
    results: SharedResults
    jobs: JobTable
    report: DeliveryReport
    clock: Clock
    tasks: Tasks
    # What one language may have in flight: all of it may be sent to a dead socket.
    in_flight_max: int
    # Whether the session is in a room, and what is done with each outcome of its own.
    is_in_room: Callable[[], bool]
    on_settled: Callable[[int, Fate, str, str, float], None]
    # The position of the last outcome delivered, and outcomes that came too early.
    seq: int = 0
    early: dict[int, Released] = field(default_factory=dict)
    # Results that are not kept any more although they were to be delivered.
    unkept: frozenset[str] = frozenset()
    times: DeliveryTimes = field(default_factory=DeliveryTimes)
    acked: int = 0

    def receive(self, epoch: str, outcomes: tuple[Released, ...]) -> None:
        """Deliver outcomes whose turn has come; keep those that came too early."""
        if epoch != self.record.epoch or (self.times.behind_since_ms and self.notifier.is_behind):
            return  # not ours, or it waits in the outbox
        early, had_early, now = self.early, bool(self.early), self.clock.now_ms()
        for outcome in outcomes:
            if outcome.seq == self.seq + 1 and not early and not self._must_wait(outcome):
                self._emit(outcome, now)  # as nearly always: its turn has come, and nothing waits
            elif outcome.seq > self.seq:
                early[outcome.seq] = outcome
        while early and (following := early.get(self.seq + 1)) is not None:
            if self._must_wait(following):
                break
            del early[following.seq]
            self._emit(following, now)
        if early and not had_early:
            self.times.early(now)
        if self.seq - self.acked >= TRIM_EVERY and self.seq - self.acked >= self._kept + TRIM_EVERY:
            self._trim_to(self.seq - self._kept, is_confirmed=False)

    def _must_wait(self, outcome: Released) -> bool:
        """Tell whether an outcome stays in the outbox for now, from where it is read again."""
        outlet = self.notifier.outlet
        if outlet is None or not outlet.is_behind:
            if self.times.behind_since_ms:
                self.times.caught_up()
            return outcome.kind == HEARD and not self._is_at_hand(outcome)
        self.times.behind(self.clock.now_ms())
        self.early.clear()
        return True

    def _is_at_hand(self, outcome: Released) -> bool:
        kind, heard_id = reference_of(outcome)
        return kind != "completed" or heard_id in self.unkept or self.results.has(heard_id)

    @property
    def _kept(self) -> int:
        """Return how many delivered outcomes are kept for a client that confirms none."""
        if not self.record.is_resumable:
            return KEPT
        return KEPT + self.in_flight_max * max(1, len(self.delivered.lanes))

    def confirmed(self, seq: int) -> None:
        """Note what the client has confirmed; now and then the outbox is trimmed."""
        if seq <= self.seq and seq - self.acked >= TRIM_CONFIRMED:
            self._trim_to(seq, is_confirmed=True)

    def _trim_to(self, seq: int, *, is_confirmed: bool) -> None:
        self.acked = seq
        self.tasks.start(self._ack(seq, is_confirmed=is_confirmed))

    # Outcomes that were not announced

    def is_overdue(self, now_ms: float) -> bool:
        """Tell whether a position is missing for so long that it must be fetched."""
        times = self.times
        if times.behind_since_ms:
            return self._has_read_on(now_ms)
        if self.early:
            return now_ms - times.early_since_ms > OVERDUE_MS
        if not self.window.open:
            # Others may have spoken: a listener reads its outbox now and then, also after it left.
            if now_ms - times.looked_at_ms <= LISTEN_MS:
                return False
            return self.delivered.has_received or self.is_in_room()
        return now_ms - max(self.window.waiting_since_ms, times.looked_at_ms) > LOOK_MS

    def _has_read_on(self, now_ms: float) -> bool:
        """Tell whether a client that was behind may get more; one that never reads is dropped."""
        if not self.notifier.is_behind:
            self.times.caught_up()
            return True
        if now_ms - self.times.behind_since_ms > BEHIND_MS_MAX:
            self.times.behind(now_ms, anew=True)
            self.notifier.close(CloseCode.SLOW_READER, "slow reader")
        return False

    async def catch_up(self) -> Reply:
        """Read from the outbox what was released but not announced to this instance."""
        record, epoch = self.record, self.record.epoch
        self.times.looked(self.clock.now_ms())
        while True:
            page = await self.store.outbox.read(
                record.home, record.id, epoch=epoch, after_seq=self.seq, limit=OUTBOX_PAGE
            )
            if epoch != record.epoch:
                return Reply.OK  # it started over meanwhile
            if page.trimmed > self.seq:
                self.seq = page.trimmed  # those cannot be delivered any more
                continue
            before = self.seq
            for outcome in page.entries:
                await self._load(outcome)
                self.receive(epoch, (outcome,))
            if self.times.behind_since_ms or self.seq in (before, page.last_seq):
                return page.reply

    async def _load(self, outcome: Released) -> None:
        """Load the result that an outcome of another speaker refers to."""
        if outcome.kind != HEARD:
            return
        _, heard_id = reference_of(outcome)
        if not await self.results.load(self.record.home, outcome):
            # It was kept as long as any client could resume and need it.
            self.unkept |= {heard_id}

    # Repetition

    async def replay(self, after_seq: int, outlet: Outlet) -> bool:
        """Send again what was delivered after a position; tells whether all of it is still kept.

        The caller attaches the socket right after this, before anything else is delivered.
        """
        record, epoch, at = self.record, self.record.epoch, after_seq
        while at < self.seq:
            page = await self.store.outbox.read(
                record.home, record.id, epoch=epoch, after_seq=at, limit=OUTBOX_PAGE
            )
            if page.trimmed > at:
                at = page.trimmed
                continue
            if epoch != record.epoch or not page.entries:
                return False
            for outcome in page.entries:
                if outcome.seq <= self.seq:
                    await self._send_stored(outcome, outlet)
            at = page.entries[-1].seq
        return True

    async def _send_stored(self, outcome: Released, outlet: Outlet) -> None:
        """Send an outcome that was sent before."""
        record = self.record
        if outcome.is_passed:
            outlet.send(passed_message(record.id, outcome, record.epoch))
        elif outcome.kind == HEARD:
            await self._load(outcome)
            message, result = self._received(outcome, joins_group=False)
            if isinstance(message, TranslationResult) and result is not None:
                outlet.send_with(message, result.sound)
            else:
                outlet.send(message)
        else:
            outlet.send(self._message(outcome, self.clock.wall_ms()))

    async def repeat(self, index: int) -> None:
        """Send the outcomes of an utterance again, as far as they are kept."""
        record = self.record
        for seq in self.delivered.positions_of(index):
            page = await self.store.outbox.read(
                record.home, record.id, epoch=record.epoch, after_seq=seq - 1, limit=1
            )
            for outcome in page.entries:
                if self.notifier.outlet is not None:
                    await self._send_stored(outcome, self.notifier.outlet)

    def send_again(self, outcome: Released) -> None:
        """Send an outcome of the speaker itself once more, as it was sent before."""
        record = self.record
        if outcome.is_passed:
            self.notifier.addition(passed_message(record.id, outcome, record.epoch))
        else:
            self.notifier.send(self._message(outcome, self.clock.wall_ms()))

    # The outbox

    def restore(self, last_seq: int) -> None:
        """Continue after the position up to which a former owner has delivered."""
        self.seq = last_seq

    def start_over(self) -> None:
        """Count positions from one again: the session began anew in the store."""
        self.seq = self.acked = 0
        self.early.clear()
        self.delivered.start_over()
        self.times.caught_up()

    async def trim(self) -> None:
        """Make room in the outbox, which may be smaller than what is usually kept in it."""
        # A client that is disconnected, or about to resume elsewhere, may not have received them:
        # room is made when it has resumed or ended.
        if self.notifier.is_attached and self.record.state is not SessionState.MOVING:
            self.acked = self.seq
            await self._ack(self.acked, is_confirmed=False)

    async def _ack(self, seq: int, *, is_confirmed: bool) -> None:
        record = self.record
        await self.store.outbox.ack(
            record.home,
            record.id,
            record.epoch,
            seq,
            fence=record.fence,
            is_confirmed=is_confirmed,
        )

    # Delivery

    def _emit(self, outcome: Released, now_ms: float) -> None:
        self.seq = outcome.seq
        self.times.looked(now_ms)
        if outcome.kind == HEARD:
            self._emit_received(outcome)
            return
        job = self.jobs.pop(outcome.job)
        # Otherwise the store lost that it was delivered, and released it again.
        is_new, wall = self.delivered.note(outcome), self.clock.wall_ms()
        if is_new:
            self._emit_own(outcome, job, now_ms, wall)
        fate = FATES[outcome.kind]
        self.on_settled(outcome.utterance, fate, outcome.reason, outcome.lane, now_ms)
        if is_new:
            self.report.delivered(self.record, outcome, job, now_ms, wall)

    def _emit_own(
        self, outcome: Released, job: LiveJob | None, now_ms: float, wall_ms: int
    ) -> None:
        kind = outcome.kind
        if job is not None and kind in FAILURES and not job.is_failure_sent:
            self.notifier.failed(job, code_of(outcome))
        if self.notifier.early.wants_any:
            self.notifier.early.outcome_sent(self.record.id, outcome.utterance)
        if outcome.is_passed:
            self._emit_passed(outcome, job, now_ms, wall_ms)
        else:
            self.notifier.send(self._message(outcome, wall_ms, job, now_ms))

    def _emit_passed(
        self, outcome: Released, job: LiveJob | None, now_ms: float, wall_ms: int
    ) -> None:
        """Report to the speaker that its listeners have an outcome, and keep the job."""
        self.notifier.addition(passed_message(self.record.id, outcome, self.record.epoch))
        if outcome.payload:
            self.groups.join(outcome, decode_result(outcome.payload), now_ms, wall_ms)
        if job is not None:
            self.jobs.keep_passed(job)

    def _message(
        self, outcome: Released, wall_ms: int, job: LiveJob | None = None, now_ms: float = 0
    ) -> TranslationResult | MissingResult:
        record = self.record
        if outcome.kind != "completed":
            return missing_message(
                record.id, outcome, record.epoch, trace_id=record.trace_id, at_ms=wall_ms
            )
        if job is None:
            kept, shown = decode_result(outcome.payload), Shown()
        else:
            kept = job.result_in(outcome.payload)
            job.run.released(now_ms)
            place = self.groups.join(outcome, kept, now_ms, wall_ms)
            spent = timeline(job.times)
            shown = Shown(spent) if place is None else Shown(spent, *place)
        return result_message(
            record.id, record.epoch, outcome, kept, shown=shown, sent_at_ms=wall_ms
        )

    def _emit_received(self, outcome: Released) -> None:
        """Deliver an outcome of another speaker, unless the store lost that it was delivered."""
        _, heard_id = reference_of(outcome)
        if self.unkept:
            self.unkept -= {heard_id}
        if not self.delivered.note_received(heard_id, outcome):
            return
        message, result = self._received(outcome, joins_group=True)
        if self.notifier.early.wants_any:
            self.notifier.early.outcome_sent(message.session_id, message.utterance_index)
        if isinstance(message, TranslationResult) and result is not None:
            self.notifier.send_with(message, result.sound)
        else:
            self.notifier.send(message)

    def _received(
        self, outcome: Released, *, joins_group: bool
    ) -> tuple[TranslationResult | MissingResult, SharedResult | None]:
        """Return the message of another speaker's outcome, without its sound, and the result."""
        _, heard_id = reference_of(outcome)
        result, wall = self.results.get(heard_id), self.clock.wall_ms()
        kept, shown = None, Shown()
        if result is not None:
            kept = result.kept
            shown = Shown(heard_timeline(kept, wall))
            if joins_group and kept.text_asr:
                speaker, now = speaker_of(heard_id), self.clock.now_ms()
                shown = self.groups.join_speaker(speaker, kept, shown, now, wall)
        message = heard_message(outcome, self.record.epoch, kept, shown=shown, at_ms=wall)
        return message, None if outcome.lane == AS_SPOKEN else result
