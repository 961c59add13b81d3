"""One instance whose store loses all its data, or whose replies from the store are lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from edge.live_server import Node, Stage, play, until
from lingua_scheduler.errors import StoreUnavailable

if TYPE_CHECKING:
    from lingua_scheduler.state.calls import CallForm

pytestmark = pytest.mark.store


# All data


async def flush(stage: Stage, node: Node) -> None:
    """Let the store forget everything; the node is soon known again, by its beats."""
    instance = stage.server.instance
    await instance._connection.command(instance.cells.all[0].slot, "FLUSHALL")
    await node.beat()
    await node.expect("node_register_ack")
    await node.beat()


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


# Replies


class LosesAnswers:
    """A store whose answer to one kind of step is lost, once; the step was taken, or was not."""

    def __init__(self, stage: Stage, script: str, *, is_done: bool = True) -> None:
        self._is_done = is_done
        self._store = stage.server.instance.store
        self._connection = self._store.runner.connection
        self._script = script
        self._store.runner.connection = self  # type: ignore[assignment]

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

    async def ask(self, form: CallForm, args: tuple[Any, ...], read: Any, size: int) -> Any:
        del size
        return read(await self.run(form.script, form.slot, form.keys, (*form.shared, *args)))

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

    play(scenario, jobs__pending_ms=1000, jobs__ack_ms=1500)


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
