"""A service of two instances loses connections at random: nothing is lost, doubled or reordered.

It keeps what a server of this protocol keeps: admitted utterances and an outbox in a store that
both instances share, and chunks that are not admitted yet in the instance that received them. The
connection may break before and after any message; the message is then not sent.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from client_peer import Caller, ScriptedService, ack, result, scripted_service
from lingua_client import Options, Outcome, Reset, Session, connect
from lingua_wire.from_client import (
    AudioChunk,
    OutcomeAck,
    SessionClose,
    SessionInit,
    SessionResume,
)
from lingua_wire.shared import Coverage
from lingua_wire.to_client import (
    AudioAck,
    GoAway,
    SessionCloseAck,
    SessionResumed,
    ToClient,
    TranslationResult,
    UtteranceAccepted,
)
from node_peer import run

pytestmark = pytest.mark.unit

UTTERANCES = 200
SEEDS = range(8)


@dataclass
class Store:
    """The data of the only session that survive a lost connection."""

    admitted_seq: int = -1
    admitted: list[bytes] = field(default_factory=list)
    outbox: list[TranslationResult] = field(default_factory=list)
    # The position that the client has acknowledged.
    trimmed: int = 0
    owner: FlakyInstance | None = None


class FlakyInstance:
    """One instance: it takes the session over, or continues with its own chunks."""

    def __init__(self, service: ScriptedService, store: Store, chance: random.Random) -> None:
        self.service = service
        self.store = store
        self.chance = chance
        # Chunks that are received and not admitted yet.
        self.chunks: list[AudioChunk] = []
        self.newest_seq = -1
        self.caller: Caller | None = None
        # Connections that it broke on purpose.
        self.lost: set[Caller] = set()

    async def serve(self) -> None:
        """Handle one connection after another, each by a task of its own."""
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(self._serve_caller(await self.service.connections.get()))

    async def _serve_caller(self, caller: Any) -> None:
        read = 0
        while not caller.lost.is_set():
            while read < len(caller.received):
                read += 1
                self._handle(caller, caller.received[read - 1])
            caller._arrival.clear()
            await caller._arrival.wait()

    def _handle(self, caller: Caller, message: Any) -> None:
        if self._breaks(caller):
            return
        if isinstance(message, SessionInit):
            self.store.owner, self.caller = self, caller
            self._send(caller, ack())
        elif isinstance(message, SessionResume):
            self._resume(caller, message)
        elif self.store.owner is not self or self.caller is not caller:
            return
        elif isinstance(message, AudioChunk):
            self._audio(caller, message)
        elif isinstance(message, OutcomeAck):
            self.store.trimmed = max(self.store.trimmed, message.seq)
        elif isinstance(message, SessionClose):
            self._admit(caller)
            coverage = Coverage(
                admitted_ms=1, delivered_ms=1, silent_ms=0, failed_ms=0, skipped_ms=0
            )
            self._send(caller, SessionCloseAck(session_id="s1", coverage=coverage))

    def _resume(self, caller: Caller, asked: SessionResume) -> None:
        store = self.store
        assert asked.last_seq >= store.trimmed, "an outcome was acknowledged before it was had"
        if store.owner is not self:
            self.chunks, self.newest_seq, store.owner = [], store.admitted_seq, self
        self.caller = caller
        told = SessionResumed(
            session_id="s1",
            epoch="e1",
            last_seq=len(store.outbox),
            audio_ms=0,
            next_audio_seq=self.newest_seq + 1,
            next_utterance_index=len(store.admitted),
        )
        self._send(caller, told)
        for outcome in store.outbox[max(0, asked.last_seq - self.chance.randrange(3)) :]:
            self._send(caller, outcome)

    def _audio(self, caller: Caller, chunk: AudioChunk) -> None:
        if chunk.seq <= self.newest_seq:
            return
        assert chunk.seq == self.newest_seq + 1, "a chunk is missing"
        self.newest_seq = chunk.seq
        self.chunks.append(chunk)
        if chunk.is_final:
            self._admit(caller)
        elif not self.chance.randrange(20):
            self._send(caller, GoAway(reason="shutdown", reconnect_after_ms=0, closes_in_ms=1000))

    def _admit(self, caller: Caller) -> None:
        store, chunks = self.store, self.chunks
        self.chunks = []
        if not chunks:
            return
        index = len(store.admitted)
        store.admitted.append(b"".join(chunk.payload or b"" for chunk in chunks))
        store.admitted_seq = chunks[-1].seq
        where: dict[str, Any] = {"start_ms": 0, "end_ms": 100}
        where |= {"first_seq": chunks[0].seq, "last_seq": chunks[-1].seq}
        accepted = UtteranceAccepted(session_id="s1", utterance_index=index, **where)
        told = self.chance.choice(
            [accepted, AudioAck(session_id="s1", seq=chunks[-1].seq, audio_ms=0)]
        )
        self._send(caller, told)
        outcome = result(index + 1, text_asr=store.admitted[-1].hex())
        store.outbox.append(outcome)
        self._send(caller, outcome)

    def _send(self, caller: Caller, message: ToClient) -> None:
        if not caller.lost.is_set() and not self._breaks(caller):
            caller.send(message)

    def _breaks(self, caller: Caller) -> bool:
        """Break the connection at random."""
        if caller not in self.lost and not self.chance.randrange(40):
            self.lost.add(caller)
            caller.cut()
        return caller in self.lost


async def speak(session: Session, words: list[bytes]) -> None:
    for number, word in enumerate(words):
        await session.send(word)
        if number % 3 == 2:
            await session.cut()
        if number % 7 == 0:
            await asyncio.sleep(0.002)


async def speak_and_listen(session: Session, words: list[bytes]) -> list[Outcome]:
    async def whole() -> None:
        await speak(session, words)
        assert await session.close() is not None

    speaking = asyncio.create_task(whole())
    found = []
    async for event in session:
        assert not isinstance(event, Reset), event
        if isinstance(event, Outcome):
            found.append(event)
    await speaking
    return found


async def outcomes_of(
    words: list[bytes], instances: list[FlakyInstance]
) -> tuple[Session, list[Outcome]]:
    """Send these chunks to the instances; return all outcomes."""
    options = Options(ack_every=3, ack_s=0.05)
    urls = [instance.service.url for instance in instances]
    async with asyncio.TaskGroup() as group:
        serving = [group.create_task(instance.serve()) for instance in instances]
        async with connect(urls, source="en", targets="es", options=options) as session:
            found = await speak_and_listen(session, words)
        for task in serving:
            task.cancel()
    return session, found


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_connection_is_lost_everything_is_answered_once_and_in_order(seed: int) -> None:
    async def scenario() -> None:
        chance, store = random.Random(seed), Store()
        words = [number.to_bytes(4, "big") for number in range(3 * UTTERANCES)]
        async with scripted_service() as one, scripted_service() as two:
            instances = [FlakyInstance(service, store, chance) for service in (one, two)]
            session, found = await outcomes_of(words, instances)
        assert b"".join(bytes.fromhex(outcome.text_asr) for outcome in found) == b"".join(words)
        assert [outcome.seq for outcome in found] == [*range(1, len(found) + 1)]
        # A run without a broken connection would prove nothing.
        assert session.resumes > 10
        assert sum(len(instance.lost) for instance in instances) > 10

    run(scenario())
