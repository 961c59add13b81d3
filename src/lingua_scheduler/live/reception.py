"""Clients come, go, come back and leave: how sessions begin, move and end on this instance.

A client that was given a token may come back to any instance within the window. The store decides
whose the session is: the one that asks last, under a higher fence. If it was here all the time it
goes on with what was buffered; from elsewhere it goes on after the last chunk that was admitted,
because the client keeps the others.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from lingua_scheduler import glossary as glossaries
from lingua_scheduler.between.letters import Taken
from lingua_scheduler.errors import InvalidInput, InvalidMessage, StoreUnavailable
from lingua_scheduler.live.account import coverage_of
from lingua_scheduler.live.detectors import check_detector, detector_for
from lingua_scheduler.live.hearing import reference_of
from lingua_scheduler.live.outcome import (
    HEARD,
    Shown,
    heard_message,
    passed_message,
    stored_message,
)
from lingua_scheduler.live.profile import Profile
from lingua_scheduler.live.session import About, LiveSession, Opened, decode_about
from lingua_scheduler.messages.codes import CloseCode
from lingua_scheduler.messages.to_client import SessionCloseAck, SessionResumed, TranslationResult
from lingua_scheduler.session.segmenter import Segmenter, SegmentRules
from lingua_scheduler.state.records import AS_SPOKEN, Claim, Speech
from lingua_scheduler.state.reply import Reply

if TYPE_CHECKING:
    from lingua_scheduler.config import Settings
    from lingua_scheduler.jobs.fleet import FleetSnapshot
    from lingua_scheduler.live.board import JobBoard
    from lingua_scheduler.live.hall import Hall
    from lingua_scheduler.live.pairing import Pairing
    from lingua_scheduler.live.teller import Outlet
    from lingua_scheduler.messages.from_client import SessionInit, SessionResume
    from lingua_scheduler.messages.shared import Coverage, Replaced, Term
    from lingua_scheduler.messages.to_client import ToClient
    from lingua_scheduler.session.voice import VoiceDetector
    from lingua_scheduler.state.keys import Cell
    from lingua_scheduler.state.records import Released, Resumed

# Sessions that find nobody for their languages may look again this often, all together.
FLEET_AGAIN_MS = 100
# How much longer than a job may last a closing session waits for its outcomes.
CLOSE_GRACE_MS = 2000
REJECTED = {
    Reply.NO_SESSION: "unknown_session",
    Reply.FENCED: "wrong_token",
    Reply.TRIMMED: "positions_lost",
}


class ResumeRefused(InvalidInput):
    """A session that cannot go on."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the session cannot go on: {reason}")


class SessionEnded(InvalidInput):
    """A session that was closed; what its client has not heard yet can still be read."""

    def __init__(self, home: Cell) -> None:
        self.home = home
        super().__init__("the session was closed")


class Back(NamedTuple):
    """A client that is back: its session, what it is told, and from where outcomes follow."""

    session: LiveSession
    message: SessionResumed
    after_seq: int
    # Its number as the owner: if the client came back once more meanwhile, that one counts.
    fence: int


