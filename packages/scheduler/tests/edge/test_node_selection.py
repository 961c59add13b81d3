"""Which node gets a job: one that serves the languages and has a free slot."""

from __future__ import annotations

import asyncio

import pytest

from edge.live_server import Node, Stage, play, registration, until

pytestmark = pytest.mark.store


def test_a_full_node_is_passed_over() -> None:
    async def scenario(stage: Stage) -> None:
        nodes = [await stage.node(max_jobs=1) for _ in range(3)]
        client = await stage.client()
        for index in range(3):
            await client.utter(index)
        for node in nodes:
            await node.job(attempt_id=1)

    play(scenario)


def test_heartbeats_do_not_hold_up_placement() -> None:
    async def scenario(stage: Stage) -> None:
        nodes = [await stage.old_node() for _ in range(10)]
        for node in nodes:
            node.work()
        client = await stage.client()

        async def beat(node: Node) -> None:
            said = registration()
            services = said["installed_services"]
            for number in range(40):
                langs = registration(to=("en", "zh")[: number % 2 + 1])["language_capabilities"]
                await node.beat(installed_services=services, language_capabilities=langs)

        async def speak() -> None:
            for index in range(20):
                await client.utter(index)
                await client.result(index)

        await asyncio.gather(speak(), *(beat(node) for node in nodes))
        spent = stage.server.instance.metrics.jobs.accept_to_assign_seconds
        assert spent.count == 20
        assert not any(spent.counts[-2:]), spent.counts

    play(scenario)


# No node for the job


@pytest.mark.parametrize("src", ["zh", "auto"])
def test_a_node_is_found_whatever_came_first(src: str) -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.old_client(src, "en")
        await client.utter(0, src_lang=src)
        await client.expect("error", code="NO_AVAILABLE_NODE")
        # It says what it can do only with a later heartbeat, and gets ready with that one.
        node = await stage.old_node(
            "late", language_capabilities={"asr_languages": ["ja"], "semantic_languages": ["ko"]}
        )
        await node.silent_for(100)
        await node.beat(language_capabilities=registration()["language_capabilities"])
        job = await node.job()
        assert (job["src_lang"], job["tgt_lang"]) == (src, "en")
        await node.answer(job)
        await client.result(0)

    play(scenario)


def test_a_language_nobody_serves_is_told_when_it_is_chosen() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.old_node()
        instance = stage.server.instance
        await until(lambda: instance.fleet._pools, "the fleet was looked at")
        client = await stage.client("zh", "fr")
        assert client.ack["unserved_langs"] == ["fr"]
        old = await stage.old_client("zh", "fr")
        assert "fr" in old.ack["message"]
        served = await stage.client("zh", "en")
        assert "unserved_langs" not in served.ack

    play(scenario)


def test_a_job_that_waits_is_told_at_once_and_placed_when_a_node_comes() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.old_client()
        await client.utter(0)
        told = await client.expect("ui_event", event="ERROR", status="error")
        assert told["error_code"] == "NO_AVAILABLE_NODE"
        assert told["elapsed_ms"] < 2000
        assert told["hint"]
        node = await stage.old_node()
        await node.answer(await node.job(attempt_id=1))
        await client.result(0)

    play(scenario)


def test_the_reason_why_no_node_was_found_is_counted() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.old_client()
        await client.utter(0)
        error = await client.expect("error", code="NO_AVAILABLE_NODE")
        label = error["details"]["label"]
        name = "no_available_node_total"
        assert label
        assert stage.counted(name, selector="submit", reason=label) == 1

    play(scenario)
