"""Access to both sockets: tokens, the tenant and rights they give, and the origins of pages.

Keys are set, the server is real, tokens are made by `tokens.py` or forged by hand. A peer that is
refused leaves no trace in the store. The same checks without a socket are in `test_door.py`.
"""

from __future__ import annotations

import base64
import json
import time
from typing import TYPE_CHECKING, Any

import aiohttp
import jwt
import pytest

from edge.live_server import JSON, MSGPACK, Message, NewClient, Peer, Stage, pcm16, play
from edge.locked import CLIENT_KEY, LOCKED, NODE_KEY
from lingua_cli.main import main
from lingua_scheduler.auth.tokens import TokenKeys, key_id
from lingua_scheduler.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.store

OTHER_KEY = "another-key-" * 4
INIT: Message = {"client_version": "1", "platform": "web", "src_lang": "zh", "tgt_lang": "en"}
PAGE = "https://talk.example"
STRANGE_PAGES = (
    "https://evil.example", "https://talk.example.evil.example", "https://evil-talk.example",
    "http://talk.example", "https://talk.example:8443", "https://talk.example@evil.example",
    "https://talk.example/", "null", "",
)  # fmt: skip


def keys(
    client: str = CLIENT_KEY, node: str = NODE_KEY, clock: Callable[[], float] = time.time
) -> TokenKeys:
    return TokenKeys([Secret(client)], [Secret(node)], clock)


def client_token(made_by: TokenKeys | None = None, **grant: Any) -> str:
    return (made_by or keys()).issue_client(**grant).reveal()


def node_token(name: str, made_by: TokenKeys | None = None, **grant: Any) -> str:
    return (made_by or keys()).issue_node(name, **grant).reveal()


def at(shift_s: float) -> TokenKeys:
    return keys(clock=lambda: time.time() + shift_s)


def unsigned(token: str) -> str:
    """Return the token with no signature and a head that says so."""
    head = json.dumps({"alg": "none", "typ": "JWT"}).encode()
    return f"{base64.urlsafe_b64encode(head).decode().rstrip('=')}.{token.split('.')[1]}."


def resigned(token: str) -> str:
    """Return the token with the first character of its signature changed."""
    rest, _, signature = token.rpartition(".")
    return f"{rest}.{'B' if signature[0] == 'A' else 'A'}{signature[1:]}"


def of_type(kind: str, audience: str, key: str, **more: Any) -> str:
    claims = {"aud": audience, "typ": kind, "exp": int(time.time()) + 60, "jti": "1", **more}
    return jwt.encode(claims, key, "HS256", headers={"kid": key_id(key.encode())})


# Name -> the token and why it is refused.
BAD_CLIENTS: dict[str, tuple[str | None, str]] = {
    "none": (None, "missing"),
    "empty": ("", "missing"),
    "words": ("let me in", "malformed"),
    "parts that are no JSON": ("aaaa.bbbb.cccc", "malformed"),
    "of another key": (client_token(keys(client=OTHER_KEY)), "unknown_key"),
    "forged": (resigned(client_token()), "bad_signature"),
    "unsigned": (unsigned(client_token()), "bad_signature"),
    "expired": (client_token(at(-7200)), "expired"),
    "of the future": (client_token(at(7200)), "not_yet"),
    "a node's": (node_token("n", keys(node=CLIENT_KEY)), "wrong_audience"),
    "a node's in a client's clothes": (of_type("node", "lingua:client", CLIENT_KEY), "wrong_type"),
}
BAD_NODES: dict[str, tuple[str | None, str]] = {
    "none": (None, "missing"),
    "of another key": (node_token("node-a", keys(node=OTHER_KEY)), "unknown_key"),
    "forged": (resigned(node_token("node-a")), "bad_signature"),
    "unsigned": (unsigned(node_token("node-a")), "bad_signature"),
    "expired": (node_token("node-a", at(-48 * 3600)), "expired"),
    "a client's": (client_token(keys(client=NODE_KEY)), "malformed"),
    "of another audience": (of_type("node", "elsewhere", NODE_KEY, sub="node-a"), "wrong_audience"),
    "of another node": (node_token("node-b"), "wrong_node"),
}


async def enter(
    stage: Stage, path: str = "/ws/session", protocols: tuple[str, ...] = (JSON,), **more: Any
) -> NewClient:
    """Open a socket with these headers and subprotocols; it has said nothing yet."""
    ws = await stage._http.ws_connect(f"{stage.server.url}{path}", protocols=protocols, **more)
    peer: NewClient = await stage._enter(NewClient(ws, protocols[0] if protocols else None))
    return peer


