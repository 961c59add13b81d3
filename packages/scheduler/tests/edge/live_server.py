"""A scheduler that serves, and scripted peers that talk to it over real sockets.

`OldClient` and `OldNode` speak the published protocol and nothing else: JSON, no subprotocol, none
of our additions; whatever they do not know fails the test. `NewClient` and `NewNode` speak the
additions, in JSON or MessagePack. A scenario is a coroutine that gets a `Stage`; see `play`.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import tempfile
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec
import uvloop

from lingua_scheduler.config import load_settings
from lingua_scheduler.edge.server import running_server

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from lingua_scheduler.edge.server import RunningServer

JSON, MSGPACK = "lingua.v1.json", "lingua.v1.msgpack"
PATIENCE_S = 30
SCENARIO_S = 150
# What the clients and nodes in the field understand.
OLD_CLIENT_KNOWS = frozenset(
    {
        "session_init_ack", "translation_result", "asr_partial", "missing_result", "ui_event",
        "server_heartbeat", "session_close_ack", "error", "room_create_ack", "room_members",
        "room_error", "room_expired", "webrtc_offer", "webrtc_answer", "webrtc_ice",
        "backpressure",
    }
)  # fmt: skip
OLD_NODE_KNOWS = frozenset({"node_register_ack", "job_assign", "job_cancel"})
# Utterances are cut fast and nothing is held back; tests of those rules say otherwise.
QUICK = {
    "segmentation__pause_ms": 200,
    "segmentation__hangover_auto_ms": 20,
    "segmentation__hangover_manual_ms": 20,
    "segmentation__short_merge_ms": 0,
    "jobs__sweep_interval_ms": 50,
}
# Messages of each socket that a failure shows.
SHOWN_MAX = 40
# A machine that stands still for some seconds is no store that is away.
PATIENT_STORE = {
    "redis__call_timeout_ms": 8000, "redis__connect_timeout_ms": 8000, "jobs__reserve_ms": 9000,
}  # fmt: skip
# Whoever sets one of these sets times that a call must be shorter than, or that hang on it.
HASTY = {"redis__call_timeout_ms", "jobs__reserve_ms", "jobs__attempt_ms", "cells"}
# An attempt ends soon; the other times must be shorter still.
SHORT_ATTEMPTS = {
    "jobs__attempt_ms": 600, "jobs__reserve_ms": 500, "jobs__ack_ms": 300,
    "redis__call_timeout_ms": 400,
}  # fmt: skip
Message = dict[str, Any]


def with_patience(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings under which the store has time to answer, unless they say how long."""
    return settings if HASTY & settings.keys() else {**PATIENT_STORE, **settings}