class Reception:
    """Opens, resumes and ends the sessions of one instance."""

    def __init__(
        self, board: JobBoard, hall: Hall, pairing: Pairing, fleet: FleetSnapshot,
        settings: Settings,
    ) -> None:  # fmt: skip
        self._board = board
        self._hall = hall
        self._pairing = pairing
        self._fleet = fleet
        self._settings = settings
        self._tenants = {tenant.id: tenant for tenant in settings.tenants}
        self._glossaries = glossaries_of(settings)
        self._rules = rules_of(settings)
        self._fleet_seen_ms = 0.0
        # Sessions that came from elsewhere and whose room is not known here yet.
        self._entering: dict[str, asyncio.Event] = {}
        board.on_dropped = self._dropped
        check_detector(settings.segmentation.voice_detector)

    # They come

    async def open(
        self, init: SessionInit, outlet: Outlet, *, tenant: str
    ) -> tuple[LiveSession, str]:
        """Open a session, or raise what is wrong with its first message.

        Returns it with the token its client may come back with.
        """
        own = glossaries.checked(init.glossary) if init.glossary else ()
        paired = await self._pairing.redeem(init.pairing_code) if init.pairing_code else ""
        if init.replaces is not None:
            await self._replace(init.replaces, tenant)
        profile = self._profile(init, tenant, paired, own)
        session_id = f"s-{secrets.token_hex(16)}"
        trace = init.trace_id or secrets.token_hex(16)
        token = secrets.token_hex(16) if outlet.speaks_additions else ""
        kept = msgspec.structs.replace(
            init, token=None, pairing_code=None, replaces=None, glossary=None
        )
        opened = Opened(
            session_id, self._home(tenant, session_id), "", tenant, trace, 0,
            digest_of(token) if token else "",
            About(
                kept, trace, paired, outlet.speaks_additions, outlet.wants_events, glossary=own
            ),
        )  # fmt: skip
        session = self._make(opened, profile, outlet)
        reply, session.epoch, session.fence = await session.open_in_store()
        if reply is not Reply.OPENED:
            raise InvalidMessage("the session could not be opened")
        self._board.sessions[session_id] = session
        return session, token

    async def _replace(self, former: Replaced, tenant: str) -> None:
        """Give up a session whose client began anew: it leaves its room now.

        What it said for others is still worked on; nobody waits for what was for itself.
        """
        board, home = self._board, self._home(tenant, former.session_id)
        claim = Claim(digest_of(former.resume_token), "", 0)
        found = await board.store.session_resume(
            home, former.session_id, board.instance, tenant=tenant, claim=claim, lease_ms=0
        )
        if found.reply is not Reply.RESUMED:
            return  # it is gone, or was never this client's
        here = board.sessions.get(former.session_id)
        if here is not None:
            here.drop()
        elif found.previous_owner != board.instance:
            board.write(found.previous_owner, Taken(former.session_id, found.fence))
        await self._hall.replace(home, former.session_id)

    def _profile(
        self, init: SessionInit, tenant: str, paired: str, glossary: tuple[Term, ...]
    ) -> Profile:
        pinned = self._tenants.get(tenant)
        labels = pinned.pinned if pinned else ()
        terms = glossaries.merged(self._glossaries.get(tenant, ()), glossary)
        return Profile.of(init, tenant=tenant, labels=labels, paired=paired, glossary=terms)

    def _home(self, tenant: str, session_id: str) -> Cell:
        pinned = self._tenants.get(tenant)
        return self._board.cells.home_of(
            tenant or session_id, session_id, pinned.cells if pinned else 1
        )

    def _make(self, opened: Opened, profile: Profile, outlet: Outlet) -> LiveSession:
        return LiveSession(
            opened, profile, outlet, board=self._board, hall=self._hall, settings=self._settings,
            segmenter=Segmenter(self._rules_of(profile), profile.audio, self._detector(profile)),
        )  # fmt: skip

    def _rules_of(self, profile: Profile) -> SegmentRules:
        if profile.silence_ms is None:
            return self._rules
        return replace(self._rules, silence_ms=profile.silence_ms)

    def _detector(self, profile: Profile) -> VoiceDetector | None:
        if profile.audio.name != "pcm16":
            return None
        return detector_for(self._settings.segmentation.voice_detector, profile.audio.sample_rate)

    async def unserved(self, profile: Profile) -> tuple[str, ...]:
        """Return the wanted languages that no known node serves, by a fresh look if need be."""
        found = self._unserved(profile)
        now = self._board.clock.now_ms()
        if found and now - self._fleet_seen_ms > FLEET_AGAIN_MS:
            self._fleet_seen_ms = now
            with suppress(StoreUnavailable):
                await self._fleet.refresh()
            found = self._unserved(profile)
        return found

    def _unserved(self, profile: Profile) -> tuple[str, ...]:
        serves = self._fleet.serves
        return tuple(code for code in profile.targets if not serves(profile.demand_of(code)))

    # They come back

    async def resume(self, ask: SessionResume, outlet: Outlet, *, tenant: str) -> Back:
        """Go on with a session, or raise `ResumeRefused`; `attach` follows when that was told."""
        board, home = self._board, self._home(tenant, ask.session_id)
        sessions = self._settings.sessions
        claim = Claim(digest_of(ask.resume_token), ask.epoch, ask.last_seq)
        found = await board.store.session_resume(
            home, ask.session_id, board.instance, tenant=tenant, claim=claim,
            lease_ms=max(sessions.lease_ms, sessions.resume_ms),
        )  # fmt: skip
        if found.reply is Reply.SESSION_CLOSED:
            raise SessionEnded(home)
        if found.reply is not Reply.RESUMED:
            reason = REJECTED[found.reply]
            board.metrics.resumes_rejected_total.labels(reason=reason).inc()
            raise ResumeRefused(reason)
        here = board.sessions.get(ask.session_id)
        is_ours = here is not None and found.previous_owner == board.instance
        if here is not None and is_ours and not here.lapsed:
            session = self._go_on_here(here, found, outlet)
            if (placed := self._entering.get(session.id)) is not None:
                await placed.wait()  # a former try of its client still sees to its room
        else:
            session = self._take_over(ask, found, outlet, Opened(
                ask.session_id, home, found.epoch, tenant, "", found.fence, claim.token,
            ))  # fmt: skip
            await self._enter_room(session)
        is_reset = found.epoch != ask.epoch
        origin = "here" if session is here else "elsewhere"
        board.metrics.sessions_resumed_total.labels(origin=origin).inc()
        next_seq, at_ms = session.audio_position
        message = SessionResumed(
            session_id=session.id, epoch=found.epoch, last_seq=found.last_seq,
            next_audio_seq=next_seq, audio_ms=at_ms,
            next_utterance_index=session.admission.next_index, reset=is_reset,
        )  # fmt: skip
        return Back(session, message, 0 if is_reset else ask.last_seq, found.fence)

    async def _enter_room(self, session: LiveSession) -> None:
        """Its room is known here before it says anything more."""
        placed = self._entering[session.id] = asyncio.Event()
        try:
            await self._hall.take_over(session)
        finally:
            placed.set()
            if self._entering.get(session.id) is placed:
                del self._entering[session.id]

    def _go_on_here(self, session: LiveSession, found: Resumed, outlet: Outlet) -> LiveSession:
        """The session was here all the time: only its socket is another."""
        if session.about is not None:
            outlet.wants_events = session.about.wants_events
        session.fence = found.fence
        # Whoever gave it up, or was asked to close it by the former socket, leaves it now.
        session.closing = False
        session.stop_awaiting()
        if session.outlet is not None:
            session.outlet.close(CloseCode.REPLACED, "the client came back on another socket")
            session.detach()
        if session.epoch != found.epoch:
            session.new_epoch(found.epoch)
        return session

    def _take_over(
        self, ask: SessionResume, found: Resumed, outlet: Outlet, opened: Opened
    ) -> LiveSession:
        """The session was another instance's, or of a process that was here before."""
        board = self._board
        former = board.sessions.get(ask.session_id)
        if former is not None:
            former.drop()
        about = decode_about(found.about)
        opened.trace_id, opened.about = about.trace_id, about
        outlet.speaks_additions, outlet.wants_events = about.speaks_additions, about.wants_events
        given = (opened.tenant, about.paired, about.glossary)
        profile = self._profile(about.init, *given)
        session = self._make(opened, profile, outlet)
        session.detach()
        is_reset = found.epoch != ask.epoch
        audio = audio_after(ask, found)
        later = [(change.after_seq, self._profile(change.init, *given)) for change in about.changes]
        session.go_on(found, 0 if is_reset else ask.last_seq, audio, later)
        board.sessions[session.id] = session
        if found.previous_owner != board.instance:
            board.write(found.previous_owner, Taken(session.id, session.fence))
        return session

    async def attach(self, back: Back, outlet: Outlet) -> bool:
        """Tell a client that it is back and what it missed; False: it must come back once more."""
        session, fence = back.session, back.fence
        if session.lapsed or session.fence != fence:
            return False
        outlet.send(back.message)
        is_whole = await session.deliverer.replay(back.after_seq, outlet)
        if not is_whole or session.lapsed or session.fence != fence:
            return False
        session.attach(outlet)
        self._hall.returned(session)
        # What was released meanwhile, before anything the client says now can end the session.
        await session.recover()
        return not session.lapsed

    async def last_words(self, ask: SessionResume, home: Cell) -> list[ToClient]:
        """Return what a client of a closed session has not heard yet: outcomes, and its end."""
        board, epoch, seq = self._board, ask.epoch, ask.last_seq
        words: list[ToClient] = []
        while True:
            # Not much: it is what was released after the client had confirmed the rest.
            page = await board.store.outbox_read(home, ask.session_id, epoch=epoch, after_seq=seq)
            if page.reply is Reply.EPOCH_CHANGED:
                epoch, seq = page.epoch, 0
            elif page.trimmed > seq:
                seq = page.trimmed
            elif not page.entries:
                resumed = SessionResumed(
                    session_id=ask.session_id, epoch=epoch, last_seq=seq, audio_ms=0,
                    next_utterance_index=0, reset=epoch != ask.epoch,
                )  # fmt: skip
                speech = await board.store.session_speech(home, ask.session_id)
                coverage = coverage_of(speech, ask.audio_ms or 0) if speech else None
                end = SessionCloseAck(session_id=ask.session_id, coverage=coverage)
                return [resumed, *words, end]
            else:
                words += [
                    await self._last_word(ask.session_id, home, epoch, entry)
                    for entry in page.entries
                ]
                seq = page.entries[-1].seq

    async def _last_word(self, session: str, home: Cell, epoch: str, outcome: Released) -> ToClient:
        board, wall = self._board, self._board.clock.wall_ms()
        if outcome.is_passed:
            return passed_message(session, outcome, epoch)
        if outcome.kind != HEARD:
            return stored_message(session, outcome, epoch, wall)
        await board.results.load(home, outcome)
        result = board.results.get(reference_of(outcome)[1])
        kept = result.kept if result is not None else None
        message = heard_message(outcome, epoch, kept, shown=Shown(), at_ms=wall)
        if isinstance(message, TranslationResult) and kept is not None:
            sound = b"" if outcome.lane == AS_SPOKEN else kept.tts_audio
            return msgspec.structs.replace(message, tts_audio=sound)
        return message

    # They go

    def away(self, session: LiveSession, outlet: Outlet) -> None:
        """A client that came back could not be told what it missed: it may try again."""
        if session.outlet is outlet:
            self.lost(session, outlet)
        elif session.outlet is None and not session.lapsed:
            session.stop_awaiting()
            session.await_return(self._settings.sessions.resume_ms, self._gave_up)

    def untold(self, session: LiveSession, outlet: Outlet) -> None:
        """A client went away before it was given its token: it cannot come back."""
        if session.outlet is outlet:
            session.detach()
            self._gave_up(session)

    def lost(self, session: LiveSession, outlet: Outlet) -> None:
        """A client's socket is gone: it may come back, else what it said is finished."""
        if session.outlet is not outlet:
            return  # another socket took its place
        session.detach()
        if session.closing or session.lapsed:
            return
        if session.is_resumable:
            self._hall.detached(session)
            session.await_return(self._settings.sessions.resume_ms, self._gave_up)
            return
        self._gave_up(session)

    def _gave_up(self, session: LiveSession) -> None:
        """The client does not come back: what it said is still finished."""
        if session.closing or session.lapsed:
            return
        session.closing = True
        session.end_speech()
        self._hall.leave(session)
        self._board.tasks.start(self.end(session, "disconnected"))

    async def end(self, session: LiveSession, reason: str) -> Coverage:
        """Finish what was said, then close the session in the store; returns what became of it."""
        board, fence = self._board, session.fence
        session.closing = True
        session.stop_awaiting()
        session.end_speech()
        jobs = self._settings.jobs
        longest = jobs.pending_ms + jobs.attempts_max * jobs.attempt_ms + CLOSE_GRACE_MS
        self._hall.leave(session)
        await session.until_settled(longest)
        if session.fence != fence and not session.lapsed:
            return session.ledger.summary()  # its client came back
        is_ours = not session.lapsed
        session.lapsed = True
        if is_ours:
            await self._close(session, reason)
        board.forget(session)
        session.ledger.settle_rest("failed", "session_ended")
        if board.sessions.get(session.id) is session:
            del board.sessions[session.id]
        board.log("session.ended", session=session.id, reason=reason)
        return session.ledger.summary()

    async def _close(self, session: LiveSession, reason: str) -> None:
        """Close a session in the store, which counts what became of its speech."""
        board, may_be_closed = self._board, False
        while True:
            try:
                answer, work = await board.dispatcher.close_session(
                    session.home, session.id, reason, fence=session.fence, fields=session.at_end()
                )
            except StoreUnavailable:
                may_be_closed = True
                await asyncio.sleep(1)
                continue
            board.perform(work)
            if may_be_closed and answer.reply is Reply.NO_SESSION:
                # The answer that told what became of its speech was lost.
                speech = await board.insist(
                    lambda: board.store.session_speech(session.home, session.id)
                )
                board.count_speech(speech or Speech())
            return

    def _dropped(self, session: LiveSession) -> None:
        self._hall.dropped(session)


