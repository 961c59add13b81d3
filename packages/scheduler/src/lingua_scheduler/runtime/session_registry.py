"""How sessions are opened, resumed and ended on this instance.

A client that was given a token may come back to any instance within the window. The store decides
which instance owns the session: the one that asks last, under a higher fence. A session that was
here all the time goes on with what was buffered. A session from elsewhere goes on after the last
chunk that was admitted, because the client keeps the others.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from lingua_scheduler.errors import StoreUnavailable
from lingua_scheduler.peers.messages import SessionTaken
from lingua_scheduler.runtime.session_fields import SessionFields, decode_fields
from lingua_scheduler.runtime.session_state import SessionRecord, SessionState
from lingua_scheduler.state.records import Claim, Speech
from lingua_scheduler.state.reply import Reply
from lingua_wire import glossary as glossaries
from lingua_wire.codes import CloseCode
from lingua_wire.errors import InvalidInput, InvalidMessage
from lingua_wire.to_client import SessionResumed

if TYPE_CHECKING:
    from lingua_cli.logs import EventLog
    from lingua_scheduler.config import Settings
    from lingua_scheduler.metrics import LiveMetrics
    from lingua_scheduler.rooms.membership import RoomMembership
    from lingua_scheduler.rooms.service import RoomService
    from lingua_scheduler.runtime.effects import Effects
    from lingua_scheduler.runtime.outlet import Outlet
    from lingua_scheduler.runtime.pairing import Pairing
    from lingua_scheduler.runtime.session import LiveSession
    from lingua_scheduler.runtime.session_factory import SessionFactory
    from lingua_scheduler.runtime.session_profiles import SessionProfiles
    from lingua_scheduler.state.keys import Cell
    from lingua_scheduler.state.records import ResumedSession
    from lingua_scheduler.state.retry import StoreRetry
    from lingua_scheduler.state.store import Store
    from lingua_scheduler.tasks import Tasks
    from lingua_wire.from_client import SessionInit, SessionResume
    from lingua_wire.shared import Coverage, Replaced

# How much longer than a job may last a closing session waits for its outcomes.
CLOSE_GRACE_MS = 2000
CLOSE_AGAIN_S = 1.0
REJECTED = {
    Reply.NO_SESSION: "unknown_session",
    Reply.FENCED: "wrong_token",
    Reply.TRIMMED: "positions_lost",
}


class ResumeRefused(InvalidInput):
    """A session that cannot be resumed."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the session cannot go on: {reason}")


class SessionEnded(InvalidInput):
    """A session that was closed; what its client has not received can still be read."""

    def __init__(self, home: Cell) -> None:
        self.home = home
        super().__init__("the session was closed")


class ReturnedClient(NamedTuple):
    """A client that resumes: its session, its answer, and the position outcomes follow after."""

    session: LiveSession
    message: SessionResumed
    after_seq: int
    # The owner's fence: if the client has resumed once more meanwhile, the later one counts.
    fence: int


