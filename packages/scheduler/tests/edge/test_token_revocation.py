"""Revoked tokens: refused by every instance within seconds, on open sockets and at the door."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from edge.live_server import JSON, Stage, pcm16, play, until
from edge.locked import LOCKED, client_token, node_token
from edge.many_servers import Company
from edge.many_servers import play as play_company
from lingua_scheduler.auth.tokens import unverified_claims
from lingua_scheduler.state.keys import Cell
from lingua_scheduler.state.opening import connect
from lingua_scheduler.state.revocations import Revocations, Revoked
from lingua_wire.codes import CloseCode

if TYPE_CHECKING:
    from edge.live_server import Peer

pytestmark = pytest.mark.store

REVOKED = CloseCode.TOKEN_REVOKED
# What "within seconds" is here, on a machine that does much else besides.
SECONDS = 10.0


async def post(stage: Stage, path: str, body: dict[str, Any], **grant: Any) -> tuple[int, Any]:
    """Ask an instance as an admin; returns the status and the answer."""
    token = client_token(**{"scopes": ["admin"], **grant})
    headers = {"Authorization": f"Bearer {token}"}
    url = f"{stage.server.url}/api/v1/tokens/{path}"
    method = "POST" if body else "GET"
    async with aiohttp.request(method, url, headers=headers, json=body or None) as answer:
        return answer.status, json.loads(await answer.read())


async def is_turned_away(stage: Stage, token: str) -> None:
    """Fail unless a token opens no session."""
    peer = await stage.socket(subprotocol=JSON)
    await peer.send("session_init", src_lang="zh", tgt_lang="en", token=token)
    await peer.follows("error", code="UNAUTHORIZED")
    assert await peer.closed() == CloseCode.UNAUTHORIZED


async def closed_soon(peer: Peer, since: float) -> None:
    assert await peer.closed() == REVOKED
    assert time.monotonic() - since < SECONDS


@pytest.mark.parametrize("kind", ["id", "subject"])
def test_both_instances_close_the_open_sockets_of_a_revoked_token_and_let_it_in_no_more(
    kind: str,
) -> None:
    async def scenario(company: Company) -> None:
        token, other = client_token(subject="ann"), client_token(subject="ben")
        here, there = [await company[name].client(token=token) for name in "AB"]
        kept = await company["B"].client(token=other)
        name = "ann" if kind == "subject" else unverified_claims(token)["jti"]
        began = time.monotonic()
        status, answer = await post(company["A"], "revoke", {kind: name})
        assert (status, answer["kind"], answer["name"], answer["tenant"]) == (200, kind, name, "")
        for peer in (here, there):
            await closed_soon(peer, began)
        for instance in "AB":
            await is_turned_away(company[instance], token)
        minted_later = client_token(subject="ann")
        if kind == "subject":
            await is_turned_away(company["B"], minted_later)
        else:
            await company["B"].client(token=minted_later)
        await kept.ask("client_heartbeat", timestamp=1)
        await kept.expect("server_heartbeat")
        # An instance that starts afterwards knows it from the first socket on.
        await is_turned_away(await company.start("C"), token)
        status, answer = await post(company["B"], "restore", {kind: name})
        assert (status, answer) == (200, {"was_revoked": True})
        await until_let_in(company["A"], token)

    play_company(scenario, **LOCKED)


async def until_let_in(stage: Stage, token: str) -> None:
    """Try until a token opens a session; fail if it never does."""
    deadline = time.monotonic() + SECONDS
    while True:
        peer = await stage.socket(subprotocol=JSON)
        await peer.send("session_init", src_lang="zh", tgt_lang="en", token=token)
        if (await peer.next())["type"] == "session_init_ack":
            return
        assert time.monotonic() < deadline, "not let in again"


def test_a_revoked_node_is_closed_and_its_job_goes_on_elsewhere() -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].node("n", token=node_token("n"))
        client = await company["B"].client(token=client_token())
        await client.say(pcm16(400), is_final=True)
        await node.take(await node.job())
        other = await company["B"].node("other", token=node_token("other"))
        began = time.monotonic()
        assert (await post(company["B"], "revoke", {"subject": "n"}))[0] == 200
        await closed_soon(node, began)
        other.work()
        await client.result(0)
        again = await company["B"].socket("/ws/node", JSON)
        await again.send("node_register", node_id="n", boot_id="b", token=node_token("n"))
        await again.follows("error", code="UNAUTHORIZED")

    play_company(scenario, **LOCKED)


def test_a_tenants_admin_revokes_that_tenants_tokens_alone() -> None:
    async def scenario(stage: Stage) -> None:
        own = await stage.client(token=client_token(tenant="acme", subject="ann"))
        others = await stage.client(token=client_token(tenant="other", subject="ann"))
        acme = {"tenant": "acme"}
        status, answer = await post(stage, "revoke", {"subject": "ann"}, **acme)
        assert (status, answer["tenant"]) == (200, "acme")
        assert await own.closed() == REVOKED
        await others.ask("client_heartbeat", timestamp=1)
        await others.expect("server_heartbeat")
        status, answer = await post(stage, "revoke", {"subject": "ben", "tenant": "other"}, **acme)
        assert (status, answer["error"]["code"]) == (403, "FORBIDDEN")
        await post(stage, "revoke", {"id": "x"})
        seen = (await post(stage, "revoked", {}, **acme))[1]
        assert [one["name"] for one in seen["revoked"]] == ["ann"]
        assert len((await post(stage, "revoked", {}))[1]["revoked"]) == 2

    play(scenario, **LOCKED)


@pytest.mark.parametrize(
    "body",
    [
        {"id": "a", "subject": "b"},
        {"tenant": "acme"},
        {"id": ""},
        {"id": "x" * 129},
        {"id": "a\nb"},
        {"id": "a", "tenant": "a|b"},
        {"id": "a", "until_ms": 1},
        {"id": "a", "until_ms": 1 << 52},
        {"id": "a", "until": "tomorrow"},
    ],
)
def test_a_request_that_means_no_token_is_refused(body: dict[str, Any]) -> None:
    async def scenario(stage: Stage) -> None:
        assert (await post(stage, "revoke", body))[0] == 422
        assert (await post(stage, "revoke", {"id": "a"}, scopes=["speak"]))[0] == 403
        assert (await post(stage, "revoked", {}))[1] == {"revoked": [], "more": 0}

    play(scenario, **LOCKED)


def test_a_refresh_with_a_revoked_token_is_refused() -> None:
    async def scenario(stage: Stage) -> None:
        client, newer = await stage.client(token=client_token()), client_token()
        await post(stage, "revoke", {"id": unverified_claims(newer)["jti"]})
        await client.send("token_refresh", token=newer)
        await client.expect("error", code="UNAUTHORIZED")

    play(scenario, **LOCKED)


def test_while_the_store_is_away_the_last_known_list_counts_and_an_emptied_one_gets_it_back() -> (
    None
):
    async def scenario(company: Company) -> None:
        token = client_token(subject="ann")
        assert (await post(company["A"], "revoke", {"subject": "ann"}))[0] == 200
        company.store.pause()
        try:
            await is_turned_away(company["A"], token)
        finally:
            company.store.resume()
        company.ask("DEL", company.key("revoked"), company.key("revocations"))
        await until(lambda: company.ask("EXISTS", company.key("revoked")) == 1, "it is back")
        await is_turned_away(company["A"], token)
        await is_turned_away(await company.start("B"), token)

    play_company(scenario, "A", **LOCKED)


def test_the_list_in_the_store_cannot_grow_for_ever() -> None:
    async def scenario(company: Company) -> None:
        connection = await connect(company["A"].server.settings)
        try:
            known = Revocations(connection, Cell("lingua", 0))
            now_ms = int(time.time() * 1000)
            for number in range(5):
                await known.revoke(Revoked("id", f"over-{number}"), now_ms + 1)
            await until(lambda: time.time() * 1000 > now_ms + 2, "these are over")
            await known.revoke(Revoked("subject", "a|b"), now_ms + 60_000)
            assert company.ask("ZRANGE", company.key("revoked"), 0, -1) == [b"subject||a|b"]
            for family in ("revoked", "revocations"):
                assert 0 < company.ask("PTTL", company.key(family)) <= 60_000
            other = Revocations(connection, Cell("lingua", 0))
            await other.read()
            assert other.until_ms == {Revoked("subject", "a|b"): now_ms + 60_000}
            assert other.holds("any", "a|b", "acme")
            assert not other.holds("a|b", "", "")
        finally:
            await connection.close()

    play_company(scenario, "A", **LOCKED)
