"""Runs every transcript of docs/protocol.md against a real server and real sockets.

The notation is explained on the page itself ("How to read the transcripts").
"""

import asyncio
import base64
import json
import re
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import aiohttp
import msgspec
import pytest

from lingua_scheduler.auth.tokens import LEEWAY_S, TokenKeys
from lingua_scheduler.config import Settings, load_settings
from lingua_scheduler.edge.server import NODE_PATH, SESSION_PATH, RunningServer, running_server
from lingua_scheduler.secret import Secret
from lingua_wire.codec import (
    ASSIGNMENTS,
    JSON_PROTOCOL,
    MSGPACK_PROTOCOL,
    SERVER_MESSAGES,
    SUBPROTOCOLS,
)
from workspace import ROOT

pytestmark = pytest.mark.store

PAGE = ROOT / "docs" / "protocol.md"
BLOCK = re.compile(
    r"^```transcript (?P<title>[^\n]+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
LINE = re.compile(r"(?P<peer>[A-Z][a-z0-9]*)(?P<act>[:<>]) (?P<what>.+)")
REPEATED = re.compile(r"(?P<count>\d+) x (?P<what>.+)")
AUDIO = re.compile(r"[<\[](?P<ms>\d+) ms of (?P<kind>speech|silence)[>\]]")
PLACEHOLDER = re.compile(r"<[a-z][a-z0-9 _-]*>")
ANY, ABSENT = "<any>", "<absent>"

RECEIVE_S = 15.0
# Longer than any transcript needs, shorter than a stuck one may take.
TRANSCRIPT_S = 60.0
LOUD, SILENT = b"\x00\x20\x00\xe0", b"\0\0\0\0"
BYTES_FIELDS = {"payload", "audio", "tts_audio"}


class Transcript(NamedTuple):
    title: str
    # Each with its number on the page.
    lines: list[tuple[int, str]]


def transcripts_of(page: str) -> list[Transcript]:
    found = []
    for block in BLOCK.finditer(page):
        first = page[: block.start("text")].count("\n") + 1
        lines = enumerate(block["text"].splitlines(), first)
        found.append(Transcript(block["title"], [(at, line) for at, line in lines if line]))
    return found


TRANSCRIPTS = transcripts_of(PAGE.read_text(encoding="utf-8"))


class Known(dict[str, str]):
    """The values of placeholders, as far as they are known."""

    def fill(self, value: Any) -> Any:
        """Return a value with every known placeholder in place."""
        if isinstance(value, dict):
            return {self.get(key, key): self.fill(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.fill(item) for item in value]
        if isinstance(value, str):
            return PLACEHOLDER.sub(lambda found: self.get(found[0], found[0]), value)
        return value

    def difference(self, shown: Any, came: Any, where: str = "") -> str:
        """Compare what is shown with what came, learn new placeholders; say what differs."""
        shown = self.fill(shown)
        if isinstance(shown, dict) and isinstance(came, dict):
            pairs = ((shown[key], came.get(key, ABSENT), f"{where}.{key}") for key in shown)
            return next((found for pair in pairs if (found := self.difference(*pair))), "")
        if isinstance(shown, list) and isinstance(came, list) and len(shown) == len(came):
            pairs = ((one, other, f"{where}[]") for one, other in zip(shown, came, strict=True))
            return next((found for pair in pairs if (found := self.difference(*pair))), "")
        if shown == came or (shown == ANY and came != ABSENT):
            return ""
        if isinstance(shown, str) and isinstance(came, str) and self._learns(shown, came):
            return ""
        return f"{where.lstrip('.') or 'it'} is {came!r}, shown is {shown!r}"

    def _learns(self, shown: str, came: str) -> bool:
        if PLACEHOLDER.fullmatch(shown) and shown not in (ANY, ABSENT) and came != ABSENT:
            self[shown] = came
            return True
        return False


class Peer:
    """A client or a node of a transcript."""

    def __init__(self, name: str, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.name = name
        self.is_node = name.startswith("N")
        self.is_binary = socket.protocol == MSGPACK_PROTOCOL
        self.format = "opus"
        self._socket = socket
        self.inbox: asyncio.Queue[dict[str, Any] | int] = asyncio.Queue()
        self._reader = asyncio.create_task(self._read())
        codecs = ASSIGNMENTS if self.is_node else SERVER_MESSAGES
        self._codec = codecs[self.is_binary]

    async def send(self, what: str, known: Known) -> None:
        if audio := AUDIO.fullmatch(what):
            await self._socket.send_bytes(audio_bytes(audio, self.format))
            return
        try:
            message = json.loads(what)
        except ValueError:
            await self._socket.send_str(what)
            return
        self.format = message.get("audio_format", self.format)
        filled = known.fill(self._with_audio(message))
        if self.is_binary:
            await self._socket.send_bytes(msgspec.msgpack.encode(as_bytes(filled)))
        else:
            await self._socket.send_str(json.dumps(filled))

    def _with_audio(self, message: dict[str, Any]) -> dict[str, Any]:
        def filled(value: Any) -> Any:
            audio = AUDIO.fullmatch(value) if isinstance(value, str) else None
            return base64.b64encode(audio_bytes(audio, self.format)).decode() if audio else value

        return {key: filled(value) for key, value in message.items()}

    async def receive(self) -> dict[str, Any] | int:
        return await asyncio.wait_for(self.inbox.get(), RECEIVE_S)

    async def close(self) -> None:
        await self._socket.close()

    def drop(self) -> None:
        """Vanish without a goodbye, as after kill -9."""
        connection = self._socket._response.connection
        assert connection is not None
        assert connection.transport is not None
        connection.transport.abort()

    async def freeze(self) -> None:
        """Read no more: pings stay unanswered while the connection stands."""
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)

    async def end(self) -> None:
        await self.freeze()
        await self._socket.close()

    async def _read(self) -> None:
        while True:
            frame = await self._socket.receive()
            if frame.type in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY):
                data = frame.data.encode() if isinstance(frame.data, str) else frame.data
                assert isinstance(frame.data, bytes) is self.is_binary
                # What the server sends must be what its own types say.
                message = msgspec.json.encode(self._codec.decode(data))
                self.inbox.put_nowait(json.loads(message))
            else:
                self.inbox.put_nowait(self._socket.close_code or 1006)
                return


def audio_bytes(audio: re.Match[str], audio_format: str) -> bytes:
    """Return so much audio: 16000 Hz pcm16, or what counts as opus."""
    duration_ms = int(audio["ms"])
    if audio_format == "opus":
        return b"o" * (duration_ms // 20 * 60)
    return (LOUD if audio["kind"] == "speech" else SILENT) * (duration_ms * 8)


def as_bytes(message: dict[str, Any]) -> dict[str, Any]:
    return {
        key: base64.b64decode(value) if key in BYTES_FIELDS else value
        for key, value in message.items()
    }


class Stage:
    """One transcript while it runs."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self._http = http
        self._settings: dict[str, str] = {"LINGUA_SERVER__PORT": "0"}
        self._server: RunningServer | None = None
        self._running = self._run_server()
        self.peers: dict[str, Peer] = {}
        self.known = Known()
        self._directory = tempfile.TemporaryDirectory()
        self._draining: list[asyncio.Task[bool]] = []

    async def play(self, line: str) -> None:
        if line.startswith("#"):
            return
        parts = LINE.fullmatch(line)
        assert parts is not None, "not a line of a transcript"
        count, what = 1, parts["what"]
        if repeated := REPEATED.fullmatch(what):
            count, what = int(repeated["count"]), repeated["what"]
        for _ in range(count):
            if parts["act"] == ":":
                await self._direct(parts["peer"], what)
            else:
                await self._exchange(parts["peer"], parts["act"], what)

    async def _exchange(self, name: str, act: str, what: str) -> None:
        peer = self.peers[name]
        if act == ">":
            await peer.send(what, self.known)
            return
        shown = int(what.removeprefix("close ")) if what.startswith("close ") else json.loads(what)
        try:
            came = await peer.receive()
        except TimeoutError:
            raise AssertionError("nothing came") from None
        difference = self.known.difference(shown, came)
        assert not difference, f"{difference}\nwhat came: {json.dumps(came)}"
        if isinstance(came, dict):
            self._check(came)

    async def _direct(self, name: str, what: str) -> None:
        word, _, rest = what.partition(" ")
        if name == "S":
            await self._direct_server(word, rest)
        elif word == "connect":
            await self._connect(name, rest)
        elif word in ("ready", "ready-old", "ready-listening"):
            await self._connect(name, "" if word == "ready-old" else JSON_PROTOCOL)
            await self._make_ready(name, rest.split(), word)
        elif word == "drop":
            await self._drop(self.peers[name])
        elif word == "freeze":
            await self.peers[name].freeze()
        else:
            assert word == "close", f"no such direction: {word}"
            await self.peers[name].close()

    async def _drop(self, peer: Peer) -> None:
        """Let a peer vanish, and the server notice it."""
        wires = (await self._start()).front.websockets
        before = len(wires)
        peer.drop()
        await until(lambda: len(wires) < before)

    async def _direct_server(self, word: str, rest: str) -> None:
        if word == "stops":
            server = await self._start()
            self._draining.append(asyncio.create_task(server.drain()))
        else:
            assert self._server is None, "settings come first"
            value = json.loads(rest.removeprefix("= "))
            as_text = value if isinstance(value, str) else json.dumps(value)
            self._settings[f"LINGUA_{word.upper().replace('.', '__')}"] = as_text

    async def _connect(self, name: str, offers: str) -> None:
        server = await self._start()
        words = self.known.fill(offers).split()
        path = NODE_PATH if name.startswith("N") else SESSION_PATH
        offered = tuple(word for word in words if not word.startswith("bearer:"))
        headers = {}
        if tokens := [word.removeprefix("bearer:") for word in words if word not in offered]:
            headers["Authorization"] = f"Bearer {tokens[0]}"
        socket = await self._http.ws_connect(
            f"{server.url}{path}",
            protocols=offered,
            headers=headers,
            max_msg_size=0,
        )
        assert socket.protocol == next((one for one in offered if one in SUBPROTOCOLS), None)
        self.peers[name] = Peer(name, socket)

    async def _make_ready(self, name: str, pairs: list[str], word: str) -> None:
        peer, is_old = self.peers[name], word == "ready-old"
        register, beat = registration_of(name, pairs)
        if word == "ready-listening":
            register["max_streams"] = 2
        if not is_old:
            register["boot_id"] = f"boot-of-{name}"
        await peer.send(json.dumps(register), self.known)
        assert (await peer.receive())["type"] == "node_register_ack"  # type: ignore[index]
        await peer.send(json.dumps(beat), self.known)
        if not is_old:
            assert (await peer.receive())["status"] == "ready"  # type: ignore[index]
        server = await self._start()
        await until(lambda: server.instance.nodes[name].status == "ready")

    def _check(self, message: dict[str, Any]) -> None:
        """Check what the page promises of every such message."""
        if parts := message.get("timeline"):
            total = parts.get("total_ms", 0)
            assert sum(parts.values()) == 2 * total, "the timeline does not sum to its total"
        if parts := message.get("coverage"):
            assert sum(parts.values()) == 2 * parts["admitted_ms"], "the coverage does not add up"

    async def _start(self) -> RunningServer:
        if self._server is None:
            self._server = await anext(self._running)
            self._issue_tokens(self._server.settings)
            fleet = self._server.instance.fleet
            await until(lambda: fleet._pools is not None)
        return self._server

    def _issue_tokens(self, settings: Settings) -> None:
        """Make the tokens that transcripts may show."""
        keys = TokenKeys(settings.auth.client_keys, settings.auth.node_keys)
        if settings.auth.client_keys:
            self.known["<token>"] = keys.issue_client(tenant="acme", languages=["en"]).reveal()
            self.known["<newer token>"] = keys.issue_client(tenant="acme").reveal()
            # Warned of at once, and let in for some three seconds yet.
            behind = TokenKeys(settings.auth.client_keys, [], lambda: time.time() - LEEWAY_S - 7)
            self.known["<ending token>"] = behind.issue_client(ttl_s=10).reveal()
            self.known["<listener token>"] = keys.issue_client(scopes=["listen"]).reveal()
        if settings.auth.node_keys:
            self.known["<token of n1>"] = keys.issue_node("n1").reveal()
        strangers = TokenKeys([Secret("s" * 32)], [])
        self.known["<token of a stranger>"] = strangers.issue_client().reveal()

    async def _run_server(self) -> AsyncIterator[RunningServer]:
        settings = load_settings(None, {**self._settings, "LINGUA_DATA_DIR": self._directory.name})
        async with running_server(settings) as server:
            yield server

    async def end(self) -> None:
        await asyncio.gather(*self._draining)
        for peer in self.peers.values():
            await peer.end()
        if self._server is not None:
            await self._running.aclose()  # type: ignore[attr-defined]
        self._directory.cleanup()


def registration_of(name: str, pairs: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the first two messages of a node that serves these pairs."""
    languages = [pair.split(">") for pair in pairs]
    services = [{"service_id": kind, "type": kind} for kind in ("asr", "nmt", "tts")]
    register = {
        "type": "node_register",
        "node_id": name,
        "installed_services": services,
        "language_capabilities": {
            "supported_language_pairs": [{"src": src, "tgt": tgt} for src, tgt in languages]
        },
    }
    usage = {"cpu_percent": 1, "mem_percent": 1}
    return register, {"type": "node_heartbeat", "node_id": name, "resource_usage": usage}


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("what was waited for did not come")


@asynccontextmanager
async def stage() -> AsyncIterator[Stage]:
    async with aiohttp.ClientSession() as http:
        one = Stage(http)
        try:
            yield one
        finally:
            await one.end()


async def play(transcript: Transcript) -> None:
    async with asyncio.timeout(TRANSCRIPT_S), stage() as on_stage:
        for number, line in transcript.lines:
            try:
                await on_stage.play(line)
            except (AssertionError, KeyError, ValueError) as error:
                raise AssertionError(f"line {number}: {line}\n{error}") from error
        for peer in on_stage.peers.values():
            left = [peer.inbox.get_nowait() for _ in range(peer.inbox.qsize())]
            assert not left, f"{peer.name} got what is not shown: {left}"


def title_of(transcript: Transcript) -> str:
    return transcript.title.replace(" ", "-")


@pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=title_of)
def test_a_transcript_happens_as_the_page_shows_it(transcript: Transcript) -> None:
    asyncio.run(play(transcript))


def test_every_line_of_the_page_that_looks_like_one_of_a_transcript_is_run() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert len(TRANSCRIPTS) == page.count("```transcript") >= 8
    shown = {number for transcript in TRANSCRIPTS for number, _ in transcript.lines}
    for number, line in enumerate(page.splitlines(), 1):
        if re.match(r"[CNS][0-9]?[:<>] ", line):
            assert number in shown, f"line {number} is in no transcript: {line}"


def test_transcripts_can_be_told_apart_by_their_titles() -> None:
    titles = [transcript.title for transcript in TRANSCRIPTS]
    assert len(set(titles)) == len(titles)


WRONG = {
    "a field with another value": (
        'C< {"type": "error", "code": "INVALID_SESSION"}',
        "code is 'INVALID_MESSAGE', shown is 'INVALID_SESSION'",
    ),
    "a field that is not there": (
        'C< {"type": "error", "retry_after_ms": 1}',
        "retry_after_ms is '<absent>', shown is 1",
    ),
    "a field that should not be there": (
        'C< {"type": "error", "code": "<absent>"}',
        "code is 'INVALID_MESSAGE', shown is '<absent>'",
    ),
    "a close where a message comes": ("C< close 1000", "shown is 1000"),
    "a line that is none": ("C? {}", "not a line of a transcript"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_line_fails_and_is_quoted(wrong: str) -> None:
    line, problem = WRONG[wrong]
    transcript = Transcript("wrong", [(7, "C: connect"), (8, "C> nonsense"), (9, line)])
    with pytest.raises(AssertionError, match=re.escape(f"line 9: {line}\n")) as caught:
        asyncio.run(play(transcript))
    assert problem in str(caught.value)


def test_a_message_that_is_not_shown_fails() -> None:
    lines = [(1, "C: connect"), (2, "C> one"), (3, "C> two"), (4, 'C< {"type": "error"}')]
    lines.append((5, "C: close"))
    with pytest.raises(AssertionError, match="C got what is not shown"):
        asyncio.run(play(Transcript("short", lines)))
