"""`GET /api/v1/events` of running schedulers: what it says, to whom, and when it ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from edge import many_servers
from edge.live_server import PATIENCE_S, Stage, pcm16, play, registration, until
from edge.locked import LOCKED, client_token, ending_client, node_token
from edge.many_servers import Company
from lingua_process import running
from lingua_scheduler.commands.scheduler_client import SchedulerClient
from lingua_scheduler.commands.top import states_of
from lingua_scheduler.edge.console.documents import ConsoleState, updated
from lingua_scheduler.state.keys import Cell, InstanceKeys

pytestmark = pytest.mark.store

Told = tuple[str, dict[str, Any]]


class Stream:
    """A reader of the stream: its events, and the state as they tell it."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self.answer = answer
        self.state: ConsoleState | None = None
        # Everything that was sent, as it was sent.
        self.text = b""

    async def next(self) -> Told:
        lines = []
        async with asyncio.timeout(PATIENCE_S):
            while (line := await self.answer.content.readline()) not in (b"\n", b""):
                lines.append(line)
        self.text += b"".join(lines)
        name, data = (line.split(b": ", 1)[1] for line in lines)
        if name.strip() != b"end":
            self._apply(data)
        return name.strip().decode(), json.loads(data)

    def _apply(self, data: bytes) -> None:
        told = msgspec.json.decode(data, type=ConsoleState)
        self.state = told if self.state is None else updated(self.state, told, 360)

    async def until(self, is_so: Callable[[ConsoleState], object]) -> ConsoleState:
        """Read on until the state is as wanted."""
        while self.state is None or not is_so(self.state):
            await self.next()
        return self.state


@asynccontextmanager
async def stream(stage: Stage, token: str = "") -> AsyncIterator[Stream]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    timeout = aiohttp.ClientTimeout(total=None)
    async with (
        aiohttp.ClientSession(timeout=timeout, read_bufsize=1 << 22) as http,
        http.get(f"{stage.server.url}/api/v1/events", headers=headers) as answer,
    ):
        yield Stream(answer)


def codes(state: ConsoleState) -> set[str]:
    assert state.verdict
    return {problem.code for problem in state.verdict.problems}


def nodes(state: ConsoleState) -> dict[str, Any]:
    return dict(state.nodes or {})


def test_it_begins_with_the_whole_state_and_has_no_word_that_was_said() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node("n1", max_streams=3)
        node.work()
        client = await stage.client()
        await client.ask("room_create", client_ts=0, display_name="Ann Example")
        code = (await client.expect("room_create_ack"))["room_code"]
        async with stream(stage) as reader:
            assert reader.answer.headers["Content-Type"] == "text/event-stream"
            name, first = await reader.next()
            assert name == "snapshot"
            assert first["service"]["service"] == stage.server.instance.id
            assert first["service"]["store_up"] is True
            assert [one["id"] for one in first["instances"]] == [stage.server.instance.id]
            known = first["nodes"]["n1"]
            assert (known["health"], known["slots"], known["streams"]) == ("ready", 8, 3)
            [pool] = first["pools"]
            assert (pool["id"], pool["nodes"], pool["free"]) == (known["pool"], 1, 1)
            assert pool["languages"]["sources"] == ["en", "zh"]
            assert first["queues"] == [{"cell": "c0", "waiting": 0, "nodes": 1, "demands": []}]
            assert [one["id"] for one in first["sessions"]["newest"]] == [client.id]
            assert [one["code"] for one in first["rooms"]["newest"]] == [code]
            assert first["dead_letters"] == {"total": 0, "newest": []}
            assert first["verdict"]["state"] == "well"
            await client.say(pcm16(400), is_final=True)
            state = await reader.until(
                lambda s: s.rates and any(row.outcomes.get("completed") for row in s.rates.rows)
            )
            assert state.rates
            assert state.rates.of == stage.server.instance.id
            assert any(row.mean_ms and row.parts_ms["wait"] for row in state.rates.rows)
            # The node answers with texts, and members of rooms have names.
            assert b"text 0" not in reader.text
            assert b"Ann" not in reader.text

    play(scenario)


