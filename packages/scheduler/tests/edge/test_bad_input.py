"""Malformed and illegal messages on both sockets, each with its exact answer.

One server for all. A bystander, a session with its node, has an utterance under way during every
case and gets its translation afterwards. A probe follows what a case sends, so that the answers
are known to be all there are, and the socket known to be usable still.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pytest
import uvloop

from edge.raw_peer import BINARY, CLOSE, PATIENCE_S, PING, TEXT, Peer, masked, until
from lingua_scheduler.config import load_settings
from lingua_scheduler.edge.server import RunningServer, running_server
from lingua_wire.codec import JSON_PROTOCOL, MSGPACK_PROTOCOL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterator

pytestmark = pytest.mark.store

AUDIO = "AAAA" * 100
SEVENTEEN = [f"a{letter}" for letter in "abcdefghijklmnopq"]


class Frame(NamedTuple):
    """A frame exactly as it is sent."""

    kind: int
    data: bytes


class Bare(NamedTuple):
    """Bytes that are no whole frame."""

    data: bytes


class Answer(NamedTuple):
    """What must come back: a message with this code or status and this in its text, or a close."""

    type: str
    code: object = ""
    part: str = ""


class Case(NamedTuple):
    """What is sent in a phase and what comes back."""

    name: str
    phase: str
    sent: list[Any]
    answers: list[Answer]


def error(code: str, part: str) -> Answer:
    return Answer("error", code, part)


def invalid(part: str) -> Answer:
    return error("INVALID_MESSAGE", part)


def room_error(code: str, part: str = "") -> Answer:
    return Answer("room_error", code, part or code)


def closed(code: int, part: str = "") -> Answer:
    return Answer("close", code, part)


def text(data: str | bytes) -> Frame:
    return Frame(TEXT, data.encode() if isinstance(data, str) else data)


def init(**more: Any) -> dict[str, Any]:
    return {"type": "session_init", "src_lang": "zh", "tgt_lang": "en", **more}


def chunk(**more: Any) -> dict[str, Any]:
    return {"type": "audio_chunk", "session_id": "{session}", "seq": 0, "is_final": False, **more}


def utterance(**more: Any) -> dict[str, Any]:
    return {
        "type": "utterance", "session_id": "{session}", "utterance_index": 0, "manual_cut": True,
        "src_lang": "zh", "tgt_lang": "en", "audio": AUDIO, "audio_format": "pcm16",
        "sample_rate": 16000, **more,
    }  # fmt: skip


def close(**more: Any) -> dict[str, Any]:
    return {"type": "session_close", "session_id": "{session}", **more}


def offer(**more: Any) -> dict[str, Any]:
    return {"type": "webrtc_offer", "room_code": "{room}", "to": "{other}", "sdp": "v=0", **more}


def beat(session: str = "{session}") -> dict[str, Any]:
    return {"type": "client_heartbeat", "session_id": session, "timestamp": 1}


def register(**more: Any) -> dict[str, Any]:
    return {
        "type": "node_register", "node_id": "node-bad", "boot_id": "b1", "version": "1",
        "platform": "linux", "hardware": {"cpu_cores": 4, "memory_gb": 8},
        "capability_by_type": [{"type": kind, "ready": True} for kind in ("asr", "nmt", "tts")],
        "language_capabilities": {"asr_languages": ["fr"], "semantic_languages": ["de"]},
        **more,
    }  # fmt: skip


def heartbeat(**more: Any) -> dict[str, Any]:
    usage = {"cpu_percent": 1, "mem_percent": 1, "running_jobs": 0}
    return {"type": "node_heartbeat", "node_id": "node-bad", "resource_usage": usage, **more}


def result(**more: Any) -> dict[str, Any]:
    return {
        "type": "job_result", "job_id": "{job}", "attempt_id": 1, "node_id": "node-bad",
        "success": True, "text_asr": "stolen", "text_translated": "stolen", **more,
    }  # fmt: skip


def without(message: dict[str, Any], field: str) -> dict[str, Any]:
    return {name: value for name, value in message.items() if name != field}


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


LANGUAGE = "UNSUPPORTED_LANGUAGE"
FIRST = error("INVALID_SESSION", "the first message must be session_init")
FOREIGN = error("INVALID_SESSION", "not the session of this connection")
TOO_MANY = closed(4422, "too many invalid messages in a row")
LATE = error("SESSION_CLOSED", "the session was closed")
DEEP_JSON = '{"type":"webrtc_offer","room_code":"1","to":"x","sdp":' + "[" * 100_000
HUGE = '{"type":"audio_chunk","session_id":"{session}","is_final":true,"seq":%s}'
pack = msgspec.msgpack.encode

HANDSHAKE = [
    Case("words", "hello", [text("hello")], [invalid("JSON is malformed")]),
    Case("nothing", "hello", [text("")], [invalid("Input data was truncated")]),
    Case("not UTF-8", "hello", [text(b'{"type":"\xff"}')], [invalid("cannot be read")]),
    Case("half a pair", "hello", [text('{"type":"\\ud800....."}')], [invalid("surrogate pair")]),
    Case("an array", "hello", [[]], [invalid("Expected `object`, got `array`")]),
    Case("null", "hello", [text("null")], [invalid("Expected `object`, got `null`")]),
    Case("no type", "hello", [{}], [invalid("missing required field `type`")]),
    Case("a number as type", "hello", [{"type": 1}], [invalid("Expected `str` - at `$.type`")]),
    Case("unknown type", "hello", [{"type": "zz"}], [invalid("Invalid value 'zz' - at `$.type`")]),
    Case("a node's message", "hello", [register()], [invalid("Invalid value 'node_register'")]),
    Case("two types", "hello", [text('{"type":"room_leave","type":1}')], [invalid("`$.type`")]),
    Case("garbage behind", "hello", [text('{"type":"room_leave"} x')], [invalid("`room_code`")]),
    Case("a byte order mark", "hello", [text("\ufeff{}")], [invalid("JSON is malformed")]),
    Case("half a message", "hello", [text('{"type":"room')], [invalid("truncated")]),
    Case("depth", "hello", [text(DEEP_JSON)], [invalid("cannot be read: RecursionError")]),
    Case("no language", "hello", [{"type": "session_init"}], [invalid("field `src_lang`")]),
    Case("many terms", "hello", [init(glossary=[{"term": f"t{at}"} for at in range(301)])],
         [invalid("length <= 300 - at `$.glossary`")]),
    Case("long term", "hello", [init(glossary=[{"term": "x" * 129}])],
         [invalid("length <= 128 - at `$.glossary[0].term`")]),
    Case("large glossary", "hello", [init(glossary=[{"term": f"{at:0128}"} for at in range(129)])],
         [invalid("glossary: at most 16384 bytes of text, got 16512")]),
    Case("empty term", "hello", [init(glossary=[{"term": " "}])],
         [invalid("glossary: a term must have a letter or a digit")]),
    Case("a term without a text", "hello", [init(glossary=[{}])], [invalid("field `term`")]),
    Case("a glossary that is none", "hello", [init(glossary="ledger")], [invalid("`$.glossary`")]),
    Case("a term in no language", "hello",
         [init(glossary=[{"term": "a", "translations": {"?": "b"}}])],
         [error("UNSUPPORTED_LANGUAGE", "not a language code: '?'")]),
    Case("language 1", "hello", [init(src_lang=1)], [invalid("Expected `str`, got `int`")]),
    Case("long version", "hello", [init(client_version="v" * 129)], [invalid("length <= 128")]),
    Case("bad source", "hello", [init(src_lang="中文")], [error(LANGUAGE, "'中文'")]),
    Case("bad target", "hello", [init(tgt_lang="e")], [error(LANGUAGE, "code: 'e'")]),
    Case("auto as target", "hello", [init(tgt_lang="auto")], [error(LANGUAGE, "'auto'")]),
    Case("no target", "hello", [init(tgt_lang="")], [error(LANGUAGE, "not a language code: ''")]),
    Case("17 targets", "hello", [init(tgt_langs=SEVENTEEN)], [invalid("at most 16 target lang")]),
    Case("201 targets", "hello", [init(tgt_langs=["en"] * 201)], [invalid("length <= 200")]),
    Case("one way of two", "hello", [init(mode="two_way_auto", lang_a="zh")],
         [error(LANGUAGE, "not a language code: ''")]),
    Case("long lanes", "hello",
         [init(mode="two_way_auto", lang_a="abcdefgh" + "-abcdefgh" * 3,
               lang_b="hgfedcba" + "-abcdefgh" * 3)], [invalid("too long for one lane")]),
    Case("unknown mode", "hello", [init(mode="both")], [invalid("Invalid enum value 'both'")]),
    Case("mp3", "hello", [init(audio_format="mp3")], [invalid("or opus but is: 'mp3'")]),
    Case("7999 Hz", "hello", [init(sample_rate=7999)], [invalid("Expected `int` >= 8000")]),
    Case("10^30 Hz", "hello", [init(sample_rate=10**30)], [invalid("at `$.sample_rate`")]),
    Case("a flag that is text", "hello", [init(features={"emotion_detection": "yes"})],
         [invalid("Expected `bool | null`, got `str` - at `$.features.emotion_detection`")]),
    Case("half a pipeline", "hello", [init(pipeline={"use_asr": True, "use_nmt": True})],
         [invalid("missing required field `use_tts` - at `$.pipeline`")]),
    Case("no code", "hello", [init(pairing_code="000000")],
         [error("INVALID_PAIRING_CODE", "wrong, used or too old")]),
    Case("a long token", "hello", [init(token="t" * 4097)], [invalid("length <= 4096")]),
    Case("audio first", "hello", [chunk(session_id="s")], [FIRST]),
    Case("a heartbeat first", "hello", [beat("s")], [FIRST]),
    Case("a room first", "hello", [{"type": "room_create"}], [FIRST]),
    Case("binary first", "hello", [Frame(BINARY, b"ab")], [invalid("audio needs an open session")]),
    Case("an unknown session", "hello",
         [{"type": "session_resume", "session_id": "s", "resume_token": "t", "epoch": "e",
           "last_seq": 0}], [Answer("resume_rejected", "unknown_session")]),
    Case("bad, then early audio", "hello", [init(src_lang="1"), chunk(session_id="s")],
         [error(LANGUAGE, "'1'"), FIRST]),
    Case("50 times nonsense", "hello", [text("x")] * 50, [invalid("malformed")] * 50 + [TOO_MANY]),
    Case("50 times too early", "hello", [beat("s")] * 50, [FIRST] * 50 + [TOO_MANY]),
    Case("1 MiB and a byte", "hello", [Bare(masked(TEXT, b" " * (2**20 + 1)))], [closed(1009)]),
    Case("an unknown opcode", "hello", [Frame(3, b"x")], [closed(1002)]),
]  # fmt: skip

OPEN = [
    Case("session_init again", "open", [init()], [invalid("the session is open already")]),
    Case("another's session", "open", [chunk(session_id="{other}")], [FOREIGN]),
    Case("another's close", "open", [close(session_id="{other}")], [FOREIGN]),
    Case("seq -1", "open", [chunk(seq=-1)], [invalid("Expected `int` >= 0 - at `$.seq`")]),
    Case("seq 2^41", "open", [chunk(seq=2**41)], [invalid("Expected `int` <= 1099511627776")]),
    Case("seq of 5000 digits", "open", [text(HUGE % ("9" * 5000))], [invalid("out of range")]),
    Case("seq 1.5", "open", [chunk(seq=1.5)], [invalid("Expected `int`, got `float`")]),
    Case("seq NaN", "open", [text(HUGE % "NaN")], [invalid("JSON is malformed")]),
    Case("seq as text", "open", [chunk(seq="1")], [invalid("Expected `int`, got `str`")]),
    Case("no is_final", "open", [without(chunk(), "is_final")], [invalid("field `is_final`")]),
    Case("no base64", "open", [chunk(payload="@@@@")], [invalid("Invalid base64 encoded string")]),
    Case("half a sample", "open", [chunk(payload="AA==")], [invalid("got an odd number")]),
    Case("half a raw one", "open", [Frame(BINARY, b"a")], [invalid("got an odd number")]),
    Case("no audio", "open", [utterance(audio="")], [invalid("audio is empty")]),
    Case("one byte", "open", [utterance(audio="AA==")], [invalid("got an odd number")]),
    Case("one sample", "open", [utterance(audio="AAA=")],
         [invalid("audio is shorter than any speech: 1 samples at 16000 Hz, the least is 1 ms")]),
    Case("almost 1 ms", "open", [utterance(audio="AAAA" * 10)],
         [invalid("audio is shorter than any speech: 15 samples")]),
    Case("an odd utterance", "open", [utterance(audio="AAAA" * 2001)],
         [invalid("audio of pcm16 has two bytes per sample, got an odd number")]),
    Case("wav", "open", [utterance(audio_format="wav")], [invalid("must be pcm16 or opus")]),
    Case("0 Hz", "open", [utterance(sample_rate=0)], [invalid("Expected `int` >= 8000")]),
    Case("a bad language", "open", [utterance(tgt_lang="english!")], [error(LANGUAGE, "english!")]),
    Case("index -1", "open", [utterance(utterance_index=-1)], [invalid("Expected `int` >= 0")]),
    Case("index 2^33", "open", [utterance(utterance_index=2**33)], [invalid("too far ahead")]),
    Case("index 2^40", "open", [utterance(utterance_index=2**40)], [invalid("too far ahead")]),
    Case("index 100 after 0", "open", [utterance(), utterance(utterance_index=100)],
         [invalid("utterance_index 100 is too far ahead: the next one is 1"),
          Answer("utterance_accepted"), Answer("ui_event"),
          error("NO_AVAILABLE_NODE", "NO_POOL_FOR_LANG_PAIR")]),
    Case("update to nothing", "open",
         [{"type": "session_update", "session_id": "{session}", "tgt_lang": "?"}],
         [error(LANGUAGE, "'?'")]),
    Case("no timestamp", "open", [without(beat(), "timestamp")], [invalid("field `timestamp`")]),
    Case("time 2^60", "open", [{**beat(), "timestamp": 2**60}], [invalid("at `$.timestamp`")]),
    Case("unknown room", "open", [{"type": "room_join", "room_code": "000000"}],
         [room_error("ROOM_NOT_FOUND")]),
    Case("no room code", "open", [{"type": "room_join", "room_code": "12ab"}],
         [room_error("INVALID_ROOM_CODE")]),
    Case("leave no room", "open", [{"type": "room_leave", "room_code": "000000"}],
         [room_error("NOT_IN_ROOM")]),
    Case("a room in no language", "open", [{"type": "room_create", "preferred_lang": "-"}],
         [room_error("INVALID_MESSAGE", "not a language code: '-'")]),
    Case("a long name", "open", [{"type": "room_create", "display_name": "n" * 129}],
         [invalid("length <= 128 - at `$.display_name`")]),
    Case("signals from outside", "open", [offer(room_code="000000")], [room_error("NOT_IN_ROOM")]),
    Case("signals to a stranger", "room", [offer()], [room_error("ROOM_NOT_FOUND")]),
    Case("signals elsewhere", "room", [offer(room_code="1")], [room_error("NOT_IN_ROOM")]),
    Case("a second room", "room", [{"type": "room_create"}], [room_error("ALREADY_IN_ROOM")]),
    Case("a stranger's voice", "room",
         [{"type": "room_raw_voice_preference", "room_code": "{room}",
           "target_session_id": "{other}", "receive_raw_voice": False}],
         [room_error("NOT_IN_ROOM")]),
    Case("signals too deep", "room", [offer(sdp=nested(33))], [invalid("deeper than 32")]),
    Case("a number of 100 bits", "room", [offer(sdp=2**100)], [invalid("exceeds 64 bits")]),
    Case("no sdp", "room", [without(offer(), "sdp")], [invalid("missing required field `sdp`")]),
    Case("after the end", "open",
         [close(), chunk(), utterance(), init(), Frame(BINARY, b"ab")],
         [LATE] * 4 + [Answer("session_close_ack"), closed(1000)]),
    Case("50 times nonsense", "open", [text("{")] * 50, [invalid("trunc")] * 50 + [TOO_MANY]),
    Case("50 times another's", "open", [chunk(session_id="x")] * 50, [FOREIGN] * 50 + [TOO_MANY]),
    Case("50 times again", "open", [init()] * 50, [invalid("open already")] * 50 + [TOO_MANY]),
    Case("49 times, then well, then 49 times", "open", [*[init()] * 49, beat(), *[init()] * 49],
         [*[invalid("open")] * 49, Answer("server_heartbeat"), *[invalid("open")] * 49]),
    Case("too many bytes in fragments", "open",
         [Bare(masked(TEXT, b" " * 2**20, fin=False) + masked(0, b" "))], [closed(1009)]),
]  # fmt: skip

PACKED = [
    Case("JSON as text", "packed hello", [text("{}")], [invalid("this socket speaks MessagePack")]),
    Case("JSON as bytes", "packed hello", [Frame(BINARY, b"{}")], [invalid("got `int`")]),
    Case("garbage behind", "packed hello", [Frame(BINARY, pack(init()) + b"x")],
         [invalid("trailing characters")]),
    Case("half a message", "packed hello", [Frame(BINARY, pack(init())[:-1])], [invalid("trunc")]),
    Case("a byte that is none", "packed hello", [Frame(BINARY, b"\xc1")], [invalid("opcode")]),
    Case("a key 1", "packed hello", [{1: 2}], [invalid("Expected `str`, got `int`")]),
    Case("4 billion items", "packed hello", [Frame(BINARY, b"\xdd\xff\xff\xff\xff")],
         [invalid("got `array`")]),
    Case("text that is not UTF-8", "packed hello",
         [Frame(BINARY, b"\x82" + pack("type") + pack("room_leave") + pack("room_code")
                + b"\xa1\xff")], [invalid("cannot be read: UnicodeDecodeError")]),
    Case("text as audio", "packed open", [chunk(payload="AAAA")], [invalid("got `str`")]),
    Case("seq NaN", "packed open", [chunk(seq=float("nan"))], [invalid("got `float`")]),
    Case("an extension as seq", "packed open", [chunk(seq=msgspec.msgpack.Ext(5, b"x"))],
         [invalid("Expected `int`, got `ext`")]),
    Case("an extension to others", "packed open", [offer(sdp=[msgspec.msgpack.Ext(5, b"x")])],
         [invalid("a value of an unknown type: Ext")]),
    Case("too deep", "packed open", [Frame(BINARY, b"\x91" * 100_000)], [invalid("got `array`")]),
]  # fmt: skip

UNREGISTERED = error("NODE_NOT_REGISTERED", "the first message must be node_register")
OTHER_FORM = invalid("not the form of this socket's subprotocol")
RUNNING = {"job_id": "j", "attempt_id": 1}
STALE = Answer("job_result_ack", "stale", "{job}")
SCHEMA = "INVALID_CAPABILITY_SCHEMA"
ARRIVAL = [
    Case("words", "node hello", [text("hello")], [invalid("JSON is malformed")]),
    Case("an array", "node hello", [[]], [invalid("Expected `object`, got `array`")]),
    Case("no type", "node hello", [{}], [invalid("missing required field `type`")]),
    Case("unknown type", "node hello", [{"type": "zz"}], [invalid("Invalid value 'zz'")]),
    Case("a client's message", "node hello", [init()], [invalid("Invalid value 'session_init'")]),
    Case("a heartbeat first", "node hello", [heartbeat()], [UNREGISTERED]),
    Case("a result first", "node hello", [result()], [UNREGISTERED]),
    Case("binary", "node hello", [Frame(BINARY, pack(register()))], [OTHER_FORM]),
    Case("text", "packed node hello", [text("{}")], [OTHER_FORM]),
    Case("another schema", "node hello", [register(capability_schema_version="3.0")],
         [error(SCHEMA, "must be 2.0, got: 3.0"), closed(4410, SCHEMA)]),
    Case("a bad language", "node hello",
         [register(language_capabilities={"asr_languages": ["zh", "x!"]})],
         [invalid("not a language code: 'x!'"), closed(4410, "declarations")]),
    Case("a bad id", "node hello", [register(node_id="a b/c")],
         [invalid("node_id must be 1 to 128 characters of A-Z"), closed(4410)]),
    Case("a long id", "node hello", [register(node_id="n" * 129)], [invalid("length <= 128")]),
    Case("a service that is none", "node hello",
         [register(installed_services=[{"service_id": "x", "type": "magic"}])],
         [invalid("Invalid enum value 'magic' - at `$.installed_services[0].type`")]),
    Case("0 slots", "node hello", [register(max_jobs=0)], [invalid("Expected `int` >= 1")]),
    Case("1025 slots", "node hello", [register(max_jobs=1025)], [invalid("`int` <= 1024")]),
    Case("-1 cores", "node hello", [register(hardware={"cpu_cores": -1, "memory_gb": 1})],
         [invalid("at `$.hardware.cpu_cores`")]),
    Case("2001 running jobs", "node hello",
         [register(running=[RUNNING] * 2001)], [invalid("length <= 2000")]),
    Case("50 times nonsense", "node hello", [text("")] * 50, [invalid("trunc")] * 50 + [TOO_MANY]),
    Case("50 times too early", "node hello", [heartbeat()] * 50, [UNREGISTERED] * 50 + [TOO_MANY]),
    Case("16 MiB and a byte", "node hello", [Bare(masked(TEXT, b" " * (2**24 + 1))[:14])],
         [closed(1009)]),
]  # fmt: skip

WORKING = [
    Case("register again", "node", [register()], [invalid("the node is registered already")]),
    Case("another node", "node", [heartbeat(node_id="node-good")],
         [invalid("not the node of this connection")]),
    Case("no usage", "node", [without(heartbeat(), "resource_usage")],
         [invalid("missing required field `resource_usage`")]),
    Case("-1 running", "node",
         [heartbeat(resource_usage={"cpu_percent": 1, "mem_percent": 1, "running_jobs": -1})],
         [invalid("at `$.resource_usage.running_jobs`")]),
    Case("2001 running jobs", "node",
         [heartbeat(running=[RUNNING] * 2001)], [invalid("length <= 2000")]),
    Case("a new bad language", "node",
         [heartbeat(language_capabilities={"asr_languages": ["?"]})],
         [invalid("not a language code: '?'")]),
    Case("a job with a bar in its id", "node",
         [heartbeat(running=[{"job_id": "a|b|c", "attempt_id": 7}])],
         [Answer("node_status", "ready"), Answer("job_cancel", 7, "a|b|c")]),
    Case("another's job as its own", "node",
         [heartbeat(running=[{**RUNNING, "job_id": "{job}"}])],
         [Answer("node_status", "ready"), Answer("job_cancel", 1, "{job}")]),
    Case("result of no job", "node", [result(job_id="job-none")],
         [Answer("job_result_ack", "unknown", "job-none")]),
    Case("result of another's job", "node", [result()], [STALE]),
    Case("failure of another's job", "node",
         [result(success=False, error={"code": "PROCESSING_ERROR"})],
         [STALE]),
    Case("result of a later attempt", "node", [result(attempt_id=2)],
         [STALE]),
    Case("acks of another's job", "node",
         [{"type": "job_ack", **RUNNING, "job_id": "{job}"},
          {"type": "job_started", **RUNNING, "job_id": "{job}"}], []),
    Case("partial of another's job", "node",
         [{"type": "asr_partial", "job_id": "{job}", "text": "stolen"}], []),
    Case("attempt -1", "node", [result(attempt_id=-1)], [invalid("at `$.attempt_id`")]),
    Case("no success", "node", [without(result(), "success")], [invalid("field `success`")]),
    Case("no base64", "node", [result(tts_audio="@")], [invalid("Invalid base64 encoded string")]),
    Case("a novel", "node", [result(text_asr="x" * 65_537)], [invalid("length <= 65536")]),
    Case("an error without code", "node", [result(success=False, error={})],
         [invalid("missing required field `code` - at `$.error`")]),
    Case("too deep", "node", [result(segments_meta=nested(33))], [invalid("deeper than 32")]),
    Case("a number of 100 bits", "node", [result(extra={"emotion": 2**100})],
         [invalid("a whole number exceeds 64 bits")]),
    Case("an extension", "packed node", [result(segments_meta=msgspec.msgpack.Ext(1, b""))],
         [invalid("a value of an unknown type: Ext")]),
    Case("a drain of text", "node", [{"type": "node_drain", "draining": "yes"}],
         [invalid("Expected `bool`, got `str`")]),
    Case("50 times again", "node", [register()] * 50, [invalid("already")] * 50 + [TOO_MANY]),
]  # fmt: skip


class Talk:
    """One socket that sends what a case says and reads what comes back."""

    def __init__(self, peer: Peer, *, is_packed: bool) -> None:
        self._peer = peer
        self._is_packed = is_packed

    def send(self, *frames: Any) -> None:
        """Send all of it in one piece, so that no answer comes in between."""
        self._peer.send(b"".join(self._raw(frame) for frame in frames))

    def _raw(self, frame: Any) -> bytes:
        if isinstance(frame, Bare):
            return frame.data
        if isinstance(frame, Frame):
            return masked(*frame)
        if self._is_packed:
            return masked(BINARY, pack(frame))
        return masked(TEXT, json.dumps(frame).encode())

    async def hear(self) -> dict[str, Any]:
        """Read the next message; a close reads as one."""
        kind, data = PING, b""
        while kind == PING:
            kind, data = await self._peer.hear()
        if kind == CLOSE:
            return {"type": "close", "code": int.from_bytes(data[:2]), "message": data[2:].decode()}
        assert kind == (BINARY if self._is_packed else TEXT)
        decoder = msgspec.msgpack if self._is_packed else msgspec.json
        message: dict[str, Any] = decoder.decode(data)
        return message

    async def hear_type(self, wanted: str) -> dict[str, Any]:
        """Read on to the next message of this type."""
        while (message := await self.hear())["type"] != wanted:
            assert message["type"] not in {"close", "error"}, message
        return message


@dataclass
class Bystander:
    """A session with work under way, and the node that does it when told to."""

    session: Talk
    node: Talk
    session_id: str
    spoken: int = 0
    job: str = ""

    async def speak(self) -> None:
        """Get an utterance as far as the node."""
        self.session.send(
            utterance(session_id=self.session_id, utterance_index=self.spoken, tgt_lang="es")
        )
        self.job = (await self.node.hear_type("job_assign"))["job_id"]

    async def finish(self) -> None:
        """Let the node answer; the session must get this and nothing else."""
        said = f"said {self.spoken}"
        self.node.send(result(job_id=self.job, node_id="node-good", text_translated=said))
        accepted, delivered = await self.session.hear(), await self.session.hear()
        assert (accepted["type"], delivered["type"]) == ("utterance_accepted", "translation_result")
        assert delivered["utterance_index"] == self.spoken
        assert delivered["text_translated"] == said
        assert (await self.node.hear())["type"] == "job_result_ack"
        self.spoken += 1


class Stage:
    """The server, the bystander, and a loop that runs while a test does."""

    def __init__(self, runner: asyncio.Runner, server: RunningServer) -> None:
        self.server = server
        self.bystander: Bystander
        self._runner = runner

    def run(self, scenario: Coroutine[Any, Any, None]) -> None:
        self._runner.run(asyncio.wait_for(scenario, 3 * PATIENCE_S))
        assert self.server.instance.metrics.instance.internal_errors_total.value == 0

    @asynccontextmanager
    async def talk(self, path: str, protocol: str | None = JSON_PROTOCOL) -> AsyncIterator[Talk]:
        peer = await Peer.connect(self.server.port)
        try:
            peer.request(path, Sec_WebSocket_Protocol=protocol)
            assert (await peer.answer())[0] == 101
            yield Talk(peer, is_packed=protocol == MSGPACK_PROTOCOL)
        finally:
            await peer.close()

    async def bring_bystander(self, stack: AsyncExitStack) -> None:
        node = await stack.enter_async_context(self.talk("/ws/node"))
        pairs = {"supported_language_pairs": [{"src": "zh", "tgt": "es"}]}
        node.send(register(node_id="node-good", language_capabilities=pairs))
        await node.hear_type("node_register_ack")
        node.send(heartbeat(node_id="node-good"))
        await node.hear_type("node_status")
        session = await stack.enter_async_context(self.talk("/ws/session"))
        session.send(init(tgt_lang="es", audio_format="pcm16"))
        ack = await session.hear_type("session_init_ack")
        self.bystander = Bystander(session, node, ack["session_id"])

    async def end_bystander(self) -> None:
        """Nothing of the good session was lost, and nothing of the bad ones is left."""
        session = self.bystander.session
        session.send(close(session_id=self.bystander.session_id))
        coverage = (await session.hear_type("session_close_ack"))["coverage"]
        assert coverage["delivered_ms"] == coverage["admitted_ms"] > 0
        instance = self.server.instance
        await until(lambda: not instance.sessions and not instance.jobs)
        assert list(instance.nodes) == ["node-good"]
        assert len(instance.rooms.cache.rooms) == 0


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    # What nobody can do expires soon, so that the bad sessions end soon.
    environment = {
        "LINGUA_DATA_DIR": str(tmp_path_factory.mktemp("s")), "LINGUA_SERVER__PORT": "0",
        "LINGUA_JOBS__PENDING_MS": "500", "LINGUA_SESSIONS__RESUME_MS": "1000",
    }  # fmt: skip
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        stack = AsyncExitStack()
        server = runner.run(
            stack.enter_async_context(running_server(load_settings(None, environment)))
        )
        stage = Stage(runner, server)
        stage.run(stage.bring_bystander(stack))
        yield stage
        stage.run(stage.end_bystander())
        runner.run(stack.aclose())


async def reach(phase: str, talk: Talk, names: dict[str, str]) -> None:
    """Bring a fresh socket to where the case begins; learn the names a case may use."""
    step = phase.rpartition(" ")[2]
    if step == "hello":
        return
    if step == "node":
        talk.send(register())
        await talk.hear_type("node_register_ack")
        return
    talk.send(init(ui_events=False, audio_format="pcm16"))
    names["session"] = (await talk.hear_type("session_init_ack"))["session_id"]
    if step == "room":
        talk.send({"type": "room_create"})
        names["room"] = (await talk.hear_type("room_create_ack"))["room_code"]
        await talk.hear_type("room_members")


def probe_of(phase: str, names: dict[str, str]) -> tuple[dict[str, Any], str]:
    """Return a message that is legal where the case ends, and the type of its answer."""
    if phase.endswith("node hello"):
        return register(), "node_register_ack"
    if phase.endswith("hello"):
        return init(), "session_init_ack"
    if phase.endswith("node"):
        return result(job_id="job-probe"), "job_result_ack"
    return beat(names["session"]), "server_heartbeat"


def named(value: Any, names: dict[str, str]) -> Any:
    """Put real names in place of {session}, {other}, {room} and {job}."""
    if isinstance(value, Frame):
        return Frame(value.kind, named(value.data.decode("latin-1"), names).encode("latin-1"))
    if isinstance(value, str):
        for name, real in names.items():
            value = value.replace(f"{{{name}}}", real)
        return value
    if isinstance(value, dict):
        return {key: named(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [named(item, names) for item in value]
    return value


def seen(message: dict[str, Any]) -> tuple[str, object, str]:
    kind = message["type"]
    code, words = {
        "job_result_ack": ("status", "job_id"), "job_cancel": ("attempt_id", "job_id"),
        "node_status": ("status", "node_id"), "resume_rejected": ("reason", "session_id"),
    }.get(kind, ("code", "message"))  # fmt: skip
    return kind, message.get(code, ""), str(message.get(words, ""))


async def play(stage: Stage, case: Case) -> None:
    bystander = stage.bystander
    await bystander.speak()
    try:
        await provoke(stage, case, {"other": bystander.session_id, "job": bystander.job})
    finally:
        await bystander.finish()


async def provoke(stage: Stage, case: Case, names: dict[str, str]) -> None:
    path = "/ws/node" if "node" in case.phase else "/ws/session"
    protocol = MSGPACK_PROTOCOL if "packed" in case.phase else JSON_PROTOCOL
    async with stage.talk(path, protocol) as talk:
        await reach(case.phase, talk, names)
        talk.send(*(named(frame, names) for frame in case.sent))
        for expected in case.answers:
            kind, code, words = seen(await talk.hear())
            assert (kind, code) == (expected.type, expected.code), words
            assert named(expected.part, names) in words
        if not case.answers or case.answers[-1].type != "close":
            probe, answer = probe_of(case.phase, names)
            talk.send(probe)
            assert (await talk.hear())["type"] == answer


@pytest.mark.parametrize(
    "case",
    [*HANDSHAKE, *OPEN, *PACKED, *ARRIVAL, *WORKING],
    ids=lambda case: f"{case.phase}: {case.name}",
)
def test_a_bad_message_has_its_exact_answer_and_hurts_nobody_else(stage: Stage, case: Case) -> None:
    stage.run(play(stage, case))
