"""The TCP listener against real sockets: routing of connections, and refusals."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
from typing import TYPE_CHECKING

import aiohttp
import picows
import pytest

from edge.raw_peer import (
    BINARY,
    CLOSE,
    KEY,
    LOOPS,
    TEXT,
    UPGRADE,
    Door,
    Echo,
    Peer,
    a_door,
    a_peer,
    run,
    until,
)
from lingua_scheduler.edge.request_head import is_origin_allowed
from lingua_scheduler.edge.tcp_listener import ConnectionLimits, Refusal
from lingua_scheduler.edge.websocket import SLOW_READER, WebSocketLimits

if TYPE_CHECKING:
    from pathlib import Path

    from lingua_scheduler.edge.tcp_listener import RequestHead
    from lingua_scheduler.edge.websocket import WebSocket

pytestmark = pytest.mark.unit

both_loops = pytest.mark.parametrize("loop", LOOPS)
GET = b"GET %b HTTP/1.1\r\nHost: x\r\n\r\n"


# Routing of connections.


@both_loops
def test_http_and_websockets_share_the_port(loop: str) -> None:
    async def scenario() -> None:
        async with a_door() as door, aiohttp.ClientSession() as client:
            at = f"http://127.0.0.1:{door.port}"
            async with client.get(f"{at}/page?x=1") as answer:
                assert await answer.text() == "hello /page?x=1"
            async with client.head(f"{at}/page") as answer:
                assert answer.status == 200
            async with client.post(f"{at}/size", data=b"x" * 100_000) as answer:
                assert await answer.text() == "100000"
            async with client.ws_connect(f"{at}/ws") as ws:
                await ws.send_str("hi")
                assert (await ws.receive()).data == "hi"
            assert door.front.accepted == 1
            await until(lambda: door.guests[0].losses == 1)

    run(scenario(), loop)


@both_loops
def test_a_client_of_picows_is_served(loop: str) -> None:
    class Listener(picows.WSListener):
        def on_ws_frame(self, transport: picows.WSTransport, frame: picows.WSFrame) -> None:
            heard.append(frame.get_payload_as_bytes())

    heard: list[bytes] = []

    async def scenario() -> None:
        async with a_door() as door:
            transport, _ = await picows.ws_connect(Listener, f"ws://127.0.0.1:{door.port}/ws")
            transport.send(picows.WSMsgType.BINARY, b"audio")
            await until(lambda: heard == [b"audio"])
            transport.disconnect()
            await transport.wait_disconnected()

    run(scenario(), loop)


@both_loops
def test_pipelined_requests_of_one_connection_are_answered_in_order(loop: str) -> None:
    async def scenario() -> None:
        async with a_door() as door:
            peer = await Peer.connect(door.port)
            peer.send(b"".join(GET % f"/{n}".encode() for n in range(40)))
            for n in range(40):
                status, headers = await peer.answer()
                assert (status, await peer.body(headers)) == (200, f"hello /{n}")
            peer.send(GET % b"/kept-alive")
            assert (await peer.answer())[0] == 200
            assert door.front.connections == 1
            await peer.close()
            await until(lambda: door.front.connections == 0)

    run(scenario(), loop)


@both_loops
def test_a_head_that_comes_byte_by_byte_is_read(loop: str) -> None:
    lines = [f"{name}: {value}" for name, value in UPGRADE.items()]
    upgrade = "\r\n".join(["GET /ws HTTP/1.1", *lines, "\r\n"]).encode()

    async def scenario() -> None:
        async with a_door() as door:
            for head, expected in ((upgrade, 101), (GET % b"/", 200)):
                peer = await Peer.connect(door.port)
                sock = peer.writer.get_extra_info("socket")
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for byte in head:
                    peer.send(bytes([byte]))
                    await asyncio.sleep(0)
                assert (await peer.answer())[0] == expected
                await peer.close()

    run(scenario(), loop)


@both_loops
def test_a_websocket_may_open_on_a_connection_that_served_http_before(loop: str) -> None:
    async def scenario() -> None:
        async with a_door() as door:
            peer = await Peer.connect(door.port)
            peer.send((GET % b"/1") + (GET % b"/2"))
            for n in (1, 2):
                assert await peer.body((await peer.answer())[1]) == f"hello /{n}"
            headers = await peer.upgrade(Sec_WebSocket_Protocol="lingua.a")
            assert headers["sec-websocket-protocol"] == "lingua.a"
            for size in (1, 100_000):
                peer.frame(BINARY, b"x" * size)
                assert await peer.hear() == (BINARY, b"x" * size)
            assert (door.front.connections, len(door.front.http.connections)) == (1, 0)
            peer.frame(CLOSE, (4001).to_bytes(2, "big"))
            assert await peer.hear_close() == (4001, "")
            assert await peer.ended() == b""
            await peer.close()
            await until(lambda: door.front.connections == 0)

    run(scenario(), loop)


@both_loops
@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"Upgrade": None}, 426),
        ({"Sec_WebSocket_Version": "8"}, 426),
        ({"Sec_WebSocket_Key": None}, 400),
        ({"Origin": "http://evil.net"}, 403),
    ],
)
def test_a_late_upgrade_is_refused_for_the_same_reasons(
    loop: str, changed: dict[str, str | None], status: int
) -> None:
    async def scenario() -> None:
        async with a_door() as door:
            peer = await Peer.connect(door.port)
            peer.send(GET % b"/")
            await peer.body((await peer.answer())[1])
            peer.request(**changed)  # type: ignore[arg-type]
            got, headers = await peer.answer()
            assert got == status
            await peer.body(headers)
            assert await peer.ended() == b""
            await peer.close()
            assert sum(door.front.refused.values()) == 1
            assert not door.guests

    run(scenario(), loop)


@both_loops
def test_frames_sent_together_with_a_late_upgrade_are_refused_and_not_lost(loop: str) -> None:
    async def scenario() -> None:
        async with a_door() as door:
            peer = await Peer.connect(door.port)
            peer.send(GET % b"/")
            await peer.body((await peer.answer())[1])
            peer.request()
            peer.frame(TEXT, b"early")
            assert (await peer.answer())[0] == 400
            await peer.close()
            assert not door.guests

    run(scenario(), loop)


def test_the_accept_function_sees_what_was_asked_for() -> None:
    async def scenario() -> None:
        async with a_door() as door:
            peer = await Peer.connect(door.port)
            peer.request(
                "/ws?token=a%20b&token=c&empty=",
                Authorization="Bearer x",
                X_Forwarded_For="6.6.6.6",
                Sec_WebSocket_Protocol="lingua.z,  lingua.a",
            )
            assert (await peer.answer())[0] == 101
            head, wire = door.guests[0].head, door.guests[0].wire
            assert head.path == "/ws"
            assert head.query == {"token": "a b", "empty": ""}
            assert head.headers.get("authorization") == "Bearer x"
            assert head.headers.get("AUTHORIZATION") is None
            assert head.subprotocols == ("lingua.z", "lingua.a")
            assert (head.remote, wire.remote) == ("127.0.0.1", "127.0.0.1")
            assert "Bearer" not in repr(head)
            assert "a b" not in repr(head)
            await peer.close()

    run(scenario())


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        (None, None),
        ("", None),
        ("lingua.a", "lingua.a"),
        ("lingua.a, lingua.b", "lingua.a"),
        ("bearer.secret, lingua.b", "lingua.b"),
        ("LINGUA.A", None),
        ("unknown", None),
    ],
)
def test_the_first_offered_subprotocol_that_is_spoken_is_chosen(
    offered: str | None, chosen: str | None
) -> None:
    async def scenario() -> None:
        async with a_door() as door:
            peer = await Peer.connect(door.port)
            headers = await peer.upgrade(Sec_WebSocket_Protocol=offered)
            assert headers.get("sec-websocket-protocol") == chosen
            assert door.guests[0].wire.subprotocol == chosen
            await peer.close()

    run(scenario())


def test_compression_is_never_negotiated() -> None:
    async def scenario() -> None:
        async with a_door() as door:
            peer = await Peer.connect(door.port)
            headers = await peer.upgrade(
                Sec_WebSocket_Extensions="permessage-deflate; client_max_window_bits"
            )
            assert "sec-websocket-extensions" not in headers
            peer.frame(TEXT, b"\xaa\x86\x01\x00", rsv=4)
            assert (await peer.hear_close())[0] == 1002
            await peer.close()

    run(scenario())


@pytest.mark.parametrize("connection", ["keep-alive, Upgrade", "upgrade", "UPGRADE,close"])
def test_a_connection_header_may_list_more_than_the_upgrade(connection: str) -> None:
    async def scenario() -> None:
        async with a_door() as door, a_peer(door, Connection=connection) as peer:
            peer.frame(BINARY, b"x")
            assert await peer.hear() == (BINARY, b"x")

    run(scenario())


# Refusals.


@both_loops
@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"Upgrade": None}, 426),
        ({"Upgrade": "h2c"}, 426),
        ({"Connection": "keep-alive"}, 426),
        ({"Connection": None}, 426),
        ({"Sec_WebSocket_Version": "8"}, 426),
        ({"Sec_WebSocket_Version": None}, 426),
        ({"Sec_WebSocket_Key": None}, 400),
        ({"Sec_WebSocket_Key": "short"}, 400),
        ({"Sec_WebSocket_Key": "dGhlIHNhbXBsZSBub25jZQ"}, 400),
        ({"Sec_WebSocket_Key": "\xe9" * 24}, 400),
        ({"Host": None}, 400),
        ({"Host": "x\r\nHost: y"}, 400),
        ({"Host": f"x\r\nSec-WebSocket-Key: {KEY}"}, 400),
        ({"X": "folded\r\n line"}, 400),
        ({"X": "a\x00b"}, 400),
        ({"X": "a\rb"}, 400),
        ({"X": "y\r\nno colon"}, 400),
        ({"X": "y\r\nspace : z"}, 400),
        ({"Content_Length": "5"}, 400),
        ({"Transfer_Encoding": "chunked"}, 400),
        ({"X": "y\r\nZ: " * 120}, 431),
        ({"path": f"/ws?{'a=b&' * 40}"}, 400),
        ({"method": "POST"}, 405),
        ({"method": "get"}, 400),
        ({"path": "/w s"}, 400),
        ({"path": "/\xe9"}, 400),
    ],
)
def test_a_malformed_upgrade_is_refused(
    loop: str, changed: dict[str, str | None], status: int
) -> None:
    async def scenario() -> None:
        async with a_door() as door:
            peer = await Peer.connect(door.port)
            peer.request(**changed)  # type: ignore[arg-type]
            got, headers = await peer.answer()
            assert got == status
            if status == 426:
                assert headers["sec-websocket-version"] == "13"
                assert headers["upgrade"] == "websocket"
            await peer.body(headers)
            assert await peer.ended() == b""
            await peer.close()
            assert sum(door.front.refused.values()) == 1
            assert not door.guests

    run(scenario(), loop)


def test_only_http_1_opens_a_websocket() -> None:
    async def scenario() -> None:
        async with a_door() as door:
            for line, status in ((b"GET /ws HTTP/1.0", 400), (b"PRI * HTTP/2.0", 400)):
                peer = await Peer.connect(door.port)
                peer.send(line + b"\r\nHost: x\r\n\r\n")
                assert (await peer.answer())[0] == status
                await peer.close()

    run(scenario())


@pytest.mark.parametrize("path", ["/ws/", "/WS", "//ws", "/%77s", "/ws;x", "/x/../ws"])
def test_only_the_exact_path_is_a_websockets(path: str) -> None:
    async def scenario() -> None:
        async with a_door() as door:
            peer = await Peer.connect(door.port)
            peer.request(path)
            assert (await peer.answer())[0] == 200  # the site's answer
            assert not door.guests
            await peer.close()

    run(scenario())


@both_loops
@pytest.mark.parametrize("path", ["/", "/ws"])
def test_a_head_beyond_the_limit_is_refused(loop: str, path: str) -> None:
    limits = ConnectionLimits(head_bytes_max=2000)

    async def scenario() -> None:
        async with a_door(limits_of_front=limits) as door:
            peer = await Peer.connect(door.port)
            peer.request(path, X="x" * 1500)
            assert (await peer.answer())[0] in {101, 200}
            await peer.close()
            for size in (2000, 100_000):
                peer = await Peer.connect(door.port)
                peer.request(path, X="x" * size)
                assert (await peer.answer())[0] == 431
                await peer.close()
            endless = await Peer.connect(door.port)
            endless.send(b"GET / HTTP/1.1\r\n" + b"x" * 3000)
            assert (await endless.answer())[0] == 431
            await endless.close()

    run(scenario(), loop)


@both_loops
@pytest.mark.parametrize("status", [401, 403, 404, 426, 429, 503])
def test_an_accept_function_refuses_with_a_plain_answer(loop: str, status: int) -> None:
    def refuse(wire: WebSocket, head: RequestHead) -> Echo:
        raise Refusal(status, "not today", {"Retry-After": "7"})

    async def scenario() -> None:
        async with a_door(accept=refuse) as door:
            peer = await Peer.connect(door.port)
            peer.request()
            peer.frame(TEXT, b"in a hurry")
            got, headers = await peer.answer()
            assert (got, await peer.body(headers)) == (status, "not today\n")
            assert (headers["retry-after"], headers["connection"]) == ("7", "close")
            assert await peer.ended() == b""
            await peer.close()
            assert door.front.refused == {"not today": 1}
            assert door.front.accepted == 0
            assert not door.front.websockets

    run(scenario(), loop)


@both_loops
def test_an_error_of_an_accept_function_is_a_500_without_its_text(loop: str) -> None:
    def fail(wire: WebSocket, head: RequestHead) -> Echo:
        raise ZeroDivisionError("a secret")

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, seen: unhandled.append(seen))
        async with a_door(accept=fail) as door:
            peer = await Peer.connect(door.port)
            peer.request()
            got, headers = await peer.answer()
            assert (got, await peer.body(headers)) == (500, "internal error\n")
            await peer.close()
            assert [type(error) for error in door.errors] == [ZeroDivisionError]
            assert len(unhandled) == 1

    unhandled: list[dict[str, object]] = []
    run(scenario(), loop)


def test_a_header_of_a_refusal_cannot_be_split() -> None:
    def refuse(wire: WebSocket, head: RequestHead) -> Echo:
        raise Refusal(401, "no", {"X": "a\r\nSet-Cookie: b"})

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, seen: unhandled.append(seen))
        async with a_door(accept=refuse) as door:
            peer = await Peer.connect(door.port)
            peer.request()
            await until(lambda: len(unhandled) == 1)
            await peer.close()
            assert door.front.accepted == 0

    unhandled: list[dict[str, object]] = []
    run(scenario())


# Origins.


TRICKS = [
    "null",
    "",
    "https://app.example.com.evil.net",
    "https://evil-app.example.com",
    "https://evil.net/app.example.com",
    "https://app.example.com@evil.net",
    "https://evil.net#https://app.example.com",
    "http://app.example.com",
    "https://app.example.com:444",
    "https://app.example.com:443",
    "https://app.example.com.",
    "https://app.example.com/",
    "https://app.example.com, https://evil.net",
    "https://xn--pp-lia.example.com",
    "https://app.example.com\tx",
    "app.example.com",
    "http://localhost",
]


@pytest.mark.parametrize("origin", TRICKS)
def test_an_origin_that_is_not_literally_in_the_list_is_refused_with_403(origin: str) -> None:
    async def scenario() -> None:
        async with a_door(origins=("https://app.example.com",)) as door:
            peer = await Peer.connect(door.port)
            peer.request(Origin=origin, Host="app.example.com")
            assert (await peer.answer())[0] == 403
            await peer.close()
            assert door.front.refused == {"origin not allowed": 1}

    run(scenario())


def test_a_listed_origin_in_any_case_and_a_peer_without_one_may_enter() -> None:
    async def scenario() -> None:
        async with a_door(origins=("https://App.example.com", "http://127.0.0.1:3000")) as door:
            for origin in ("HTTPS://APP.EXAMPLE.COM", "http://127.0.0.1:3000", None):
                async with a_peer(door, Origin=origin) as peer:
                    peer.frame(TEXT, b"x")
                    assert await peer.hear() == (TEXT, b"x")

    run(scenario())


def test_two_origins_are_refused() -> None:
    async def scenario() -> None:
        async with a_door() as door:
            peer = await Peer.connect(door.port)
            peer.request(Origin="http://localhost\r\nOrigin: http://evil.net")
            assert (await peer.answer())[0] == 400
            await peer.close()

    run(scenario())


@pytest.mark.parametrize(
    ("origin", "host", "is_allowed"),
    [
        ("http://localhost", "x", True),
        ("https://LOCALHOST:3000", "x", True),
        ("http://127.0.0.1:8080", "x", True),
        ("http://127.9.9.9", "x", True),
        ("http://[::1]:8080", "x", True),
        ("http://10.0.0.7:5010", "10.0.0.7:5010", True),
        ("http://[fd00::7]:5010", "[fd00::7]:5010", True),
        ("http://localhost.evil.net", "x", False),
        ("http://127.0.0.1.evil.net", "x", False),
        ("http://localhost@evil.net", "x", False),
        ("http://localhost.", "x", False),
        ("http://localhost:99999", "x", False),
        ("http://2130706433", "x", False),
        ("http://127.1", "x", False),
        ("ftp://localhost", "x", False),
        ("file://", "x", False),
        ("null", "null", False),
        ("http://10.0.0.7:5010", "10.0.0.7:5011", False),
        ("http://10.0.0.7:5010", "10.0.0.7", False),
        ("http://10.0.0.7", "http://10.0.0.7", False),
        ("http://evil.net:5010", "evil.net:5010", False),  # a name made to resolve to 127.0.0.1
    ],
)
def test_without_a_list_pages_of_this_machine_and_of_this_address_may_enter(
    origin: str, host: str, is_allowed: bool
) -> None:
    async def scenario() -> None:
        async with a_door() as door:
            peer = await Peer.connect(door.port)
            peer.request(Origin=origin, Host=host)
            assert (await peer.answer())[0] == (101 if is_allowed else 403)
            await peer.close()

    run(scenario())


@pytest.mark.parametrize(
    ("origin", "host", "is_allowed"),
    [
        ("https://speech.example.com", "speech.example.com", True),
        ("https://speech.example.com", "Speech.Example.com:443", True),
        ("http://speech.example.com:5010", "speech.example.com:5010", True),
        ("http://speech.example.com", "speech.example.com:443", False),
        ("https://evil.net", "speech.example.com", False),
        ("https://speech.example.com.evil.net", "speech.example.com", False),
    ],
)
def test_from_outside_a_page_of_the_same_host_and_port_may_enter(
    origin: str, host: str, is_allowed: bool
) -> None:
    assert is_origin_allowed(origin, host, frozenset(), by_loopback=False) is is_allowed


# Floods.


@both_loops
def test_heads_that_dribble_are_closed_and_keep_nobody_out(loop: str) -> None:
    limits = ConnectionLimits(head_ms=1500)

    async def dribble(door: Door) -> bytes:
        peer = await Peer.connect(door.port)
        ending = asyncio.create_task(peer.ended())
        for byte in (GET % b"/") * 10:
            if peer.writer.is_closing():
                break
            peer.send(bytes([byte]))
            await asyncio.sleep(0.1)
        answer = await ending
        await peer.close()
        return answer

    async def scenario() -> None:
        async with a_door(limits_of_front=limits) as door:
            dribblers = [asyncio.create_task(dribble(door)) for _ in range(100)]
            silent = [await Peer.connect(door.port) for _ in range(100)]
            await until(lambda: door.front.connections + door.front.refused.total() >= 200)
            async with a_peer(door) as peer:
                peer.frame(TEXT, b"among them")
                assert await peer.hear() == (TEXT, b"among them")
                assert all(answer[9:12] in {b"", b"408"} for answer in await gathered(dribblers))
                assert [await one.ended() for one in silent]
                assert door.front.refused == {"head timeout": 200}
                await until(lambda: door.front.connections == 1)
            for one in silent:
                await one.close()

    run(scenario(), loop)


async def gathered(tasks: list[asyncio.Task[bytes]]) -> list[bytes]:
    return list(await asyncio.gather(*tasks))


@both_loops
@pytest.mark.parametrize(
    ("limits", "status"),
    [
        (ConnectionLimits(connections_max=3), 503),
        (ConnectionLimits(connections_per_ip_max=3), 429),
    ],
)
def test_a_cap_holds_for_all_kinds_of_connections_and_frees_with_each_end(
    loop: str, limits: ConnectionLimits, status: int
) -> None:
    async def scenario() -> None:
        async with a_door(limits_of_front=limits) as door, a_peer(door) as wire:
            web, arriving = await Peer.connect(door.port), await Peer.connect(door.port)
            web.send(GET % b"/")
            assert (await web.answer())[0] == 200
            await until(lambda: door.front.connections == 3)
            for leaver in (web, arriving, wire):
                for _ in range(20):
                    refused = await Peer.connect(door.port)
                    refused.request()
                    got, headers = await refused.answer()
                    assert (got, headers["retry-after"]) == (status, "5")
                    await refused.close()
                assert door.front.connections == 3
                await leaver.close()
                await until(lambda: door.front.connections == 2)
                again = await Peer.connect(door.port)
                again.request()
                assert (await again.answer())[0] == 101
                if leaver is not wire:
                    replaced.append(again)
            await again.close()
            for one in replaced:
                await one.close()

    replaced: list[Peer] = []
    run(scenario(), loop)


@pytest.mark.parametrize(
    ("named", "remote"),
    [
        ("9.9.9.9, 10.0.0.7", "10.0.0.7"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("2001:db8::7", "2001:db8::7"),
        ("10.0.0.7, unknown", "127.0.0.1"),
        ("", "127.0.0.1"),
    ],
)
def test_behind_a_proxy_the_client_is_the_last_one_that_the_proxy_names(
    named: str, remote: str
) -> None:
    async def scenario() -> None:
        async with a_door(behind_proxy=True) as door:
            peer = await Peer.connect(door.port)
            peer.request(X_Forwarded_For=named)
            assert (await peer.answer())[0] == 101
            assert door.guests[0].head.remote == remote
            await peer.close()

    run(scenario())


def test_another_address_is_not_hurt_by_the_cap_of_one() -> None:
    async def scenario() -> None:
        async with a_door(limits_of_front=ConnectionLimits(connections_per_ip_max=2)) as door:
            flood = [await Peer.connect(door.port) for _ in range(400)]
            await until(lambda: sum(door.front.refused.values()) == 398)
            other = Peer(
                *await asyncio.open_connection("127.0.0.1", door.port, local_addr=("127.0.0.2", 0))
            )
            other.request()
            assert (await other.answer())[0] == 101
            assert door.guests[0].wire.remote == "127.0.0.2"
            for one in (*flood, other):
                await one.close()

    run(scenario())


# The end.


@both_loops
def test_a_front_that_stops_accepting_serves_those_who_are_there(loop: str) -> None:
    async def scenario() -> None:
        async with a_door() as door, a_peer(door) as peer:
            door.front.stop_accepting()
            with pytest.raises(ConnectionError):
                await Peer.connect(door.port)
            peer.frame(TEXT, b"still served")
            assert await peer.hear() == (TEXT, b"still served")

    run(scenario(), loop)


@both_loops
def test_closing_ends_every_kind_of_connection(loop: str) -> None:
    async def scenario() -> None:
        async with a_door() as door:
            peers = [await Peer.connect(door.port) for _ in range(4)]
            open_, web, arriving, mute = peers
            await open_.upgrade()
            await mute.upgrade()
            web.send(GET % b"/")
            await web.body((await web.answer())[1])
            arriving.send(b"GET /")
            await until(lambda: door.front.connections == 4)
            closing = asyncio.create_task(door.front.close())
            assert await open_.hear_close() == (1001, "going away")
            open_.frame(CLOSE, (1001).to_bytes(2, "big"))
            assert [await one.ended() for one in (open_, web, arriving)] == [b"", b"", b""]
            await closing
            assert door.front.connections == 0
            assert [guest.losses for guest in door.guests] == [1, 1]
            for one in peers:
                await one.close()

    run(scenario(), loop)


# TLS.


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a self-signed certificate for 127.0.0.1, with its key in the same file."""
    where = tmp_path_factory.mktemp("tls")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1"
    names = ["-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(
        [*command.split(), *names, "-keyout", where / "key.pem", "-out", where / "cert.pem"],
        check=True,
        capture_output=True,
        timeout=30,
    )
    both = where / "both.pem"
    both.write_text((where / "key.pem").read_text() + (where / "cert.pem").read_text())
    return both


