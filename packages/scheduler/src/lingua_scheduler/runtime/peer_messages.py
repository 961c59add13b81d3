"""Messages of other instances, and what each of them does here.

Every message is a hint to look at the store, so that applying one twice, late or on another
instance than it was sent to is harmless. A message in a dead instance's inbox is applied by the
instance that adopts the inbox: its effect happens where its node or its session is now.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from lingua_scheduler.peers.messages import (
    ClientMessage,
    CloseStream,
    FeedStream,
    JobProgress,
    ListenerOutcomeReady,
    OpenStream,
    OutcomesReady,
    PartialHeard,
    PartialTranscript,
    PartSpoken,
    PushJob,
    ResendAudio,
    RoomChanged,
    SessionProblem,
    SessionTaken,
    StopAttempt,
    StreamGone,
    StreamText,
    Undeliverable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from lingua_scheduler.clock import Clock
    from lingua_scheduler.peers.messages import PeerMessage, ReceivedMessage
    from lingua_scheduler.rooms.cache import RoomCache
    from lingua_scheduler.rooms.fanout import Fanout
    from lingua_scheduler.rooms.service import RoomService
    from lingua_scheduler.runtime.effects import Effects
    from lingua_scheduler.runtime.job import LiveJob
    from lingua_scheduler.runtime.session import LiveSession
    from lingua_scheduler.runtime.stream_parts import StreamParts
    from lingua_scheduler.tasks import Tasks


# One message must not hold up those behind it.
APPLY_S = 5.0


class PeerMessageHandler:
    """Applies the messages of peers on one instance."""

    def __init__(
        self,
        effects: Effects,
        sessions: Mapping[str, LiveSession],
        *,
        rooms: RoomService,
        cache: RoomCache,
        fanout: Fanout,
        streams: StreamParts,
    ) -> None:
        self._effects = effects
        self._peers = effects.peers
        self._jobs = effects.jobs
        self._clock: Clock = effects.clock
        self._tasks: Tasks = effects.tasks
        self._sessions = sessions
        # Messages that need the store, and messages that do not.
        self._slow: dict[type, Callable[[Any], Coroutine[Any, Any, None]]] = {
            PushJob: effects.receive_push,
            OutcomesReady: self._outcomes,
            RoomChanged: lambda message: cache.reread(message.code),
        }
        self._quick: dict[type, Callable[[Any], None]] = {
            StopAttempt: self._stop,
            ResendAudio: self._resend,
            JobProgress: self._progress,
            PartialTranscript: self._partial,
            SessionProblem: self._trouble,
            SessionTaken: self._taken,
            ClientMessage: lambda message: rooms.receive_relayed(message.session, message.message),
            ListenerOutcomeReady: fanout.receive,
            OpenStream: streams.hosted.open,
            FeedStream: streams.hosted.feed,
            CloseStream: streams.hosted.close,
            StreamText: lambda message: streams.hub.heard(message.partial),
            StreamGone: lambda message: streams.hub.lost(message.stream),
            PartialHeard: streams.router.receive,
            PartSpoken: self._part,
        }

    async def apply(self, received: ReceivedMessage) -> None:
        """Do what a message asks for; it is acknowledged when this returns."""
        message = received.message
        quick = self._quick.get(type(message))
        if quick is not None:
            quick(message)
            return
        try:
            async with asyncio.timeout(APPLY_S):
                await self._slow[type(message)](message)
        except TimeoutError:
            raise Undeliverable("too_slow") from None

    async def run_own(self) -> None:
        """Apply messages of this instance to itself, until cancelled."""
        while True:
            # Each in a task of its own, in order: the error of one must not end the loop.
            self._tasks.start(self._apply_own(await self._peers.to_self.get()))

    async def _apply_own(self, message: PeerMessage) -> None:
        self.apply_own(message)

    def apply_own(self, message: PeerMessage) -> None:
        """Apply a message of this instance to itself."""
        quick = self._quick.get(type(message))
        if quick is not None:
            quick(message)
        else:
            self._tasks.start(self._slow[type(message)](message))

    async def apply_adopted(self, received: ReceivedMessage) -> None:
        """Do what a dead instance was asked for, where that can be done now."""
        message = received.message
        if isinstance(message, PushJob):
            await self._effects.receive_push(message)
        elif isinstance(message, StopAttempt):
            host = await self._peers.host_of(message.node)
            if host and host != self._peers.instance:
                await self._peers.send(host, message)
            elif host:
                self._stop(message)
        # Everything else was for a client's socket that died with the instance: the owner of the
        # session now reads its outbox by itself.

    # To a node's instance

    def _stop(self, message: StopAttempt) -> None:
        self._effects.held.remove(message.job, message.node)
        node = self._effects.nodes.get(message.node)
        if node is not None:
            node.cancel(message.job, message.attempt, message.reason)

    # To a session's owner

    def _job_of(
        self, message: JobProgress | PartialTranscript | SessionProblem | ResendAudio | PartSpoken
    ) -> LiveJob | None:
        return self._jobs.get(message.job)

    def _resend(self, message: ResendAudio) -> None:
        job = self._job_of(message)
        if job is None:
            self._tasks.start(self._effects.audio_lost(message))
            return
        push = PushJob(
            job=message.job,
            attempt=message.attempt,
            node=message.node,
            home=message.home,
            body=job.body(),
            audio=job.audio,
        )
        self._peers.write(message.host, push)

    def _progress(self, message: JobProgress) -> None:
        job = self._job_of(message)
        if job is None or message.attempt < job.attempt:
            return
        job.run.follow(message.attempt, message.node)
        if message.step == "kept":
            job.buffered()
        else:
            job.accepted(self._clock.now_ms(), is_running=message.step == "running")

    def _partial(self, message: PartialTranscript) -> None:
        job = self._job_of(message)
        if job is not None and message.attempt >= job.attempt:
            job.owner.notifier.partial(job, message.text, is_final=message.is_final)

    def _part(self, message: PartSpoken) -> None:
        job = self._job_of(message)
        if job is not None:
            job.owner.notifier.part(job, message)

    def _trouble(self, message: SessionProblem) -> None:
        job = self._job_of(message)
        if job is not None:
            job.owner.notifier.failed(job, message.code)

    async def _outcomes(self, message: OutcomesReady) -> None:
        session = self._sessions.get(message.session)
        if session is None or message.epoch != session.record.epoch:
            return
        now = self._clock.now_ms()
        for span in message.spans:
            job = self._jobs.get(span.job)
            if job is not None and not job.times.settled:
                job.times.set_span(span.accepted_ms, span.result_ms, now)
                job.owner.notifier.event(job, "ASR_FINAL")
                job.owner.notifier.event(job, "NMT_DONE")
        if message.seq > session.deliverer.seq:
            await session.recover()

    def _taken(self, message: SessionTaken) -> None:
        session = self._sessions.get(message.session)
        if session is not None and session.record.fence < message.fence:
            session.give_up()
