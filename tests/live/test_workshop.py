"""What nodes here do: pushes of any session's jobs, reports, and nodes that come back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lingua_scheduler.between.letters import (
    Outcomes,
    Partial,
    Progress,
    Push,
    Resend,
    Stop,
    Trouble,
)
from lingua_scheduler.live import workshop as workshop_module
from lingua_scheduler.live.job import LiveJob
from lingua_scheduler.live.remote import RemoteSession
from lingua_scheduler.messages.from_node import NodeAsrPartial
from lingua_scheduler.messages.shared import ErrorDetail, ExtraResult, ServiceTimings
from lingua_scheduler.messages.to_client import AsrPartial, UiEvent
from lingua_scheduler.messages.to_node import JobCancel, JobResultAck
from lingua_scheduler.state.records import Placement
from live.offices import CHUNK, Office, Speaker, Worker, play, until

if TYPE_CHECKING:
    from lingua_scheduler.between.letters import Letter
    from lingua_scheduler.jobs.dispatcher import Work
    from servers import Server

pytestmark = pytest.mark.store

# The store keeps no audio: whoever pushes a job needs it from the session's instance.
LEAN = {"retain_audio": False}


async def spoken(
    owner: Office, host: Office, **register: object
) -> tuple[Speaker, Worker, list[Letter]]:
    """Let somebody speak on one instance; the node is on another. Returns the host's letters."""
    worker = await host.node(**register)
    speaker = await owner.speaker()
    speaker.say()
    await until(lambda: speaker.accepted == [0], "the utterance is in the store")
    await owner.quiet()
    return speaker, worker, await host.letters()


def acks(worker: Worker) -> list[str]:
    return [message.status for message in worker.of(JobResultAck)]


def events(speaker: Speaker) -> list[str]:
    return [message.event for message in speaker.of(UiEvent)]


# Pushes.


def test_a_job_for_a_node_elsewhere_is_a_letter_to_its_instance(store: Server) -> None:
    async def scenario(here: Office, there: Office) -> None:
        speaker, worker, letters = await spoken(here, there)
        (job,) = here.board.jobs.values()
        (letter,) = letters
        assert isinstance(letter, Push)
        assert letter == Push(job.id, 1, "n1", "c0", ends_at_ms=letter.ends_at_ms)
        assert (job.attempt, job.node, job.state) == (1, "n1", "assigned")
        assert "DISPATCHED" in events(speaker)
        assert worker.assigned == []
        assert here.workshop.held == {}

    play(store, scenario, "AB")


def test_the_nodes_instance_reads_the_job_and_pushes_it(store: Server) -> None:
    async def scenario(here: Office, there: Office) -> None:
        speaker, worker, (letter,) = await spoken(here, there)
        await there.apply(letter)
        (assign,) = worker.assigned
        assert (assign.session_id, assign.utterance_index) == (speaker.session.id, 0)
        assert assign.audio == CHUNK + b"\0\0"
        assert assign.attempt_id == 1
        held = there.workshop.held[assign.job_id]
        assert isinstance(held.session, RemoteSession)
        assert there.board.jobs == {}

    play(store, scenario, "AB")


def test_a_push_that_comes_twice_is_pushed_once(store: Server) -> None:
    async def scenario(here: Office, there: Office) -> None:
        _, worker, (letter,) = await spoken(here, there)
        for _ in range(3):
            await there.apply(letter)
        assert len(worker.assigned) == 1

    play(store, scenario, "AB")


@pytest.mark.parametrize("at", ["a third instance", "its session"])
def test_a_push_that_comes_again_to_a_restarted_node_does_not_begin_the_attempt_twice(
    store: Server, at: str
) -> None:
    async def scenario(here: Office, there: Office, third: Office) -> None:
        _, worker, (letter,) = await spoken(here, there)
        await there.apply(letter)
        assert [job.attempt_id for job in worker.assigned] == [1]
        # The node starts again, and the letter is adopted before what it had held is moved.
        office = here if at == "its session" else third
        move_leases = office.board.dispatcher.move_leases

        async def after_the_letter(*leases: Any) -> Work:
            await office.apply(letter)
            return await move_leases(*leases)

        office.board.dispatcher.move_leases = after_the_letter  # type: ignore[method-assign]
        restarted = await office.node(boot_id="b2")
        assert [job.attempt_id for job in worker.assigned] == [1]
        await restarted.job()
        await office.quiet()
        assert [job.attempt_id for job in restarted.assigned] == [2]

    play(store, scenario, "ABC")


