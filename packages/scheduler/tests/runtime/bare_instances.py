"""Instances without sockets and loops over one real store, for tests of `runtime` and `rooms`.

A `BareInstance` is the product's own `Instance`. Its sessions have clients that keep what they are
sent, its nodes have sockets that do, and messages of peers wait in its inbox until a test reads
them. Tasks run; nothing happens by the clock. `play` runs a scenario on an emptied server and fails
if any instance met an error that nobody handled.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import msgspec

from lingua_cli.logs import EventLog
from lingua_scheduler.config import Settings
from lingua_scheduler.edge.old_protocol import outlet_for
from lingua_scheduler.peers.messages import ReceivedMessage, decode_entry
from lingua_scheduler.runtime.instance import Instance
from lingua_scheduler.state.keys import InstanceKeys
from lingua_scheduler.state.link import LinkOptions
from lingua_scheduler.state.single import SingleConnection
from lingua_wire.from_client import SessionInit, SessionResume, Utterance
from lingua_wire.from_node import JobResult, NodeHeartbeat, NodeRegister
from lingua_wire.shared import (
    CapabilityByType,
    LanguageCapabilities,
    LanguagePair,
    ResourceUsage,
)
from lingua_wire.to_client import (
    ErrorMessage,
    MissingResult,
    TranslationResult,
    UtteranceAccepted,
)
from lingua_wire.to_node import JobAssign
from runtime.stand_ins import ClosingOutlet, NodeSocket

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from lingua_scheduler.peers.messages import PeerMessage
    from lingua_scheduler.runtime.node import LiveNode
    from lingua_scheduler.runtime.session import LiveSession
    from lingua_scheduler.runtime.session_state import SessionRecord
    from lingua_scheduler.state.records import Released
    from lingua_wire.to_client import ToClient
    from servers import Server

    Scenario = Callable[..., Awaitable[None]]

PATIENCE_S = 30.0
PREFIX = "bare"
# A machine that stands still for some seconds must not look like an unavailable store.
CALL_MS = 10_000
# How long a call may last in tests that pause the store.
PAUSED_CALL_MS = 300
PAIRS = (("zh", "en"), ("zh", "de"))
# 100 ms of pcm16 at 16 kHz.
CHUNK = b"\1\0" * 1600


async def until(is_so: Callable[[], object], what: str) -> None:
    """Wait until a condition holds; fail with its name if it never does."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S} s: {what}"
        await asyncio.sleep(0.005)


class Speaker:
    """A client's session, and the token it may resume with."""

    def __init__(self, session: LiveSession, outlet: ClosingOutlet, token: str) -> None:
        self.session = session
        self.outlet = outlet
        self.token = token
        self._next = 0

    @property
    def record(self) -> SessionRecord:
        """Return what identifies the session, and its state."""
        return self.session.record

    def say(self, index: int | None = None, **more: Any) -> int:
        """Send a whole utterance; return the index it asks for."""
        asked = self._next if index is None else index
        self._next = max(self._next, asked + 1)
        audio = more.pop("audio", CHUNK + bytes([asked % 256, 0]))
        self.session.utterances.receive(
            Utterance(
                session_id=self.session.id,
                utterance_index=asked,
                src_lang="zh",
                tgt_lang="en",
                audio=audio,
                audio_format="pcm16",
                sample_rate=16_000,
                **more,
            )
        )
        return asked

    def stream(self, seqs: Iterable[int], *, is_final: bool = True) -> None:
        """Send chunks of 100 ms; the last one may end the utterance."""
        numbers = tuple(seqs)
        for seq in numbers:
            last = is_final and seq == numbers[-1]
            self.session.input.audio(CHUNK, seq=seq, is_final=last)

    def back(self, **more: Any) -> SessionResume:
        """Return the message its client resumes with."""
        given = {
            "session_id": self.session.id,
            "resume_token": self.token,
            "epoch": self.record.epoch,
            "last_seq": 0,
        }
        return SessionResume(**(given | more))

    def of(self, kind: type[Any]) -> list[Any]:
        """Return the messages of one kind that the client was sent."""
        return [message for message in self.outlet.sent if isinstance(message, kind)]

    @property
    def outcomes(self) -> list[TranslationResult | MissingResult]:
        return outcomes_of(self.outlet.sent)

    @property
    def accepted(self) -> list[int]:
        """Return the utterances that are in the store, as reported to the client."""
        return [message.utterance_index for message in self.of(UtteranceAccepted)]

    @property
    def errors(self) -> list[str]:
        return [message.code for message in self.of(ErrorMessage)]