def test_it_tells_of_a_lost_node_a_queue_a_drained_node_and_a_closed_session() -> None:
    async def scenario(stage: Stage) -> None:
        one = await stage.node("n1", max_jobs=1)
        two = await stage.node("n2", max_jobs=1, **registration(["de"], ["fr"]))
        client = await stage.client()
        async with stream(stage) as reader:
            await reader.next()
            two.drop()
            await reader.until(lambda s: nodes(s)["n2"].health == "offline")
            for _ in range(3):
                await client.say(pcm16(400), is_final=True)
            await one.job()
            state = await reader.until(lambda s: s.queues and s.queues[0].waiting == 2)
            assert state.queues
            assert state.queues[0].demands[0].directions == "zh>en"
            state = await reader.until(lambda s: nodes(s)["n1"].health == "full")
            assert {"nodes_offline", "queue"} <= codes(state)
            async with aiohttp.request(
                "POST", f"{stage.server.url}/api/v1/nodes/n1/drain", json={"draining": True}
            ) as answer:
                assert answer.status == 200
            state = await reader.until(lambda s: nodes(s)["n1"].drained_by_operator)
            assert {"no_node_ready", "nodes_drained"} <= codes(state)
            other = await stage.client()
            await reader.until(lambda s: s.sessions and s.sessions.total == 2)
            await other.ask("session_close", reason="done")
            await reader.until(lambda s: s.sessions and s.sessions.total == 1)

    play(scenario)


def test_it_tells_of_dead_letters_without_their_content() -> None:
    async def scenario(company: Company) -> None:
        stage = company["A"]
        keys, cell = InstanceKeys("lingua", "gone"), Cell("lingua", 0)
        fields = ("kind", "push", "reason", "too_slow", "moved_at", "5", "body", "spoken words")
        company.ask("XADD", keys.dlq, "*", *fields)
        company.ask("SADD", cell.key("dlqs"), "gone")
        async with stream(stage) as reader:
            state = await reader.until(lambda s: s.dead_letters and s.dead_letters.total)
            assert state.dead_letters
            [letter] = state.dead_letters.newest
            assert (letter.instance, letter.kind, letter.reason) == ("gone", "push", "too_slow")
            assert "dead_letters" in codes(state)
            assert b"spoken words" not in reader.text

    many_servers.play(scenario)


def test_any_instance_shows_the_whole_deployment_and_its_own_rates() -> None:
    async def scenario(company: Company) -> None:
        await company.until_met()
        await company["A"].node("n1")
        await company["B"].node("n2")
        await company["B"].client()
        async with stream(company["A"]) as reader:
            state = await reader.until(lambda s: nodes(s).keys() == {"n1", "n2"})
            assert {node.instance for node in nodes(state).values()} == {"A", "B"}
            assert {one.id: one.is_here for one in state.instances or ()} == {"A": True, "B": False}
            assert state.sessions
            assert state.rates
            assert (state.sessions.total, state.rates.of) == (0, "A")
            await company["B"].crash()
            await reader.until(lambda s: nodes(s)["n2"].health == "offline")

    many_servers.play(scenario)


def test_without_the_store_it_says_so_and_shows_what_was_known() -> None:
    async def scenario(company: Company) -> None:
        await company["A"].node("n1")
        async with stream(company["A"]) as reader:
            await reader.until(lambda s: "n1" in nodes(s))
            company.store.kill()
            state = await reader.until(lambda s: s.service and not s.service.store_up)
            assert "n1" in nodes(state)
            assert "store" in codes(state)
            company.store.start()
            await reader.until(lambda s: s.service and s.service.store_up)

    many_servers.play(scenario, "A", keeps=True, **many_servers.FREEZING)