def test_a_push_that_comes_after_its_job_has_ended_is_nothing(store: Server) -> None:
    async def scenario(here: Office, there: Office) -> None:
        _, worker, (letter,) = await spoken(here, there)
        await there.apply(letter)
        await worker.report(worker.assigned[0])
        await there.apply(letter)
        assert len(worker.assigned) == 1
        assert there.workshop.held == {}

    play(store, scenario, "AB")


def test_a_push_of_an_attempt_that_is_not_current_is_nothing(store: Server) -> None:
    async def scenario(here: Office, there: Office) -> None:
        _, worker, (letter,) = await spoken(here, there)
        assert isinstance(letter, Push)
        second = await there.node("n2")
        # The node never got it: it goes to another one.
        placement = Placement(
            letter.job, 1, "n1", "c0", "B", context_reset=False, ends_at_ms=0, home="c0"
        )
        await here.board.move(placement, "no_ack")
        await here.quiet()
        await there.apply(letter)
        assert worker.assigned == []
        (later,) = await there.letters()
        await there.apply(later)
        assert [job.attempt_id for job in second.assigned] == [2]

    play(store, scenario, "AB")


def test_a_push_for_a_node_that_went_to_a_third_instance_follows_it(store: Server) -> None:
    async def scenario(here: Office, there: Office, third: Office) -> None:
        _, worker, (letter,) = await spoken(here, there)
        # Its socket is lost and it registers elsewhere; its lease is still its own.
        del there.board.nodes["n1"]
        moved = await third.idle_node("n1")
        await third.quiet()
        assert len(moved.assigned) == 1, "it is given what it should have had"
        await there.apply(letter)
        await there.quiet()
        (followed,) = await third.letters()
        assert followed == letter
        await third.apply(followed)
        assert len(moved.assigned) == 1
        assert worker.assigned == []

    play(store, scenario, "ABC")


def test_a_push_for_a_node_that_is_nowhere_goes_to_another_node(store: Server) -> None:
    async def scenario(here: Office, there: Office) -> None:
        _, _, (letter,) = await spoken(here, there)
        node = there.board.nodes.pop("n1")
        await there.store.node_offline(there.cell, "n1", node.conn)
        other = await here.node("n2")
        await there.apply(letter)
        await there.quiet()
        await here.read_mail()
        await here.quiet()
        assert [job.attempt_id for job in other.assigned] == [2]

    play(store, scenario, "AB")


def test_a_push_to_an_instance_without_an_inbox_moves_the_job(store: Server) -> None:
    async def scenario(here: Office, there: Office) -> None:
        await there.node()
        await there.instance.neighbours.inbox.close(forget=True)
        speaker = await here.speaker()
        speaker.say()
        await here.quiet()
        (job,) = here.board.jobs.values()
        assert job.state == "assigned", "it waits for a node that is there"
        other = await here.node("n2")
        assert [job.attempt_id for job in other.assigned] == [2]

    play(store, scenario, "AB")


def test_a_socket_that_does_not_take_a_job_gives_it_to_another_node(store: Server) -> None:
    async def scenario(here: Office) -> None:
        alive = await here.node("n1")
        speaker = await here.speaker()
        speaker.say()
        await alive.job(0)
        # The other one has nothing to do and would be preferred.
        await here.node("n2", is_dead=True)
        speaker.say()
        await here.quiet()
        assert [job.utterance_index for job in alive.assigned] == [0, 1]
        assert {job.node for job in here.workshop.held.values()} == {"n1"}

    play(store, scenario)


# Audio that is not in the store.


def test_without_audio_in_the_store_the_push_carries_it(store: Server) -> None:
    async def scenario(here: Office, there: Office) -> None:
        _, worker, (letter,) = await spoken(here, there)
        assert isinstance(letter, Push)
        assert letter.audio == CHUNK + b"\0\0"
        await there.apply(letter)
        assert [job.audio for job in worker.assigned] == [letter.audio]

    play(store, scenario, "AB", jobs=LEAN)


