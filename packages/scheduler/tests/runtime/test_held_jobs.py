"""The jobs that nodes of an instance hold, and how long their cells are remembered."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lingua_scheduler.runtime import held_jobs as module
from runtime.bare_instances import BareInstance, play
from runtime.node_elsewhere import acks

if TYPE_CHECKING:
    from servers import Server

pytestmark = pytest.mark.store


def test_only_the_latest_jobs_are_remembered(
    store: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HOMES_KEPT", 2)

    async def scenario(here: BareInstance) -> None:
        worker = await here.node()
        speaker = await here.speaker()
        jobs = []
        for number in range(4):
            speaker.say()
            jobs.append(await worker.job(number))
            await worker.report(jobs[-1])
        worker.socket.take()
        for job in jobs:
            await worker.report(job)
        assert acks(worker) == ["unknown", "unknown", "accepted", "accepted"]

    play(store, scenario)


def test_a_node_holds_jobs_until_it_has_let_go(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        worker = await here.node()
        speaker = await here.speaker()
        speaker.say()
        await worker.job()
        assert here.held.has_any_of(worker.node.id)
        here.held.remove(worker.assigned[0].job_id, "another-node")
        assert here.held.has_any_of(worker.node.id)
        here.held.remove_all_of(worker.node.id)
        assert not here.held.has_any_of(worker.node.id)

    play(store, scenario)