def opus(duration_ms: int, fill: bytes = b"o") -> bytes:
    """Return bytes that count as so much opus speech."""
    return fill * (duration_ms // 20 * 60)


def pcm16(duration_ms: int, fill: bytes = b"p") -> bytes:
    """Return bytes that are so much pcm16 at 16 kHz."""
    return fill * (duration_ms * 32)


def text64(audio: bytes) -> str:
    """Return audio as JSON carries it."""
    return base64.b64encode(audio).decode()


def audio_of(job: Message) -> bytes:
    """Return the audio that a job carries in JSON."""
    return base64.b64decode(job["audio"])


def play(scenario: Callable[[Stage], Coroutine[Any, Any, None]], **settings: object) -> None:
    """Run a scenario against a server of its own; no error may have gone unhandled in it."""

    async def whole() -> None:
        with tempfile.TemporaryDirectory(prefix="lingua-") as directory:
            async with asyncio.timeout(SCENARIO_S), Stage(directory, settings) as stage:
                await scenario(stage)
                assert stage.server.instance.metrics.instance.internal_errors_total.value == 0

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(whole())


async def until(is_so: Callable[[], object], what: str = "the condition") -> None:
    """Wait until a condition holds; fail with its name if it never does."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S} s: {what}"
        await asyncio.sleep(0.005)


class Stage:
    """One server and everyone connected to it."""

    def __init__(self, directory: str, settings: dict[str, Any]) -> None:
        self._directory = directory
        self._settings = with_patience({**QUICK, **settings})
        self._stack = AsyncExitStack()
        self._server = AsyncExitStack()
        self.server: RunningServer
        self._http: aiohttp.ClientSession
        self._names = itertools.count(1)
        self._peers: list[Peer] = []

    async def __aenter__(self) -> Stage:
        self._http = await self._stack.enter_async_context(aiohttp.ClientSession())
        await self.start_server()
        return self

    async def __aexit__(self, *error: Any) -> None:
        if isinstance(error[1], Exception):
            error[1].add_note("\n".join(peer.history() for peer in self._peers))
        try:
            await self._stack.__aexit__(*error)
        finally:
            await self._server.aclose()

    async def start_server(self) -> None:
        """Serve from this stage's data directory; again after `stop_server`: a restart."""
        environ = {"LINGUA_DATA_DIR": self._directory, "LINGUA_SERVER__PORT": "0"}
        for name, value in self._settings.items():
            shown = str(value).lower() if isinstance(value, bool) else str(value)
            environ[f"LINGUA_{name.upper()}"] = shown
        settings = load_settings(None, environ)
        self.server = await self._server.enter_async_context(running_server(settings))

    async def stop_server(self) -> None:
        """End the server as a crash does: sockets break, the store is told nothing."""
        await self.server.instance.tasks.end()
        await self._server.aclose()

    async def connect(self, path: str, subprotocol: str | None) -> aiohttp.ClientWebSocketResponse:
        """Open a socket and close it with the stage."""
        offered = (subprotocol,) if subprotocol else ()
        ws = await self._http.ws_connect(
            f"{self.server.url}{path}", protocols=offered, max_msg_size=1 << 26
        )
        assert ws.protocol == subprotocol
        return ws

    async def _enter(self, peer: Any) -> Any:
        self._peers.append(peer)
        return await self._stack.enter_async_context(peer)

    async def socket(self, path: str = "/ws/session", subprotocol: str | None = None) -> Peer:
        """Open a socket that has said nothing yet."""
        peer: Peer = await self._enter(Peer(await self.connect(path, subprotocol), subprotocol))
        return peer

    async def old_client(self, src: str = "zh", tgt: str = "en", **init: Any) -> OldClient:
        """Open a session as clients in the field do."""
        client: OldClient = await self._enter(OldClient(await self.connect("/ws/session", None)))
        await client.open(src_lang=src, tgt_lang=tgt, **init)
        return client

    async def client(
        self, src: str = "zh", tgt: str = "en", form: str = JSON, **init: Any
    ) -> NewClient:
        """Open a session of a client that speaks the additions."""
        client: NewClient = await self._enter(
            NewClient(await self.connect("/ws/session", form), form)
        )
        await client.open(src_lang=src, tgt_lang=tgt, **init)
        return client

    async def old_node(self, name: str | None = None, **register: Any) -> OldNode:
        """Register a node of the published protocol, ready for work."""
        node: OldNode = await self._enter(OldNode(await self.connect("/ws/node", None)))
        await node.enter(name or f"node-{next(self._names)}", **register)
        await self.until_ready(node)
        return node

    async def node(self, name: str | None = None, form: str = JSON, **register: Any) -> NewNode:
        """Register a node that speaks the additions, ready for work."""
        node: NewNode = await self._enter(NewNode(await self.connect("/ws/node", form), form))
        await node.enter(name or f"node-{next(self._names)}", **register)
        await self.until_ready(node)
        return node

    async def until_ready(self, node: Node) -> None:
        """Wait until the server counts a node as ready."""
        nodes = self.server.instance.nodes

        def is_ready() -> bool:
            known = nodes.get(node.id)
            return known is not None and known.status == "ready"

        await until(is_ready, f"{node.id} is ready")

    def leases(self) -> int:
        """Return how many jobs of this instance have no delivered outcome."""
        return len(self.server.instance.jobs)

    def counted(self, name: str, **labels: str) -> float:
        """Return one of its counts."""
        groups = vars(self.server.instance.metrics).values()
        family = next(getattr(group, name) for group in groups if hasattr(group, name))
        return float(family.labels(**labels).value if labels else family.value)


class Peer:
    """One end of a socket: sends what it is told, keeps everything it hears in order."""

    # The types this peer understands; None: all.
    knows: frozenset[str] | None = None

    def __init__(self, ws: aiohttp.ClientWebSocketResponse, subprotocol: str | None = None) -> None:
        self.ws = ws
        self._is_binary = subprotocol == MSGPACK
        self.heard: list[Message] = []
        # How many of these the test has looked at.
        self._read = 0
        self._news = asyncio.Event()
        self._reader: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Any:
        self._reader = asyncio.create_task(self._listen())
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._reader is not None
        await self.ws.close()
        await asyncio.wait_for(self._reader, PATIENCE_S)
        if self.knows is not None and error[0] is None:
            unknown = {message["type"] for message in self.heard} - self.knows
            assert not unknown, f"{type(self).__name__} does not know {unknown}"

    async def _listen(self) -> None:
        async for frame in self.ws:
            if frame.type is aiohttp.WSMsgType.BINARY:
                assert self._is_binary, "a binary frame on a JSON socket"
                self.heard.append(msgspec.msgpack.decode(frame.data))
            else:
                assert not self._is_binary, "a text frame on a MessagePack socket"
                self.heard.append(json.loads(frame.data))
            self._news.set()
        self._news.set()

    async def send(self, kind: str, **fields: Any) -> None:
        """Send one message; bytes become base64 where the form is JSON."""
        message = {"type": kind, **fields}
        if self._is_binary:
            await self.ws.send_bytes(msgspec.msgpack.encode(message))
        else:
            await self.ws.send_str(msgspec.json.encode(message).decode())

    async def next(self) -> Message:
        """Return the next message, whatever it is."""
        async with asyncio.timeout(PATIENCE_S):
            while self._read >= len(self.heard):
                assert not self.ws.closed, f"closed with {self.ws.close_code}"
                self._news.clear()
                await self._news.wait()
        self._read += 1
        return self.heard[self._read - 1]

    async def expect(self, kind: str, **fields: Any) -> Message:
        """Return the next message of this type with these fields, passing over others."""
        passed: list[Message] = []
        while True:
            try:
                message = await self.next()
            except (TimeoutError, AssertionError) as error:
                came = [brief(other) for other in passed]
                raise AssertionError(f"no {kind} {fields} came, but {came}") from error
            if is_like(message, kind, fields):
                return message
            passed.append(message)

    async def follows(self, kind: str, **fields: Any) -> Message:
        """Return the very next message, which must be of this type with these fields."""
        message = await self.next()
        assert is_like(message, kind, fields), f"wanted {kind} {fields}, got {brief(message)}"
        return message

    async def silent_for(self, duration_ms: int, *kinds: str) -> None:
        """Fail if a message (of one of these types) comes within a time; others stay unread."""
        seen = self._read
        deadline = time.monotonic() + duration_ms / 1000
        while (left := deadline - time.monotonic()) > 0:
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), left)
            came = [brief(m) for m in self.heard[seen:] if not kinds or m["type"] in kinds]
            assert not came, f"should be silent, got {came}"

    def history(self) -> str:
        """Return what it heard last, for failures to show."""
        lines = [f"    {brief(message)}" for message in self.heard[-SHOWN_MAX:]]
        how = f"closed with {self.ws.close_code}" if self.ws.closed else "open"
        return "\n".join([f"{type(self).__name__} {vars(self).get('id', '')}, {how}:", *lines])

    def all(self, kind: str) -> list[Message]:
        """Return everything of one type heard so far."""
        return [message for message in self.heard if message["type"] == kind]

    async def closed(self) -> int | None:
        """Wait for the end of the socket; return its close code."""
        assert self._reader is not None
        await asyncio.wait_for(asyncio.shield(self._reader), PATIENCE_S)
        return self.ws.close_code

    def drop(self) -> None:
        """Lose the connection without a farewell, as a crash does; if it is not lost already."""
        connection = self.ws._response.connection
        if connection is not None and connection.transport is not None:
            connection.transport.abort()