def test_audio_that_did_not_come_along_is_asked_of_the_owner(store: Server) -> None:
    async def scenario(here: Office, there: Office) -> None:
        _, worker, (letter,) = await spoken(here, there)
        assert isinstance(letter, Push)
        # Whoever freed a slot and placed it knows no audio.
        bare = Push(letter.job, letter.attempt, letter.node, letter.home)
        await there.apply(bare)
        await there.quiet()
        assert worker.assigned == []
        (asked,) = await here.letters()
        assert asked == Resend(letter.job, 1, "n1", "c0", "B")
        await here.apply(asked)
        await here.quiet()
        await there.read_mail()
        assert [job.audio for job in worker.assigned] == [letter.audio]

    play(store, scenario, "AB", jobs=LEAN)


# Reports.


def test_a_report_is_settled_where_the_node_is_and_the_owner_reads_it(store: Server) -> None:
    async def scenario(here: Office, there: Office) -> None:
        speaker, worker, (letter,) = await spoken(here, there)
        await there.apply(letter)
        timings = ServiceTimings(asr_ms=1.0)
        await worker.report(worker.assigned[0], extra=ExtraResult(service_timings=timings))
        await there.quiet()
        assert acks(worker) == ["accepted"]
        assert there.workshop.held == {}
        (told,) = await here.letters()
        assert isinstance(told, Outcomes)
        assert (told.session, told.epoch, told.seq) == (
            speaker.session.id, speaker.session.epoch, 1,
        )  # fmt: skip
        assert speaker.outcomes == []
        await here.apply(told)
        (outcome,) = speaker.outcomes
        assert (outcome.utterance_index, outcome.seq) == (0, 1)

    play(store, scenario, "AB")


def test_a_report_whose_owner_is_dead_is_settled_all_the_same(store: Server) -> None:
    async def scenario(here: Office, there: Office) -> None:
        speaker, worker, (letter,) = await spoken(here, there)
        await there.apply(letter)
        await here.instance.tasks.end()
        await worker.report(worker.assigned[0])
        assert [outcome.kind for outcome in await there.outbox(speaker)] == ["completed"]

    play(store, scenario, "AB")


def test_a_report_of_a_job_nobody_holds_any_more_is_settled_by_its_home(store: Server) -> None:
    async def scenario(here: Office, there: Office) -> None:
        speaker, worker, (letter,) = await spoken(here, there)
        await there.apply(letter)
        (assign,) = worker.assigned
        there.workshop.held.clear()
        await worker.report(assign)
        assert acks(worker) == ["accepted"]
        (entry,) = await there.outbox(speaker)
        assert (entry.kind, entry.job) == ("completed", assign.job_id)

    play(store, scenario, "AB")


def test_a_report_of_a_job_nobody_ever_had_here_is_unknown(store: Server) -> None:
    async def scenario(here: Office, there: Office) -> None:
        _, worker, (letter,) = await spoken(here, there)
        await there.apply(letter)
        stranger = await here.node("n9")
        await stranger.report(worker.assigned[0], job_id="job-of-nobody")
        assert acks(stranger) == ["unknown"]
        stale = here.instance.metrics.results_stale_total
        assert stale.labels(reason="no_job").value == 1

    play(store, scenario, "AB")


def test_only_the_latest_jobs_are_remembered(
    store: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workshop_module, "HOMES_MAX", 2)

    async def scenario(here: Office) -> None:
        worker = await here.node()
        speaker = await here.speaker()
        jobs = []
        for number in range(3):
            speaker.say()
            jobs.append(await worker.job(number))
            await worker.report(jobs[-1])
        worker.socket.take()
        for job in jobs:
            await worker.report(job)
        assert acks(worker) == ["unknown", "accepted", "accepted"]

    play(store, scenario)


def test_a_stale_report_is_counted_and_the_node_is_told(store: Server) -> None:
    async def scenario(here: Office) -> None:
        worker = await here.node()
        speaker = await here.speaker()
        speaker.say()
        assign = await worker.job()
        await worker.report(assign, attempt_id=7)
        assert acks(worker) == ["stale"]
        stale = here.instance.metrics.results_stale_total
        assert stale.labels(reason="stale_attempt").value == 1
        assert speaker.outcomes == []

    play(store, scenario)


