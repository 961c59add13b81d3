"""Reports of nodes: results, steps, partial texts, lasting jobs, and nodes that return."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lingua_scheduler.peers.messages import (
    JobProgress,
    OutcomesReady,
    PartialTranscript,
    SessionProblem,
)
from lingua_scheduler.runtime import node_reports as module
from lingua_scheduler.runtime.job import LiveJob
from lingua_wire.from_node import NodeAsrPartial
from lingua_wire.shared import ErrorDetail, ExtraResult, ServiceTimings
from lingua_wire.to_client import AsrPartial
from runtime.bare_instances import BareInstance, play
from runtime.node_elsewhere import acks, events, spoken

if TYPE_CHECKING:
    from servers import Server

pytestmark = pytest.mark.store


# Reports.


def test_a_report_is_settled_where_the_node_is_and_the_owner_reads_it(store: Server) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        speaker, worker, (message,) = await spoken(here, there)
        await there.apply(message)
        timings = ServiceTimings(asr_ms=1.0)
        await worker.report(worker.assigned[0], extra=ExtraResult(service_timings=timings))
        await there.quiet()
        assert acks(worker) == ["accepted"]
        assert len(there.held) == 0
        (sent,) = await here.take_messages()
        assert isinstance(sent, OutcomesReady)
        assert (sent.session, sent.epoch, sent.seq) == (
            speaker.session.id,
            speaker.session.record.epoch,
            1,
        )
        assert speaker.outcomes == []
        await here.apply(sent)
        (outcome,) = speaker.outcomes
        assert (outcome.utterance_index, outcome.seq) == (0, 1)

    play(store, scenario, "AB")


def test_a_report_whose_owner_is_dead_is_settled_all_the_same(store: Server) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        speaker, worker, (message,) = await spoken(here, there)
        await there.apply(message)
        await here.instance.tasks.end()
        await worker.report(worker.assigned[0])
        assert [outcome.kind for outcome in await there.outbox(speaker)] == ["completed"]

    play(store, scenario, "AB")


def test_a_report_of_a_job_nobody_holds_any_more_is_settled_by_its_home(store: Server) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        speaker, worker, (message,) = await spoken(here, there)
        await there.apply(message)
        (assign,) = worker.assigned
        there.held._jobs.clear()
        await worker.report(assign)
        assert acks(worker) == ["accepted"]
        (entry,) = await there.outbox(speaker)
        assert (entry.kind, entry.job) == ("completed", assign.job_id)

    play(store, scenario, "AB")


def test_a_report_of_a_job_nobody_ever_had_here_is_unknown(store: Server) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        _, worker, (message,) = await spoken(here, there)
        await there.apply(message)
        stranger = await here.node("n9")
        await stranger.report(worker.assigned[0], job_id="job-of-nobody")
        assert acks(stranger) == ["unknown"]
        stale = here.instance.metrics.results.results_stale_total
        assert stale.labels(reason="no_job").value == 1

    play(store, scenario, "AB")


def test_a_stale_report_is_counted_and_the_node_is_told(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        worker = await here.node()
        speaker = await here.speaker()
        speaker.say()
        assign = await worker.job()
        await worker.report(assign, attempt_id=7)
        assert acks(worker) == ["stale"]
        stale = here.instance.metrics.results.results_stale_total
        assert stale.labels(reason="stale_attempt").value == 1
        assert speaker.outcomes == []

    play(store, scenario)


def test_a_report_that_comes_again_is_accepted_again(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
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
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        speaker, worker, (message,) = await spoken(here, there)
        await there.apply(message)
        second = await there.node("n2")
        error = ErrorDetail(code="NODE_OVERLOADED")
        await worker.report(worker.assigned[0], success=False, error=error)
        assert acks(worker) == ["moved"]
        await there.quiet()
        assert [job.attempt_id for job in second.assigned] == [2]
        assert {job.node for job in there.held} == {"n2"}
        assert speaker.errors == []

    play(store, scenario, "AB")


def test_a_failure_is_told_the_owner_before_its_outcome(store: Server) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        speaker, worker, (message,) = await spoken(here, there)
        await there.apply(message)
        error = ErrorDetail(code="UNSUPPORTED_FEATURE", message="no such voice")
        await worker.report(worker.assigned[0], success=False, error=error)
        await there.quiet()
        kinds = [type(sent) for sent in await here.read_inbox()]
        assert sorted(kind.__name__ for kind in kinds) == ["OutcomesReady", "SessionProblem"]
        assert kinds[0] is SessionProblem
        assert speaker.errors == ["UNSUPPORTED_FEATURE"]
        assert len(speaker.outcomes) == 1

    play(store, scenario, "AB")


# Steps.


def test_the_owner_hears_that_a_node_elsewhere_has_the_job(store: Server) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        speaker, worker, (message,) = await spoken(here, there)
        await there.apply(message)
        (assign,) = worker.assigned
        for _ in range(2):
            there.reports.accepted(worker.node, assign.job_id, 1, is_running=False)
        await there.quiet()
        sent = await here.read_inbox()
        assert sent == [JobProgress(speaker.session.id, assign.job_id, 1, "n1", "accepted")]
        assert events(speaker).count("NODE_ACCEPTED") == 1

    play(store, scenario, "AB")


def test_a_step_of_another_attempt_or_node_is_nothing(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        worker = await here.node()
        other = await here.node("n2")
        speaker = await here.speaker()
        speaker.say()
        await here.quiet()
        (job,) = here.jobs
        holder, stranger = (worker, other) if job.node == "n1" else (other, worker)
        here.reports.accepted(stranger.node, job.id, 1, is_running=True)
        here.reports.accepted(holder.node, job.id, 2, is_running=True)
        assert not job.times.accepted
        assert job.status == "assigned"
        here.reports.accepted(holder.node, job.id, 1, is_running=True)
        assert job.status == "processing"

    play(store, scenario)


def test_a_job_counts_as_accepted_since_its_node_works_on_it(store: Server) -> None:
    """A node reports later that it has begun; it did not begin before it had the job."""

    async def scenario(here: BareInstance) -> None:
        worker = await here.node()
        speaker = await here.speaker()
        speaker.say()
        await here.quiet()
        (job,) = here.jobs
        job.times.push -= 30
        here.reports.accepted(worker.node, job.id, 1, is_running=True, ago_ms=20)
        assert job.times.push + 10 <= job.times.accepted <= here.clock.now_ms() - 20
        job.times.accepted = 0
        here.reports.accepted(worker.node, job.id, 1, is_running=True, ago_ms=3_600_000)
        assert job.times.accepted == job.times.push

    play(store, scenario)


def test_what_was_recognised_so_far_reaches_the_client_elsewhere(store: Server) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        speaker, worker, (message,) = await spoken(here, there)
        await there.apply(message)
        (assign,) = worker.assigned
        for attempt, text in ((None, "ni"), (1, "ni hao"), (2, "of another attempt")):
            report = NodeAsrPartial(
                node_id="n1",
                session_id=assign.session_id,
                utterance_index=0,
                job_id=assign.job_id,
                text=text,
                is_final=False,
                attempt_id=attempt,
            )
            there.reports.partial_text(worker.node, report)
        await there.quiet()
        sent = await here.read_inbox()
        assert [t.text for t in sent if isinstance(t, PartialTranscript)] == ["ni", "ni hao"]
        assert [message.text for message in speaker.of(AsrPartial)] == ["ni", "ni hao"]

    play(store, scenario, "AB")


def test_jobs_that_last_are_marked_in_the_store(
    store: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MARK_AFTER_MS", -1)

    async def scenario(here: BareInstance, there: BareInstance) -> None:
        _, worker, (message,) = await spoken(here, there)
        await there.apply(message)
        (job,) = there.held
        steps = []
        for is_running in (None, False, True):
            if is_running is not None:
                there.reports.accepted(worker.node, job.id, 1, is_running=is_running)
            await there.reports.mark_lasting()
            steps.append((job.run.current.marked, await state_of(there, job)))
        assert steps == [(s, s) for s in ("DISPATCHED", "ACCEPTED", "RUNNING")]

    async def state_of(instance: BareInstance, job: LiveJob) -> str:
        key = instance.cell.key("job", job.id)
        found: bytes = await instance.connection.command(instance.cell.slot, "HGET", key, "state")
        return found.decode()

    play(store, scenario, "AB")


def test_a_job_that_went_on_without_us_is_let_go_when_it_is_marked(
    store: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MARK_AFTER_MS", -1)

    async def scenario(here: BareInstance, there: BareInstance) -> None:
        _, worker, (message,) = await spoken(here, there)
        await there.apply(message)
        (assign,) = worker.assigned
        await here.effects.dispatcher.cancel(here.cell, assign.job_id, "gone")
        await there.reports.mark_lasting()
        assert len(there.held) == 0

    play(store, scenario, "AB")


# Nodes that disconnect and return.


def test_a_node_that_comes_to_another_instance_keeps_its_jobs_there(store: Server) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        speaker, worker, (message,) = await spoken(here, there)
        await there.apply(message)
        (assign,) = worker.assigned
        # The same process of the node, over a socket to the session's own instance.
        moved = await here.idle_node("n1")
        await here.quiet()
        (again,) = moved.assigned
        assert (again.job_id, again.attempt_id) == (assign.job_id, 1)
        # Its reports of the job count here: the job is not handled as one that never arrived.
        here.reports.accepted(moved.node, again.job_id, 1, is_running=True)
        held = here.held.get(again.job_id)
        assert held is not None
        assert held.status == "processing"
        await moved.report(again)
        assert acks(moved) == ["accepted"]
        assert len(speaker.outcomes) == 1

    play(store, scenario, "AB")


def test_an_old_node_that_comes_back_is_told_nothing_twice_but_its_report_counts(
    store: Server,
) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        speaker, worker, (message,) = await spoken(here, there, boot_id=None, sends_acks=None)
        await there.apply(message)
        (assign,) = worker.assigned
        moved = await here.idle_node("n1", boot_id=None, sends_acks=None)
        await here.quiet()
        assert moved.assigned == []
        await moved.report(assign)
        assert [outcome.kind for outcome in await here.outbox(speaker)] == ["completed"]
        assert len(speaker.outcomes) == 1

    play(store, scenario, "AB")