async def kept(stage: Stage) -> dict[bytes, bytes]:
    """Return everything the store holds, but for the beats of the instance itself."""
    ask = stage.server.instance.store.runner.connection.every_master
    ((*names,),) = await ask("KEYS", "*")
    others = [name for name in names if b"{i:" not in name and b":instance" not in name]
    return {name: (await ask("DUMP", name))[0] for name in others}


def refusal(reason: str) -> str:
    """Return how the message begins: no token and a bad one are told apart, with what to do."""
    said = "no token was given" if reason == "missing" else f"token refused: {reason}"
    return f"{said}; "


async def is_refused(peer: Peer, code: str, part: str, close: int) -> None:
    answer = await peer.follows("error", code=code)
    assert part in answer["message"]
    assert await peer.closed() == close
    assert len(peer.heard) == 1


@pytest.mark.parametrize(
    ("path", "first"),
    [
        ("/ws/session", {"type": "session_init", **INIT}),
        ("/ws/node", {"type": "node_register", "node_id": "node-a"}),
    ],
)
def test_the_close_says_whether_there_was_no_token_or_a_bad_one(
    path: str, first: dict[str, Any]
) -> None:
    async def scenario(stage: Stage) -> None:
        for more, said in (
            ({}, "no token was given"),
            ({"token": "nonsense"}, "token refused: malformed"),
        ):
            async with stage._http.ws_connect(f"{stage.server.url}{path}") as ws:
                await ws.send_json({**first, **more})
                assert (await ws.receive_json())["code"] == "UNAUTHORIZED"
                end = await ws.receive()
                assert (end.data, end.extra) == (4401, said)

    play(scenario, **LOCKED)


@pytest.mark.parametrize("name", BAD_CLIENTS)
def test_a_client_without_a_valid_token_is_turned_away_and_nothing_is_written(name: str) -> None:
    token, reason = BAD_CLIENTS[name]

    async def scenario(stage: Stage) -> None:
        before = await kept(stage)
        first = {} if token is None else {"token": token}
        peer = await enter(stage)
        await peer.send("session_init", **INIT, **first)
        await is_refused(peer, "UNAUTHORIZED", refusal(reason), 4401)
        if token:
            assert token not in str(peer.heard)
            by_header = await enter(stage, headers={"Authorization": f"Bearer {token}"})
            await by_header.send("session_init", **INIT)
            await is_refused(by_header, "UNAUTHORIZED", refusal(reason), 4401)
        assert await kept(stage) == before
        assert not stage.server.instance.sessions

    play(scenario, **LOCKED)


@pytest.mark.parametrize("name", BAD_NODES)
def test_a_node_without_a_valid_token_is_turned_away_and_nothing_is_written(name: str) -> None:
    token, reason = BAD_NODES[name]

    async def scenario(stage: Stage) -> None:
        before = await kept(stage)
        first = {} if token is None else {"token": token}
        peer = await enter(stage, "/ws/node")
        await peer.send("node_register", node_id="node-a", **first)
        await is_refused(peer, "UNAUTHORIZED", refusal(reason), 4401)
        assert await kept(stage) == before
        assert not stage.server.instance.nodes

    play(scenario, **LOCKED)


def test_a_node_that_names_no_id_cannot_use_a_token() -> None:
    async def scenario(stage: Stage) -> None:
        peer = await enter(stage, "/ws/node")
        await peer.send("node_register", token=node_token("node-a"))
        await is_refused(peer, "UNAUTHORIZED", "wrong_node", 4401)

    play(scenario, **LOCKED)


@pytest.mark.parametrize("way", ["first message", "header", "subprotocol", "packed"])
def test_a_token_may_come_in_the_first_message_a_header_or_a_subprotocol(way: str) -> None:
    token = client_token(tenant="acme")

    async def scenario(stage: Stage) -> None:
        if way == "header":
            client = await enter(stage, headers={"authorization": f"bearer {token}"})
        elif way == "subprotocol":
            client = await enter(stage, protocols=(JSON, f"lingua.token.{token}"))
        else:
            client = await enter(stage, protocols=(MSGPACK if way == "packed" else JSON,))
        assert client.ws.protocol == (MSGPACK if way == "packed" else JSON)
        in_message = way in {"first message", "packed"}
        await client.open(src_lang="zh", tgt_lang="en", **({"token": token} if in_message else {}))
        assert stage.server.instance.sessions[client.id].record.tenant == "acme"
        await client.bye()

    play(scenario, **LOCKED)


