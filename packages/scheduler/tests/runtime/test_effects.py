"""Effects of the store's decisions: pushes to nodes here and elsewhere, moves, stops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lingua_scheduler.peers.messages import PushJob, ResendAudio, StopAttempt
from lingua_scheduler.runtime.remote_session import RemoteSession
from lingua_scheduler.state.records import Placement
from lingua_wire.to_node import JobCancel
from runtime.bare_instances import CHUNK, BareInstance, play
from runtime.node_elsewhere import events, spoken

if TYPE_CHECKING:
    from lingua_scheduler.jobs.dispatcher import Work
    from servers import Server

pytestmark = pytest.mark.store

# The store keeps no audio: the instance that pushes a job gets it from the session's owner.
LEAN = {"retain_audio": False}


# Pushes.


def test_a_job_for_a_node_elsewhere_is_a_message_to_its_instance(store: Server) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        speaker, worker, messages = await spoken(here, there)
        (job,) = here.jobs
        (message,) = messages
        assert isinstance(message, PushJob)
        assert message == PushJob(job.id, 1, "n1", "c0", ends_at_ms=message.ends_at_ms)
        assert (job.attempt, job.node, job.status) == (1, "n1", "assigned")
        assert "DISPATCHED" in events(speaker)
        assert worker.assigned == []
        assert len(here.held) == 0

    play(store, scenario, "AB")


def test_the_nodes_instance_reads_the_job_and_pushes_it(store: Server) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        speaker, worker, (message,) = await spoken(here, there)
        await there.apply(message)
        (assign,) = worker.assigned
        assert (assign.session_id, assign.utterance_index) == (speaker.session.id, 0)
        assert assign.audio == CHUNK + b"\0\0"
        assert assign.attempt_id == 1
        held = there.held.get(assign.job_id)
        assert held is not None
        assert isinstance(held.owner, RemoteSession)
        assert len(there.jobs) == 0

    play(store, scenario, "AB")


def test_a_push_that_comes_twice_is_pushed_once(store: Server) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        _, worker, (message,) = await spoken(here, there)
        for _ in range(3):
            await there.apply(message)
        assert len(worker.assigned) == 1

    play(store, scenario, "AB")


@pytest.mark.parametrize("at", ["a third instance", "its session"])
def test_a_push_that_comes_again_to_a_restarted_node_does_not_begin_the_attempt_twice(
    store: Server, at: str
) -> None:
    async def scenario(here: BareInstance, there: BareInstance, third: BareInstance) -> None:
        _, worker, (message,) = await spoken(here, there)
        await there.apply(message)
        assert [job.attempt_id for job in worker.assigned] == [1]
        # The node restarts, and the message is adopted before the jobs it held are moved.
        instance = here if at == "its session" else third
        move_leases = instance.effects.dispatcher.move_leases

        async def after_the_message(*leases: Any) -> Work:
            await instance.apply(message)
            return await move_leases(*leases)

        instance.effects.dispatcher.move_leases = after_the_message  # type: ignore[method-assign]
        restarted = await instance.node(boot_id="b2")
        assert [job.attempt_id for job in worker.assigned] == [1]
        await restarted.job()
        await instance.quiet()
        assert [job.attempt_id for job in restarted.assigned] == [2]

    play(store, scenario, "ABC")


def test_a_push_that_comes_after_its_job_has_ended_is_nothing(store: Server) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        _, worker, (message,) = await spoken(here, there)
        await there.apply(message)
        await worker.report(worker.assigned[0])
        await there.apply(message)
        assert len(worker.assigned) == 1
        assert len(there.held) == 0

    play(store, scenario, "AB")


def test_a_push_of_an_attempt_that_is_not_current_is_nothing(store: Server) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        _, worker, (message,) = await spoken(here, there)
        assert isinstance(message, PushJob)
        second = await there.node("n2")
        # The node never received it: it moves to another one.
        placement = Placement(
            message.job, 1, "n1", "c0", "B", context_reset=False, ends_at_ms=0, home="c0"
        )
        await here.effects.move(placement, "no_ack")
        await here.quiet()
        await there.apply(message)
        assert worker.assigned == []
        (later,) = await there.take_messages()
        await there.apply(later)
        assert [job.attempt_id for job in second.assigned] == [2]

    play(store, scenario, "AB")


def test_a_push_for_a_node_that_went_to_a_third_instance_follows_it(store: Server) -> None:
    async def scenario(here: BareInstance, there: BareInstance, third: BareInstance) -> None:
        _, worker, (message,) = await spoken(here, there)
        # Its socket is lost and it registers elsewhere; it still holds its lease.
        del there.nodes["n1"]
        moved = await third.idle_node("n1")
        await third.quiet()
        assert len(moved.assigned) == 1, "it is sent the job that it holds"
        await there.apply(message)
        await there.quiet()
        (followed,) = await third.take_messages()
        assert followed == message
        await third.apply(followed)
        assert len(moved.assigned) == 1
        assert worker.assigned == []

    play(store, scenario, "ABC")


def test_a_push_for_a_node_that_is_nowhere_goes_to_another_node(store: Server) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        _, _, (message,) = await spoken(here, there)
        node = there.nodes.pop("n1")
        await there.store.nodes.offline(there.cell, "n1", node.conn)
        other = await here.node("n2")
        await there.apply(message)
        await there.quiet()
        await here.read_inbox()
        await here.quiet()
        assert [job.attempt_id for job in other.assigned] == [2]

    play(store, scenario, "AB")


def test_a_push_to_an_instance_without_an_inbox_moves_the_job(store: Server) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        await there.node()
        await there.instance.peers.inbox.close(forget=True)
        speaker = await here.speaker()
        speaker.say()
        await here.quiet()
        (job,) = here.jobs
        assert job.status == "assigned", "it waits for a connected node"
        other = await here.node("n2")
        assert [job.attempt_id for job in other.assigned] == [2]

    play(store, scenario, "AB")


def test_a_socket_that_does_not_take_a_job_gives_it_to_another_node(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        alive = await here.node("n1")
        speaker = await here.speaker()
        speaker.say()
        await alive.job(0)
        # The other one is idle and would be preferred.
        await here.node("n2", is_dead=True)
        speaker.say()
        await here.quiet()
        assert [job.utterance_index for job in alive.assigned] == [0, 1]
        assert {job.node for job in here.held} == {"n1"}

    play(store, scenario)


# Audio that the store does not keep.


def test_without_audio_in_the_store_the_push_carries_it(store: Server) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        _, worker, (message,) = await spoken(here, there)
        assert isinstance(message, PushJob)
        assert message.audio == CHUNK + b"\0\0"
        await there.apply(message)
        assert [job.audio for job in worker.assigned] == [message.audio]

    play(store, scenario, "AB", jobs=LEAN)


def test_audio_that_did_not_come_along_is_asked_of_the_owner(store: Server) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        _, worker, (message,) = await spoken(here, there)
        assert isinstance(message, PushJob)
        # An instance that placed it for a freed slot has no audio.
        bare = PushJob(message.job, message.attempt, message.node, message.home)
        await there.apply(bare)
        await there.quiet()
        assert worker.assigned == []
        (asked,) = await here.take_messages()
        assert asked == ResendAudio(message.job, 1, "n1", "c0", "B")
        await here.apply(asked)
        await here.quiet()
        await there.read_inbox()
        assert [job.audio for job in worker.assigned] == [message.audio]

    play(store, scenario, "AB", jobs=LEAN)


# Jobs that are moved or stopped.


def test_a_node_that_is_lost_gives_its_jobs_to_others(store: Server) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        _, worker, (message,) = await spoken(here, there)
        await there.apply(message)
        second = await here.node("n2")
        await there.instance.node_parts.registry.gone(worker.node)
        await there.quiet()
        await here.read_inbox()
        await here.quiet()
        assert [job.attempt_id for job in second.assigned] == [2]
        assert len(there.held) == 0

    play(store, scenario, "AB")


def test_work_of_a_session_elsewhere_is_stopped_by_message(store: Server) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        _, worker, (message,) = await spoken(here, there)
        await there.apply(message)
        (assign,) = worker.assigned
        _, work = await here.effects.dispatcher.cancel(here.cell, assign.job_id, "unwanted")
        here.effects.perform(work)
        await here.quiet()
        assert await there.read_inbox() == [StopAttempt(assign.job_id, 1, "n1", "cancelled")]
        assert [(m.job_id, m.attempt_id) for m in worker.of(JobCancel)] == [(assign.job_id, 1)]
        assert len(there.held) == 0

    play(store, scenario, "AB")
