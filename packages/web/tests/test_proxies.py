"""Behind a real Caddy and a real nginx, with TLS and the very lines of docs/operations.md."""

from __future__ import annotations

import asyncio
import io
import json
import math
import wave
from array import array
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from browser_stage import (
    chromium,
    open_page,
    problems_of,
    sentence,
    spoken_file,
    until_served,
)
from lingua_client import Outcome, connect
from lingua_process import running
from lingua_scheduler.auth.tokens import TokenKeys
from lingua_scheduler.secret import Secret
from proxy_stage import HOST, PROXIES, Proxied, behind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from http.client import HTTPResponse
    from pathlib import Path

    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser

CLIENT_KEY, NODE_KEY = "client-key-" + "c" * 32, "node-key-" + "n" * 32
KEYS = TokenKeys([Secret(CLIENT_KEY)], [Secret(NODE_KEY)])
NODE = ["node", "--simulate", "--any", "--echo", "--node-id", "n"]
# More than nginx takes unless it is told; less than the service takes (25 MB).
UPLOAD_BYTES = 20_000_000
# Wrong codes that one address may give at once.
WRONG_CODES = 10
UPGRADE = {
    "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "MTIzNDU2Nzg5MDEyMzQ1Ng==",
}  # fmt: skip


@pytest.fixture(scope="module", params=PROXIES)
def proxied(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Proxied]:
    """Give a service that asks for tokens, behind a proxy; its node comes through the proxy too."""
    folder = tmp_path_factory.mktemp(request.param)
    keys = {
        "LINGUA_AUTH__CLIENT_KEYS": f'["{CLIENT_KEY}"]',
        "LINGUA_AUTH__NODE_KEYS": f'["{NODE_KEY}"]',
    }
    with behind(request.param, folder, **keys) as made:
        where = ["--url", f"wss://{HOST}:{made.port}/ws/node", "--ca", str(made.certificate)]
        token = KEYS.issue_node("n").reveal()
        with running([*NODE, *where, "--token", token], folder) as node:
            node.until("registered as")
            until_served(made.scheduler.url())
            yield made


@pytest.fixture(scope="module", params=PROXIES)
def open_to_all(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Proxied]:
    """Give a service without tokens behind a proxy."""
    with behind(request.param, tmp_path_factory.mktemp(request.param)) as made:
        yield made


@pytest.fixture
def speaker(tmp_path: Path) -> Iterator[Browser]:
    with chromium(spoken_file(tmp_path / "speech.wav", [sentence(1500)] * 2)) as browser:
        yield browser


def bearer(*scopes: str) -> dict[str, str]:
    token = KEYS.issue_client(scopes=scopes or ("speak", "listen"), rooms=True).reveal()
    return {"Authorization": f"Bearer {token}"}


def events(response: HTTPResponse) -> Iterator[str]:
    """Read the names of events as they arrive."""
    assert response.status == 200, response.read()
    for line in response:
        if line.startswith(b"event: "):
            yield line.removeprefix(b"event: ").strip().decode()


def test_a_person_speaks_on_the_page_over_tls(speaker: Browser, proxied: Proxied) -> None:
    page = open_page(speaker, ignore_https_errors=True)
    sockets: list[str] = []
    page.on("websocket", lambda socket: sockets.append(socket.url))
    page.goto(f"{proxied.url}/#token={bearer()['Authorization'].removeprefix('Bearer ')}")
    page.locator("#talk").click()
    expect(page.locator("#rows li .translation")).to_have_text(
        ["[es] utterance 0", "[es] utterance 1"]
    )
    assert sockets == [f"wss://{HOST}:{proxied.port}/ws/session"]
    assert problems_of(page) == []
    page.context.close()


def test_captions_and_events_arrive_when_they_happen(proxied: Proxied) -> None:
    """Each event must be here before the next one is caused: a proxy that collects them hangs."""

    async def scenario() -> None:
        token = bearer()["Authorization"].removeprefix("Bearer ")
        url = f"wss://{HOST}:{proxied.port}/ws/session"
        async with connect(url, source="en", targets="es", tls=proxied.tls, token=token) as session:
            code = await session.create_room(preferred_lang="en", display_name="Ann")
            with closing(proxied.connect()) as connection:
                connection.request("GET", f"/captions/{code}?lang=es", headers=bearer("captions"))
                captions = events(await asyncio.to_thread(connection.getresponse))
                for _ in range(3):
                    await session.send(sentence(1500))
                    await session.cut()
                    while await asyncio.to_thread(next, captions) != "caption":
                        pass

    asyncio.run(asyncio.wait_for(scenario(), 60))
    with closing(proxied.connect()) as connection:
        connection.request("GET", "/api/v1/events", headers=bearer("admin"))
        stream = events(connection.getresponse())
        assert [next(stream) for _ in range(3)] == ["snapshot", "update", "update"]