def server_side(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


@both_loops
def test_tls_carries_http_and_websockets(loop: str, certificate: Path) -> None:
    trusting = ssl.create_default_context(cafile=str(certificate))

    async def scenario() -> None:
        async with a_door(tls=server_side(certificate)) as door, aiohttp.ClientSession() as client:
            at = f"https://127.0.0.1:{door.port}"
            async with client.post(f"{at}/size", data=b"x" * 100_000, ssl=trusting) as answer:
                assert await answer.text() == "100000"
            async with client.ws_connect(f"{at}/ws", ssl=trusting) as ws:
                for size in (1, 9000, 200_000):
                    await ws.send_bytes(b"x" * size)
                    assert (await ws.receive()).data == b"x" * size
                door.guests[0].wire.close(4001, "enough")
                ended = await ws.receive()
                assert (ended.data, ended.extra) == (4001, "enough")
            peer = await Peer.connect(door.port, trusting)
            await peer.upgrade()
            peer.send(b"\x82\xff" + (1 << 33).to_bytes(8, "big") + bytes(4))
            assert (await peer.hear_close())[0] == 1009
            await peer.close()
            refused = await Peer.connect(door.port, trusting)
            refused.request(Origin="https://evil.net")
            assert (await refused.answer())[0] == 403
            await refused.close()

    run(scenario(), loop)


@both_loops
def test_a_slow_reader_over_tls_is_dropped(loop: str, certificate: Path) -> None:
    trusting = ssl.create_default_context(cafile=str(certificate))
    limits = WebSocketLimits(send_bytes_max=100_000)

    async def scenario() -> None:
        async with a_door(limits=limits, tls=server_side(certificate)) as door:
            peer = await Peer.connect(door.port, trusting)
            await peer.upgrade()
            peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
            guest, sent = door.guests[0], 0
            while not guest.losses:
                assert sent < 200_000_000
                guest.wire.send_binary(bytes(4000))
                sent += 4000
                await asyncio.sleep(0)
            assert guest.wire.close_code == SLOW_READER
            await until(lambda: door.front.connections == 0)
            peer.writer.transport.abort()

    run(scenario(), loop)


@both_loops
def test_a_tls_handshake_that_fails_or_dribbles_counts_and_ends(
    loop: str, certificate: Path
) -> None:
    limits = ConnectionLimits(head_ms=1500, connections_max=3)

    async def scenario() -> None:
        async with a_door(tls=server_side(certificate), limits_of_front=limits) as door:
            plain = await Peer.connect(door.port)
            plain.send(GET % b"/")
            await plain.ended()
            await until(lambda: door.front.connections == 0)
            assert door.front.refused == {"tls handshake": 1}
            silent = [await Peer.connect(door.port) for _ in range(3)]
            await until(lambda: door.front.connections == 3)
            beyond = await Peer.connect(door.port)
            assert await beyond.ended() == b""
            for one in silent:
                assert await one.ended() == b""
            await until(lambda: door.front.connections == 0)
            assert door.front.refused["too many connections"] == 1
            for one in (plain, beyond, *silent):
                await one.close()

    run(scenario(), loop)