def test_a_drained_service_says_so_and_ends_the_stream_with_the_process() -> None:
    async def scenario(stage: Stage) -> None:
        async with stream(stage) as reader:
            await reader.next()
            await stage.server.drain()
            await reader.until(lambda s: s.service and s.service.draining)
            ending = asyncio.create_task(stage.stop_server())
            name = ""
            while name != "end":
                name, told = await reader.next()
            assert told == {"reason": "going away"}
            await ending
        await stage.start_server()

    play(scenario)


# Who may read


async def status(stage: Stage, **headers: str) -> tuple[int, str]:
    url = f"{stage.server.url}/api/v1/events"
    async with aiohttp.request("GET", url, headers=headers) as answer:
        if answer.status == 200:
            return 200, ""
        return answer.status, (await answer.json())["error"]["code"]


def bearer(**grant: Any) -> dict[str, str]:
    return {"Authorization": f"Bearer {client_token(**grant)}"}


def test_with_keys_only_an_operator_of_all_tenants_reads() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.node("n1", token=node_token("n1"))
        assert await status(stage) == (401, "UNAUTHORIZED")
        assert await status(stage, Authorization="Bearer x.y.z") == (401, "UNAUTHORIZED")
        assert await status(stage, **bearer()) == (403, "FORBIDDEN")
        assert await status(stage, **bearer(scopes=["admin"], tenant="acme")) == (403, "FORBIDDEN")
        assert await status(stage, **bearer(scopes=["admin"])) == (200, "")

    play(scenario, **LOCKED)


def test_without_keys_a_foreign_name_of_this_machine_is_refused() -> None:
    async def scenario(stage: Stage) -> None:
        assert await status(stage, Host="evil.example") == (403, "FORBIDDEN")
        assert await status(stage) == (200, "")

    play(scenario)


def test_a_stream_ends_with_its_token() -> None:
    async def scenario(stage: Stage) -> None:
        async with stream(stage, ending_client(3, scopes=["admin"])) as reader:
            name = ""
            while name != "end":
                name, told = await reader.next()
            assert told == {"reason": "the token has expired"}

    play(scenario, **LOCKED)


def test_too_many_readers_are_asked_to_come_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lingua_scheduler.edge.console.feed.READERS_MAX", 2)

    async def scenario(stage: Stage) -> None:
        async with stream(stage) as one, stream(stage) as two:
            await one.next()
            await two.next()
            assert await status(stage) == (503, "TOO_MANY_READERS")
        gauge = stage.server.instance.metrics

        def are_gone() -> bool:
            return b"scheduler_console_readers 0\n" in gauge.render()

        await until(are_gone, "the readers are forgotten")
        assert await status(stage) == (200, "")

    play(scenario)


# Workers


def test_any_worker_tells_of_the_whole_service(tmp_path: Path) -> None:
    more = {"LINGUA_INSTANCE_ID": "box"}
    with running(["serve", "--port", "0", "--workers", "2"], tmp_path, **more) as service:
        url = service.url()

        async def talk() -> None:
            async with aiohttp.ClientSession() as http:
                peers = [await http.ws_connect(f"{url}/ws/session") for _ in range(4)]
                for peer in peers:
                    init = {"type": "session_init", "src_lang": "zh", "tgt_lang": "en"}
                    await peer.send_json({**init, "client_version": "1", "platform": "web"})
                    assert (await peer.receive_json())["type"] == "session_init_ack"
                found = await asyncio.to_thread(first_with, url, 4)
                assert found.service
                assert found.rates
                assert (found.service.workers, found.rates.of) == (2, "box")
                here = {one.id for one in found.instances or () if one.is_here}
                assert here == {"box-1", "box-2"}
                assert found.sessions
                assert {one.instance for one in found.sessions.newest} == {"box-1", "box-2"}

        asyncio.run(talk())


def first_with(url: str, sessions: int) -> ConsoleState:
    lines = SchedulerClient(url, None).lines("/api/v1/events")
    for state in states_of(lines):
        if state.sessions and state.sessions.total == sessions:
            return state
    raise AssertionError("the stream ended")