def brief(message: Message) -> Message:
    """Return a message without the length of its audio and texts, for failures to show."""
    return {
        name: f"{value[:40]!r}..." if isinstance(value, str | bytes) and len(value) > 40 else value
        for name, value in message.items()
    }


def is_like(message: Message, kind: str, fields: Message) -> bool:
    """Tell whether a message is of a type and has these fields."""
    return message["type"] == kind and fields.items() <= message.items()


class Client(Peer):
    """A client with one session."""

    def __init__(self, ws: aiohttp.ClientWebSocketResponse, subprotocol: str | None = None) -> None:
        super().__init__(ws, subprotocol)
        self.ack: Message = {}
        self.id = ""
        self.seq = itertools.count()

    async def open(self, **init: Any) -> None:
        await self.send("session_init", client_version="1.0", platform="web", **init)
        self.ack = await self.follows("session_init_ack")
        self.id = self.ack["session_id"]

    async def ask(self, kind: str, **fields: Any) -> None:
        """Send a message about the own session."""
        await self.send(kind, session_id=self.id, **fields)

    async def say(self, audio: bytes, *, is_final: bool = False, **more: Any) -> None:
        """Send one chunk of speech."""
        fields = {"seq": next(self.seq), "is_final": is_final, "payload": audio, **more}
        await self.ask("audio_chunk", **fields)

    async def utter(self, index: int, audio: bytes = b"", **more: Any) -> None:
        """Send one whole utterance."""
        fields: Message = {
            "utterance_index": index, "manual_cut": True, "src_lang": "zh", "tgt_lang": "en",
            "audio": audio or pcm16(100), "audio_format": "pcm16", "sample_rate": 16_000,
        }  # fmt: skip
        await self.ask("utterance", **(fields | more))

    async def result(self, index: int, **fields: Any) -> Message:
        """Return the translation of an utterance, which must come."""
        return await self.expect("translation_result", utterance_index=index, **fields)

    async def bye(self) -> Message:
        """Close the session and return the acknowledgement."""
        await self.ask("session_close", reason="done")
        ack = await self.expect("session_close_ack", session_id=self.id)
        assert await self.closed() == 1000
        return ack

    def outcomes(self) -> list[tuple[int, str]]:
        """Return what ended each utterance so far: index and reason, or `ok`."""
        kinds = ("translation_result", "missing_result")
        return [
            (m["utterance_index"], m.get("reason", "ok")) for m in self.heard if m["type"] in kinds
        ]