def outcomes_of(sent: list[ToClient]) -> list[TranslationResult | MissingResult]:
    return [m for m in sent if isinstance(m, TranslationResult | MissingResult)]


class Worker:
    """A node whose socket is on an instance."""

    def __init__(self, owner: BareInstance, node: LiveNode, socket: NodeSocket) -> None:
        self._owner = owner
        self.node = node
        self.socket = socket

    @property
    def assigned(self) -> list[JobAssign]:
        return [message for message in self.socket.sent if isinstance(message, JobAssign)]

    def of(self, kind: type[Any]) -> list[Any]:
        """Return the messages of one kind that the node was sent."""
        return [message for message in self.socket.sent if isinstance(message, kind)]

    async def job(self, number: int = 0) -> JobAssign:
        """Wait for the n-th job that is assigned to it."""
        await until(lambda: len(self.assigned) > number, f"{self.node.id} has job {number}")
        return self.assigned[number]

    async def report(self, job: JobAssign, **result: Any) -> None:
        """Report how a job ended: with a text, unless the arguments differ."""
        given = {
            "success": True,
            "job_id": job.job_id,
            "attempt_id": job.attempt_id,
            "text_asr": f"said {job.utterance_index}",
            "text_translated": "hello",
        }
        report = JobResult(**(given | result))
        await self._owner.reports.report(self.node, report)


class BareInstance:
    """One instance, with short names for the parts that tests use."""

    def __init__(self, name: str, connection: SingleConnection, settings: Settings) -> None:
        self.name = name
        self.connection = connection
        self.settings = settings
        self.instance = Instance(settings, connection, EventLog(name))
        self.store = self.instance.store
        self.clock = self.instance.clock
        self.cells = self.instance.cells
        self.cell = self.cells.all[0]
        self.sessions = self.instance.sessions
        self.nodes = self.instance.nodes
        self.jobs = self.instance.jobs
        self.effects = self.instance.effects
        self.registry = self.instance.client_parts.registry
        self.ended = self.instance.client_parts.ended
        self.reports = self.instance.node_parts.reports
        self.held = self.instance.node_parts.held
        self.rooms = self.instance.rooms
        self.messages = self.instance.loops.messages
        self._reading: asyncio.Task[None] | None = None

    # Clients and nodes

    async def speaker(self, *, additions: bool = True, tenant: str = "", **init: Any) -> Speaker:
        """Let a client open a session here."""
        outlet = ClosingOutlet(speaks_additions=additions)
        given = {"src_lang": "zh", "tgt_lang": "en", "audio_format": "pcm16"} | init
        session, token = await self.registry.open(SessionInit(**given), outlet, tenant=tenant)
        return Speaker(session, outlet, token)

    async def resume(self, speaker: Speaker, **claim: Any) -> Speaker:
        """Let a client resume on this instance, until it is attached."""
        outlet = ClosingOutlet()
        tenant = speaker.record.tenant
        returned = await self.registry.resume(speaker.back(**claim), outlet, tenant=tenant)
        assert await self.registry.attach(returned, outlet)
        return Speaker(returned.session, outlet, speaker.token)

    async def node(self, name: str = "n1", *, is_dead: bool = False, **register: Any) -> Worker:
        """Let a node register here; it is ready for work."""
        worker = await self.idle_node(name, **register)
        worker.socket.is_dead = is_dead
        await self.beat(worker)
        return worker

    async def idle_node(self, name: str = "n1", **register: Any) -> Worker:
        """Let a node register here and send no heartbeat."""
        socket = NodeSocket()
        given = {"boot_id": "b1", "max_jobs": 4, "sends_acks": True} | register
        message = NodeRegister(
            node_id=name,
            capability_schema_version="2.0",
            platform="linux",
            version="1",
            capability_by_type=tuple(
                CapabilityByType(type=kind, ready=True) for kind in ("asr", "nmt", "tts")
            ),
            language_capabilities=LanguageCapabilities(
                supported_language_pairs=tuple(LanguagePair(src=src, tgt=tgt) for src, tgt in PAIRS)
            ),
            **given,
        )
        node = await self.instance.node_parts.registry.register(
            message, outlet_for(message, socket), tenant="", slots_max=None
        )
        return Worker(self, node, socket)

    async def beat(self, worker: Worker) -> None:
        """Let a node send a heartbeat."""
        usage = ResourceUsage(cpu_percent=1.0, mem_percent=1.0)
        beat = NodeHeartbeat(node_id=worker.node.id, resource_usage=usage)
        await self.instance.node_parts.registry.beat(worker.node, beat)

    # Messages of peers

    async def take_messages(self) -> list[PeerMessage]:
        """Take the messages out of the inbox; nothing is done with them."""
        keys = InstanceKeys(PREFIX, self.name)
        rows = await self.connection.command(keys.slot, "XRANGE", keys.inbox, "-", "+")
        if rows:
            names = [name for name, _ in rows]
            await self.connection.command(keys.slot, "XDEL", keys.inbox, *names)
        return [decode_entry(name, fields).message for name, fields in rows]

    async def apply(self, message: PeerMessage) -> None:
        """Do what a message asks for."""
        await self.messages.apply(received(message))

    async def read_inbox(self) -> list[PeerMessage]:
        """Do what the messages in the inbox ask for; return them."""
        messages = await self.take_messages()
        for message in messages:
            await self.apply(message)
        return messages

    # The store and the tasks

    async def quiet(self) -> None:
        """Wait until no task runs here."""
        own = self.effects.peers.to_self
        await until(
            lambda: own.empty() and not len(self.instance.tasks), f"no task of {self.name} runs"
        )

    async def outbox(self, speaker: Speaker) -> tuple[Released, ...]:
        """Return what the store keeps of a session's outcomes."""
        record = speaker.record
        page = await self.store.outbox.read(record.home, record.id)
        if page.trimmed:
            page = await self.store.outbox.read(record.home, record.id, after_seq=page.trimmed)
        return page.entries

    async def field(self, speaker: Speaker, name: str) -> str | None:
        """Return a field of a session in the store."""
        key = self.cell.key("session", speaker.session.id)
        found = await self.connection.command(self.cell.slot, "HGET", key, name)
        return found.decode() if found is not None else None

    async def open(self) -> None:
        """Be reachable for peers, and read what this instance sends to itself."""
        await self.instance.peers.inbox.open()
        self._reading = asyncio.create_task(self.messages.run_own())

    async def close(self) -> None:
        """End all tasks."""
        await self.instance.tasks.end()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait((self._reading,))

    async def empty_the_store(self) -> None:
        await self.connection.every_master("FLUSHALL")

    @property
    def internal_errors(self) -> int:
        return int(self.instance.metrics.instance.internal_errors_total.value)


