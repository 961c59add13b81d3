"""The HTTP API of a running scheduler: real sockets, a real store, real clients and nodes."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from edge.live_server import Client, Message, Stage, play, registration, until
from lingua_scheduler.auth.gate import TokenGate
from lingua_scheduler.auth.tokens import TokenKeys
from lingua_scheduler.edge.http_api import HttpApi
from lingua_scheduler.secret import Secret
from lingua_wire import __version__
from servers import free_port, start_server

pytestmark = pytest.mark.store

CLIENT_KEY, NODE_KEY = "client-key-" + "c" * 32, "node-key-" + "n" * 32
KEYS = TokenKeys([Secret(CLIENT_KEY)], [Secret(NODE_KEY)])
WITH_KEYS = {
    "auth__client_keys": json.dumps([CLIENT_KEY]),
    "auth__node_keys": json.dumps([NODE_KEY]),
}
ZH_EN = "/api/v1/explain?from=zh&to=en"
HISTORY = "/api/v1/history?of=s-1:0"
# Far above what the server promises, far below a hang.
PATIENCE = aiohttp.ClientTimeout(total=15)


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        assert self.headers["Content-Type"] == "application/json", self.body
        return json.loads(self.body)

    @property
    def code(self) -> str:
        error = self.json["error"]
        assert set(error) == {"code", "message"}
        assert error["message"]
        return str(error["code"])


async def ask(stage: Stage, path: str, method: str = "GET", **more: Any) -> Reply:
    """Send one request on a connection of its own."""
    url = f"{stage.server.url}{path}"
    async with aiohttp.request(method, url, timeout=PATIENCE, **more) as answer:
        return Reply(answer.status, dict(answer.headers), await answer.read())


async def shown(stage: Stage, path: str, **more: Any) -> Any:
    """Return the response of a path, which must succeed."""
    reply = await ask(stage, path, **more)
    assert reply.status == 200, reply
    return reply.json


def bearer(**grant: Any) -> dict[str, Any]:
    """Return the header of a new client token with these rights."""
    token = KEYS.issue_client(**{"scopes": ("admin",), **grant}).reveal()
    return {"headers": {"Authorization": f"Bearer {token}"}}


def client_token(tenant: str) -> str:
    return KEYS.issue_client(tenant=tenant).reveal()


async def private_node(stage: Stage, name: str, tenant: str) -> None:
    token = KEYS.issue_node(name, tenant=tenant).reveal()
    await stage.node(name, token=token, accept_public_jobs=not tenant)


# Health of the instance


def test_a_fresh_instance_is_alive_ready_and_healthy() -> None:
    async def scenario(stage: Stage) -> None:
        assert await shown(stage, "/livez") == {"alive": True}
        assert await shown(stage, "/readyz") == {"ready": True, "reason": ""}
        plain = await ask(stage, "/health")
        assert (plain.status, plain.body) == (200, b"OK")
        health = await shown(stage, "/health", headers={"Accept": "application/json"})
        assert health.pop("uptime_ms") >= 0
        assert health == {
            "version": __version__, "instance": stage.server.instance.id, "sessions": 0,
            "nodes": 0, "jobs": 0, "store": "up", "draining": False,
        }  # fmt: skip
        page = await ask(stage, "/")
        assert page.headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert b"/api/v1/openapi.json" in page.body

    play(scenario)


def test_metrics_are_prometheus_text() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.client()
        page = await ask(stage, "/metrics")
        assert page.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert b'\nscheduler_connections{kind="session"} 1\n' in page.body

    play(scenario)


def test_an_instance_that_drains_is_alive_but_not_ready() -> None:
    async def scenario(stage: Stage) -> None:
        async with aiohttp.ClientSession(stage.server.url) as session:
            # An earlier connection: the port accepts no new ones.
            async with session.get("/livez") as answer:
                await answer.read()
            await stage.server.drain()
            async with session.get("/readyz") as answer:
                assert answer.status == 503
                assert await answer.json() == {"ready": False, "reason": "draining"}
            async with session.get("/livez") as answer:
                assert answer.status == 200

    play(scenario)


@pytest.mark.parametrize("trouble", ["frozen", "killed"])
def test_without_its_store_an_instance_says_so_instead_of_hanging(
    trouble: str, tmp_path: Path
) -> None:
    with start_server(tmp_path, port=free_port()) as store:

        async def scenario(stage: Stage) -> None:
            client = await stage.client()
            (store.pause if trouble == "frozen" else store.kill)()
            for path in ("/api/v1/nodes", "/api/v1/nodes/n1", ZH_EN):
                reply = await ask(stage, path)
                assert (reply.status, reply.code) == (503, "SCHEDULER_DEPENDENCY_DOWN")
                assert reply.headers["Retry-After"] == "1"
            ready = await ask(stage, "/readyz")
            assert (ready.status, ready.json["ready"]) == (503, False)
            health = await shown(stage, "/health", headers={"Accept": "application/json"})
            assert health["store"] == "down"
            # Requests that need no store still succeed.
            assert (await ask(stage, "/livez")).status == 200
            [session] = (await shown(stage, "/api/v1/sessions"))["sessions"]
            assert session["id"] == client.id

            (store.resume if trouble == "frozen" else store.start)()
            await until_answers(stage, "/readyz", 200)
            await until_answers(stage, "/api/v1/nodes", 200)

        url = f"redis://127.0.0.1:{store.port}"
        # The store's own patience is longer than anybody's who asks by HTTP.
        patience = {"redis__call_timeout_ms": 20_000, "jobs__reserve_ms": 25_000}
        play(scenario, deployment_mode="cross_instance", redis__url=url, **patience)


async def until_answers(stage: Stage, path: str, status: int) -> None:
    async with asyncio.timeout(30):
        while True:
            if (await ask(stage, path)).status == status:
                return
            await asyncio.sleep(0.05)


# Sessions


def test_a_session_is_shown_as_it_is() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node("n1")
        node.work()
        client = await stage.client(
            "zh", "", tgt_langs=["en", "ja"], audio_format="pcm16", sample_rate=16_000
        )
        await client.utter(0, tgt_lang="en")
        for lang in ("en", "ja"):
            await client.result(0, tgt_lang=lang)
        session = await shown(stage, f"/api/v1/sessions/{client.id}")
        assert session.pop("age_ms") >= 0
        assert session.pop("opened_at_ms") > 1_600_000_000_000
        assert session == {
            "id": client.id, "tenant": "", "source": "zh", "targets": ["en", "ja"],
            "two_way": None, "audio": "pcm16 16000", "connected": True, "open_utterances": 0,
            "backlog": 0, "next_index": 1, "room": None, "cell": "c0",
            "coverage": {
                "admitted_ms": 100, "delivered_ms": 100, "silent_ms": 0, "failed_ms": 0,
                "skipped_ms": 0,
            },
        }  # fmt: skip
        page = await shown(stage, "/api/v1/sessions")
        assert page["instance"] == stage.server.instance.id
        assert [found["id"] for found in page["sessions"]] == [client.id]
        assert page["next"] is None

    play(scenario)


def test_what_waits_and_the_room_are_shown() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client("zh", "en", mode="two_way_auto", lang_a="zh", lang_b="en")
        await client.send("room_create", client_ts=0, display_name="A", preferred_lang="zh")
        code = (await client.expect("room_create_ack"))["room_code"]
        for index in range(3):
            await client.utter(index)
        await until(lambda: stage.leases() == 2, "two utterances are in the store")
        session = await shown(stage, f"/api/v1/sessions/{client.id}")
        assert (session["open_utterances"], session["backlog"], session["next_index"]) == (2, 1, 3)
        assert session["two_way"] == ["zh", "en"]
        assert session["room"] == code

    play(scenario, jobs__in_flight_max=2)


def test_pages_of_sessions_give_each_one_once() -> None:
    async def scenario(stage: Stage) -> None:
        ids = {(await stage.client()).id for _ in range(5)}
        found = await every_page(stage, "sessions", 2)
        assert (len(found), set(found)) == (5, ids)

    play(scenario)


async def every_page(stage: Stage, kind: str, limit: int) -> list[str]:
    """Return the ids of all pages, in the order they come."""
    ids: list[str] = []
    after: str | None = ""
    for _ in range(100):
        query = f"?limit={limit}&after={after}"
        page = await shown(stage, f"/api/v1/{kind}{query}")
        assert len(page[kind]) <= limit
        ids += [item["id"] for item in page[kind]]
        after = page["next"]
        if after is None:
            return ids
    raise AssertionError("the pages do not end")


# Nodes


def test_a_node_is_shown_as_the_store_and_its_socket_know_it() -> None:
    async def scenario(stage: Stage) -> None:
        about = {"platform": "linux", "version": "7.1"}
        await stage.node("n1", max_jobs=3, max_streams=5, sends_acks=True, **about)
        node = await shown(stage, "/api/v1/nodes/n1")
        assert 0 <= node.pop("beat_age_ms") < 60_000
        assert len(node.pop("pool")) == 12
        assert node == {
            "id": "n1", "status": "ready", "draining": False, "drained_by_operator": False,
            "over": False, "slots": 3, "leased": 0, "extra": 0, "over_by": [],
            "streams": 5, "streams_open": 0,
            "languages": {
                "pairs": None, "sources": ["en", "zh"], "targets": ["en", "es", "ja", "zh"],
                "voices": ["en", "es", "ja", "zh"],
            },
            "services": ["asr", "nmt", "tts"], "features": [], "labels": [], "private_to": "",
            "cell": "c0",
            "boot": "boot-1", "acks": True, "instance": stage.server.instance.id,
            "platform": "linux", "version": "7.1",
            "socket": {"old_protocol": False, "tenant": "", "jobs_pushed": 0},
        }  # fmt: skip
        [listed] = (await shown(stage, "/api/v1/nodes"))["nodes"]
        assert listed["id"] == "n1"

    play(scenario)


def test_a_node_whose_socket_is_gone_is_shown_as_offline() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.old_node("n1")
        assert (await shown(stage, "/api/v1/nodes/n1"))["socket"]["old_protocol"]
        node.drop()
        await until_offline(stage, "n1")
        assert (await shown(stage, "/api/v1/nodes/n1"))["socket"] is None

    play(scenario)


async def until_offline(stage: Stage, name: str) -> None:
    async with asyncio.timeout(30):
        while True:
            if (await shown(stage, f"/api/v1/nodes/{name}"))["status"] == "offline":
                return
            await asyncio.sleep(0.02)


async def until_over(stage: Stage, *, is_over: bool) -> Message:
    async with asyncio.timeout(30):
        while True:
            seen: Message = await shown(stage, "/api/v1/nodes/n1")
            if seen["over"] is is_over:
                return seen
            await asyncio.sleep(0.02)


ANY_LANGUAGE: dict[str, list[str] | None] = dict.fromkeys(("pairs", "sources", "targets", "voices"))
MANY = [f"e{chr(97 + n)}" for n in range(10)]
LANGUAGES: list[tuple[Message, dict[str, list[str]]]] = [
    ({"supported_language_pairs": [{"src": "en", "tgt": "es"}]}, {"pairs": ["en>es"]}),
    (
        {"supported_language_pairs": [{"src": "en", "tgt": code} for code in MANY]},
        {"pairs": [f"en>{code}" for code in MANY]},
    ),
    ({"asr_languages": ["en"]}, {"sources": ["en"]}),
    ({"asr_languages": MANY, "tts_languages": ["es"]}, {"sources": MANY, "voices": ["es"]}),
    ({}, {}),
]


def test_the_languages_of_nodes_are_lists_and_all_of_them() -> None:
    async def scenario(stage: Stage) -> None:
        for number, (said, told) in enumerate(LANGUAGES):
            await stage.node(f"n{number}", language_capabilities=said)
            found = (await shown(stage, f"/api/v1/nodes/n{number}"))["languages"]
            assert found | {"targets": None} == ANY_LANGUAGE | told

    play(scenario)


def test_a_node_over_its_threshold_is_shown_with_the_number_that_made_it_so() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node("n1")
        assert (await shown(stage, "/api/v1/nodes/n1"))["over_by"] == []
        usage = {"cpu_percent": 97.23, "mem_percent": 40.0, "gpu_percent": 91.0, "running_jobs": 0}
        await node.beat(resource_usage=usage)
        seen = await until_over(stage, is_over=True)
        assert seen["over_by"] == [
            {"resource": "cpu", "percent": 97.2, "percent_max": 85.0},
            {"resource": "gpu", "percent": 91.0, "percent_max": 85.0},
        ]
        await node.beat()
        seen = await until_over(stage, is_over=False)
        assert seen["over_by"] == []

    play(scenario, nodes__resource_percent_max=85)


def test_each_node_of_several_cells_is_found_once_and_by_its_id() -> None:
    # Each is a prefix of the next, or its neighbour in the order of ids.
    names = ["n", "n-", "n-1", "n-1.", "n.", "n0", "m:", "A"]

    async def scenario(stage: Stage) -> None:
        for name in names:
            await stage.node(name)
        cells = {stage.server.instance.cells.of_node(name).name for name in names}
        assert len(cells) > 1, "these names do not test several cells"
        for limit in (1, 3, 500):
            found = await every_page(stage, "nodes", limit)
            assert (len(found), set(found)) == (len(names), set(names))
        for name in names:
            assert (await shown(stage, f"/api/v1/nodes/{name}"))["id"] == name
        for name in ("n-2", "m", "z", "0"):
            assert (await ask(stage, f"/api/v1/nodes/{name}")).code == "NOT_FOUND"

    play(scenario, cells=4)


def test_a_drained_node_gets_no_work_until_it_resumes() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node("n1")
        client = await stage.client()
        reply = await drain(stage, "n1", draining=True)
        assert reply.json == {"id": "n1", "draining": True, "leased": 0}
        assert (await shown(stage, "/api/v1/nodes/n1"))["draining"]
        await client.utter(0)
        await until(lambda: stage.leases() == 1, "the job is there")
        await until_job(stage, "pending")
        assert not node.jobs

        assert (await drain(stage, "n1", draining=False)).json["draining"] is False
        await node.answer(await node.job())
        await client.result(0)

    play(scenario)


def test_an_operators_drain_stays_when_the_nodes_process_restarts() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node("n1")
        await drain(stage, "n1", draining=True)
        node.drop()
        await until_offline(stage, "n1")
        again = await stage.node("n1", boot_id="another process")
        found = await shown(stage, "/api/v1/nodes/n1")
        assert (found["boot"], found["status"]) == ("another process", "ready")
        assert (found["draining"], found["drained_by_operator"]) == (True, True)
        client = await stage.client()
        await client.utter(0)
        await until_job(stage, "pending")
        # The node cannot change it.
        await again.send("node_drain", draining=False)
        await again.beat()
        assert (await shown(stage, "/api/v1/nodes/n1"))["draining"]
        assert not again.jobs

        await drain(stage, "n1", draining=False)
        await again.answer(await again.job())
        await client.result(0)
        found = await shown(stage, "/api/v1/nodes/n1")
        assert (found["draining"], found["drained_by_operator"]) == (False, False)

    play(scenario)


def test_a_nodes_own_drain_ends_with_its_process() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node("n1")
        await node.send("node_drain", draining=True)

        async def drains() -> bool:
            return bool((await shown(stage, "/api/v1/nodes/n1"))["draining"])

        while not await drains():
            await node.beat()
        assert not (await shown(stage, "/api/v1/nodes/n1"))["drained_by_operator"]
        node.drop()
        await until_offline(stage, "n1")
        await stage.node("n1", boot_id="another process")
        assert not await drains()

    play(scenario)


async def drain(stage: Stage, name: str, *, draining: bool) -> Reply:
    path = f"/api/v1/nodes/{name}/drain"
    return await ask(stage, path, "POST", json={"draining": draining})


async def until_job(stage: Stage, state: str) -> Message:
    """Return the only job under way once it is in this state."""
    async with asyncio.timeout(30):
        while True:
            [job] = (await shown(stage, "/api/v1/jobs"))["jobs"]
            if job["state"] == state:
                return dict(job)
            await asyncio.sleep(0.02)


def test_a_pairing_code_lets_one_session_use_the_node() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.node("n1", accept_public_jobs=False)
        reply = await ask(stage, "/api/v1/nodes/n1/pairing", "POST")
        code = reply.json.pop("code")
        assert (reply.status, len(code), code.isdecimal()) == (200, 6, True)
        assert reply.json["expires_in_s"] == 300
        client = await stage.client(pairing_code=code)
        assert stage.server.instance.sessions[client.id].languages.profile.paired == "n1"

    play(scenario)


@pytest.mark.parametrize(
    ("path", "body"), [("drain", {"draining": True}), ("pairing", None)], ids=["drain", "pairing"]
)
def test_nothing_is_done_to_a_node_that_is_not_known(path: str, body: Any) -> None:
    async def scenario(stage: Stage) -> None:
        reply = await ask(stage, f"/api/v1/nodes/nobody/{path}", "POST", json=body)
        assert (reply.status, reply.code) == (404, "NOT_FOUND")

    play(scenario)


# Jobs


def test_a_job_is_shown_from_its_first_moment_to_its_last() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.utter(0)
        await until(lambda: stage.leases() == 1, "the job is there")
        pending = await until_job(stage, "pending")
        assert (pending["attempt"], pending["node"]) == (0, "")
        assert (pending["session"], pending["utterance_index"]) == (client.id, 0)
        assert pending["lane"] == "en"
        await until_waited(stage, 30)

        node = await stage.node("n1")
        job = await node.job()
        assigned = await until_job(stage, "assigned")
        assert (assigned["attempt"], assigned["node"]) == (1, "n1")
        await node.take(job)
        running = await until_job(stage, "processing")
        parts = running.pop("timeline")
        assert parts.pop("total_ms") == sum(parts.values())
        assert parts["queue_ms"] > 0
        one = await shown(stage, f"/api/v1/jobs/{job['job_id']}")
        assert one["age_ms"] >= running.pop("age_ms")
        assert running.items() <= one.items()
        await node.answer(job)
        await client.result(0)
        over = await shown(stage, f"/api/v1/jobs/{job['job_id']}")
        assert (over["state"], over["outcome"], over["node"]) == ("completed", "completed", "n1")
        assert (await shown(stage, "/api/v1/jobs"))["jobs"] == []

    play(scenario)


async def until_waited(stage: Stage, duration_ms: int) -> None:
    """Wait until the only job under way is shown as having waited for so long."""
    async with asyncio.timeout(30):
        while True:
            job = await until_job(stage, "pending")
            if job["timeline"].get("queue_ms", 0) >= duration_ms:
                return
            await asyncio.sleep(0.01)


def test_no_answer_holds_anything_that_was_said() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node("n1")
        client = await stage.client()
        for index in range(2):
            await client.utter(index, b"spoken-audio" * 100)
            job = await node.job(utterance_index=index)
            await node.partial(job, "spoken words")
            if index == 0:
                await node.answer(job, "spoken words")
                await client.result(0)
        await client.expect("asr_partial", utterance_index=1)
        paths = [
            "/", "/health", "/metrics", "/api/v1/sessions", f"/api/v1/sessions/{client.id}",
            "/api/v1/nodes", "/api/v1/nodes/n1", "/api/v1/jobs", f"/api/v1/jobs/{job['job_id']}",
            "/api/v1/stats", ZH_EN, f"/api/v1/history?of={client.id}:0",
            f"/api/v1/history?of={client.id}:1",
        ]  # fmt: skip
        for path in paths:
            reply = await ask(stage, path)
            assert reply.status == 200, path
            assert b"spoken" not in reply.body, path

    play(scenario)


# Counts and explanations


def test_counts_have_the_names_that_dashboards_know() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.node("n1", max_jobs=3)
        await stage.old_node("n2")
        await stage.client("auto", "en")
        await stage.client("zh", "en", mode="two_way_auto", lang_a="zh", lang_b="en")
        counts = await shown(stage, "/api/v1/stats")
        assert counts["web_clients"] == {
            "active_users": 2,
            "top_languages": [
                {"language": "en", "count": 3}, {"language": "zh", "count": 2},
            ],
            "language_usage": {
                "en": {"as_source": 1, "as_target": 2, "total": 3},
                "zh": {"as_source": 1, "as_target": 1, "total": 2},
            },
        }  # fmt: skip
        assert counts["nodes"] == {
            "connected_nodes": 2, "ready_nodes": 2, "slots": 7,
            "type_node_counts": {"asr": 2, "nmt": 2, "tts": 2},
        }  # fmt: skip
        assert counts["jobs"] == {"in_flight": 0, "by_state": {}}

    play(scenario)


def test_it_explains_where_a_job_would_go() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.node("n1")
        await stage.node("n2", **{**registration(asr=("ko",)), "boot_id": "b"})
        found = await shown(stage, ZH_EN)
        assert found["demand"] == "zh>en|asr,nmt,tts||en|||"
        [cell] = found["cells"]
        assert cell["verdict"] == {"node": "n1", "code": "", "label": ""}
        removed = {node["node"]: node["removed_by"] for node in cell["nodes"]}
        assert removed == {"n1": "", "n2": "lang_pair_unsupported"}
        [cell] = (await shown(stage, "/api/v1/explain?from=auto&to=en&prefer=n2"))["cells"]
        assert cell["verdict"]["node"] == "n2"

    play(scenario)


# Refused requests


def test_every_wrong_request_gets_its_error() -> None:
    big = {"data": b"x" * (64 * 1024 + 1), "headers": {"Content-Type": "application/json"}}
    cases: list[tuple[str, str, dict[str, Any], int, str]] = [
        ("GET", "/nowhere", {}, 404, "NOT_FOUND"),
        ("GET", "/api/v1/nowhere", {}, 404, "NOT_FOUND"),
        ("GET", "/api/v2/sessions", {}, 404, "NOT_FOUND"),
        ("GET", "/api/v1/sessions/s-1", {}, 404, "NOT_FOUND"),
        ("GET", "/api/v1/jobs/job-1", {}, 404, "NOT_FOUND"),
        ("POST", "/livez", {}, 405, "METHOD_NOT_ALLOWED"),
        ("DELETE", "/api/v1/nodes/n1", {}, 405, "METHOD_NOT_ALLOWED"),
        ("OPTIONS", "/api/v1/nodes", {}, 405, "METHOD_NOT_ALLOWED"),
        ("GET", "/api/v1/nodes/n1/drain", {}, 405, "METHOD_NOT_ALLOWED"),
        ("GET", "/api/v1/sessions?limit=0", {}, 422, "INVALID_PARAMETER"),
        ("GET", "/api/v1/sessions?limit=501", {}, 422, "INVALID_PARAMETER"),
        ("GET", "/api/v1/jobs?limit=many", {}, 422, "INVALID_PARAMETER"),
        ("GET", "/api/v1/jobs?limit=1&limit=2", {}, 422, "INVALID_PARAMETER"),
        ("GET", "/api/v1/nodes?page=2", {}, 422, "INVALID_PARAMETER"),
        ("GET", f"/api/v1/nodes?after={'a' * 129}", {}, 422, "INVALID_PARAMETER"),
        ("GET", "/api/v1/nodes/a%20b", {}, 422, "INVALID_PARAMETER"),
        ("GET", "/api/v1/explain", {}, 422, "INVALID_PARAMETER"),
        ("GET", "/api/v1/explain?from=e&to=es", {}, 422, "INVALID_PARAMETER"),
        ("GET", "/api/v1/explain?from=en&to=auto", {}, 422, "INVALID_PARAMETER"),
        ("GET", f"{ZH_EN}&services=asr,magic", {}, 422, "INVALID_PARAMETER"),
        ("GET", f"{ZH_EN}&prefer=a%7Cb", {}, 422, "INVALID_PARAMETER"),
        ("POST", "/api/v1/nodes/n1/drain", {"json": {}}, 422, "INVALID_PARAMETER"),
        ("POST", "/api/v1/nodes/n1/drain", {"json": {"draining": 1}}, 422, "INVALID_PARAMETER"),
        ("POST", "/api/v1/nodes/n1/drain", {"json": []}, 422, "INVALID_PARAMETER"),
        ("POST", "/api/v1/nodes/n1/drain", {"data": b"{"}, 415, "UNSUPPORTED_MEDIA_TYPE"),
        ("POST", "/api/v1/nodes/n1/drain", big, 413, "BODY_TOO_LARGE"),
        ("POST", "/api/v1/nodes/n1/drain", big | {"chunked": True}, 413, "BODY_TOO_LARGE"),
    ]

    async def scenario(stage: Stage) -> None:
        for method, path, more, status, code in cases:
            reply = await ask(stage, path, method, **more)
            assert (reply.status, reply.code) == (status, code), (method, path, reply.body)
            assert reply.headers["X-Content-Type-Options"] == "nosniff"
            assert "Access-Control-Allow-Origin" not in reply.headers
            assert ("Allow" in reply.headers) is (status == 405)

    play(scenario)


def test_a_web_page_of_elsewhere_can_neither_act_nor_read() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.node("n1")
        port = stage.server.port
        path, body = "/api/v1/nodes/n1/drain", {"draining": True}
        for origin, status in [
            ("https://evil.example", 403), ("null", 403),
            (f"http://evil.example:{port}", 403), ("http://localhost:3000", 200),
        ]:  # fmt: skip
            reply = await ask(stage, path, "POST", json=body, headers={"Origin": origin})
            assert reply.status == status, origin
        # A foreign host name that resolves to this machine.
        for host, status in [
            (f"evil.example:{port}", 403), ("127.0.0.1.evil.example", 403), ("", 403),
            (f"localhost:{port}", 200), (f"127.0.0.1:{port}", 200), ("ops.example", 200),
        ]:  # fmt: skip
            reply = await ask(stage, "/api/v1/nodes", headers={"Host": host})
            assert reply.status == status, host

    play(scenario, server__origins='["https://ops.example", "http://localhost:3000"]')


# Tokens


def test_with_keys_the_api_is_for_admins() -> None:
    async def scenario(stage: Stage) -> None:
        refused = [
            ({}, 401, "UNAUTHORIZED"),
            ({"headers": {"Authorization": "Bearer nonsense"}}, 401, "UNAUTHORIZED"),
            ({"headers": {"Authorization": "Basic YTpi"}}, 401, "UNAUTHORIZED"),
            (bearer(scopes=("speak", "listen")), 403, "FORBIDDEN"),
        ]
        for path in ("/api/v1/sessions", "/api/v1/nodes/n1", "/api/v1/openapi.json", ZH_EN):
            for more, status, code in refused:
                reply = await ask(stage, path, **more)
                assert (reply.status, reply.code) == (status, code)
                assert ("WWW-Authenticate" in reply.headers) is (status == 401)
                if status == 401:
                    is_token = "nonsense" in str(more)
                    asked = reply.headers["WWW-Authenticate"]
                    assert asked.startswith('Bearer realm="lingua"')
                    assert ('error="invalid_token"' in asked) is is_token
                    said = "token refused: malformed; " if is_token else "no token was given; "
                    assert said in str(reply.body)
                    assert "`lingua token create --client --scopes admin`" in str(reply.body)
        assert (await ask(stage, "/api/v1/sessions", **bearer())).status == 200
        for path in ("/", "/livez", "/readyz", "/health", "/metrics"):
            assert (await ask(stage, path)).status == 200, path

    play(scenario, **WITH_KEYS)


def test_with_keys_strangers_see_no_numbers() -> None:
    async def scenario(stage: Stage) -> None:
        for path in ("/health", "/metrics"):
            assert (await ask(stage, path)).code == "UNAUTHORIZED"
            assert (await ask(stage, path, **bearer())).status == 200
        for path in ("/livez", "/readyz"):
            assert (await ask(stage, path)).status == 200

    # Behind a proxy, every connection comes from an address of this machine.
    play(scenario, **WITH_KEYS, server__behind_proxy=True)


def test_a_tenants_admin_sees_that_tenant_alone() -> None:
    async def scenario(stage: Stage) -> None:
        acme, globex = bearer(tenant="acme"), bearer(tenant="globex")
        mine = await stage.client(token=client_token("acme"))
        other = await stage.client(token=client_token("globex"))
        for client in (mine, other):
            await client.utter(0)
        await until(lambda: stage.leases() == 2, "both jobs are there")

        [session] = (await shown(stage, "/api/v1/sessions", **acme))["sessions"]
        assert (session["id"], session["tenant"]) == (mine.id, "acme")
        [job] = (await shown(stage, "/api/v1/jobs", **acme))["jobs"]
        assert job["session"] == mine.id
        assert (await shown(stage, "/api/v1/stats", **acme))["web_clients"]["active_users"] == 1
        assert len((await shown(stage, "/api/v1/sessions", **bearer()))["sessions"]) == 2
        history = f"/api/v1/history?of={mine.id}:0"
        assert len((await shown(stage, history, **acme))["jobs"]) == 1
        assert (await shown(stage, history, **globex))["jobs"] == []
        for path in (f"/api/v1/sessions/{mine.id}", f"/api/v1/jobs/{job['id']}"):
            assert (await ask(stage, path, **acme)).status == 200
            assert (await ask(stage, path, **globex)).code == "NOT_FOUND"
        assert (await ask(stage, f"{ZH_EN}&tenant=globex", **acme)).code == "FORBIDDEN"
        assert (await shown(stage, ZH_EN, **acme))["demand"].split("|")[4] == "acme"

    play(scenario, **WITH_KEYS)


def test_a_tenants_admin_acts_on_that_tenants_nodes_alone() -> None:
    async def scenario(stage: Stage) -> None:
        for name, tenant in (("ours", ""), ("acmes", "acme"), ("theirs", "globex")):
            await private_node(stage, name, tenant)
        acme = bearer(tenant="acme")
        seen = (await shown(stage, "/api/v1/nodes", **acme))["nodes"]
        assert {node["id"] for node in seen} == {"ours", "acmes"}
        explained = (await shown(stage, ZH_EN, **acme))["cells"][0]["nodes"]
        assert {node["node"] for node in explained} == {"ours", "acmes"}
        for name, status in (("acmes", 200), ("ours", 403), ("theirs", 404)):
            for act, body in (("drain", {"draining": True}), ("pairing", None)):
                path = f"/api/v1/nodes/{name}/{act}"
                reply = await ask(stage, path, "POST", json=body, **acme)
                assert reply.status == status, (name, act)
        for name in ("ours", "theirs"):
            node = await shown(stage, f"/api/v1/nodes/{name}", **bearer())
            assert not node["draining"]

    play(scenario, **WITH_KEYS)


# The document


def refs_in(part: Any) -> set[str]:
    """Return every reference in a document."""
    if isinstance(part, dict):
        own = {part["$ref"]} if "$ref" in part else set()
        return own.union(*(refs_in(value) for value in part.values()))
    if isinstance(part, list):
        return set().union(*(refs_in(value) for value in part))
    return set()


def test_the_document_describes_every_route_and_every_answer() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.node("n1")
        client: Client = await stage.client()
        found = await shown(stage, "/api/v1/openapi.json")
        assert found["openapi"] == "3.1.0"
        known = {f"#/components/schemas/{name}" for name in found["components"]["schemas"]}
        assert refs_in(found) <= known
        instance = stage.server.instance
        routes = HttpApi(instance, TokenGate(instance.settings)).routes
        assert sum(len(methods) for methods in found["paths"].values()) == len(routes)
        ids = [m["operationId"] for path in found["paths"].values() for m in path.values()]
        assert len(ids) == len(set(ids))
        given = {"nodes": "n1", "sessions": client.id, "models": "whisper-1"}
        for route in routes:
            described = found["paths"][route.path][route.method.lower()]
            assert described["summary"]
            if route.method == "POST" or route.answer is None or route.path.endswith("jobs/{id}"):
                continue
            path = route.path.replace("{id}", given.get(route.path.split("/")[-2], ""))
            path = {"/api/v1/explain": ZH_EN, "/api/v1/history": HISTORY}.get(path, path)
            reply = await ask(stage, path, headers={"Accept": "application/json"})
            kind = described["responses"]["200"]["content"]["application/json"]["schema"]
            schema = found["components"]["schemas"][kind["$ref"].rpartition("/")[2]]
            assert set(reply.json) == set(schema["properties"]), path
            msgspec.json.decode(reply.body, type=route.answer)

    play(scenario)
