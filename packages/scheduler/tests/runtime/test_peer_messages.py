"""Messages of peers: what each does, twice, late, and where nothing waits for it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest

from lingua_cli.logs import EventLog
from lingua_scheduler.peers.messages import (
    BY_KIND,
    ClientMessage,
    JobProgress,
    JobTimes,
    OutcomesReady,
    PartialTranscript,
    PushJob,
    ResendAudio,
    RoomChanged,
    SessionProblem,
    SessionTaken,
    StopAttempt,
    Undeliverable,
)
from lingua_scheduler.runtime import peer_messages as module
from lingua_scheduler.runtime.instance import Instance
from lingua_scheduler.state.records import Placement
from lingua_wire.codec import SERVER_MESSAGES
from lingua_wire.codes import CloseCode, ErrorCode
from lingua_wire.to_client import (
    AsrPartial,
    ErrorMessage,
    SessionReset,
    TranslationResult,
    UiEvent,
    WebrtcOfferRelay,
)
from lingua_wire.to_node import JobCancel
from runtime.bare_instances import BareInstance, Speaker, play, received, until
from runtime.stand_ins import (
    ClosingOutlet,
    HandClock,
    KeepingOutlet,
    Scene,
    UnusedConnection,
    settings_of_scene,
)

if TYPE_CHECKING:
    from lingua_scheduler.peers.messages import PeerMessage
    from lingua_scheduler.runtime.job import LiveJob
    from servers import Server

pytestmark = pytest.mark.store


class OwnerOfJob:
    """A session with a job on a node elsewhere, and what messages do to it."""

    def __init__(self, outlet: KeepingOutlet | None = None) -> None:
        self.scene = Scene(outlet=outlet)
        self.messages = self.scene.instance.loops.messages
        self.job: LiveJob = self.scene.job(0)
        self.job.audio = b"sound"
        placement = Placement(
            self.job.id, 2, "n7", "c0", "there", context_reset=False, ends_at_ms=0, home="c0"
        )
        self.job.run.begin_attempt(placement, self.scene.clock.now_ms(), 0)
        self.job.run.pushed(self.scene.clock.now_ms())

    def receive(self, *messages: PeerMessage) -> None:
        """Apply messages that need no store."""
        for message in messages:
            asyncio.run(self.messages.apply(received(message)))

    def apply_own(self) -> None:
        """Apply the messages of the instance to itself."""
        for message in self.scene.own_messages:
            self.messages.apply_own(message)

    def sent(self, kind: type[object]) -> list[object]:
        return [message for message in self.scene.outlet.sent if isinstance(message, kind)]

    def events(self) -> list[str]:
        return [m.event for m in self.scene.outlet.sent if isinstance(m, UiEvent)]


def test_every_kind_of_message_has_its_place() -> None:
    owner = OwnerOfJob()
    assert set(owner.messages._quick) | set(owner.messages._slow) == set(BY_KIND.values())
    assert not set(owner.messages._quick) & set(owner.messages._slow)


# Steps of a job elsewhere.


def test_that_a_node_has_the_job_is_shown_once() -> None:
    owner = OwnerOfJob()
    owner.scene.clock.at_ms += 5
    accepted = JobProgress("s1", owner.job.id, 2, "n7", "accepted")
    owner.receive(accepted, accepted)
    assert owner.events() == ["NODE_ACCEPTED"]
    assert owner.job.times.accepted == owner.scene.clock.now_ms()
    assert owner.job.status == "assigned"


def test_that_a_job_runs_is_known() -> None:
    owner = OwnerOfJob()
    owner.receive(JobProgress("s1", owner.job.id, 2, "n7", "running"))
    assert owner.job.status == "processing"


def test_a_step_of_a_later_attempt_brings_its_node_along() -> None:
    owner = OwnerOfJob()
    owner.receive(JobProgress("s1", owner.job.id, 3, "n8", "accepted"))
    assert (owner.job.attempt, owner.job.node) == (3, "n8")


def test_a_step_of_an_attempt_that_is_over_is_nothing() -> None:
    owner = OwnerOfJob()
    owner.receive(
        JobProgress("s1", owner.job.id, 1, "n6", "running"),
        PartialTranscript("s1", owner.job.id, 1, "old", is_final=False),
    )
    assert (owner.job.attempt, owner.job.node, owner.job.status) == (2, "n7", "assigned")
    assert owner.scene.outlet.sent == []


def test_a_slice_that_an_old_node_keeps_elsewhere_can_be_found() -> None:
    owner = OwnerOfJob()
    spec = owner.job.spec
    owner.job.with_spec(msgspec.structs.replace(spec, turn="t", is_slice=True))
    slices = owner.scene.session.admission.slices
    assert slices._oldest_of("s1") is None
    owner.receive(JobProgress("s1", owner.job.id, 2, "n7", "kept"))
    assert slices._oldest_of("s1") is owner.job
    assert owner.events() == []


def test_what_was_recognised_so_far_is_passed_to_the_client() -> None:
    owner = OwnerOfJob()
    owner.receive(PartialTranscript("s1", owner.job.id, 2, "ni hao", is_final=True))
    (partial,) = owner.sent(AsrPartial)
    assert isinstance(partial, AsrPartial)
    assert (partial.text, partial.is_final, partial.utterance_index) == ("ni hao", True, 0)


def test_trouble_is_told_the_client_once() -> None:
    owner = OwnerOfJob()
    trouble = SessionProblem("s1", owner.job.id, "NMT_TIMEOUT", "out of luck", {"n": 1})
    owner.receive(trouble, trouble)
    assert owner.sent(ErrorMessage) == [
        ErrorMessage(code="NMT_TIMEOUT", message=ErrorCode.NMT_TIMEOUT.failure)
    ]


def test_audio_is_sent_to_the_instance_that_asks_for_it() -> None:
    owner = OwnerOfJob()
    owner.receive(ResendAudio(owner.job.id, 2, "n7", "c0", "there"))
    assert owner.scene.sender.sent == [
        ("there", PushJob(owner.job.id, 2, "n7", "c0", body=owner.job.body(), audio=b"sound"))
    ]


# Sessions and jobs that are not here.


@pytest.mark.parametrize(
    "message",
    [
        JobProgress("s9", "job-9", 1, "n1", "running"),
        PartialTranscript("s9", "job-9", 1, "text", is_final=False),
        SessionProblem("s9", "job-9", "NMT_TIMEOUT", "late"),
        OutcomesReady("s9", "e1", 5, (JobTimes("job-9", 1, 2),)),
        SessionTaken("s9", 5),
        StopAttempt("job-9", 1, "n9", "cancelled"),
        RoomChanged("999999"),
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_message_about_something_that_is_not_here_is_nothing(message: PeerMessage) -> None:
    owner = OwnerOfJob()
    owner.receive(message)
    assert owner.scene.outlet.sent == []
    assert owner.scene.sender.sent == []
    assert owner.scene.tasks.started == []
    assert owner.scene.session.deliverer.seq == 0


def test_signalling_for_a_member_here_is_passed_on_for_others_it_is_nothing() -> None:
    owner = OwnerOfJob()
    offer = WebrtcOfferRelay(room_code="123456", to="s9", sdp="v=0")
    message = SERVER_MESSAGES[1].encode(offer)
    owner.receive(ClientMessage("s5", message), ClientMessage("s1", message))
    assert owner.scene.outlet.sent == [offer]


# Taken.


def test_a_session_that_another_instance_took_is_dropped() -> None:
    outlet = ClosingOutlet()
    owner = OwnerOfJob(outlet)
    session = owner.scene.session
    owner.receive(SessionTaken("s1", session.record.fence + 1))
    assert session.record.is_over
    assert owner.scene.instance.sessions == {}
    assert len(owner.scene.jobs) == 0
    assert owner.scene.taken == [session]
    assert outlet.closed_with == CloseCode.REPLACED
    assert session.admission.idle.is_set()


@pytest.mark.parametrize("fence", [0, 1])
def test_a_message_from_before_the_session_was_ours_takes_nothing(fence: int) -> None:
    owner = OwnerOfJob()
    owner.receive(SessionTaken("s1", fence))
    assert not owner.scene.session.record.is_over
    assert owner.scene.instance.sessions.keys() == {"s1"}


# Messages to itself.


def test_a_message_to_ourselves_does_not_go_by_the_store() -> None:
    owner = OwnerOfJob()
    write = owner.scene.effects.peers.write
    write("here", PartialTranscript("s1", owner.job.id, 2, "ni", is_final=False))
    owner.apply_own()
    assert len(owner.sent(AsrPartial)) == 1
    write("here", OutcomesReady("s1", "e1", 1))
    owner.apply_own()
    assert owner.scene.tasks.started == ["_outcomes"]
    assert owner.scene.sender.sent == []


def test_an_error_in_a_message_to_itself_is_counted_and_the_next_one_is_applied() -> None:
    async def scenario() -> None:
        connection = cast("Any", UnusedConnection())
        instance = Instance(settings_of_scene(), connection, EventLog("test"), clock=HandClock())
        stopped: list[str] = []

        def fail(_: SessionTaken) -> None:
            raise ValueError("of one session")

        def stop(message: StopAttempt) -> None:
            stopped.append(message.job)

        messages = instance.loops.messages
        messages._quick |= {SessionTaken: fail, StopAttempt: stop}
        reading = asyncio.create_task(messages.run_own())
        instance.effects.peers.write("here", SessionTaken("s1", 2))
        for job in ("j1", "j2"):
            instance.effects.peers.write("here", StopAttempt(job, 1, "n1", "cancelled"))
        await until(lambda: len(stopped) == 2, "the messages behind it are applied")
        assert stopped == ["j1", "j2"]
        assert not reading.done()
        assert instance.metrics.instance.internal_errors_total.value == 1
        reading.cancel()
        await asyncio.wait((reading,))

    asyncio.run(scenario())


def test_a_message_to_nobody_is_not_written() -> None:
    owner = OwnerOfJob()
    owner.scene.effects.peers.write("", SessionTaken("s1", 9))
    assert (owner.scene.sender.sent, owner.scene.tasks.started) == ([], [])
    assert owner.scene.own_messages == []


# Outcomes.


async def finished(
    owner: BareInstance, host: BareInstance, count: int = 1
) -> tuple[Speaker, OutcomesReady]:
    """Let a node elsewhere finish some utterances; return the message about the last of them."""
    worker = await host.node()
    speaker = await owner.speaker()
    for _ in range(count):
        speaker.say()
    await until(lambda: len(speaker.accepted) == count, "all is accepted")
    await owner.quiet()
    await host.read_inbox()
    for assign in worker.assigned:
        host.reports.accepted(worker.node, assign.job_id, assign.attempt_id, is_running=False)
        await worker.report(assign)
    await host.quiet()
    messages = [m for m in await owner.take_messages() if isinstance(m, OutcomesReady)]
    assert [message.seq for message in messages] == list(range(1, count + 1))
    return speaker, messages[-1]


def test_outcomes_are_read_from_the_outbox_and_delivered(store: Server) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        speaker, last = await finished(here, there, 3)
        # The messages before it are lost.
        await here.apply(last)
        assert [outcome.seq for outcome in speaker.outcomes] == [1, 2, 3]
        assert len(here.jobs) == 0
        await here.apply(last)
        assert len(speaker.outcomes) == 3

    play(store, scenario, "AB")


def test_what_the_nodes_instance_measured_is_in_the_timeline(store: Server) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        speaker, message = await finished(here, there)
        (span,) = message.spans
        long = OutcomesReady(
            message.session, message.epoch, message.seq, (JobTimes(span.job, 1, 0),)
        )
        await here.apply(long)
        (outcome,) = speaker.outcomes
        assert isinstance(outcome, TranslationResult)
        line = outcome.timeline
        assert line is not None
        parts = [getattr(line, n) for n in line.__struct_fields__ if n != "total_ms"]
        assert sum(parts) == line.total_ms
        shown = [message.event for message in speaker.of(UiEvent)]
        assert shown[-2:] == ["ASR_FINAL", "NMT_DONE"]

    play(store, scenario, "AB")


def test_outcomes_of_another_epoch_are_not_looked_for(store: Server) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        speaker, message = await finished(here, there)
        await here.apply(OutcomesReady(message.session, "1", message.seq))
        assert speaker.outcomes == []

    play(store, scenario, "AB")


def test_outcomes_that_an_emptied_store_lost_start_the_session_over(store: Server) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        speaker, message = await finished(here, there)
        await here.empty_the_store()
        await here.apply(message)
        epoch = speaker.session.record.epoch
        assert [reset.epoch for reset in speaker.of(SessionReset)] == [epoch]
        assert speaker.session.record.epoch != message.epoch

    play(store, scenario, "AB")


def test_outcomes_for_a_session_that_went_on_elsewhere_are_nothing(store: Server) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        speaker, message = await finished(here, there)
        back = await there.resume(speaker)
        (taken,) = await here.take_messages()
        assert taken == SessionTaken(speaker.session.id, back.session.record.fence)
        await here.apply(taken)
        await here.apply(message)
        assert speaker.outcomes == []
        # The new owner found the outcome by itself.
        assert [outcome.seq for outcome in back.outcomes] == [1]

    play(store, scenario, "AB")


# Messages that take too long.


def test_a_message_that_takes_too_long_is_tried_again_later(
    store: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "APPLY_S", 0.05)

    async def scenario(here: BareInstance, there: BareInstance) -> None:
        _, message = await finished(here, there)
        store.pause()
        try:
            with pytest.raises(Undeliverable) as problem:
                await here.apply(message)
        finally:
            store.resume()
        assert problem.value.reason == "too_slow"

    play(store, scenario, "AB")


# Messages of a dead instance.


async def placed_with(dead: BareInstance, owner: BareInstance) -> PushJob:
    """Let a job be placed on a node of an instance that never reads its inbox."""
    await dead.node()
    speaker = await owner.speaker()
    speaker.say()
    await owner.quiet()
    (message,) = await dead.take_messages()
    assert isinstance(message, PushJob)
    return message


def test_an_adopted_push_goes_where_its_node_is_now(store: Server) -> None:
    async def scenario(dead: BareInstance, owner: BareInstance, heir: BareInstance) -> None:
        message = await placed_with(dead, owner)
        node = await heir.idle_node("n1")
        await heir.quiet()
        node.socket.take()
        heir.held._jobs.clear()
        await heir.messages.apply_adopted(received(message))
        assert [job.job_id for job in node.assigned] == [message.job]
        assert node.assigned[0].audio

    play(store, scenario, "ABC")


def test_an_adopted_push_for_a_node_that_is_nowhere_moves_the_job(store: Server) -> None:
    async def scenario(dead: BareInstance, owner: BareInstance, heir: BareInstance) -> None:
        message = await placed_with(dead, owner)
        lost = dead.nodes["n1"]
        await heir.store.nodes.offline(heir.cell, "n1", lost.conn)
        other = await heir.node("n2")
        await heir.messages.apply_adopted(received(message))
        await heir.quiet()
        assert [(job.job_id, job.attempt_id) for job in other.assigned] == [(message.job, 2)]

    play(store, scenario, "ABC")


def test_an_adopted_stop_reaches_the_node_where_it_is_now(store: Server) -> None:
    async def scenario(dead: BareInstance, other: BareInstance, heir: BareInstance) -> None:
        here, there = await heir.idle_node("n1"), await other.idle_node("n2")
        for node in ("n1", "n2", "n-nowhere"):
            await heir.messages.apply_adopted(received(StopAttempt("job-1", 3, node, "cancelled")))
        assert [message.job_id for message in here.of(JobCancel)] == ["job-1"]
        assert await other.read_inbox() == [StopAttempt("job-1", 3, "n2", "cancelled")]
        assert [message.job_id for message in there.of(JobCancel)] == ["job-1"]
        assert await dead.take_messages() == []

    play(store, scenario, "ABC")


def test_what_was_for_a_clients_socket_died_with_it(store: Server) -> None:
    async def scenario(dead: BareInstance, owner: BareInstance, heir: BareInstance) -> None:
        message = await placed_with(dead, owner)
        (job,) = owner.jobs
        speaker = job.owner.id
        for other in (
            OutcomesReady(speaker, "1", 9),
            JobProgress(speaker, job.id, 1, "n1", "running"),
            PartialTranscript(speaker, job.id, 1, "x", is_final=False),
            SessionProblem(speaker, job.id, "X", "x"),
            ResendAudio(message.job, 1, "n1", "c0", "A"),
            SessionTaken(speaker, 99),
            RoomChanged("123456"),
            ClientMessage(speaker, b"{}"),
        ):
            await owner.messages.apply_adopted(received(other))
        assert not owner.sessions[speaker].record.is_over
        assert job.status == "assigned"
        assert await heir.take_messages() == await dead.take_messages() == []

    play(store, scenario, "ABC")
