"""Turns over real sockets with several cells: slices and languages of one speech on one node.

The nodes are in other cells than the speaker, so that every job is placed over two cells.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import pytest

from edge.live_server import Stage, opus, play, registration, until

if TYPE_CHECKING:
    from edge.live_server import NewClient, NewNode

pytestmark = pytest.mark.store

CELLS = {"cells": 8, "jobs__sweep_interval_ms": 50}


async def nodes_elsewhere(stage: Stage, client: NewClient, number: int = 4) -> list[NewNode]:
    """Register nodes, all of them in the cell after the session's own."""
    instance = stage.server.instance
    cell = instance.cells.ring_after(instance.sessions[client.id].record.home)[0]
    names = (f"far-{at}" for at in count() if instance.cells.of_node(f"far-{at}") is cell)
    languages = registration(("zh", "en"), ("en", "es", "ja", "zh"))["language_capabilities"]
    return [
        await stage.node(next(names), max_jobs=8, language_capabilities=languages)
        for _ in range(number)
    ]


def any_closes(nodes: list[NewNode]) -> bool:
    """Tell whether the closing piece has come."""
    return any(not job.get("is_max_duration_triggered") for node in nodes for job in node.jobs)


def test_slices_that_come_at_once_reach_one_node_of_another_cell_in_order() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        nodes = await nodes_elsewhere(stage, client)
        for number in range(8):
            await client.say(opus(1000, bytes([97 + number])))
        await client.say(opus(500, b"z"), is_final=True)
        await until(lambda: any_closes(nodes), "all is assigned")
        (holder,) = [node for node in nodes if node.jobs]
        assert [job["utterance_index"] for job in holder.jobs] == list(range(len(holder.jobs)))
        assert len({job["turn_id"] for job in holder.jobs}) == 1
        assert not any(job.get("context_reset") for job in holder.jobs)
        for job in list(holder.jobs):
            await holder.answer(job)
        await client.result(len(holder.jobs) - 1)
        assert len(holder.jobs) > 2

    play(scenario, segmentation__max_duration_ms=1000, segmentation__pause_ms=1000, **CELLS)


def test_two_languages_of_an_utterance_are_on_one_node_of_another_cell() -> None:
    async def scenario(stage: Stage) -> None:
        speaker = await stage.client("zh", "en")
        nodes = await nodes_elsewhere(stage, speaker)
        room = (await room_of(speaker))["room_code"]
        for language in ("en", "es"):
            listener = await stage.client(language, "zh")
            await listener.ask("room_join", room_code=room, preferred_lang=language)
            await speaker.expect("room_members")
        for index in range(4):
            await speaker.say(opus(300), is_final=True)
            known = 2 * (index + 1)
            await until(
                lambda known=known: sum(len(node.jobs) for node in nodes) == known, "assigned"
            )
            pair = [
                (node, job)
                for node in nodes
                for job in node.jobs
                if job["utterance_index"] == index
            ]
            assert {job["tgt_lang"] for _, job in pair} == {"en", "es"}
            assert len({node.id for node, _ in pair}) == 1
            assert not any(job.get("context_reset") for _, job in pair)
            for node, job in pair:
                await node.answer(job)

    play(scenario, **CELLS)


async def room_of(speaker: NewClient) -> dict:
    await speaker.ask("room_create", display_name="speaker")
    return await speaker.expect("room_create_ack")
