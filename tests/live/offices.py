"""Instances without sockets and loops over one real store: what the store tests of `live` use.

An `Office` is the product's own `Instance`: its sessions have clients that keep what they are sent,
its nodes have sockets that do, its letters lie in its inbox until a test looks at them. Tasks run;
nothing happens by the clock. `play` runs a scenario on an emptied server and fails if any office
met an error nobody handled.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import msgspec

from lingua_scheduler.between.letters import Envelope, unseal
from lingua_scheduler.config import Settings
from lingua_scheduler.live.instance import Instance
from lingua_scheduler.live.mail import Mail
from lingua_scheduler.logs import EventLog
from lingua_scheduler.messages.from_client import SessionInit, SessionResume, Utterance
from lingua_scheduler.messages.from_node import JobResult, NodeHeartbeat, NodeRegister
from lingua_scheduler.messages.shared import (
    CapabilityByType,
    LanguageCapabilities,
    LanguagePair,
    ResourceUsage,
)
from lingua_scheduler.messages.to_client import (
    ErrorMessage,
    MissingResult,
    TranslationResult,
    UtteranceAccepted,
)
from lingua_scheduler.messages.to_node import JobAssign
from lingua_scheduler.state.keys import InstanceKeys
from lingua_scheduler.state.link import LinkOptions
from lingua_scheduler.state.single import SingleConnection
from live.stand_ins import ClosingOutlet, NodeSocket

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from lingua_scheduler.between.letters import Letter
    from lingua_scheduler.live.node import LiveNode
    from lingua_scheduler.live.session import LiveSession
    from lingua_scheduler.messages.to_client import ToClient
    from lingua_scheduler.state.records import Released
    from servers import Server

    Scenario = Callable[..., Awaitable[None]]

PATIENCE_S = 30.0
PREFIX = "offices"
# How long a call to a store that does not answer is waited for.
CALL_MS = 300
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
    """A client's session, and what it may come back with."""

    def __init__(self, session: LiveSession, outlet: ClosingOutlet, token: str) -> None:
        self.session = session
        self.outlet = outlet
        self.token = token
        self._next = 0

    def say(self, index: int | None = None, **more: Any) -> int:
        """Send a whole utterance; return the index it asks for."""
        asked = self._next if index is None else index
        self._next = max(self._next, asked + 1)
        audio = more.pop("audio", CHUNK + bytes([asked % 256, 0]))
        self.session.admission.utterance(
            Utterance(
                session_id=self.session.id, utterance_index=asked, src_lang="zh", tgt_lang="en",
                audio=audio, audio_format="pcm16", sample_rate=16_000, **more,
            )
        )  # fmt: skip
        return asked

    def stream(self, seqs: Iterable[int], *, is_final: bool = True) -> None:
        """Send chunks of 100 ms; the last one may end the utterance."""
        numbers = tuple(seqs)
        for seq in numbers:
            last = is_final and seq == numbers[-1]
            self.session.audio(CHUNK, seq=seq, is_final=last)

    def back(self, **more: Any) -> SessionResume:
        """Return what its client says when it comes back."""
        given = {
            "session_id": self.session.id, "resume_token": self.token,
            "epoch": self.session.epoch, "last_seq": 0,
        }  # fmt: skip
        return SessionResume(**(given | more))

    def of(self, kind: type[Any]) -> list[Any]:
        """Return what the client was sent of one kind."""
        return [message for message in self.outlet.sent if isinstance(message, kind)]

    @property
    def outcomes(self) -> list[TranslationResult | MissingResult]:
        return outcomes_of(self.outlet.sent)

    @property
    def accepted(self) -> list[int]:
        """Return the utterances that are in the store, as the client was told."""
        return [message.utterance_index for message in self.of(UtteranceAccepted)]

    @property
    def errors(self) -> list[str]:
        return [message.code for message in self.of(ErrorMessage)]


def outcomes_of(sent: list[ToClient]) -> list[TranslationResult | MissingResult]:
    return [m for m in sent if isinstance(m, TranslationResult | MissingResult)]


class Worker:
    """A node whose socket is in an office."""

    def __init__(self, office: Office, node: LiveNode, socket: NodeSocket) -> None:
        self._office = office
        self.node = node
        self.socket = socket

    @property
    def assigned(self) -> list[JobAssign]:
        return [message for message in self.socket.sent if isinstance(message, JobAssign)]

    def of(self, kind: type[Any]) -> list[Any]:
        """Return what the node was sent of one kind."""
        return [message for message in self.socket.sent if isinstance(message, kind)]

    async def job(self, number: int = 0) -> JobAssign:
        """Wait for the n-th job it is given."""
        await until(lambda: len(self.assigned) > number, f"{self.node.id} has job {number}")
        return self.assigned[number]

    async def report(self, job: JobAssign, **result: Any) -> None:
        """Report how a job ended; a text unless it says otherwise."""
        given = {
            "success": True, "job_id": job.job_id, "attempt_id": job.attempt_id,
            "text_asr": f"said {job.utterance_index}", "text_translated": "hello",
        }  # fmt: skip
        report = JobResult(**(given | result))
        await self._office.workshop.report(self.node, report)