def test_a_report_that_comes_again_is_accepted_again(store: Server) -> None:
    async def scenario(here: Office) -> None:
        worker = await here.node()
        speaker = await here.speaker()
        speaker.say()
        assign = await worker.job()
        for _ in range(2):
            await worker.report(assign)
        assert acks(worker) == ["accepted", "accepted"]
        assert len(speaker.outcomes) == 1

    play(store, scenario)


def test_an_error_that_another_node_may_not_have_moves_the_job(store: Server) -> None:
    async def scenario(here: Office, there: Office) -> None:
        speaker, worker, (letter,) = await spoken(here, there)
        await there.apply(letter)
        second = await there.node("n2")
        error = ErrorDetail(code="NODE_OVERLOADED")
        await worker.report(worker.assigned[0], success=False, error=error)
        assert acks(worker) == ["moved"]
        await there.quiet()
        assert [job.attempt_id for job in second.assigned] == [2]
        assert {job.node for job in there.workshop.held.values()} == {"n2"}
        assert speaker.errors == []

    play(store, scenario, "AB")


def test_a_failure_is_told_the_owner_before_its_outcome(store: Server) -> None:
    async def scenario(here: Office, there: Office) -> None:
        speaker, worker, (letter,) = await spoken(here, there)
        await there.apply(letter)
        error = ErrorDetail(code="UNSUPPORTED_FEATURE", message="no such voice")
        await worker.report(worker.assigned[0], success=False, error=error)
        await there.quiet()
        kinds = [type(told) for told in await here.read_mail()]
        assert sorted(kind.__name__ for kind in kinds) == ["Outcomes", "Trouble"]
        assert kinds[0] is Trouble
        assert speaker.errors == ["UNSUPPORTED_FEATURE"]
        assert len(speaker.outcomes) == 1

    play(store, scenario, "AB")


# Steps.


def test_the_owner_hears_that_a_node_elsewhere_has_the_job(store: Server) -> None:
    async def scenario(here: Office, there: Office) -> None:
        speaker, worker, (letter,) = await spoken(here, there)
        await there.apply(letter)
        (assign,) = worker.assigned
        for _ in range(2):
            there.workshop.accepted(worker.node, assign.job_id, 1, running=False)
        await there.quiet()
        told = await here.read_mail()
        assert told == [Progress(speaker.session.id, assign.job_id, 1, "n1", "accepted")]
        assert events(speaker).count("NODE_ACCEPTED") == 1

    play(store, scenario, "AB")


def test_a_step_of_another_attempt_or_node_is_nothing(store: Server) -> None:
    async def scenario(here: Office) -> None:
        worker = await here.node()
        other = await here.node("n2")
        speaker = await here.speaker()
        speaker.say()
        await here.quiet()
        (job,) = here.board.jobs.values()
        holder, stranger = (worker, other) if job.node == "n1" else (other, worker)
        here.workshop.accepted(stranger.node, job.id, 1, running=True)
        here.workshop.accepted(holder.node, job.id, 2, running=True)
        assert not job.marks.accepted
        assert job.state == "assigned"
        here.workshop.accepted(holder.node, job.id, 1, running=True)
        assert job.state == "processing"

    play(store, scenario)


def test_what_was_recognised_so_far_reaches_the_client_elsewhere(store: Server) -> None:
    async def scenario(here: Office, there: Office) -> None:
        speaker, worker, (letter,) = await spoken(here, there)
        await there.apply(letter)
        (assign,) = worker.assigned
        for attempt, text in ((None, "ni"), (1, "ni hao"), (2, "of another attempt")):
            report = NodeAsrPartial(
                node_id="n1", session_id=assign.session_id, utterance_index=0,
                job_id=assign.job_id, text=text, is_final=False, attempt_id=attempt,
            )  # fmt: skip
            there.workshop.heard(worker.node, report)
        await there.quiet()
        told = await here.read_mail()
        assert [t.text for t in told if isinstance(t, Partial)] == ["ni", "ni hao"]
        assert [message.text for message in speaker.of(AsrPartial)] == ["ni", "ni hao"]

    play(store, scenario, "AB")


