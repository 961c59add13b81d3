"""Token functions of the client and node SDKs: sessions and nodes outlive their tokens."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from client_peer import next_of
from edge.live_server import Stage, play, until
from edge.locked import LOCKED, client_token, ending, ending_client, ending_node, node_token
from edge.openai_stage import node as serving_node
from lingua_client import Outcome, SessionLost, SessionRefused
from lingua_node import Job, Node, NodeRefused, Result
from lingua_wire.codes import CloseCode
from real_session import say, session_of

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.store

ZH_EN: dict[str, Any] = {"pairs": ["zh>en"]}


async def echo(job: Job) -> Result:
    return Result(text_asr=f"heard {job.utterance_index}", text_translated="said")


class Provider:
    """A function that returns tokens of some seconds, and counts its calls."""

    def __init__(self, make: Callable[[], str]) -> None:
        self._make = make
        self.asked = 0
        # Raised instead, while set.
        self.error: Exception | None = None

    def __call__(self) -> str:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return self._make()

    async def later(self) -> str:
        await asyncio.sleep(0)
        return self()


def expiries(stage: Stage) -> int:
    return stage.server.front.closed[CloseCode.TOKEN_EXPIRED]


def short_client() -> str:
    # The warning is sent after one second; the token is valid for eight more.
    return ending(8).issue_client(ttl_s=10).reveal()


def short_node() -> str:
    return ending(8).issue_node("n1", ttl_s=10).reveal()


@pytest.mark.parametrize("is_async", [False, True])
def test_a_session_and_a_node_refresh_their_tokens_and_lose_nothing(is_async: bool) -> None:
    async def scenario(stage: Stage) -> None:
        client, node = Provider(short_client), Provider(short_node)
        told: Any = (client.later, node.later) if is_async else (client, node)
        async with (
            serving_node(stage, echo, token=told[1], **ZH_EN) as served,
            session_of(stage, token=told[0]) as session,
        ):
            index = 0
            # Until the first two tokens of both have expired.
            while client.asked < 4 or node.asked < 4:
                await say(session)
                outcome = await next_of(session, Outcome)
                assert (outcome.utterance_index, outcome.kind) == (index, "translation")
                index += 1
            assert (session.resumes, served.stats.reconnects, expiries(stage)) == (0, 0, 0)
            assert index > 3

    play(scenario, **LOCKED)


def test_a_session_without_a_new_token_is_closed_and_resumes_when_there_is_one() -> None:
    async def scenario(stage: Stage) -> None:
        provider = Provider(lambda: ending_client(3))
        node = await stage.node("n", token=node_token("n"))
        async with session_of(stage, token=provider.later) as session:
            provider.error = ConnectionError("the provider is away")
            await say(session)
            job = await node.job()
            await until(lambda: expiries(stage) == 1, "the token expired")
            await node.answer(job)
            await until(lambda: provider.asked > 3, "the provider is asked again")
            provider.error = None
            outcome = await next_of(session, Outcome)
            assert (outcome.utterance_index, outcome.kind) == (0, "translation")
            assert session.resumes == 1
            node.work()
            await say(session)
            assert (await next_of(session, Outcome)).utterance_index == 1

    play(scenario, **LOCKED)


def test_a_node_without_a_new_token_is_closed_and_reconnects_with_the_next_one() -> None:
    async def scenario(stage: Stage) -> None:
        provider = Provider(lambda: ending_node("n1", 3))
        async with serving_node(stage, echo, token=provider, **ZH_EN) as node:
            provider.error = TimeoutError()
            await until(lambda: expiries(stage) == 1, "the token expired")
            provider.error = None
            async with session_of(stage, token=client_token()) as session:
                await say(session)
                assert (await next_of(session, Outcome)).kind == "translation"
            assert node.stats.reconnects >= 1

    play(scenario, **LOCKED)


def test_an_error_of_a_provider_ends_the_session() -> None:
    async def scenario(stage: Stage) -> None:
        provider = Provider(lambda: ending_client(7))
        with contextlib.suppress(KeyError):  # and the block ends with it
            async with session_of(stage, token=provider) as session:
                provider.error = KeyError("a fault in the provider")
                with pytest.raises(SessionLost):
                    await next_of(session, Outcome)
                ends.append("lost")
            ends.append("nothing was raised")

    ends: list[str] = []
    play(scenario, **LOCKED)
    assert ends == ["lost"]


def test_a_plain_token_still_works_until_it_expires() -> None:
    async def scenario(stage: Stage) -> None:
        url = f"ws://127.0.0.1:{stage.server.port}/ws/node"
        node = Node(url, node_id="n1", token=ending_node("n1", 3), reports_usage=False, **ZH_EN)
        node.job(echo)
        serving = asyncio.create_task(node.serve())
        async with session_of(stage, token=ending_client(3)) as session:
            await say(session)
            assert (await next_of(session, Outcome)).kind == "translation"
            with pytest.raises(SessionRefused, match="UNAUTHORIZED"):
                await next_of(session, Outcome)
        with pytest.raises(NodeRefused, match="expired"):
            await serving

    play(scenario, **LOCKED)