def test_a_node_may_bring_its_token_in_a_header() -> None:
    async def scenario(stage: Stage) -> None:
        token = node_token("node-a")
        node = await enter(stage, "/ws/node", headers={"Authorization": f"Bearer {token}"})
        await node.send("node_register", node_id="node-a", boot_id="b")
        await node.follows("node_register_ack", node_id="node-a")

    play(scenario, **LOCKED)


def test_a_token_in_the_address_is_not_read() -> None:
    async def scenario(stage: Stage) -> None:
        peer = await enter(stage, f"/ws/session?token={client_token()}")
        await peer.send("session_init", **INIT)
        await is_refused(peer, "UNAUTHORIZED", refusal("missing"), 4401)

    play(scenario, **LOCKED)


@pytest.mark.parametrize("is_locked", [True, False])
def test_the_tenant_comes_from_the_token_and_from_nowhere_else(is_locked: bool) -> None:
    async def scenario(stage: Stage) -> None:
        token = {"token": client_token(tenant="acme")} if is_locked else {}
        client = await stage.client(tenant_id="globex", **token)
        known = stage.server.instance.sessions[client.id]
        assert known.record.tenant == ("acme" if is_locked else "")

    play(scenario, **(LOCKED if is_locked else {}))


@pytest.mark.parametrize(
    "asked",
    [
        {"tgt_lang": "fr"},
        {"src_lang": "ja"},
        {"tgt_langs": ["en", "fr"]},
        {"src_lang": "auto", "mode": "two_way_auto", "lang_a": "zh", "lang_b": "fr"},
        {"src_lang": "auto", "auto_langs": ["zh", "fr"]},
    ],
    ids=str,
)
def test_a_session_in_a_language_the_token_does_not_name_is_forbidden(asked: Message) -> None:
    async def scenario(stage: Stage) -> None:
        before = await kept(stage)
        peer = await enter(stage)
        token = client_token(languages=["zh", "en"])
        await peer.send("session_init", **(INIT | asked), token=token)
        await is_refused(peer, "FORBIDDEN", "does not allow the language", 4403)
        assert await kept(stage) == before

    play(scenario, **LOCKED)


def test_a_token_holds_for_every_language_asked_for_later_too() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client(tgt="en_US", token=client_token(languages=["zh", "en"]))
        await client.utter(0, tgt_lang="fr")
        await client.follows("error", code="FORBIDDEN")
        await client.ask("session_update", tgt_lang="fr")
        await client.follows("error", code="FORBIDDEN")
        await client.ask("session_update", preferred_lang="fr")
        await client.follows("error", code="FORBIDDEN")
        await client.send("room_create", preferred_lang="fr")
        await client.follows("error", code="FORBIDDEN")
        await client.send("room_create", preferred_lang="en")
        room = await client.follows("room_create_ack")
        other = await stage.client(token=client_token(languages=["zh", "en"]))
        await other.send("room_join", room_code=room["room_code"], preferred_lang="fr")
        await other.follows("error", code="FORBIDDEN")
        assert stage.leases() == 0

    play(scenario, **LOCKED)


def test_who_may_only_listen_cannot_speak() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client(token=client_token(scopes=["listen"]), audio_format="pcm16")
        await client.say(pcm16(100))
        await client.follows("error", code="FORBIDDEN")
        await client.utter(0)
        await client.follows("error", code="FORBIDDEN")
        await client.ws.send_bytes(pcm16(100))
        await client.follows("error", code="FORBIDDEN")
        await client.send("room_create", preferred_lang="en")
        await client.follows("room_create_ack")

    play(scenario, **LOCKED)


def test_a_token_without_rooms_opens_none() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client(token=client_token(rooms=False))
        await client.send("room_create")
        await client.follows("error", code="FORBIDDEN")
        await client.send("room_join", room_code="123456")
        await client.follows("error", code="FORBIDDEN")

    play(scenario, **LOCKED)


def test_a_token_for_nothing_opens_nothing() -> None:
    async def scenario(stage: Stage) -> None:
        peer = await enter(stage)
        await peer.send("session_init", **INIT, token=client_token(scopes=["admin"]))
        await is_refused(peer, "FORBIDDEN", "neither to speak nor to listen", 4403)

    play(scenario, **LOCKED)


def test_a_node_hears_no_more_streams_at_once_than_its_token_allows_jobs() -> None:
    async def scenario(stage: Stage) -> None:
        token = node_token("node-a", max_jobs=2)
        await stage.node("node-a", token=token, max_jobs=8, max_streams=6)
        instance = stage.server.instance
        (row,) = await instance.store.cells.nodes(instance.cells.all[0])
        assert (row.max, row.streams, row.streams_max) == (2, 0, 2)

    play(scenario, **LOCKED)


