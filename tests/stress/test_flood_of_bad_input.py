"""A hundred thousand generated messages on both sockets of a real scheduler process.

Valid messages are broken in every way (fields dropped, retyped, doubled, bytes flipped, cut off),
mixed with random JSON, random MessagePack and some that are valid, on many connections at once.
They go in units that end in a probe whose answer proves that the server has read all before it.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from copy import copy
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import uvloop

from edge.raw_peer import BINARY, CLOSE, TEXT, Peer, masked
from lingua_wire.codec import JSON_PROTOCOL, MSGPACK_PROTOCOL
from stress.serving import metrics_of, serving

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lingua_bench.chaos.scheduler_process import SchedulerProcess

pytestmark = pytest.mark.stress

MESSAGES = 100_000
# What the first ones cost is Python's and the allocator's to keep; what later ones cost, a leak.
WARM_UP = 20_000
GROWTH_BYTES_MAX = 24 << 20
CONNECTIONS = 24
UNIT = 25
UNITS_MAX = 12
SEED = 20_261_116
PATIENCE_S = 60

JOB = re.compile(rb"job-[0-9a-f]{32}")
# Jobs that nobody does end soon, so that the sessions that asked for them do.
SHORT_LIVES = {
    "LINGUA_JOBS__PENDING_MS": "500",
    # Who is thrown out may come back; here it is soon given up.
    "LINGUA_SESSIONS__RESUME_MS": "1000",
    "LINGUA_JOBS__ATTEMPT_MS": "2500",
    "LINGUA_JOBS__ATTEMPTS_MAX": "2",
    "LINGUA_JOBS__GAP_MS": "1000",
}
pack = msgspec.msgpack.encode
Message = dict[str, Any]


def deep(depth: int) -> Any:
    value: Any = {}
    for _ in range(depth):
        value = {"k": [value]}
    return value


JUNK: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 7, 2**31, 2**40 - 1, 2**40, 2**53, 2**63 - 1, 2**64 - 1, -(2**63),
    1.5, -0.0, 1e308, float("nan"), float("inf"), "", "x", "0", "\x00", "中文", "a|b", "auto", "zh",
    "en-us", "x" * 129, "y" * 70_000, "AAAA", "@", "000000", [], [[]], ["en", "es"], [None] * 300,
    {}, {"a": 1}, {"code": "MODEL_NOT_AVAILABLE", "details": {"service_id": "|,\x00"}},
    {"use_asr": False, "use_nmt": False, "use_tts": False}, [{"job_id": "a|b", "attempt_id": 1}],
    {"service_timings": {"asr_ms": -1e300}, "reason": "ASR_EMPTY"}, "two_way_auto", deep(3),
    deep(40),
)  # fmt: skip
# Only MessagePack can say these.
PACKED_JUNK: tuple[Any, ...] = (
    b"", b"\x00" * 3000, msgspec.msgpack.Ext(5, b"x"), {1: 2}, {None: []}, [b"\xff"],
)  # fmt: skip


AUDIO = ("audio", "payload", "tts_audio")


def of_clients(session: str, index: int = 0) -> list[Message]:
    """Return one valid message of each kind a client may send, but for its first one."""
    own = {"session_id": session}
    room = {"room_code": "123456"}
    return [
        {"type": "audio_chunk", **own, "seq": 1, "is_final": True, "payload": "AAAA" * 200},
        {"type": "utterance", **own, "utterance_index": index, "manual_cut": True, "src_lang": "zh",
         "tgt_lang": "en", "audio": "AAAA" * 20, "audio_format": "pcm16", "sample_rate": 16000,
         "trace_id": "t", "request_id": f"r{index}"},
        {"type": "client_heartbeat", **own, "timestamp": 1},
        {"type": "session_update", **own, "src_lang": "zh", "tgt_langs": ["en", "es"]},
        {"type": "tts_started", **own, "trace_id": "t", "group_id": "g", "ts_start_ms": 1},
        {"type": "tts_play_ended", **own, "trace_id": "t", "group_id": "g", "ts_end_ms": 1},
        {"type": "room_create", "client_ts": 1, "display_name": "A", "preferred_lang": "en"},
        {"type": "room_join", **room, "display_name": "B", "preferred_lang": "es"},
        {"type": "room_leave", **room},
        {"type": "room_raw_voice_preference", **room, "target_session_id": session,
         "receive_raw_voice": False},
        {"type": "webrtc_offer", **room, "to": session, "sdp": {"sdp": "v=0"}},
        {"type": "webrtc_ice", **room, "to": session, "candidate": {"candidate": "c"}},
        {"type": "session_resume", **own, "resume_token": "t", "epoch": "e", "last_seq": 0},
        opening_of_client(),
        {"type": "session_close", "session_id": "s-other", "reason": "flood"},
    ]  # fmt: skip


def opening_of_client() -> Message:
    return {
        "type": "session_init", "client_version": "1", "platform": "web", "src_lang": "zh",
        "tgt_lang": "en", "features": {"emotion_detection": False}, "mode": "one_way",
        "auto_langs": ["zh", "en"], "sample_rate": 16000, "audio_format": "pcm16",
    }  # fmt: skip


def of_nodes(node: str, job: str) -> list[Message]:
    """Return one valid message of each kind a node may send, but for its first one."""
    own = {"job_id": job, "attempt_id": 1, "node_id": node}
    usage = {"cpu_percent": 1.0, "mem_percent": 1.0, "running_jobs": 0}
    return [
        {"type": "node_heartbeat", "node_id": node, "timestamp": 1, "resource_usage": usage,
         "running": [{"job_id": job, "attempt_id": 1}],
         "language_capabilities": {"asr_languages": ["zh"], "semantic_languages": ["en", "es"]}},
        {"type": "job_ack", **own},
        {"type": "job_started", **own},
        {"type": "asr_partial", **own, "utterance_index": 0, "text": "so far", "is_final": False},
        {"type": "job_result", **own, "success": True, "text_asr": "a", "text_translated": "b",
         "tts_audio": "AAAA", "tts_format": "pcm16", "segments_meta": {"count": 1},
         "extra": {"language_probabilities": {"zh": 0.9}, "service_timings": {"asr_ms": 1.0}}},
        {"type": "job_result", **own, "success": False,
         "error": {"code": "MODEL_NOT_AVAILABLE", "message": "m", "details": {"service_id": "x"}}},
        {"type": "node_error", "node_id": node, "code": "X", "message": "m", "details": {"a": 1}},
        {"type": "node_drain", "draining": False, "reason": "flood"},
        {"type": "job_cancel_ack", "job_id": job, "attempt_id": 1, "stopped": True},
        opening_of_node(node),
    ]  # fmt: skip


def opening_of_node(node: str) -> Message:
    kinds = ("asr", "nmt", "tts")
    return {
        "type": "node_register", "node_id": node, "boot_id": "b", "version": "1",
        "platform": "linux", "hardware": {"cpu_cores": 1, "memory_gb": 1.0},
        "installed_services": [
            {"service_id": f"{kind}-1", "type": kind, "device": "cpu", "status": "running"}
            for kind in kinds
        ],
        "capability_by_type": [{"type": kind, "ready": True} for kind in kinds],
        "language_capabilities": {"asr_languages": ["zh"], "semantic_languages": ["en", "es"]},
        "max_jobs": 2,
    }  # fmt: skip


class Breaker:
    """Breaks messages, the same ones in the same way for the same seed."""

    def __init__(self, chance: Random, *, is_packed: bool) -> None:
        self._chance = chance
        self._is_packed = is_packed
        self._junk = (*JUNK, *PACKED_JUNK) if is_packed else JUNK

    def frame(self, valid: list[Message]) -> bytes:
        """Return one frame: a valid message broken in some way, or no message at all."""
        chance = self._chance
        message = {name: copy(value) for name, value in chance.choice(valid).items()}
        if self._is_packed:
            message |= {name: b"\x01\x02" * 100 for name in AUDIO if name in message}
        how = chance.random()
        if how < 0.65:
            for _ in range(chance.choice((1, 1, 1, 2, 5))):
                self._change_field(message)
            return self._whole(self._encoded(message))
        if how < 0.85:
            return self._whole(self._damaged(bytearray(self._encoded(message))))
        if how < 0.88:
            return self._whole(self._encoded(self._anything(4)))
        if how < 0.90:
            return masked(BINARY if self._is_own(TEXT) else TEXT, self._encoded(message))
        return self._whole(self._encoded(message))

    def whole(self, message: Any) -> bytes:
        """Return a message as it should be."""
        return self._whole(self._encoded(message))

    def _change_field(self, message: Message) -> None:
        chance = self._chance
        target = message
        inner = [value for value in message.values() if isinstance(value, dict)]
        if inner and chance.random() < 0.3:
            target = chance.choice(inner)
        name = chance.choice(list(target) or ["type"])
        how = chance.random()
        if how < 0.2:
            target.pop(name, None)
        elif how < 0.6:
            target[name] = copy(chance.choice(self._junk))
        elif how < 0.9:
            # Of the right kind at least: such messages get further in.
            kind = type(target.get(name))
            fitting = [value for value in self._junk if type(value) is kind]
            target[name] = copy(chance.choice(fitting or self._junk))
        else:
            target[chance.choice(("extra", "audio", "x" * 300, ""))] = 1

    def _damaged(self, data: bytearray) -> bytes:
        chance = self._chance
        how = chance.random()
        if how < 0.5:
            for _ in range(chance.choice((1, 1, 2, 8))):
                data[chance.randrange(len(data))] = chance.randrange(256)
        elif how < 0.7:
            del data[chance.randrange(len(data)) :]
        elif how < 0.8:
            data += chance.randbytes(chance.randrange(1, 20))
        elif how < 0.9:
            start = chance.randrange(len(data))
            data[start:start] = data[start : start + chance.randrange(1, 200)]
        else:
            return chance.randbytes(chance.randrange(300))
        return bytes(data)

    def _anything(self, depth: int) -> Any:
        chance = self._chance
        if not depth or chance.random() < 0.4:
            return chance.choice(self._junk)
        items = [self._anything(depth - 1) for _ in range(chance.randrange(4))]
        return items if chance.random() < 0.5 else {f"f{n}": item for n, item in enumerate(items)}

    def _encoded(self, message: Any) -> bytes:
        # The standard library also writes NaN, which is no JSON.
        return pack(message) if self._is_packed else json.dumps(message).encode()

    def _is_own(self, kind: int) -> bool:
        return kind == (BINARY if self._is_packed else TEXT)

    def _whole(self, data: bytes) -> bytes:
        return masked(BINARY if self._is_packed else TEXT, data)


@dataclass
class Flood:
    """How far it is, and what came of it."""

    port: int
    wanted: int
    first: int = 0
    read: int = 0
    closes: Counter[int] = field(default_factory=Counter)
    numbers: count[int] = field(default_factory=count)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(CONNECTIONS):
                group.create_task(self._keep_coming())

    async def _keep_coming(self) -> None:
        while self.read < self.wanted:
            await Visit(self, self.first + next(self.numbers)).pay()


class Visit:
    """One connection: what it is and what it sends depend on its number alone."""

    def __init__(self, flood: Flood, number: int) -> None:
        self._flood = flood
        self._number = number
        self._chance = Random(SEED + number)
        self._is_node = number % 3 == 0
        self._is_packed = number % 2 == 0
        # One in eight never introduces itself.
        self._is_known = number % 8 != 5
        self._breaker = Breaker(self._chance, is_packed=self._is_packed)
        self._name = f"node-{number}"
        self._job = "job-unknown"
        self._peer: Peer

    async def pay(self) -> None:
        """Come in, send units until told to go or tired of it, and go."""
        self._peer = await Peer.connect(self._flood.port)
        try:
            await self._enter()
            for _ in range(UNITS_MAX):
                self._peer.send(b"".join(self._unit()))
                if not await self._answered(f"probe-{self._number}".encode()):
                    return
                self._flood.read += UNIT
        except (ConnectionError, asyncio.IncompleteReadError):
            self._flood.closes[1006] += 1
        finally:
            self._peer.writer.transport.abort()

    async def _enter(self) -> None:
        path = "/ws/node" if self._is_node else "/ws/session"
        protocol = MSGPACK_PROTOCOL if self._is_packed else JSON_PROTOCOL
        self._peer.request(path, Sec_WebSocket_Protocol=protocol)
        assert (await self._peer.answer())[0] == 101
        if not self._is_known:
            return
        opening = opening_of_node(self._name) if self._is_node else opening_of_client()
        self._peer.send(self._breaker.whole(opening))
        _, answer = await self._peer.hear()
        decode = msgspec.msgpack.decode if self._is_packed else msgspec.json.decode
        self._name = decode(answer)["node_id" if self._is_node else "session_id"]

    def _unit(self) -> list[bytes]:
        if self._is_node:
            valid = of_nodes(self._name, self._job)
        else:
            valid = of_clients(self._name, self._chance.randrange(8))
        frames = [self._breaker.frame(valid) for _ in range(UNIT)]
        # A good one starts the count of errors in a row anew, for those who are in.
        if self._is_known:
            frames.append(self._breaker.whole(valid[0 if self._is_node else 2]))
        return [*frames, self._breaker.whole({"type": f"probe-{self._number}"})]

    async def _answered(self, probe: bytes) -> bool:
        """Read up to the answer that quotes the probe; tell whether it came before a close."""
        while True:
            kind, data = await self._peer.hear()
            if kind == CLOSE:
                self._flood.closes[int.from_bytes(data[:2])] += 1
                return False
            if probe in data:
                return True
            if self._is_node and (job := JOB.search(data)):
                self._job = job[0].decode()


async def speak_well(port: int) -> None:
    """One good node and one good session: from speech to translation to a clean end."""
    node, session = await Peer.connect(port), await Peer.connect(port)
    for peer, path in ((node, "/ws/node"), (session, "/ws/session")):
        peer.request(path, Sec_WebSocket_Protocol=JSON_PROTOCOL)
        assert (await peer.answer())[0] == 101
    whole = Breaker(Random(0), is_packed=False).whole
    languages = {"asr_languages": ["fi"], "semantic_languages": ["sv"]}
    opening = opening_of_node("node-good") | {"language_capabilities": languages}
    beat = of_nodes("node-good", "")[0] | {"language_capabilities": languages, "running": []}
    node.send(whole(opening) + whole(beat))
    session.send(whole(opening_of_client() | {"src_lang": "fi", "tgt_lang": "sv"}))
    name = (await told(session, "session_init_ack"))["session_id"]
    session.send(whole(of_clients(name)[1] | {"src_lang": "fi", "tgt_lang": "sv"}))
    job = (await told(node, "job_assign"))["job_id"]
    node.send(whole(of_nodes("node-good", job)[4]))
    assert (await told(session, "translation_result"))["text_translated"] == "b"
    session.send(whole({"type": "session_close", "session_id": name}))
    coverage = (await told(session, "session_close_ack"))["coverage"]
    assert coverage["delivered_ms"] == coverage["admitted_ms"]
    await node.close()
    await session.close()


async def told(peer: Peer, wanted: str) -> Message:
    """Read on to the next message of this type."""
    while True:
        kind, data = await peer.hear()
        assert kind != CLOSE, data
        if kind == TEXT and (message := json.loads(data))["type"] == wanted:
            return dict(message)


async def quiet(server: SchedulerProcess) -> dict[str, int]:
    """Wait until nobody is connected and no session is left; return the metrics of that moment."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            now = await metrics_of(server)
            sockets = [f'scheduler_connections{{kind="{kind}"}}' for kind in ("session", "node")]
            if not any(now[name] for name in (*sockets, "scheduler_sessions", "scheduler_rooms")):
                return now
            await asyncio.sleep(0.1)