def test_a_session_is_resumed_over_a_new_connection(proxied: Proxied) -> None:
    async def scenario() -> list[str]:
        token = bearer()["Authorization"].removeprefix("Bearer ")
        url = f"wss://{HOST}:{proxied.port}/ws/session"
        texts: list[str] = []
        async with connect(url, source="en", targets="es", tls=proxied.tls, token=token) as session:
            for _ in range(2):
                await session.send(sentence(1500))
                await session.cut()
                while not isinstance(event := await anext(session), Outcome):
                    pass
                texts.append(event.text)
                await session.move()
            await session.close()
        return texts

    expected = ["[es] utterance 0", "[es] utterance 1"]
    assert asyncio.run(asyncio.wait_for(scenario(), 60)) == expected


def test_a_large_recording_is_taken_whole(proxied: Proxied) -> None:
    body, content_type = upload(UPLOAD_BYTES)
    with closing(proxied.connect()) as connection:
        headers = bearer() | {"Content-Type": content_type}
        connection.request("POST", "/v1/audio/transcriptions", body, headers)
        answer = connection.getresponse()
        assert (answer.status, "utterance 0" in json.load(answer)["text"]) == (200, True)


def upload(size: int) -> tuple[bytes, str]:
    """Return a form with one recording of this size: a short tone, then silence."""
    rate = 48_000
    tone = array("h", (round(9000 * math.sin(at / 20)) for at in range(rate)))
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setparams((1, 2, rate, 0, "NONE", ""))
        out.writeframes(tone.tobytes() + bytes(size - 2 * rate))
    mark = b"a-mark-between-parts"
    name = b'Content-Disposition: form-data; name="%s"'
    parts = (
        name % b"model" + b"\r\n\r\nwhisper-1",
        name % b"file" + b'; filename="a.wav"\r\n\r\n' + file.getvalue(),
    )
    body = b"".join(b"--%s\r\n%s\r\n" % (mark, part) for part in parts) + b"--%s--\r\n" % mark
    return body, f"multipart/form-data; boundary={mark.decode()}"


@pytest.mark.parametrize(
    ("origin", "status"), [("", 101), ("its own", 101), ("https://evil.example", 403)]
)
def test_only_its_own_pages_open_sockets(proxied: Proxied, origin: str, status: int) -> None:
    with closing(proxied.connect()) as connection:
        own = {"its own": proxied.url, "": None}.get(origin, origin)
        headers = UPGRADE | ({"Origin": own} if own else {})
        connection.request("GET", "/ws/session", headers=headers)
        assert connection.getresponse().status == status


def test_strangers_are_no_neighbours(proxied: Proxied) -> None:
    """Behind a proxy everybody comes from this machine: that must not open anything."""
    for path in ("/metrics", "/api/v1/nodes", "/api/v1/events"):
        with closing(proxied.connect()) as connection:
            connection.request("GET", path, headers={"X-Forwarded-For": "127.0.0.1"})
            assert connection.getresponse().status == 401, path


def test_whoever_guesses_codes_is_slowed_down_and_nobody_else(open_to_all: Proxied) -> None:
    def ask(source: str, **headers: str) -> int:
        with closing(open_to_all.connect(source)) as connection:
            named = {name.replace("_", "-"): text for name, text in headers.items()}
            connection.request("GET", "/captions/000000?lang=es", headers=named)
            return connection.getresponse().status

    assert [ask("127.0.0.2") for _ in range(WRONG_CODES)] == [404] * WRONG_CODES
    assert ask("127.0.0.2") == 429
    # What a client says of itself is not believed.
    assert ask("127.0.0.2", X_Forwarded_For="10.1.2.3") == 429
    assert ask("127.0.0.3") == 404
