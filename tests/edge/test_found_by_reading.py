"""Failures found by reading the live path against the spec, each over real sockets.

Each test names what went wrong once; none of them depends on how it was mended.
"""

from __future__ import annotations

from typing import Any

import pytest

from edge.live_server import Client, Node, Stage, opus, play, until
from edge.test_doors import LOCKED, client_token
from lingua_scheduler.errors import StoreUnavailable

pytestmark = pytest.mark.store


async def flush(stage: Stage, node: Node) -> None:
    """Let the store forget everything; the node is soon known again, by its beats."""
    instance = stage.server.instance
    await instance._connection.command(instance.cells.all[0].slot, "FLUSHALL")
    await node.beat()
    await node.expect("node_register_ack")
    await node.beat()


# The store forgets


def test_a_store_that_forgot_everything_costs_no_utterance_of_those_under_way() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        client = await stage.client()
        for index in range(3):
            await client.utter(index)
            await node.job(utterance_index=index)
        await flush(stage, node)
        node.work()
        await client.utter(3)
        for index in range(4):
            await client.result(index)
        assert [index for index, _ in client.outcomes()] == [0, 1, 2, 3]
        await until(lambda: not stage.leases())

    play(scenario)


def test_a_store_that_forgot_everything_is_noticed_without_a_further_utterance() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        client = await stage.client()
        await client.utter(0)
        await node.job(utterance_index=0)
        await flush(stage, node)
        node.work()
        await client.result(0)

    play(scenario)


# Order


def test_a_new_language_is_not_held_up_by_an_index_that_was_left_out_long_ago() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        node.work()
        client = await stage.client()
        await client.utter(0)
        await client.utter(2)
        await client.result(2)
        for index in range(3, 20):
            await client.utter(index)
            await client.result(index)
        await client.ask("session_update", tgt_lang="ja")
        await client.utter(20, tgt_lang="ja")
        await client.result(20, tgt_lang="ja")
        assert [index for index, _ in client.outcomes()] == list(range(21))

    play(scenario, jobs__gap_ms=300)


def test_a_hole_gives_no_second_outcome_to_utterances_of_another_language() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        client = await stage.client()
        await client.utter(0)
        await client.utter(1)
        jobs = [await node.job() for _ in range(2)]
        await client.utter(3, tgt_lang="ja")
        await node.answer(await node.job(utterance_index=3))
        await client.result(3)
        for job in jobs:
            await node.answer(job)
        await client.result(1)
        assert sorted(index for index, _ in client.outcomes()) in ([0, 1, 3], [0, 1, 2, 3])

    play(scenario, jobs__gap_ms=300)


# Answers of the store that got lost


class LosesAnswers:
    """A store whose answer to one kind of step is lost, once; the step was taken, or was not."""

    def __init__(self, stage: Stage, script: str, *, is_done: bool = True) -> None:
        self._is_done = is_done
        self._store = stage.server.instance.store
        self._connection = self._store._connection
        self._script = script
        self._store._connection = self  # type: ignore[assignment]

    @property
    def is_over(self) -> bool:
        """Tell whether the answer was lost already."""
        return not self._script

    async def run(self, script: Any, *args: Any) -> Any:
        if script.name != self._script:
            return await self._connection.run(script, *args)
        self._script = ""
        if self._is_done:
            await self._connection.run(script, *args)
        raise StoreUnavailable("test", "the answer was lost")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


@pytest.mark.parametrize("script", ["job_settle", "job_submit", "job_failover"])
def test_an_outcome_reaches_its_client_although_the_stores_answer_was_lost(script: str) -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node(sends_acks=True)
        client = await stage.client()
        LosesAnswers(stage, script)
        await client.utter(0)
        job = await node.job(utterance_index=0)
        if script == "job_failover":
            node.drop()
            await client.expect("missing_result", utterance_index=0, reason="expired")
        else:
            await node.answer(job)
            await client.result(0)
        await until(lambda: not stage.leases())

    play(scenario, jobs__pending_ms=1000, jobs__ack_ms=400)


def test_a_node_that_asked_to_drain_gets_nothing_although_the_store_was_away() -> None:
    async def scenario(stage: Stage) -> None:
        node, other = await stage.node(max_jobs=64), await stage.node(max_jobs=64)
        lost = LosesAnswers(stage, "node_drain", is_done=False)
        await node.send("node_drain", node_id=node.id, draining=True)
        await until(lambda: not len(stage.server.instance.tasks) and lost.is_over, "it is drained")
        client = await stage.client()
        for index in range(8):
            await client.utter(index)
            await other.job(utterance_index=index)
        assert not node.jobs

    play(scenario)


def test_an_outbox_smaller_than_what_is_usually_kept_does_not_fill_up() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        node.work()
        client = await stage.client()
        for index in range(12):
            await client.utter(index)
            await client.result(index)

    play(scenario, jobs__outbox_max=4)


# Sessions that end, and what they leave