def problems_in(log: Path) -> list[str]:
    """Return the lines of a log that tell of an error, or that are none of ours at all."""
    lines = log.read_text().splitlines()
    assert any("serve.started" in line for line in lines), "the log was not written"
    return [line for line in lines if '"level":"error"' in line or not line.startswith("{")]


def bounded(scenario: Callable[[], Any]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(scenario(), 300))


def test_a_flood_of_generated_messages_leaves_no_error_no_leak_and_a_server_that_serves(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, SHORT_LIVES, log_level="info") as server:
            port = server.port
            warm_up = Flood(port, WARM_UP)
            await warm_up.run()
            before = await quiet(server)
            flood = Flood(port, MESSAGES - WARM_UP, first=1_000_000)
            await flood.run()
            after = await quiet(server)
            read = warm_up.read + flood.read
            grown = after["process_resident_memory_bytes"] - before["process_resident_memory_bytes"]
            print(f"{read} messages, closes {dict(warm_up.closes + flood.closes)}, grown {grown}")

            assert read >= MESSAGES
            assert after["scheduler_internal_errors_total"] == 0
            assert problems_in(tmp_path / f"{server.name}.log") == []
            assert grown < GROWTH_BYTES_MAX
            # Most were refused, and many got far enough to become speech and results.
            assert after["scheduler_invalid_messages_total"] > MESSAGES / 2
            assert after["scheduler_jobs_total"] > MESSAGES / 1000
            # Those who only ever err were shown the door.
            assert warm_up.closes[4422] + flood.closes[4422] > 0
            assert 1011 not in warm_up.closes + flood.closes
            await speak_well(port)
            assert server.is_running
            assert await server.stop() == 0

    bounded(scenario)