def audio_after(ask: SessionResume, found: Resumed) -> tuple[int | None, int]:
    """Return the chunk that is expected of a client that came from elsewhere, and its place.

    What it says it no longer has was acknowledged as silence.
    """
    known, first = found.heard + 1, ask.next_audio_seq
    if first is None:
        return (known if found.heard >= 0 else None), found.heard_ms
    if first > known:
        return first, max(found.heard_ms, ask.audio_ms or 0)
    return known, found.heard_ms


def digest_of(token: str) -> str:
    """Return what the store keeps of a token."""
    return hashlib.blake2b(token.encode(), digest_size=16).hexdigest()


def rules_of(settings: Settings) -> SegmentRules:
    """Return the segmenter's rules from the settings."""
    cuts = settings.segmentation
    return SegmentRules(
        pause_ms=cuts.pause_ms,
        max_duration_ms=cuts.max_duration_ms,
        max_bytes=cuts.max_bytes,
        hangover_auto_ms=cuts.hangover_auto_ms,
        hangover_manual_ms=cuts.hangover_manual_ms,
        short_merge_ms=cuts.short_merge_ms,
        silence_ms=cuts.silence_ms,
        slice_search_ms=cuts.slice_search_ms,
    )


def glossaries_of(settings: Settings) -> dict[str, tuple[Term, ...]]:
    """Read the tenants' glossaries; raises `ConfigError` for the first that cannot be used."""
    return {
        tenant.id: glossaries.read(
            Path(tenant.glossary_file).expanduser(), f"tenants[{index}].glossary_file"
        )
        for index, tenant in enumerate(settings.tenants)
        if tenant.glossary_file
    }
