"""Bounds: of what a session may have waiting, of the outbox, of labels, and of context."""

from __future__ import annotations

import pytest

from edge.live_server import Stage, play

pytestmark = pytest.mark.store


def test_backpressure_is_real() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.old_node()
        client = await stage.old_client()
        for index in range(4):
            await client.utter(index)
        pressed = await client.expect("backpressure", action="PAUSE")
        assert pressed["resume_after_ms"] > 0
        await client.utter(4)
        refused = await client.expect("error", code="BUSY")
        assert refused["details"] == {"utterance_index": 4}

    play(scenario, jobs__in_flight_max=2, sessions__backlog_max=2)


def test_an_outbox_smaller_than_what_is_usually_kept_does_not_fill_up() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        node.work()
        client = await stage.client()
        for index in range(12):
            await client.utter(index)
            await client.result(index)

    play(scenario, jobs__outbox_max=4)


def test_labels_stay_few_and_context_is_cut_between_characters() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.old_node("node-with-a-name")
        client = await stage.old_client()
        for index in range(4):
            await client.utter(index)
            job = await node.job()
            assert len(job.get("context_text", "")) <= 800
            assert "�" not in job.get("context_text", "")
            # An emoji of several code points and a sign of four bytes, at every offset.
            await node.answer(job, "好" * (300 + index) + "𠮷👩‍👩‍👧" * 40)
            await client.result(index)
        assert (job.get("context_text") or "").startswith("User: ")
        shown = stage.server.instance.metrics.render().decode()
        for name in (node.id, client.id, job["job_id"], job["job_id"][:8], job["trace_id"]):
            assert name not in shown

    play(scenario)