@dataclass(slots=True, kw_only=True, eq=False)
class SessionRegistry:
    """Opens, resumes and ends the sessions of one instance."""

    settings: Settings
    instance: str
    sessions: dict[str, LiveSession]
    factory: SessionFactory
    profiles: SessionProfiles
    pairing: Pairing
    rooms: RoomService
    membership: RoomMembership
    store: Store
    retry: StoreRetry
    effects: Effects
    tasks: Tasks
    metrics: LiveMetrics
    log: EventLog
    # Sessions that came from elsewhere and whose room is not restored yet.
    restoring: dict[str, asyncio.Event] = field(default_factory=dict)

    # Opening

    async def open(
        self, init: SessionInit, outlet: Outlet, *, tenant: str, is_resumable: bool = True
    ) -> tuple[LiveSession, str]:
        """Open a session, or raise what is wrong with its first message.

        Returns it with the token its client may come back with; '' if it may not.
        """
        own = glossaries.checked(init.glossary) if init.glossary else ()
        paired = await self.pairing.redeem(init.pairing_code) if init.pairing_code else ""
        if init.replaces is not None:
            await self._replace(init.replaces, tenant)
        profile = self.profiles.profile(init, tenant, paired, own)
        session_id = f"s-{secrets.token_hex(16)}"
        trace_id = init.trace_id or secrets.token_hex(16)
        token = secrets.token_hex(16) if is_resumable and outlet.speaks_additions else ""
        kept = msgspec.structs.replace(
            init, token=None, pairing_code=None, replaces=None, glossary=None
        )
        record = SessionRecord(
            id=session_id,
            home=self.profiles.home(tenant, session_id),
            tenant=tenant,
            trace_id=trace_id,
            token=digest_of(token) if token else "",
            fields=SessionFields(
                init=kept,
                trace_id=trace_id,
                paired=paired,
                speaks_additions=outlet.speaks_additions,
                wants_events=outlet.wants_events,
                glossary=own,
            ),
        )
        session = self.factory.build(record, profile, self._taken)
        reply, epoch, fence = await session.open_in_store()
        if reply is not Reply.OPENED:
            raise InvalidMessage("the session could not be opened")
        record.own(epoch, fence)
        self.sessions[session_id] = session
        session.attach(outlet)
        return session, token

    async def _replace(self, former: Replaced, tenant: str) -> None:
        """Give up a session whose client began anew: it leaves its room now.

        Its speech to others is still processed; its other jobs are not waited for.
        """
        home = self.profiles.home(tenant, former.session_id)
        claim = Claim(digest_of(former.resume_token), "", 0)
        found = await self.store.sessions.resume(
            home, former.session_id, self.instance, tenant=tenant, claim=claim, lease_ms=0
        )
        if found.reply is not Reply.RESUMED:
            return  # it has ended, or was never this client's
        here = self.sessions.get(former.session_id)
        if here is not None:
            here.give_up()
        elif found.previous_owner != self.instance:
            self._report_taken(found, former.session_id)
        await self.membership.replace(home, former.session_id)

    def _report_taken(self, found: ResumedSession, session: str) -> None:
        self.effects.peers.write(found.previous_owner, SessionTaken(session, found.fence))

    # Resuming

    async def resume(
        self, message: SessionResume, outlet: Outlet, *, tenant: str
    ) -> ReturnedClient:
        """Resume a session, or raise `ResumeRefused`; `attach` follows."""
        home = self.profiles.home(tenant, message.session_id)
        lease = self.settings.sessions
        claim = Claim(digest_of(message.resume_token), message.epoch, message.last_seq)
        found = await self.store.sessions.resume(
            home,
            message.session_id,
            self.instance,
            tenant=tenant,
            claim=claim,
            lease_ms=max(lease.lease_ms, lease.resume_ms),
        )
        if found.reply is Reply.SESSION_CLOSED:
            raise SessionEnded(home)
        if found.reply is not Reply.RESUMED:
            reason = REJECTED[found.reply]
            self.metrics.peers.resumes_rejected_total.labels(reason=reason).inc()
            raise ResumeRefused(reason)
        here = self.sessions.get(message.session_id)
        is_ours = here is not None and found.previous_owner == self.instance
        if here is not None and is_ours and not here.record.is_over:
            session = self._resume_here(here, found, outlet)
            if (placed := self.restoring.get(session.id)) is not None:
                await placed.wait()  # a former try of its client still restores its room
        else:
            record = SessionRecord(
                id=message.session_id,
                home=home,
                tenant=tenant,
                trace_id="",
                token=claim.token,
                epoch=found.epoch,
                fence=found.fence,
            )
            session = self._take_over(message, found, outlet, record)
            await self._restore_room(session)
        is_reset = found.epoch != message.epoch
        origin = "here" if session is here else "elsewhere"
        self.metrics.peers.sessions_resumed_total.labels(origin=origin).inc()
        next_seq, at_ms = session.input.position
        resumed = SessionResumed(
            session_id=session.id,
            epoch=found.epoch,
            last_seq=found.last_seq,
            next_audio_seq=next_seq,
            audio_ms=at_ms,
            next_utterance_index=session.admission.parts.indices.next,
            reset=is_reset,
        )
        after_seq = 0 if is_reset else message.last_seq
        return ReturnedClient(session, resumed, after_seq, found.fence)

    async def _restore_room(self, session: LiveSession) -> None:
        """Restore the room of a session before it speaks again."""
        placed = self.restoring[session.id] = asyncio.Event()
        try:
            await self.membership.restore(session)
        finally:
            placed.set()
            if self.restoring.get(session.id) is placed:
                del self.restoring[session.id]

    def _resume_here(
        self, session: LiveSession, found: ResumedSession, outlet: Outlet
    ) -> LiveSession:
        """Continue a session that was here all the time, with a new socket."""
        record = session.record
        if record.fields is not None:
            outlet.choose(
                speaks_additions=outlet.speaks_additions, wants_events=record.fields.wants_events
            )
        record.own(record.epoch, found.fence)
        session.return_timer.stop()
        if session.notifier.outlet is not None:
            session.notifier.close(CloseCode.REPLACED, "the client came back on another socket")
            session.notifier.detach()
        # A session that is being finished, because its client seemed lost, is open again.
        record.move(SessionState.DISCONNECTED)
        if record.epoch != found.epoch:
            session.start_epoch(found.epoch)
        return session

    def _take_over(
        self, message: SessionResume, found: ResumedSession, outlet: Outlet, record: SessionRecord
    ) -> LiveSession:
        """Continue a session of another instance, or of a former process of this one."""
        former = self.sessions.get(message.session_id)
        if former is not None:
            former.give_up()
        fields = decode_fields(found.about)
        record.restore(fields)
        outlet.choose(speaks_additions=fields.speaks_additions, wants_events=fields.wants_events)
        given = (record.tenant, fields.paired, fields.glossary)
        profile = self.profiles.profile(fields.init, *given)
        session = self.factory.build(record, profile, self._taken)
        record.move(SessionState.DISCONNECTED)
        is_reset = found.epoch != message.epoch
        changes = [
            (change.after_seq, self.profiles.profile(change.init, *given))
            for change in fields.changes
        ]
        last_seq = 0 if is_reset else message.last_seq
        session.restore(found, last_seq, audio_after(message, found), changes)
        self.sessions[session.id] = session
        if found.previous_owner != self.instance:
            self._report_taken(found, session.id)
        return session

    async def attach(self, resumed: ReturnedClient, outlet: Outlet) -> bool:
        """Confirm the resume and send what the client missed; False: it must resume once more."""
        session, fence = resumed.session, resumed.fence
        record = session.record
        if record.is_over or record.fence != fence:
            return False
        outlet.send(resumed.message)
        is_whole = await session.deliverer.replay(resumed.after_seq, outlet)
        if not is_whole or record.is_over or record.fence != fence:
            return False
        session.attach(outlet)
        self.membership.returned(session)
        # Outcomes released meanwhile go first: the client's next message may end the session.
        await session.recover()
        return not record.is_over

    # Disconnecting

    def unattached(self, session: LiveSession, outlet: Outlet) -> None:
        """Wait again for a client that resumed but could not be sent what it missed."""
        if session.notifier.outlet is outlet:
            self.disconnected(session, outlet)
        elif not session.notifier.is_attached and not session.record.is_over:
            self._await_return(session)

    def never_answered(self, session: LiveSession, outlet: Outlet) -> None:
        """Finish a session whose client left before it was given its token."""
        if session.notifier.outlet is outlet:
            session.notifier.detach()
            self._give_up(session)

    def disconnected(self, session: LiveSession, outlet: Outlet) -> None:
        """Handle the loss of a client's socket: it may resume, else its speech is finished."""
        record = session.record
        if session.notifier.outlet is not outlet:
            return  # another socket took its place
        session.notifier.detach()
        if record.is_closing or record.is_over:
            return
        record.move(SessionState.DISCONNECTED)
        if record.is_resumable:
            self.membership.disconnected(session)
            self._await_return(session)
            return
        self._give_up(session)

    def _await_return(self, session: LiveSession) -> None:
        resume_ms = self.settings.sessions.resume_ms
        session.return_timer.start(resume_ms, lambda: self._give_up(session))

    def _give_up(self, session: LiveSession) -> None:
        """Finish the speech of a client that does not resume."""
        record = session.record
        if record.is_closing or record.is_over:
            return
        record.move(SessionState.CLOSING)
        session.input.end()
        self.rooms.end(session)
        self.tasks.start(self.end(session, "disconnected"))

    def abandon(self, session: LiveSession) -> None:
        """End a session whose outcomes are not wanted: its jobs are cancelled, not waited for."""
        record = session.record
        session.notifier.detach()
        if record.is_over:
            return
        is_ending = record.is_closing
        record.move(SessionState.CLOSING)
        session.input.end()
        # The task that ends it already waits for this.
        session.admission.drop_backlog()
        if not is_ending:
            self.tasks.start(self.end(session, "disconnected"))

    # Ending

    async def end(self, session: LiveSession, reason: str) -> Coverage:
        """Finish accepted speech, then close the session in the store; returns its coverage."""
        record, fence = session.record, session.record.fence
        if not record.is_over:
            record.move(SessionState.CLOSING)
        session.return_timer.stop()
        session.input.end()
        jobs = self.settings.jobs
        longest_ms = jobs.pending_ms + jobs.attempts_max * jobs.attempt_ms + CLOSE_GRACE_MS
        self.rooms.end(session)
        await session.until_settled(longest_ms)
        ledger = session.admission.parts.ledger
        if record.fence != fence and not record.is_over:
            return ledger.summary()  # its client came back
        if not record.is_over:
            record.move(SessionState.ENDED)
            await self._close(session, reason)
        self.effects.jobs.remove_all_of(session)
        ledger.settle_rest("failed", "session_ended")
        self._remove(session)
        self.log("session.ended", session=session.id, reason=reason)
        return ledger.summary()

    async def _close(self, session: LiveSession, reason: str) -> None:
        """Close a session in the store, which counts what became of its speech."""
        record, effects, may_be_closed = session.record, self.effects, False
        while True:
            try:
                answer, work = await effects.dispatcher.close_session(
                    record.home,
                    record.id,
                    reason,
                    fence=record.fence,
                    fields=session.closing_fields(),
                )
            except StoreUnavailable:
                may_be_closed = True
                await asyncio.sleep(CLOSE_AGAIN_S)
                continue
            effects.perform(work)
            if may_be_closed and answer.reply is Reply.NO_SESSION:
                # The answer with what became of its speech was lost.
                speech = await self.retry.until_stored(
                    lambda: self.store.sessions.speech(record.home, record.id)
                )
                effects.counts.speech_ended(speech or Speech())
            return

    def _taken(self, session: LiveSession) -> None:
        """Forget a session that another instance owns: its jobs go on there."""
        self._remove(session)
        self.effects.jobs.remove_all_of(session)
        self.membership.taken(session)
        session.notifier.close(CloseCode.REPLACED, "the session went on elsewhere")
        self.metrics.peers.sessions_handed_over_total.inc()

    def _remove(self, session: LiveSession) -> None:
        if self.sessions.get(session.id) is session:
            del self.sessions[session.id]


def audio_after(message: SessionResume, found: ResumedSession) -> tuple[int | None, int]:
    """Return the chunk that is expected of a client that came from elsewhere, and its place.

    Chunks that the client no longer has were acknowledged as silence.
    """
    known, first = found.heard + 1, message.next_audio_seq
    if first is None:
        return (known if found.heard >= 0 else None), found.heard_ms
    if first > known:
        return first, max(found.heard_ms, message.audio_ms or 0)
    return known, found.heard_ms


def digest_of(token: str) -> str:
    """Return what the store keeps of a token."""
    return hashlib.blake2b(token.encode(), digest_size=16).hexdigest()
