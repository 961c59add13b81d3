"""A server on 127.0.0.1 that behaves like OpenAI's speech API and accepts only valid requests.

It keeps the requests for the test, and the test may set answers in place of the usual ones.
"""

from __future__ import annotations

import asyncio
import io
import json
import ssl
import threading
import wave
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from aiohttp import web

KEY = "sk-test-0123456789"
FORM_FIELDS = {"file", "model", "language", "prompt", "response_format", "temperature"}


class Answer(NamedTuple):
    """An answer in place of the usual one."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


class Api:
    """The state of the server: received requests, and answers to send."""

    def __init__(self) -> None:
        # (path, fields of the form or the JSON body), in order.
        self.requests: list[tuple[str, dict[str, Any]]] = []
        # The peers of the connections, to check that connections are kept.
        self.peers: list[Any] = []
        # Answers to send first, before the usual ones.
        self.answers: list[Answer] = []
        self.has_verbose = True
        self.language = "spanish"
        self.wav_size: int | None = None
        # If set, every answer waits for it.
        self.held: threading.Event | None = None
        self.url = ""

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Check who asks, then answer."""
        self.peers.append(request.transport.get_extra_info("peername"))
        if request.headers.get("Authorization") != f"Bearer {KEY}":
            text = f"Incorrect API key provided: {request.headers.get('Authorization')}"
            return _error(401, text)
        path = request.path.removeprefix("/v1")
        fields = await self._fields(request)
        self.requests.append((path, fields))
        if self.held is not None:
            await asyncio.to_thread(self.held.wait, 20)
        if self.answers:
            status, body, headers = self.answers.pop(0)
            return web.Response(status=status, body=body, headers=dict(headers))
        return self._usual(path, fields)

    async def _fields(self, request: web.Request) -> dict[str, Any]:
        if request.content_type == "application/json":
            return dict(await request.json())
        assert request.content_type == "multipart/form-data", request.content_type
        fields: dict[str, Any] = {}
        async for part in await request.multipart():
            assert part.name in FORM_FIELDS, part.name
            assert part.name not in fields, "given twice"
            if part.name == "file":
                assert part.filename == "speech.wav"
                assert part.headers["Content-Type"] == "audio/wav"
                fields["file"] = bytes(await part.read())
            else:
                fields[part.name] = (await part.read()).decode()
        return fields

    def _usual(self, path: str, fields: dict[str, Any]) -> web.Response:
        if fields.get("model") not in {"whisper-1", "gpt", "tts-1"}:
            return _error(404, f"The model `{fields.get('model')}` does not exist")
        if path.startswith("/audio/trans"):
            return self._text_of(path, fields)
        if path == "/chat/completions":
            return web.json_response(_chat(fields))
        assert path == "/audio/speech", path
        return self._speech(fields)

    def _text_of(self, path: str, fields: dict[str, Any]) -> web.Response:
        if fields["response_format"] == "verbose_json" and not self.has_verbose:
            return _error(400, "response_format 'verbose_json' is not compatible with the model")
        with wave.open(io.BytesIO(fields["file"])) as file:
            assert (file.getnchannels(), file.getsampwidth()) == (1, 2)
            seconds = file.getnframes() / file.getframerate()
        if path == "/audio/translations":
            assert "language" not in fields
            return web.json_response({"text": "Good day."})
        answer: dict[str, Any] = {"text": " Buenos días. "}
        if fields["response_format"] == "verbose_json":
            answer |= {"task": "transcribe", "language": self.language, "duration": seconds}
            answer["segments"] = [{"id": 0, "text": " Buenos días. ", "avg_logprob": -0.25}]
        return web.json_response(answer)

    def _speech(self, fields: dict[str, Any]) -> web.Response:
        assert set(fields) == {"model", "input", "voice", "response_format"}
        assert 0 < len(fields["input"]) <= 4096
        pcm = b"\x00\x20" * (24 * 10 * len(fields["input"]))  # 10 ms for each letter
        if fields["response_format"] == "pcm":
            return web.Response(body=pcm, content_type="audio/pcm")
        file = io.BytesIO()
        with wave.open(file, "wb") as out:
            out.setnchannels(1)
            out.setsampwidth(2)
            out.setframerate(24_000)
            out.writeframes(pcm)
        body = file.getvalue()
        if self.wav_size is not None:
            body = body[:40] + self.wav_size.to_bytes(4, "little") + body[44:]
        return web.Response(body=body, content_type="audio/wav")


@contextmanager
def api_server(tls: ssl.SSLContext | None = None) -> Iterator[Api]:
    """Run the server in a thread of its own."""
    api, loop, ready = Api(), asyncio.new_event_loop(), threading.Event()
    stop = asyncio.Event()

    async def run() -> None:
        app = web.Application(client_max_size=64 << 20)
        app.router.add_post("/v1/{path:.*}", api.serve)
        runner = web.AppRunner(app, shutdown_timeout=1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        host, port = runner.addresses[0][:2]
        api.url = f"{'https' if tls else 'http'}://{host}:{port}/v1"
        ready.set()
        await stop.wait()
        await runner.cleanup()

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    assert ready.wait(10)
    try:
        yield api
    finally:
        if api.held is not None:
            api.held.set()
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        loop.close()


def _chat(fields: dict[str, Any]) -> dict[str, Any]:
    assert fields["temperature"] == 0
    system, user = fields["messages"]
    assert (system["role"], user["role"]) == ("system", "user")
    said = f"«{user['content']}» in {system['content'].split(' into ')[1].split(' and ')[0]}"
    return {
        "choices": [{"message": {"role": "assistant", "content": said}, "finish_reason": "stop"}]
    }


def _error(status: int, message: str) -> web.Response:
    body = {"error": {"message": message, "type": "invalid_request_error"}}
    return web.Response(status=status, body=json.dumps(body), content_type="application/json")
