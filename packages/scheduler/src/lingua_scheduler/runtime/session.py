"""One client's session on this instance: its parts, its record in the store, its end here.

Audio comes in by `input`, cuts go through `admission`, outcomes go out by `deliverer`. A session
outlives its socket: a client that comes back goes on here with everything that was buffered, or on
another instance, which then is the owner. A former owner drops what it has, because the client
keeps all audio that was not admitted.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from lingua_scheduler.flag import Flag
from lingua_scheduler.runtime.coverage import ended_of, restore_ledger
from lingua_scheduler.runtime.session_fields import LanguageChange, encode_fields
from lingua_scheduler.runtime.session_state import SessionState
from lingua_scheduler.state.records import SessionOpening
from lingua_scheduler.state.reply import Reply
from lingua_wire.to_client import SessionReset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lingua_scheduler.jobs.profile import Profile
    from lingua_scheduler.metrics import LiveMetrics
    from lingua_scheduler.runtime.admission import Admission
    from lingua_scheduler.runtime.client_notifier import ClientNotifier
    from lingua_scheduler.runtime.delivery import Deliverer
    from lingua_scheduler.runtime.effects import Effects
    from lingua_scheduler.runtime.language_changes import LanguageChanges
    from lingua_scheduler.runtime.lifecycle import Lifecycle
    from lingua_scheduler.runtime.outlet import Outlet
    from lingua_scheduler.runtime.reopening import Reopening
    from lingua_scheduler.runtime.session_state import SessionRecord
    from lingua_scheduler.runtime.speech_input import SpeechInput
    from lingua_scheduler.runtime.whole_utterances import WholeUtterances
    from lingua_scheduler.state.records import Released, ResumedSession
    from lingua_scheduler.state.retry import StoreRetry
    from lingua_scheduler.state.store import Store
    from lingua_scheduler.tasks import Tasks
    from lingua_wire.from_client import SessionUpdate


class ReturnTimer:
    """Runs while the client of a session is disconnected."""

    __slots__ = ("_timer",)

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None

    def start(self, timeout_ms: int, give_up: Callable[[], None]) -> None:
        """Give the client time to resume."""
        self.stop()
        self._timer = asyncio.get_running_loop().call_later(timeout_ms / 1000, give_up)

    def stop(self) -> None:
        """Note that the client has resumed, or is not waited for."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


