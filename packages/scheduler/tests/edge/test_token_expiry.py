"""Tokens of open sockets: they end in time, can be refreshed, and a session outlives them.

The server and its sockets are real; tokens that end soon are made with a clock that is behind.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from edge.live_server import JSON, MSGPACK, OldClient, Stage, pcm16, play, until
from edge.locked import LOCKED, client_token, ending_client, ending_node, node_token
from lingua_scheduler.auth.tokens import LEEWAY_S, unverified_claims
from lingua_wire.codes import CloseCode

if TYPE_CHECKING:
    from edge.live_server import Peer

pytestmark = pytest.mark.store

EXPIRED = CloseCode.TOKEN_EXPIRED
# One look of the server each second, and what a loaded machine adds.
LATE_S = 6


async def expect_close_in_time(peer: Peer, token: str) -> None:
    """Fail unless a socket is closed when its token is not let in any more, and not long after."""
    assert await peer.closed() == EXPIRED
    ends_at = unverified_claims(token)["exp"] + LEEWAY_S
    assert -0.1 <= time.time() - ends_at <= LATE_S


@pytest.mark.parametrize("form", [JSON, MSGPACK])
def test_an_open_session_is_closed_when_its_token_has_expired(form: str) -> None:
    async def scenario(stage: Stage) -> None:
        token = ending_client()
        client = await stage.client(form=form, token=token)
        await expect_close_in_time(client, token)
        late = await stage.socket(subprotocol=form)
        await late.send("session_init", src_lang="zh", tgt_lang="en", token=token)
        await late.follows("error", code="UNAUTHORIZED")
        assert await late.closed() == CloseCode.UNAUTHORIZED

    play(scenario, **LOCKED)


def test_a_client_of_the_older_protocol_is_simply_closed_and_its_speech_finished() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node("n", token=node_token("n"))
        token = ending_client()
        client = await stage.old_client(token=token)
        await client.say(b"o" * 1200, is_final=True)
        job = await node.job()
        await expect_close_in_time(client, token)
        await node.answer(job)
        await node.expect("job_result_ack", status="accepted")
        assert isinstance(client, OldClient), "and it has heard nothing that it does not know"

    play(scenario, **LOCKED)


def test_an_old_node_is_closed_and_its_job_goes_on_elsewhere() -> None:
    async def scenario(stage: Stage) -> None:
        token = ending_node("old")
        old = await stage.old_node("old", token=token)
        client = await stage.client(token=client_token())
        await client.say(pcm16(400), is_final=True)
        assert (await old.job())["attempt_id"] == 1
        other = await stage.node("other", token=node_token("other"))
        await expect_close_in_time(old, token)
        job = await other.job(attempt_id=2)
        await other.take(job)
        await other.answer(job)
        await client.result(0)

    play(scenario, **LOCKED)


def test_a_warning_comes_before_the_end_and_a_refresh_keeps_the_socket_open() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client(token=ending_client(7, tenant="acme", subject="ann"))
        node = await stage.node("n", token=ending_node("n", 7))
        for peer, newer in (
            (client, client_token(tenant="acme", subject="ann")),
            (node, node_token("n")),
        ):
            warning = await peer.expect("token_expiring")
            assert 0 <= warning["expires_in_ms"] <= 10_000
            await peer.send("token_refresh", token=newer)
            answer = await peer.expect("token_refreshed")
            assert answer["expires_at_ms"] == unverified_claims(newer)["exp"] * 1000
            assert answer["expires_in_ms"] > 3_000_000
        brief = await stage.client(token=ending_client(3))
        assert await brief.closed() == EXPIRED, "as these two would have been by now"
        node.work()
        await client.say(pcm16(400), is_final=True)
        await client.result(0)
        assert len(client.all("token_expiring")) == len(node.all("token_expiring")) == 1

    play(scenario, **LOCKED)


@pytest.mark.parametrize(
    ("newer", "code"),
    [
        (client_token(tenant="other", subject="ann"), "FORBIDDEN"),
        (client_token(tenant="acme", subject="ben"), "FORBIDDEN"),
        (client_token(tenant="acme"), "FORBIDDEN"),
        (client_token(tenant="acme", subject="ann", scopes=["admin"]), "FORBIDDEN"),
        (node_token("n", tenant="acme"), "UNAUTHORIZED"),
        ("words", "UNAUTHORIZED"),
        (ending_client(-60, tenant="acme", subject="ann"), "UNAUTHORIZED"),
    ],
)
def test_a_refresh_with_anothers_token_is_refused_and_changes_nothing(
    newer: str, code: str
) -> None:
    async def scenario(stage: Stage) -> None:
        token = ending_client(3, tenant="acme", subject="ann")
        client = await stage.client(token=token)
        await client.send("token_refresh", token=newer)
        await client.expect("error", code=code)
        await client.ask("client_heartbeat", timestamp=1)
        await client.expect("server_heartbeat")
        await expect_close_in_time(client, token)

    play(scenario, **LOCKED)


@pytest.mark.parametrize(
    ("newer", "code"),
    [
        (node_token("another"), "UNAUTHORIZED"),
        (node_token("n", tenant="other"), "FORBIDDEN"),
        (node_token("n", tenant="acme", labels=["us"]), "FORBIDDEN"),
        (client_token(tenant="acme"), "UNAUTHORIZED"),
    ],
)
def test_a_node_refreshes_with_its_own_token_only(newer: str, code: str) -> None:
    async def scenario(stage: Stage) -> None:
        token = ending_node("n", 3, tenant="acme")
        node = await stage.node("n", token=token, labels=["eu"])
        await node.send("token_refresh", token=newer)
        await node.expect("error", code=code)
        await expect_close_in_time(node, token)

    play(scenario, **LOCKED)


def test_a_narrower_token_counts_from_the_next_utterance_and_the_next_room_on() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node("n", token=node_token("n"))
        client = await stage.client("zh", "en", token=client_token())
        await client.say(pcm16(400), is_final=True)
        job = await node.job()
        await client.send("token_refresh", token=client_token(languages=["en", "es"], rooms=False))
        await client.expect("token_refreshed")
        await client.say(pcm16(400), is_final=True)
        await client.expect(
            "error", code="FORBIDDEN", message="the token does not allow the language 'zh'"
        )
        await client.utter(5)
        await client.expect("error", code="FORBIDDEN")
        await client.send("room_create")
        await client.expect("error", code="FORBIDDEN", message="the token does not allow rooms")
        await node.answer(job)
        await client.result(0)
        await client.ask("session_update", src_lang="en", tgt_lang="es")
        node.work()
        await client.say(pcm16(400), is_final=True)
        assert (await node.expect("job_assign", src_lang="en"))["utterance_index"] == 1
        await client.send("token_refresh", token=client_token(scopes=["listen"]))
        await client.expect("token_refreshed")
        await client.say(pcm16(400), is_final=True)
        await client.expect("error", message="the token does not allow to speak")

    play(scenario, **LOCKED)


def test_a_refresh_may_change_how_many_jobs_a_node_gets() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node("n", token=node_token("n", max_jobs=2), max_jobs=8)
        nodes = stage.server.instance.nodes
        assert nodes["n"].max_jobs == 2
        for wanted in (1, 8):
            bound = {"max_jobs": wanted} if wanted < 8 else {}
            await node.send("token_refresh", token=node_token("n", **bound))
            await node.expect("token_refreshed")
            await until(lambda wanted=wanted: nodes["n"].max_jobs == wanted)
        client = await stage.client(token=client_token())
        for index in range(3):
            await client.utter(index)
        for _ in range(3):
            await node.job()

    play(scenario, **LOCKED)


def test_a_session_outlives_the_token_and_tells_the_rest_to_a_fresh_one() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node("n", token=node_token("n"))
        client = await stage.client(token=ending_client(3, tenant="acme"))
        await client.say(pcm16(400), is_final=True)
        await client.expect("utterance_accepted")
        job = await node.job()
        assert await client.closed() == EXPIRED
        await node.answer(job)
        await node.expect("job_result_ack", status="accepted")
        assert not client.all("translation_result"), "nothing on the closed socket"
        for token, answer in (
            (ending_client(-60, tenant="acme"), "error"),
            (client_token(tenant="other"), "resume_rejected"),
            (client_token(tenant="acme"), "session_resumed"),
        ):
            back = await stage.socket(subprotocol=JSON)
            await back.send(
                "session_resume", session_id=client.id, resume_token=client.ack["resume_token"],
                epoch=client.ack["epoch"], last_seq=0, next_audio_seq=1, audio_ms=400, token=token,
            )  # fmt: skip
            await back.follows(answer)
        await back.expect("translation_result", utterance_index=0)

    play(scenario, **LOCKED)


def test_a_listener_whose_token_expired_stays_in_the_room_and_hears_the_rest_with_a_fresh_one() -> (
    None
):
    async def scenario(stage: Stage) -> None:
        node = await stage.node("n", token=node_token("n"))
        speaker = await stage.client("zh", "en", token=client_token())
        listener = await stage.client("en", "zh", token=ending_client(3))
        await speaker.send("room_create", client_ts=1)
        code = (await speaker.expect("room_create_ack"))["room_code"]
        await listener.send("room_join", room_code=code, preferred_lang="en")
        await listener.expect("room_members")
        assert await listener.closed() == EXPIRED
        await speaker.say(b"o" * 1200, is_final=True)
        await node.answer(await node.job())
        await speaker.expect("outcome_passed")
        back = await stage.socket(subprotocol=JSON)
        await back.send(
            "session_resume", session_id=listener.id, resume_token=listener.ack["resume_token"],
            epoch=listener.ack["epoch"], last_seq=0, token=client_token(),
        )  # fmt: skip
        await back.follows("session_resumed")
        heard = await back.expect("translation_result")
        assert heard["session_id"] == speaker.id
        assert not listener.all("translation_result")

    play(scenario, **LOCKED)


def test_what_a_token_does_not_allow_is_not_said_after_a_resume_either() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client("zh", "en", token=client_token())
        client.drop()
        back = await stage.socket(subprotocol=JSON)
        await back.send(
            "session_resume", session_id=client.id, resume_token=client.ack["resume_token"],
            epoch=client.ack["epoch"], last_seq=0, token=client_token(languages=["en"]),
        )  # fmt: skip
        await back.expect("session_resumed")
        await back.send(
            "audio_chunk", session_id=client.id, seq=0, is_final=True, payload=pcm16(400)
        )
        await back.expect("error", code="FORBIDDEN")

    play(scenario, **LOCKED)


def test_where_nobody_is_asked_a_refresh_is_answered_and_means_nothing() -> None:
    async def scenario(stage: Stage) -> None:
        client, node = await stage.client(), await stage.node()
        for peer in (client, node):
            await peer.send("token_refresh", token="whatever")
            assert await peer.expect("token_refreshed") == {"type": "token_refreshed"}

    play(scenario)