def test_jobs_that_last_are_marked_in_the_store(
    store: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workshop_module, "MARK_AFTER_MS", -1)

    async def scenario(here: Office, there: Office) -> None:
        _, worker, (letter,) = await spoken(here, there)
        await there.apply(letter)
        (job,) = there.workshop.held.values()
        steps = []
        for running in (None, False, True):
            if running is not None:
                there.workshop.accepted(worker.node, job.id, 1, running=running)
            await there.workshop.mark_lasting()
            steps.append((job.marked, await state_of(there, job)))
        assert steps == [(s, s) for s in ("DISPATCHED", "ACCEPTED", "RUNNING")]

    async def state_of(office: Office, job: LiveJob) -> str:
        key = office.cell.key("job", job.id)
        found: bytes = await office.connection.command(office.cell.slot, "HGET", key, "state")
        return found.decode()

    play(store, scenario, "AB")


def test_a_job_that_went_on_without_us_is_let_go_when_it_is_marked(
    store: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workshop_module, "MARK_AFTER_MS", -1)

    async def scenario(here: Office, there: Office) -> None:
        _, worker, (letter,) = await spoken(here, there)
        await there.apply(letter)
        (assign,) = worker.assigned
        await here.board.dispatcher.cancel(here.cell, assign.job_id, "gone")
        await there.workshop.mark_lasting()
        assert there.workshop.held == {}

    play(store, scenario, "AB")


# Nodes that go and come back.


def test_a_node_that_is_lost_gives_its_jobs_to_others(store: Server) -> None:
    async def scenario(here: Office, there: Office) -> None:
        _, worker, (letter,) = await spoken(here, there)
        await there.apply(letter)
        second = await here.node("n2")
        await there.instance.registry.gone(worker.node)
        await there.quiet()
        await here.read_mail()
        await here.quiet()
        assert [job.attempt_id for job in second.assigned] == [2]
        assert there.workshop.held == {}

    play(store, scenario, "AB")


def test_a_node_that_comes_to_another_instance_keeps_its_jobs_there(store: Server) -> None:
    async def scenario(here: Office, there: Office) -> None:
        speaker, worker, (letter,) = await spoken(here, there)
        await there.apply(letter)
        (assign,) = worker.assigned
        # The same process of the node, over a socket to the session's own instance.
        moved = await here.idle_node("n1")
        await here.quiet()
        (again,) = moved.assigned
        assert (again.job_id, again.attempt_id) == (assign.job_id, 1)
        # What it says of the job counts here: it is not taken for one that never arrived.
        here.workshop.accepted(moved.node, again.job_id, 1, running=True)
        assert here.workshop.held[again.job_id].state == "processing"
        await moved.report(again)
        assert acks(moved) == ["accepted"]
        assert len(speaker.outcomes) == 1

    play(store, scenario, "AB")


def test_an_old_node_that_comes_back_is_told_nothing_twice_but_its_report_counts(
    store: Server,
) -> None:
    async def scenario(here: Office, there: Office) -> None:
        speaker, worker, (letter,) = await spoken(here, there, boot_id=None, sends_acks=None)
        await there.apply(letter)
        (assign,) = worker.assigned
        moved = await here.idle_node("n1", boot_id=None, sends_acks=None)
        await here.quiet()
        assert moved.assigned == []
        await moved.report(assign)
        assert [outcome.kind for outcome in await here.outbox(speaker)] == ["completed"]
        assert len(speaker.outcomes) == 1

    play(store, scenario, "AB")


def test_work_of_a_session_elsewhere_is_stopped_by_letter(store: Server) -> None:
    async def scenario(here: Office, there: Office) -> None:
        _, worker, (letter,) = await spoken(here, there)
        await there.apply(letter)
        (assign,) = worker.assigned
        _, work = await here.board.dispatcher.cancel(here.cell, assign.job_id, "unwanted")
        here.board.perform(work)
        await here.quiet()
        assert await there.read_mail() == [Stop(assign.job_id, 1, "n1", "cancelled")]
        assert [(m.job_id, m.attempt_id) for m in worker.of(JobCancel)] == [(assign.job_id, 1)]
        assert there.workshop.held == {}

    play(store, scenario, "AB")


def test_a_node_holds_jobs_until_it_has_let_go(store: Server) -> None:
    async def scenario(here: Office) -> None:
        worker = await here.node()
        speaker = await here.speaker()
        speaker.say()
        await worker.job()
        assert here.workshop.holds_for(worker.node)
        here.workshop.forget(worker.assigned[0].job_id, "another-node")
        assert here.workshop.holds_for(worker.node)
        here.workshop.let_go(worker.node)
        assert not here.workshop.holds_for(worker.node)

    play(store, scenario)