def test_a_node_gets_no_more_jobs_at_once_than_its_token_says() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node("node-a", token=node_token("node-a", max_jobs=1), max_jobs=8)
        assert node.heard[0]["max_jobs"] == 1
        client = await stage.client(token=client_token())
        await client.utter(0)
        first = await node.job()
        await client.utter(1)
        await client.expect("utterance_accepted", utterance_index=1)
        assert len(node.all("job_assign")) == 1
        await node.answer(first)
        await node.answer(await node.job(utterance_index=1))
        await client.result(1)

    play(scenario, **LOCKED)


@pytest.mark.parametrize("accepts_public", [True, False])
def test_a_tenants_node_works_for_nobody_else(accepts_public: bool) -> None:
    async def scenario(stage: Stage) -> None:
        token = node_token("node-a", tenant="acme")
        node = await stage.node("node-a", token=token, accept_public_jobs=accepts_public)
        for tenant in ("globex", ""):
            stranger = await stage.client(token=client_token(tenant=tenant), tenant_id="acme")
            assert stranger.ack["unserved_langs"] == ["en"]
            await stranger.utter(0)
            await stranger.expect("missing_result", utterance_index=0, reason="expired")
        own = await stage.client(token=client_token(tenant="acme"))
        await own.utter(0)
        job = await node.job()
        assert job["session_id"] == own.id
        await node.answer(job)
        await own.result(0)
        assert len(node.all("job_assign")) == 1

    play(scenario, **LOCKED, jobs__pending_ms=300)


def test_a_key_is_replaced_without_turning_anyone_away() -> None:
    old, new = client_token(keys(client=CLIENT_KEY)), client_token(keys(client=OTHER_KEY))

    async def both(stage: Stage) -> None:
        await stage.client(token=old)
        await stage.client(token=new)

    async def only_new(stage: Stage) -> None:
        await stage.client(token=new)
        peer = await enter(stage)
        await peer.send("session_init", **INIT, token=old)
        await is_refused(peer, "UNAUTHORIZED", "unknown_key", 4401)

    play(both, auth__client_keys=[OTHER_KEY, CLIENT_KEY])
    play(only_new, auth__client_keys=[OTHER_KEY])


def test_keys_for_clients_do_not_lock_nodes_out_on_loopback() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.node("node-a")

    play(scenario, auth__client_keys=[CLIENT_KEY])


@pytest.mark.parametrize(
    ("environment", "missing"),
    [
        ({}, ["auth.client_keys", "auth.node_keys", "server.tls_cert_file"]),
        (
            {"LINGUA_AUTH__CLIENT_KEYS": f'["{CLIENT_KEY}"]'},
            ["auth.node_keys", "server.tls_cert_file"],
        ),
        (
            {
                "LINGUA_AUTH__CLIENT_KEYS": f'["{CLIENT_KEY}"]',
                "LINGUA_AUTH__NODE_KEYS": f'["{NODE_KEY}"]',
            },
            ["server.tls_cert_file"],
        ),
    ],
    ids=["nothing", "no node keys", "no TLS"],
)
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "lingua.example"])
def test_serving_others_than_this_machine_is_refused_with_all_that_is_missing(
    host: str,
    environment: dict[str, str],
    missing: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("LINGUA_DATA_DIR", str(tmp_path / "data"))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert main(["serve", "--host", host, "--port", "0"]) == 2
    said = capsys.readouterr()
    assert f"lingua: {missing[0]}: is needed to listen on {host}" in said.err
    told = [line.split(":")[0].strip() for line in said.err.splitlines() if line.startswith("  ")]
    assert told == missing
    assert "`lingua init` makes all of it" in said.err
    assert CLIENT_KEY not in said.err
    assert said.out == ""
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("path", ["/ws/session", "/ws/node"])
def test_a_page_of_another_origin_is_refused(path: str) -> None:
    async def scenario(stage: Stage) -> None:
        for origin in STRANGE_PAGES:
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await enter(stage, path, headers={"Origin": origin})
            assert refused.value.status == 403, origin

    play(scenario, server__origins=[PAGE])


def test_a_page_of_an_allowed_origin_and_a_program_without_one_come_in() -> None:
    async def scenario(stage: Stage) -> None:
        for headers in ({"Origin": PAGE}, {"Origin": PAGE.upper()}, {}):
            client = await enter(stage, headers=headers)
            await client.open(src_lang="zh", tgt_lang="en")

    play(scenario, server__origins=[PAGE])
