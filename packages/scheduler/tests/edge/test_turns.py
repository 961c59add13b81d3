"""Turns over real sockets: all slices of one speech go to one node, in order, until it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

import pytest

from edge.live_server import SHORT_ATTEMPTS, Node, Stage, audio_of, opus, play, until

pytestmark = pytest.mark.store


def more_jobs_than(nodes: Sequence[Node], count: int) -> bool:
    return sum(len(node.jobs) for node in nodes) > count


def test_all_slices_of_a_long_sentence_reach_one_node_in_order() -> None:
    async def scenario(stage: Stage) -> None:
        nodes = [await stage.old_node() for _ in range(3)]
        client = await stage.old_client()
        for number in range(3):
            await client.say(opus(1000, bytes([97 + number])))
            await until(partial(more_jobs_than, nodes, number), "the slice is assigned")
        await client.say(opus(500, b"z"), is_final=True)
        await until(lambda: sum(len(node.jobs) for node in nodes) == 4, "the end is assigned")
        (holder,) = [node for node in nodes if node.jobs]
        assert [job["utterance_index"] for job in holder.jobs] == [0, 1, 2, 3]
        assert len({job["turn_id"] for job in holder.jobs}) == 1
        assert not any(job.get("context_reset") for job in holder.jobs)
        whole = b"".join(audio_of(job) for job in holder.jobs)
        assert whole == b"".join(opus(1000, fill) for fill in (b"a", b"b", b"c")) + opus(500, b"z")
        await holder.answer(holder.jobs[3], "the whole sentence")
        await client.result(3, text_asr="the whole sentence")

    play(scenario, segmentation__max_duration_ms=1000, segmentation__pause_ms=1000)


def test_a_silent_slice_stays_with_its_node_while_its_turn_goes_on() -> None:
    async def scenario(stage: Stage) -> None:
        nodes = [await stage.old_node() for _ in range(2)]
        client = await stage.old_client()
        await client.say(opus(1000))
        await until(lambda: any(node.jobs for node in nodes), "the slice is assigned")
        holder, other = sorted(nodes, key=lambda node: -len(node.jobs))
        # Three attempts' time: the turn goes on and nobody takes the slice away.
        for _ in range(6):
            await client.say(opus(100))
            await asyncio.gather(
                holder.silent_for(300, "job_cancel"), other.silent_for(300, "job_assign")
            )
        await client.say(opus(100), is_final=True)
        await holder.answer(await holder.job(utterance_index=1), "all")
        await client.result(1, text_asr="all")
        assert client.outcomes() == [(0, "silence_detected"), (1, "ok")]
        assert not client.all("error")
        assert [job["attempt_id"] for job in holder.jobs] == [1, 1]

    play(
        scenario, segmentation__max_duration_ms=1000, segmentation__pause_ms=1500, **SHORT_ATTEMPTS
    )


@pytest.mark.parametrize(
    "bound", [{"jobs__in_flight_max": 2, "nodes__max_jobs": 10}, {"nodes__max_jobs": 2}]
)
def test_a_monologue_of_more_slices_than_may_be_under_way_ends(
    bound: dict[str, int],
) -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.old_node()
        client = await stage.old_client()
        for _ in range(4):
            await client.say(opus(1000))
            await client.silent_for(50, "error")
        await client.say(opus(100), is_final=True)
        # It holds slices in silence and answers the closing piece, as nodes in the field do.
        await node.answer(await node.job(is_manual_cut=True), "all")
        await client.result(4, text_asr="all")
        silent = [(index, "silence_detected") for index in range(4)]
        assert client.outcomes() == [*silent, (4, "ok")]

    # A stall of the machine is no pause of the speaker.
    play(scenario, segmentation__max_duration_ms=1000, segmentation__pause_ms=5000, **bound)


def test_a_turn_that_ends_while_its_slices_wait_does_not_hold_the_last_one_for_ever() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.old_node(max_jobs=8)
        client = await stage.client()
        await client.utter(0)
        first = await node.job(utterance_index=0)
        # Three slices; the window lets none of them in before the first utterance ends.
        for _ in range(3):
            await client.say(opus(400))
        session = stage.server.instance.sessions[client.id]
        await until(
            lambda: len(session.admission.parts.backlog) == 3 and session.input.is_idle,
            "the turn ended",
        )
        await node.answer(first)
        # The old node buffers slices in silence and answers the piece that closes a turn.
        for index in (1, 2, 3):
            job = await node.job(utterance_index=index)
            if not job.get("is_max_duration_triggered"):
                await node.answer(job)
        await client.result(3)
        assert [index for index, _ in client.outcomes()] == [0, 1, 2, 3]

    play(scenario, jobs__in_flight_max=1, segmentation__max_duration_ms=300,
         segmentation__hangover_auto_ms=0)  # fmt: skip