@dataclass(slots=True, kw_only=True, eq=False)
class LiveSession:
    """A session with its input, its utterances in flight and its deliveries."""

    record: SessionRecord
    notifier: ClientNotifier
    languages: LanguageChanges
    input: SpeechInput
    utterances: WholeUtterances
    admission: Admission
    deliverer: Deliverer
    reopening: Reopening
    store: Store
    effects: Effects
    retry: StoreRetry
    lifecycle: Lifecycle
    tasks: Tasks
    metrics: LiveMetrics
    instance: str
    lease_ms: int
    opened_at_ms: int
    # Called when another instance has become the owner.
    on_taken: Callable[[LiveSession], None]
    # Set when the client has gone to another instance.
    left: Flag = field(default_factory=Flag)
    # Runs while its client is disconnected.
    return_timer: ReturnTimer = field(default_factory=ReturnTimer)

    @property
    def id(self) -> str:
        """Return the session's id."""
        return self.record.id

    # In the store

    async def open_in_store(self, *, restart: bool = False) -> tuple[Reply, str, int]:
        """Open the session, or open it again in its present state; returns epoch and fence."""
        record = self.record
        opening = SessionOpening(record.fence, restart, self._fields(), self._ended())
        return await self.store.sessions.open(
            record.home,
            record.id,
            self.instance,
            tenant=record.tenant,
            lease_ms=self.lease_ms,
            opening=opening,
        )

    def _ended(self) -> str:
        """Return what became of its speech so far; nothing yet of a new session."""
        if not self.record.fence:
            return ""
        parts = self.admission.parts
        return ended_of(parts.ledger, self.input.silence_ms, parts.progress.passed_ms[0])

    def _fields(self) -> tuple[bytes | str | int, ...]:
        record, fields = self.record, self.admission.parts.progress.opening_fields()
        if record.token and record.fields is not None:
            fields += ["token", record.token, "about", encode_fields(record.fields)]
        return tuple(fields)

    async def _store_fields(self, fields: bytes) -> None:
        record = self.record
        await self.retry.until_stored(
            lambda: self.store.sessions.note(
                record.home, record.id, record.fence, {"about": fields}
            )
        )

    def closing_fields(self) -> dict[str, str | int]:
        """Return what only the owner knows of a session that ends."""
        passed = self.admission.parts.progress.passed_field
        return {"silent": self.input.silence_ms, "passed": passed}

    def start_epoch(self, epoch: str) -> None:
        """Start positions over, and report that to the client."""
        record = self.record
        record.own(epoch, record.fence)
        self.metrics.peers.epochs_restarted_total.inc()
        self.deliverer.start_over()
        reset = SessionReset(session_id=record.id, epoch=epoch, reason="store_lost")
        self.notifier.addition(reset)

    async def recover(self) -> None:
        """Fetch outcomes that were not announced; restore the session if the store lost it."""
        reply = await self.deliverer.catch_up()
        if self.record.is_over:
            return
        if reply is Reply.TRIMMED:
            await self.reopening.reopen(restart=True)
            await self.deliverer.catch_up()
        elif reply in (Reply.NO_SESSION, Reply.EPOCH_CHANGED):
            await self.reopening.reopen()

    async def verify(self) -> None:
        """Verify everything: the store was unavailable and may have lost its last writes."""
        await self.recover()
        if not self.record.is_over:
            self.reopening.submit_again()

    # The client disconnects and comes back

    def restore(
        self,
        former: ResumedSession,
        last_seq: int,
        audio: tuple[int | None, int],
        changes: Iterable[tuple[int, Profile]] = (),
    ) -> None:
        """Continue where another instance stopped: after this position, with this chunk."""
        next_seq, audio_ms = audio
        self.languages.restore(changes)
        self.admission.restore(former)
        self.deliverer.restore(last_seq)
        # Also the silence that was acknowledged after the last stored utterance.
        silent_ms = restore_ledger(self.admission.parts.ledger, former, audio_ms)
        self.input.restore(next_seq, audio_ms, silent_ms)
        for turn in former.turns:
            self.tasks.start(self.end_turn(turn))

    def attach(self, outlet: Outlet) -> None:
        """Continue with this socket of the client."""
        self.return_timer.stop()
        self.notifier.attach(outlet)
        # A client that resumes while the instance stops is on its way elsewhere.
        is_moving = self.record.is_disconnected and self.lifecycle.hands_over
        self.record.move(SessionState.MOVING if is_moving else SessionState.CONNECTED)
        self.input.rearm()

    def give_up(self) -> None:
        """Drop everything: another instance is the owner now."""
        if not self.record.is_over:
            self.record.move(SessionState.TAKEN)
            self.left.set()
            self.input.stop()
            self.return_timer.stop()
            self.admission.give_up()
            self.on_taken(self)

    # What it receives

    def deliver(self, epoch: str, outcomes: tuple[Released, ...]) -> None:
        """Deliver released outcomes in the order of their positions."""
        self.deliverer.receive(epoch, outcomes)

    def playback(self, *, starts: bool) -> None:
        """Note that the client plays a translation, or has played it."""
        self.deliverer.groups.playing(starts=starts)
        self.input.playback(starts=starts)

    def update(self, change: SessionUpdate) -> None:
        """Change languages from the next utterance on."""
        if not (change.src_lang or change.tgt_lang or change.tgt_langs):
            return
        languages, is_idle, record = self.languages, self.input.is_idle, self.record
        languages.reach_all(is_idle=is_idle)
        profile = languages.next_profile.changed(change)
        languages.change_to(profile, is_idle=is_idle)
        if record.fields is not None:
            several = profile.targets if len(profile.targets) > 1 else None
            langs = {"src_lang": profile.source, "tgt_lang": profile.targets[0]}
            init = msgspec.structs.replace(record.fields.latest, **langs, tgt_langs=several)
            after = LanguageChange(self.input.newest_seq, init)
            stored_seq = self.admission.parts.progress.stored.seq
            fields = record.keep(record.fields.changed(after, stored_seq))
            if record.is_resumable:
                self.tasks.start(self._store_fields(encode_fields(fields)))

    async def end_turn(self, turn: str) -> None:
        """End a turn without a closing part."""
        record, effects = self.record, self.effects
        _, work = await self.retry.until_stored(
            lambda: effects.dispatcher.end_turn(record.home, record.id, turn, fence=record.fence)
        )
        effects.perform(work)

    # The end

    async def until_elsewhere(self, timeout_ms: float) -> bool:
        """Wait until the client has gone to another instance; tells whether it has."""
        if not self.notifier.is_attached:
            return True  # it is about to resume there
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self.left.wait()
        except TimeoutError:
            if self.record.state is SessionState.MOVING:
                self.record.move(SessionState.CONNECTED)
            return False
        return True

    async def until_settled(self, timeout_ms: float) -> bool:
        """Wait until every admitted utterance has its outcome; tells whether that is so."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self.admission.idle.wait()
        except TimeoutError:
            return False
        return True
