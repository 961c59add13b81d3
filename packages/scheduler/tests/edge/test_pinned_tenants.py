"""Tenants that are pinned to labels of nodes: their jobs go there and nowhere else."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from edge.live_server import JSON, Stage, pcm16, play, registration, until
from edge.locked import LOCKED, client_token, node_token
from lingua_cli.logs import FIELDS
from lingua_cli.main import main
from lingua_wire.codes import CloseCode

if TYPE_CHECKING:
    from edge.live_server import NewClient, NewNode

pytestmark = pytest.mark.store

EU = [{"id": "acme", "labels": ["eu", "gpu-a"]}]
PINNED: dict[str, Any] = {**LOCKED, "tenants": json.dumps(EU)}


async def labelled(stage: Stage, name: str, *labels: str, **more: Any) -> NewNode:
    return await stage.node(name, token=node_token(name), labels=list(labels), **more)


async def acme(stage: Stage) -> NewClient:
    return await stage.client(token=client_token(tenant="acme"))


@pytest.mark.parametrize("tenants", [EU, [{"id": "acme", "pools": ["eu", "gpu-a"]}]])
@pytest.mark.parametrize("cells", [1, 4])
def test_jobs_of_a_pinned_tenant_go_only_to_nodes_with_all_its_labels(
    tenants: list[dict[str, Any]], cells: int
) -> None:
    async def scenario(stage: Stage) -> None:
        others = [
            await labelled(stage, "bare"),
            await labelled(stage, "half", "eu"),
            await labelled(stage, "abroad", "us", "gpu-a"),
        ]
        wanted = await labelled(stage, "wanted", "gpu-a", "quiet", "eu")
        wanted.work()
        client = await acme(stage)
        # The node declares one language more: it is another pool, with the same labels.
        more = registration(to=("en", "zh", "ja", "es", "fr"))["language_capabilities"]
        for index in range(4):
            await client.say(pcm16(400), is_final=True)
            await client.result(index)
            if index == 1:
                await wanted.beat(language_capabilities=more)
        assert not any(other.all("job_assign") for other in others)
        for other in others:
            other.work()
        free = await stage.client(token=client_token(tenant="other"))
        await free.say(pcm16(400), is_final=True)
        await free.result(0)

    play(scenario, **{**PINNED, "tenants": json.dumps(tenants), "cells": cells})


@pytest.mark.parametrize("cells", [1, 3])
def test_failover_and_the_queue_keep_to_the_labels(cells: int) -> None:
    async def scenario(stage: Stage) -> None:
        bare = await labelled(stage, "bare")
        bare.work()
        first = await labelled(stage, "first", "eu", "gpu-a")
        client = await acme(stage)
        await client.say(pcm16(400), is_final=True)
        await first.take(await first.job())
        first.drop()
        # Nobody may take it: it waits, though `bare` is free.
        await until(lambda: "first" not in stage.server.instance.nodes, "first is lost")
        second = await labelled(stage, "second", "eu", "gpu-a")
        second.work()
        await client.result(0)
        assert not bare.all("job_assign")

    play(scenario, **PINNED, cells=cells)


def test_a_label_that_no_node_has_is_explained_and_told_and_stops_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(stage: Stage) -> None:
        await labelled(stage, "bare", "eu")
        token = client_token(scopes=["admin"])
        url = f"{stage.server.url}/api/v1/explain?from=zh&to=en&tenant=acme"
        headers = {"Authorization": f"Bearer {token}"}
        async with aiohttp.request("GET", url, headers=headers) as answer:
            (cell,) = (await answer.json())["cells"]
        assert cell["verdict"]["label"] == "not_in_pinned_pool"
        (node,) = cell["nodes"]
        assert node["removed_by"] == "not_in_pinned_pool"
        assert (node["labels"], node["lacks"]) == (["eu"], ["gpu-a"])
        async with aiohttp.request(
            "GET", f"{stage.server.url}/api/v1/nodes/bare", headers=headers
        ) as answer:
            assert (await answer.json())["labels"] == ["eu"]
        await until(lambda: sentence in told("tenant.unserved"), sentence)
        await labelled(stage, "wanted", "eu", "gpu-a")
        await until(lambda: told("tenant.served"), "it is told that it is served")

    def told(event: str) -> list[object]:
        found = [record for record in caplog.records if record.getMessage() == event]
        return [record.__dict__[FIELDS].get("what", "") for record in found]

    sentence = "tenant acme is pinned to eu, gpu-a, but no known node has gpu-a"

    caplog.set_level(logging.INFO)
    play(scenario, **PINNED)


def test_a_node_token_limits_the_labels_or_gives_them() -> None:
    async def scenario(stage: Stage) -> None:
        client = await acme(stage)
        liar = await stage.socket("/ws/node", JSON)
        bound = node_token("liar", labels=["us"])
        await liar.send(
            "node_register", **registration(), node_id="liar", labels=["eu"], token=bound
        )
        await liar.follows(
            "error", code="FORBIDDEN", message="the token does not allow the label 'eu'"
        )
        assert await liar.closed() == CloseCode.FORBIDDEN
        given = await stage.node("given", token=node_token("given", labels=["eu", "gpu-a"]))
        given.work()
        fewer = node_token("fewer", labels=["eu", "gpu-a"])
        await stage.node("fewer", token=fewer, labels=["eu"])
        for index in range(3):
            await client.say(pcm16(400), is_final=True)
            await client.result(index)

    play(scenario, **PINNED)


@pytest.mark.parametrize("labels", [["a b"], ["-x"], [""], [f"l{n}" for n in range(17)]])
def test_labels_that_are_none_refuse_the_node(labels: list[str]) -> None:
    async def scenario(stage: Stage) -> None:
        peer = await stage.socket("/ws/node", JSON)
        await peer.send("node_register", **registration(), node_id="n", labels=labels)
        await peer.follows("error", code="INVALID_MESSAGE")
        assert await peer.closed() == CloseCode.REFUSED

    play(scenario)


def test_config_check_names_the_tenants_that_no_known_node_may_serve(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.node("bare", labels=["eu"])
        monkeypatch.setenv("LINGUA_DATA_DIR", str(stage.server.settings.data_dir))
        monkeypatch.setenv("LINGUA_TENANTS", json.dumps(EU))
        assert await asyncio.to_thread(main, ["config", "check"]) == 0
        lines = capsys.readouterr().out.splitlines()
        sentence = "tenant acme is pinned to eu, gpu-a, but no known node has gpu-a"
        assert lines[0] == "ok"
        assert lines[-1] == f"warning: {sentence}"

    play(scenario)
    # Nothing runs there any more: that is no error.
    assert main(["config", "check"]) == 0
    assert "warning: the labels of nodes are unknown" in capsys.readouterr().out