class Office:
    """One instance."""

    def __init__(self, name: str, connection: SingleConnection, settings: Settings) -> None:
        self.name = name
        self.connection = connection
        self.settings = settings
        self.instance = Instance(settings, connection, EventLog(name))
        self.board = self.instance.board
        self.store = self.instance.store
        self.workshop = self.instance.workshop
        self.reception = self.instance.reception
        self.mail = Mail(self.board, self.instance.hall)
        self.cell = self.instance.cells.all[0]

    # People and nodes

    async def speaker(self, *, additions: bool = True, tenant: str = "", **init: Any) -> Speaker:
        """Let a client open a session here."""
        outlet = ClosingOutlet(speaks_additions=additions)
        given = {"src_lang": "zh", "tgt_lang": "en", "audio_format": "pcm16"} | init
        session, token = await self.reception.open(SessionInit(**given), outlet, tenant=tenant)
        return Speaker(session, outlet, token)

    async def comes_back(self, speaker: Speaker, **claim: Any) -> Speaker:
        """Let a client come back to this office, all the way."""
        outlet = ClosingOutlet()
        tenant = speaker.session.tenant
        back = await self.reception.resume(speaker.back(**claim), outlet, tenant=tenant)
        assert await self.reception.attach(back, outlet)
        return Speaker(back.session, outlet, speaker.token)

    async def node(self, name: str = "n1", *, is_dead: bool = False, **register: Any) -> Worker:
        """Let a node register here; it is ready for work."""
        worker = await self.idle_node(name, **register)
        worker.socket.is_dead = is_dead
        await self.beat(worker)
        return worker

    async def idle_node(self, name: str = "n1", **register: Any) -> Worker:
        """Let a node register here and say nothing more."""
        socket = NodeSocket()
        given = {"boot_id": "b1", "max_jobs": 4, "sends_acks": True} | register
        node = await self.instance.registry.register(
            NodeRegister(
                node_id=name, capability_schema_version="2.0", platform="linux", version="1",
                capability_by_type=tuple(
                    CapabilityByType(type=kind, ready=True) for kind in ("asr", "nmt", "tts")
                ),
                language_capabilities=LanguageCapabilities(
                    supported_language_pairs=tuple(
                        LanguagePair(src=src, tgt=tgt) for src, tgt in PAIRS
                    )
                ),
                **given,
            ),
            socket, tenant="", slots_max=None,
        )  # fmt: skip
        return Worker(self, node, socket)

    async def beat(self, worker: Worker) -> None:
        """Let a node say that it is well."""
        usage = ResourceUsage(cpu_percent=1.0, mem_percent=1.0)
        beat = NodeHeartbeat(node_id=worker.node.id, resource_usage=usage)
        await self.instance.registry.beat(worker.node, beat)

    # Letters

    async def letters(self) -> list[Letter]:
        """Take the letters out of the inbox."""
        keys = InstanceKeys(PREFIX, self.name)
        rows = await self.connection.command(keys.slot, "XRANGE", keys.inbox, "-", "+")
        if rows:
            names = [name for name, _ in rows]
            await self.connection.command(keys.slot, "XDEL", keys.inbox, *names)
        return [unseal(name, fields).letter for name, fields in rows]

    async def apply(self, letter: Letter) -> None:
        """Do what a letter asks for."""
        await self.mail.apply(envelope(letter))

    async def read_mail(self) -> list[Letter]:
        """Do what the letters in the inbox ask for; return them."""
        letters = await self.letters()
        for letter in letters:
            await self.apply(letter)
        return letters

    # The store and the tasks

    async def quiet(self) -> None:
        """Wait until nothing is under way here."""
        await until(lambda: not len(self.instance.tasks), f"{self.name} has nothing to do")

    async def outbox(self, speaker: Speaker) -> tuple[Released, ...]:
        """Return what the store keeps of a session's outcomes."""
        page = await self.store.outbox_read(speaker.session.home, speaker.session.id)
        if page.trimmed:
            page = await self.store.outbox_read(
                speaker.session.home, speaker.session.id, after_seq=page.trimmed
            )
        return page.entries

    async def field(self, speaker: Speaker, name: str) -> str | None:
        """Return a field of a session in the store."""
        key = self.cell.key("session", speaker.session.id)
        found = await self.connection.command(self.cell.slot, "HGET", key, name)
        return found.decode() if found is not None else None

    async def empty_the_store(self) -> None:
        await self.connection.every_master("FLUSHALL")

    @property
    def bugs(self) -> int:
        return int(self.instance.metrics.internal_errors_total.value)


def envelope(letter: Letter, sender: str = "Z") -> Envelope:
    """Return a letter as an inbox gives it."""
    return Envelope("1-1", letter, sender, 0, "", None)


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
    server: Server, scenario: Scenario, names: str = "A", *, cells: int = 1, **sections: Any
) -> None:
    """Run a scenario with offices of these one-letter names on an emptied server."""

    async def whole() -> None:
        async with AsyncExitStack() as stack:
            made: list[Office] = []
            for name in names:
                options = LinkOptions(call_timeout_ms=CALL_MS)
                connection = await SingleConnection.open(server.address, options)
                stack.push_async_callback(connection.close)
                if not made:
                    await connection.every_master("FLUSHALL")
                office = Office(name, connection, settings_of(name, cells=cells, **sections))
                stack.push_async_callback(office.instance.tasks.end)
                await office.instance.neighbours.inbox.open()
                made.append(office)
            await scenario(*made)
            assert {office.name: office.bugs for office in made} == dict.fromkeys(names, 0)

    asyncio.run(whole())
