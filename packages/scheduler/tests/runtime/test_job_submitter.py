"""What the store gets of a job: with others all that they need, alone its trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lingua_scheduler.runtime.job import decode_body, trace_in
from runtime.bare_instances import BareInstance, play

if TYPE_CHECKING:
    from servers import Server

pytestmark = pytest.mark.store


async def stored_body(here: BareInstance) -> tuple[bytes, str]:
    """Return what the store keeps of a job, and the job's trace."""
    await here.node()
    speaker = await here.speaker()
    speaker.say(0)
    await here.quiet()
    (job,) = here.jobs
    record = await here.instance.store.jobs.show(job.home, job.id)
    assert record is not None
    return record.body, job.assign.trace_id


def test_other_instances_find_the_message_of_a_job_in_the_store(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        body, trace = await stored_body(here)
        assert decode_body(body).assign.trace_id == trace

    play(store, scenario)


def test_a_private_store_keeps_the_trace_of_a_job_which_operators_ask_for(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        body, trace = await stored_body(here)
        assert trace_in(body) == trace
        assert len(body) < 64

    play(store, scenario, deployment_mode="local")