class OldClient(Client):
    """A client in the field."""

    knows = OLD_CLIENT_KNOWS


class NewClient(Client):
    """A client that speaks the additions."""


class Node(Peer):
    """A compute node; answers only when told to, or everything after `work`."""

    def __init__(self, ws: aiohttp.ClientWebSocketResponse, subprotocol: str | None = None) -> None:
        super().__init__(ws, subprotocol)
        self.id = ""
        self._worker: asyncio.Task[None] | None = None

    async def __aexit__(self, *error: object) -> None:
        if self._worker is not None:
            self._worker.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._worker
        await super().__aexit__(*error)

    async def enter(self, name: str | None, **register: Any) -> Message:
        fields = {**registration(), **({"node_id": name} if name else {}), **register}
        await self.send("node_register", **fields)
        ack = await self.follows("node_register_ack", status="registering")
        self.id = ack["node_id"]
        await self.beat()
        return ack

    async def beat(self, **more: Any) -> None:
        """Send a heartbeat."""
        usage = {"cpu_percent": 1.0, "mem_percent": 1.0, "running_jobs": 0}
        fields = {"timestamp": int(time.time() * 1000), "resource_usage": usage, **more}
        await self.send("node_heartbeat", node_id=self.id, **fields)

    async def job(self, **fields: Any) -> Message:
        """Return the next job that is assigned."""
        return await self.expect("job_assign", **fields)

    async def about(self, kind: str, job: Message, **more: Any) -> None:
        """Send a message about a job."""
        fields = {name: job[name] for name in ("job_id", "session_id", "trace_id")}
        await self.send(kind, node_id=self.id, **(fields | more))

    async def take(self, job: Message) -> None:
        """Acknowledge a job and say that it runs."""
        await self.about("job_ack", job, attempt_id=job["attempt_id"])
        await self.about("job_started", job, attempt_id=job["attempt_id"])

    async def partial(self, job: Message, text: str) -> None:
        index = job["utterance_index"]
        await self.about("asr_partial", job, utterance_index=index, text=text, is_final=False)

    async def answer(self, job: Message, text: str = "hello", **more: Any) -> None:
        """Report a job as done."""
        fields: Message = {
            "attempt_id": job["attempt_id"], "utterance_index": job["utterance_index"],
            "success": True, "text_asr": text, "text_translated": f"{text}:{job['tgt_lang']}",
            "tts_audio": b"tts", "tts_format": "pcm16",
        }  # fmt: skip
        await self.about("job_result", job, **(fields | more))

    async def fail(self, job: Message, code: str, message: str = "", **details: Any) -> None:
        """Report a job as failed."""
        error = {"code": code, "message": message, "details": details or None}
        fields = {"attempt_id": job["attempt_id"], "utterance_index": job["utterance_index"]}
        await self.about("job_result", job, success=False, error=error, **fields)

    def work(self) -> None:
        """Answer every job from now on, with its index as text."""
        self._worker = asyncio.create_task(self._work())

    async def _work(self) -> None:
        while not self.ws.closed:
            while self._read < len(self.heard):
                message = await self.next()
                if message["type"] == "job_assign":
                    await self.do(message)
            self._news.clear()
            await self._news.wait()

    async def do(self, job: Message) -> None:
        await self.answer(job, f"text {job['utterance_index']}")

    @property
    def jobs(self) -> list[Message]:
        """Return every job assigned so far."""
        return self.all("job_assign")