def test_a_session_that_ends_before_its_jobs_leaves_none_of_them_behind() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node(max_jobs=64)
        client = await stage.client()
        for index in range(8):
            await client.utter(index)
        # One is in the store, the others wait for it longer than a session takes to close.
        await node.job(utterance_index=0)
        await client.ask("session_close", reason="done")
        await client.expect("session_close_ack")
        board = stage.server.instance.board
        assert (len(board.sessions), len(board.jobs)) == (0, 0)
        await until(lambda: not len(stage.server.instance.tasks), "no task is left")
        assert not board.jobs

    play(
        scenario, jobs__in_flight_max=1, jobs__pending_ms=100, jobs__attempt_ms=1200,
        jobs__attempts_max=1, jobs__ack_ms=50, jobs__reserve_ms=1100,
    )  # fmt: skip


# Repetition


def test_a_request_id_made_like_anothers_still_gets_an_outcome() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        client = await stage.client("zh", tgt="", tgt_langs=["en", "ja"])
        await client.utter(0, request_id="r")
        jobs = [await node.job(), await node.job()]
        await client.ask("session_update", tgt_lang="ja")
        # However the ids of two languages are made, no client makes one by accident.
        await client.utter(1, request_id="r:ja", tgt_lang="ja")
        for job in [*jobs, await node.job(utterance_index=1)]:
            await node.answer(job)
        await client.result(1)
        await client.utter(2, tgt_lang="ja")
        await node.answer(await node.job(utterance_index=2))
        await client.result(2)
        await until(lambda: not stage.server.instance.board.sessions[client.id].admission.open)

    play(scenario)


def test_an_utterance_that_comes_late_does_not_wait_for_those_that_wait_for_it() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        node.work()
        client = await stage.client()
        for index in (0, 2, 3, 4, 5, 6, 7, 8, 9, 1):
            await client.utter(index)
        await client.result(9)
        assert client.outcomes() == [(index, "ok") for index in range(10)]

    play(scenario, jobs__in_flight_max=4, jobs__gap_ms=3000)


def test_indices_left_out_for_good_are_not_kept_for_ever() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        node.work()
        client = await stage.client()
        for index in range(0, 80, 4):
            await client.utter(index)
            await client.result(index)
        assert not stage.server.instance.board.sessions[client.id].admission._skipped

    play(scenario, jobs__gap_ms=100)


# Turns


def test_a_turn_that_ends_while_its_slices_wait_does_not_hold_the_last_one_for_ever() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.old_node(max_jobs=8)
        client = await stage.client()
        await client.utter(0)
        first = await node.job(utterance_index=0)
        # Three slices; the window lets none of them in before the first utterance ends.
        for _ in range(3):
            await client.say(opus(400))
        session = stage.server.instance.board.sessions[client.id]
        await until(
            lambda: len(session.admission.backlog) == 3 and session._segmenter.is_idle,
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


# Tenants and rooms


async def room_of(creator: Client, **named: Any) -> str:
    """Create a room; return its code."""
    await creator.send("room_create", client_ts=1, **named)
    return str((await creator.expect("room_create_ack"))["room_code"])


def test_closing_leaves_the_room_at_once() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        one, two = await stage.client(), await stage.client()
        code = await room_of(one, preferred_lang="ja")
        await two.send("room_join", room_code=code, preferred_lang="en")
        while len((await one.expect("room_members"))["members"]) != 2:
            pass
        await two.utter(0)
        await node.job()
        await two.ask("session_close", reason="done")
        assert len((await one.expect("room_members"))["members"]) == 1

    play(scenario)


def test_a_room_of_another_tenant_does_not_exist() -> None:
    async def scenario(stage: Stage) -> None:
        here = await stage.client(token=client_token(tenant="acme", rooms=True))
        there = await stage.client(token=client_token(tenant="globex", rooms=True))
        code = await room_of(here, preferred_lang="en")
        await there.send("room_join", room_code=code, preferred_lang="ja")
        await there.expect("room_error", code="ROOM_NOT_FOUND")
        colleague = await stage.client(token=client_token(tenant="acme", rooms=True))
        await colleague.send("room_join", room_code=code, preferred_lang="ja")
        assert len((await colleague.expect("room_members"))["members"]) == 2

    play(scenario, **LOCKED)


def test_who_reads_along_gets_an_utterance_that_came_late_too() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        node.work()
        speaker, reader, listener = [await stage.client() for _ in range(3)]
        code = await room_of(speaker, preferred_lang="zh")
        await reader.send("room_join", room_code=code, preferred_lang="zh")
        await listener.send("room_join", room_code=code, preferred_lang="en")
        await listener.expect("room_members")
        await speaker.utter(0)
        await listener.result(0)
        for index in (2, 1, 3):
            await speaker.utter(index)
        await listener.result(3)
        await until(lambda: len(reader.outcomes()) == 4, "the reader has all")

    play(scenario)
