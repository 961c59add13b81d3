"""One session on a bare WebSocket: JSON or MessagePack, the current protocol or the older one.

It shows what the client SDK hides: acceptances, errors, `go_away`, the close code, and a socket
that is not read. All times are of the machine's one monotonic clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from time import monotonic
from typing import Any, NamedTuple

import aiohttp
import msgspec

BOUND_S = 30.0
AUDIO = b"\x01\x02" * 1000
SOURCE, TARGETS = "zh", ("en", "es")
ADDITIONS = {"audio_format": "pcm16", "sample_rate": 16_000, "ui_events": False}
# Into one language, into two at once, or into one or the other by turns.
KINDS = ("both", "either", "one", "one", "one")


class Pace(NamedTuple):
    """How many utterances may be in progress at once, and the mean pause between two."""

    window: int
    pause_s: float


class RawClient:
    """One session: sends its utterances within a window and records what it receives."""

    def __init__(
        self, number: int, pace: Pace, note: Callable[..., None], *, is_old: bool = False
    ) -> None:
        self.number = number
        # A client of the older protocol: JSON, no subprotocol, none of the additions.
        self.is_old = is_old
        self._pace = pace
        self._note = note
        self._chance = Random(1000 + number)
        self._kind = "one" if is_old else KINDS[number % len(KINDS)]
        self.is_binary = number % 2 == 1 and not is_old
        self.session_id = ""
        # Utterance -> languages without an outcome, and when each was sent.
        self.open: dict[int, set[str]] = {}
        self.sent_at: dict[int, float] = {}
        self.latencies: list[float] = []
        self.close_code = 0
        self.went_away = False
        self._may_speak = asyncio.Event()
        self._may_speak.set()
        self._change = asyncio.Event()
        self.socket: aiohttp.ClientWebSocketResponse

    async def begin(self, http: aiohttp.ClientSession, url: str) -> None:
        """Connect and open the session."""
        protocol = "lingua.v1.msgpack" if self.is_binary else "lingua.v1.json"
        offered = () if self.is_old else (protocol,)
        self.socket = await http.ws_connect(url, protocols=offered, max_msg_size=0)
        more: dict[str, Any] = {} if self.is_old else {**ADDITIONS}
        if self._kind == "both":
            more["tgt_langs"] = TARGETS
        await self.send(
            {
                "type": "session_init",
                "client_version": "1",
                "platform": "web",
                "src_lang": SOURCE,
                "tgt_lang": TARGETS[0],
                **more,
            }
        )
        answer = self._read(await self.socket.receive(timeout=BOUND_S))
        assert answer["type"] == "session_init_ack", answer
        self.session_id = answer["session_id"]
        self._note(monotonic(), self.number, "opened", self.session_id)

    async def speak(self, count: int) -> None:
        """Send so many more utterances, as fast as the window and the scheduler allow."""
        first = len(self.sent_at)
        for index in range(first, first + count):
            await asyncio.sleep(self._chance.uniform(0, 2 * self._pace.pause_s))
            await self._may_speak.wait()
            await self.until(lambda: len(self.open) < self._pace.window)
            langs = (self._chance.choice(TARGETS),) if self._kind == "either" else TARGETS[:1]
            if self._kind == "both":
                langs = TARGETS
            self.open[index] = set(langs)
            await self.utter(index, langs)

    async def utter(self, index: int, langs: tuple[str, ...]) -> None:
        """Send one utterance; a list of languages is the session's own, named by its first."""
        self.sent_at[index] = monotonic()
        self._note(self.sent_at[index], self.number, "sent", index, langs)
        await self.send(
            {
                "type": "utterance",
                "session_id": self.session_id,
                "utterance_index": index,
                "manual_cut": True,
                "src_lang": SOURCE,
                "tgt_lang": langs[0],
                "audio": AUDIO,
                "audio_format": "pcm16",
                "sample_rate": 16_000,
                "trace_id": f"{self.number}-{index}",
            }
        )

    async def send(self, message: dict[str, Any]) -> None:
        if self.is_binary:
            await self.socket.send_bytes(msgspec.msgpack.encode(message))
        else:
            await self.socket.send_str(msgspec.json.encode(message).decode())

    async def listen(self) -> None:
        """Handle messages until the socket is closed."""
        async for message in self.socket:
            self._take(self._read(message))
            self._change.set()
        self.close_code = self.socket.close_code or 0
        self._note(monotonic(), self.number, "closed", self.close_code)
        self._change.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition that a message can bring about."""
        while not condition():
            self._change.clear()
            await self._change.wait()

    async def end(self) -> None:
        """Close the session as a client should."""
        await self.send({"type": "session_close", "session_id": self.session_id, "reason": "end"})

    def _read(self, message: aiohttp.WSMessage) -> dict[str, Any]:
        decode = msgspec.msgpack.decode if self.is_binary else msgspec.json.decode
        found: dict[str, Any] = decode(message.data)
        return found

    def _take(self, message: dict[str, Any]) -> None:
        kind, now = message["type"], monotonic()
        if kind == "utterance_accepted":
            self._note(now, self.number, "accepted", message["utterance_index"])
        elif kind in {"translation_result", "missing_result"}:
            self._take_outcome(message, now)
        elif kind == "backpressure":
            action = self._may_speak.clear if message["action"] == "PAUSE" else self._may_speak.set
            action()
        elif kind == "error":
            self._take_error(message, now)
        elif kind == "go_away":
            self.went_away = True
            self._note(now, self.number, "go_away")

    def _take_outcome(self, message: dict[str, Any], now: float) -> None:
        index, lang = message["utterance_index"], message["tgt_lang"]
        self._note(
            now,
            self.number,
            "outcome",
            index,
            lang,
            message.get("reason", "result"),
            message["seq"],
            message.get("job_id"),
            message.get("text_asr"),
            message.get("text_translated"),
            message.get("detail"),
        )
        left = self.open.get(index, set())
        left.discard(lang)
        if not left and self.open.pop(index, None) is not None:
            self.latencies.append(now - self.sent_at[index])

    def _take_error(self, message: dict[str, Any], now: float) -> None:
        index = (message.get("details") or {}).get("utterance_index")
        self._note(now, self.number, "error", message["code"], index)
