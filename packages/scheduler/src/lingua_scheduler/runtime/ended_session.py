"""What a client of a closed session has not received yet: outcomes, and the session's end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from lingua_scheduler.jobs.result import (
    HEARD,
    Shown,
    heard_message,
    passed_message,
    stored_message,
)
from lingua_scheduler.rooms.fanout import reference_of
from lingua_scheduler.runtime.coverage import coverage_of
from lingua_scheduler.state.records import AS_SPOKEN
from lingua_scheduler.state.reply import Reply
from lingua_wire.to_client import SessionCloseAck, SessionResumed, TranslationResult

if TYPE_CHECKING:
    from lingua_scheduler.clock import Clock
    from lingua_scheduler.rooms.fanout import SharedResults
    from lingua_scheduler.state.keys import Cell
    from lingua_scheduler.state.records import Released
    from lingua_scheduler.state.store import Store
    from lingua_wire.from_client import SessionResume
    from lingua_wire.to_client import ToClient


class EndedSessions:
    """Reads the rest of sessions that were closed while their client was disconnected."""

    def __init__(self, store: Store, results: SharedResults, clock: Clock) -> None:
        self._store = store
        self._results = results
        self._clock = clock

    async def rest_of(self, resume: SessionResume, home: Cell) -> list[ToClient]:
        """Return what the client has not received: its outcomes, then the session's end."""
        epoch, seq = resume.epoch, resume.last_seq
        rest: list[ToClient] = []
        while True:
            # Not much: it is what was released after the client had confirmed the rest.
            page = await self._store.outbox.read(
                home, resume.session_id, epoch=epoch, after_seq=seq
            )
            if page.reply is Reply.EPOCH_CHANGED:
                epoch, seq = page.epoch, 0
            elif page.trimmed > seq:
                seq = page.trimmed
            elif not page.entries:
                resumed = SessionResumed(
                    session_id=resume.session_id,
                    epoch=epoch,
                    last_seq=seq,
                    audio_ms=0,
                    next_utterance_index=0,
                    reset=epoch != resume.epoch,
                )
                return [resumed, *rest, await self._end_of(resume, home)]
            else:
                rest += [
                    await self._message(resume.session_id, home, epoch, outcome)
                    for outcome in page.entries
                ]
                seq = page.entries[-1].seq

    async def _end_of(self, resume: SessionResume, home: Cell) -> SessionCloseAck:
        speech = await self._store.sessions.speech(home, resume.session_id)
        coverage = coverage_of(speech, resume.audio_ms or 0) if speech else None
        return SessionCloseAck(session_id=resume.session_id, coverage=coverage)

    async def _message(self, session: str, home: Cell, epoch: str, outcome: Released) -> ToClient:
        wall = self._clock.wall_ms()
        if outcome.is_passed:
            return passed_message(session, outcome, epoch)
        if outcome.kind != HEARD:
            return stored_message(session, outcome, epoch, wall)
        await self._results.load(home, outcome)
        result = self._results.get(reference_of(outcome)[1])
        kept = result.kept if result is not None else None
        message = heard_message(outcome, epoch, kept, shown=Shown(), at_ms=wall)
        if isinstance(message, TranslationResult) and kept is not None:
            sound = b"" if outcome.lane == AS_SPOKEN else kept.tts_audio
            return msgspec.structs.replace(message, tts_audio=sound)
        return message