def received(message: PeerMessage, sender: str = "Z") -> ReceivedMessage:
    """Return a message as it comes out of an inbox."""
    return ReceivedMessage("1-1", message, sender, 0, "", None)


def settings_of(name: str, *, cells: int = 1, **sections: Any) -> Settings:
    """Return settings of an instance that shares its store, with these values changed."""
    whole = Settings(deployment_mode="cross_instance", instance_id=name)
    changes: dict[str, Any] = {
        "redis": msgspec.structs.replace(whole.redis, key_prefix=PREFIX),
        "segmentation": msgspec.structs.replace(
            whole.segmentation, hangover_manual_ms=0, voice_detector="off"
        ),
        "cells": cells,
    }
    for section, values in sections.items():
        if not isinstance(values, dict):
            changes[section] = values
            continue
        before = changes.get(section, getattr(whole, section))
        changes[section] = msgspec.structs.replace(before, **values)
    return msgspec.structs.replace(whole, **changes)


def play(
    server: Server,
    scenario: Scenario,
    names: str = "A",
    *,
    cells: int = 1,
    call_ms: int = CALL_MS,
    **sections: Any,
) -> None:
    """Run a scenario with instances of these one-letter names on an emptied server."""

    async def whole() -> None:
        async with AsyncExitStack() as stack:
            made: list[BareInstance] = []
            for name in names:
                options = LinkOptions(call_timeout_ms=call_ms)
                connection = await SingleConnection.open(server.address, options)
                stack.push_async_callback(connection.close)
                if not made:
                    await connection.every_master("FLUSHALL")
                bare = BareInstance(name, connection, settings_of(name, cells=cells, **sections))
                stack.push_async_callback(bare.close)
                await bare.open()
                made.append(bare)
            await scenario(*made)
            assert {bare.name: bare.internal_errors for bare in made} == dict.fromkeys(names, 0)

    asyncio.run(whole())
