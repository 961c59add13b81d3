"""Guests of a room: what an invitation allows, and everything that it does not."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from edge.caption_readers import browser
from edge.live_server import JSON, Message, NewClient, Stage, opus, play
from edge.locked import LOCKED, client_token, ending, node_token
from lingua_scheduler.auth.tokens import LEEWAY_S, unverified_claims
from lingua_wire.codes import CloseCode

if TYPE_CHECKING:
    from edge.caption_readers import Browser

pytestmark = pytest.mark.store

MEMBER: dict[str, Any] = {"tenant": "acme", "subject": "ann", "rooms": True}


async def locked_room(stage: Stage, **more: Any) -> tuple[str, NewClient]:
    """Make a room with keys on; return its code and its creator."""
    member = await stage.client(token=client_token(**(MEMBER | more)))
    await member.send("room_create", client_ts=1, preferred_lang="zh")
    return (await member.expect("room_create_ack"))["room_code"], member


async def invite(
    http: Browser, stage: Stage, code: str, token: str, **asked: Any
) -> tuple[int, Message]:
    """Ask for an invitation; return the status and the answer."""
    async with http.http.post(
        f"{stage.server.url}/room/{code}/invite",
        json=asked,
        headers={"Authorization": f"Bearer {token}"} if token else {},
    ) as response:
        return response.status, await response.json()


async def guest_of(http: Browser, stage: Stage, code: str, **asked: Any) -> str:
    """Return the token of a guest."""
    status, answer = await invite(http, stage, code, client_token(**MEMBER), **asked)
    assert status == 200, answer
    return str(answer["token"])


def test_a_guest_enters_the_room_speaks_and_is_heard() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node("n", token=node_token("n"))
        code, member = await locked_room(stage)
        async with browser() as http:
            status, answer = await invite(http, stage, code, client_token(**MEMBER), ttl_s=600)
            assert status == 200
            assert answer["url"] == f"/room/{code}#token={answer['token']}"
            assert abs(answer["expires_at_ms"] / 1000 - time.time() - 600) < 60
            claims = unverified_claims(answer["token"])
            assert (claims["room"], claims["scopes"]) == (code, ["listen", "speak"])
            assert (claims["tenant"], claims["sub"]) == ("acme", "ann")
            guest = await stage.client("en", "zh", token=answer["token"])
            # Not before it is in the room.
            await guest.say(opus(200), is_final=True)
            await guest.expect("error", code="FORBIDDEN")
            await guest.utter(0, src_lang="en", tgt_lang="zh")
            await guest.expect("error", code="FORBIDDEN")
            await guest.send("room_join", room_code=code, preferred_lang="en")
            await guest.expect("room_members")
            await guest.say(opus(200), is_final=True)
            await node.answer(await node.job(tgt_lang="zh"), "hello")
            await member.result(0, text_translated="hello:zh")
            # And not after it has left.
            await guest.send("room_leave", room_code=code)
            while len((await member.expect("room_members"))["members"]) != 1:
                pass
            await guest.say(opus(200), is_final=True)
            await guest.expect("error", code="FORBIDDEN")
            assert len(node.jobs) == 1

    play(scenario, **LOCKED)


def test_a_guest_can_do_nothing_else() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.node("n", token=node_token("n"))
        code, _ = await locked_room(stage)
        other, _ = await locked_room(stage)
        async with browser() as http:
            token = await guest_of(http, stage, code)
            guest = await stage.client("en", "zh", token=token)
            for kind, fields in (
                ("room_create", {"client_ts": 1}),
                ("room_join", {"room_code": other}),
                # Another token, so that a guest does not become somebody else.
                ("token_refresh", {"token": client_token(**MEMBER)}),
            ):
                await guest.send(kind, **fields)
                await guest.expect("error", code="FORBIDDEN")
            bearer = {"Authorization": f"Bearer {token}"}
            for path, expected in (
                (f"/captions/{code}?lang=en", 200),
                (f"/captions/{other}?lang=en", 403),
                (f"/room/{other}/transcript?lang=en", 403),
                ("/api/v1/sessions", 403),
                ("/api/v1/nodes", 403),
                ("/v1/models", 403),
            ):
                assert await http.status(stage.server.url + path, **bearer) == expected, path
            status, answer = await invite(http, stage, code, token)
            assert (status, answer["error"]["code"]) == (403, "FORBIDDEN")

    play(scenario, **LOCKED)


def test_a_guest_who_only_reads_opens_no_session() -> None:
    async def scenario(stage: Stage) -> None:
        code, _ = await locked_room(stage)
        async with browser() as http:
            token = await guest_of(http, stage, code, scopes=["captions"])
            url = f"{stage.server.url}/captions/{code}?lang=en&token={token}"
            assert await http.status(url) == 200
            reader = await stage.socket(f"/ws/captions?room={code}&lang=en&token={token}", JSON)
            await reader.expect("members")
            socket = await stage.socket(subprotocol=JSON)
            await socket.send("session_init", src_lang="zh", tgt_lang="en", token=token)
            await socket.expect("error", code="FORBIDDEN")
            assert await socket.closed() == CloseCode.FORBIDDEN

    play(scenario, **LOCKED)


def test_who_may_not_invite_is_refused() -> None:
    async def scenario(stage: Stage) -> None:
        code, _ = await locked_room(stage)
        refused: list[tuple[dict[str, Any], dict[str, Any], int]] = [
            (MEMBER | {"rooms": False}, {}, 403),
            (MEMBER | {"scopes": ["listen"]}, {"scopes": ["speak"]}, 403),
            (MEMBER | {"scopes": ["captions"]}, {"scopes": ["listen"]}, 403),
            (MEMBER | {"scopes": ["listen"]}, {"scopes": ["captions"]}, 200),
            (MEMBER | {"tenant": "globex"}, {}, 404),
            (MEMBER, {"scopes": ["admin"]}, 422),
            (MEMBER, {"scopes": []}, 422),
            (MEMBER, {"ttl_s": 1}, 422),
            (MEMBER, {"ttl_s": 10**9}, 422),
        ]
        async with browser() as http:
            assert (await invite(http, stage, code, ""))[0] == 401
            for grant, asked, expected in refused:
                status, answer = await invite(http, stage, code, client_token(**grant), **asked)
                assert status == expected, (grant, asked, answer)

    play(scenario, **LOCKED)


def test_an_invitation_lasts_no_longer_than_the_token_of_who_invites() -> None:
    async def scenario(stage: Stage) -> None:
        code, _ = await locked_room(stage)
        async with browser() as http:
            short = ending(8).issue_client(ttl_s=10, **MEMBER).reveal()
            status, answer = await invite(http, stage, code, short)
            assert status == 200
            guest = await stage.client("en", "zh", token=answer["token"])
            assert unverified_claims(answer["token"])["exp"] <= time.time() + 8
            assert await guest.closed() == CloseCode.TOKEN_EXPIRED
            assert time.time() <= answer["expires_at_ms"] / 1000 + LEEWAY_S + 6

    play(scenario, **LOCKED)


def test_without_keys_a_link_needs_no_token() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.send("room_create", client_ts=1)
        code = (await client.expect("room_create_ack"))["room_code"]
        async with browser() as http:
            status, answer = await invite(http, stage, code, "")
            assert (status, answer["url"]) == (200, f"/room/{code}")
            assert (answer["token"], answer["expires_at_ms"]) == (None, None)

    play(scenario)