class OldNode(Node):
    """A node in the field: no boot id; does a job id and an utterance of a session only once."""

    knows = OLD_NODE_KNOWS

    def __init__(self, ws: aiohttp.ClientWebSocketResponse) -> None:
        super().__init__(ws)
        self._done: set[object] = set()

    async def do(self, job: Message) -> None:
        place = (job["session_id"], job["utterance_index"])
        if job["job_id"] in self._done:
            await self.fail(job, "PROCESSING_ERROR", f"DUPLICATE_JOB_ID: {job['job_id']}")
        elif place in self._done:
            await self.fail(job, "PROCESSING_ERROR", f"DUPLICATE_UTTERANCE_INDEX: {place}")
        else:
            self._done |= {job["job_id"], place}
            await super().do(job)


class NewNode(Node):
    """A node that speaks the additions."""

    async def enter(self, name: str | None, **register: Any) -> Message:
        return await super().enter(name, **{"boot_id": "boot-1", "max_jobs": 8, **register})


def registration(
    asr: Iterable[str] = ("zh", "en"), to: Iterable[str] = ("en", "zh", "ja", "es")
) -> Message:
    """Return what a node in the field says of itself when it registers."""
    kinds = ("asr", "nmt", "tts")
    targets = list(to)
    return {
        "version": "2.0.0",
        "capability_schema_version": "2.0",
        "platform": "windows",
        "hardware": {"cpu_cores": 8, "memory_gb": 32, "gpus": [{"name": "g", "memory_gb": 8}]},
        "installed_models": [],
        "installed_services": [
            {"service_id": f"{kind}-1", "type": kind, "device": "gpu", "status": "running"}
            for kind in kinds
        ],
        "capability_by_type": [
            {"type": kind, "ready": True, "ready_impl_ids": [f"{kind}-1"]} for kind in kinds
        ],
        "features_supported": {},
        "accept_public_jobs": True,
        "language_capabilities": {
            "asr_languages": list(asr),
            "tts_languages": targets,
            "semantic_languages": targets,
        },
    }
