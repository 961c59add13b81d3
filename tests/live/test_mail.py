"""Letters of other instances: what each does, twice, late, and where nobody waits for it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from lingua_scheduler.between.letters import (
    BY_KIND,
    Outcomes,
    Partial,
    Progress,
    Push,
    Relay,
    Resend,
    RoomChanged,
    Span,
    Stop,
    Taken,
    Trouble,
    Undeliverable,
)
from lingua_scheduler.live import mail as mail_module
from lingua_scheduler.live.mail import Mail
from lingua_scheduler.messages.codec import SERVER_MESSAGES
from lingua_scheduler.messages.codes import CloseCode, ErrorCode
from lingua_scheduler.messages.to_client import (
    AsrPartial,
    ErrorMessage,
    SessionReset,
    TranslationResult,
    UiEvent,
    WebrtcOfferRelay,
)
from lingua_scheduler.messages.to_node import JobCancel
from live.offices import Office, Speaker, envelope, play, until
from live.stand_ins import ClosingOutlet, KeepingOutlet, Scene

if TYPE_CHECKING:
    from lingua_scheduler.between.letters import Letter
    from lingua_scheduler.live.job import LiveJob
    from servers import Server

pytestmark = pytest.mark.store


class Post:
    """A session with a job on a node elsewhere, and what letters do to it."""

    def __init__(self, outlet: KeepingOutlet | None = None) -> None:
        self.scene = Scene(outlet=outlet)
        self.mail = Mail(self.scene.board, self.scene.hall)
        self.job: LiveJob = self.scene.job(0)
        self.job.audio = b"sound"
        self.job.attempt, self.job.node, self.job.state = 2, "n7", "assigned"
        self.job.marks.push = self.scene.clock.now_ms()

    def take(self, *letters: Letter) -> None:
        """Apply letters that need no store."""
        for letter in letters:
            asyncio.run(self.mail.apply(envelope(letter)))

    def sent(self, kind: type[object]) -> list[object]:
        return [message for message in self.scene.outlet.sent if isinstance(message, kind)]

    def events(self) -> list[str]:
        return [m.event for m in self.scene.outlet.sent if isinstance(m, UiEvent)]


def test_every_kind_of_letter_has_its_place() -> None:
    post = Post()
    assert set(post.mail._quick) | set(post.mail._slow) == set(BY_KIND.values())
    assert not set(post.mail._quick) & set(post.mail._slow)


# Steps of a job elsewhere.


def test_that_a_node_has_the_job_is_shown_once() -> None:
    post = Post()
    post.scene.clock.at_ms += 5
    accepted = Progress("s1", post.job.id, 2, "n7", "accepted")
    post.take(accepted, accepted)
    assert post.events() == ["NODE_ACCEPTED"]
    assert post.job.marks.accepted == post.scene.clock.now_ms()
    assert post.job.state == "assigned"


def test_that_a_job_runs_is_known() -> None:
    post = Post()
    post.take(Progress("s1", post.job.id, 2, "n7", "running"))
    assert post.job.state == "processing"


def test_a_step_of_a_later_attempt_brings_its_node_along() -> None:
    post = Post()
    post.take(Progress("s1", post.job.id, 3, "n8", "accepted"))
    assert (post.job.attempt, post.job.node) == (3, "n8")


def test_a_step_of_an_attempt_that_is_over_is_nothing() -> None:
    post = Post()
    post.take(
        Progress("s1", post.job.id, 1, "n6", "running"),
        Partial("s1", post.job.id, 1, "old", is_final=False),
    )
    assert (post.job.attempt, post.job.node, post.job.state) == (2, "n7", "assigned")
    assert post.scene.outlet.sent == []


def test_a_slice_that_an_old_node_keeps_elsewhere_can_be_found() -> None:
    post = Post()
    post.job.spec = type(post.job.spec)(
        session="s1", index=0, lane="en", demand=post.job.spec.demand, turn="t", is_slice=True
    )
    assert post.scene.board.buffered_slice(post.scene.session) is None
    post.take(Progress("s1", post.job.id, 2, "n7", "kept"))
    assert post.scene.board.buffered_slice(post.scene.session) is post.job
    assert post.events() == []


def test_what_was_recognised_so_far_is_passed_to_the_client() -> None:
    post = Post()
    post.take(Partial("s1", post.job.id, 2, "ni hao", is_final=True))
    (partial,) = post.sent(AsrPartial)
    assert isinstance(partial, AsrPartial)
    assert (partial.text, partial.is_final, partial.utterance_index) == ("ni hao", True, 0)


def test_trouble_is_told_the_client_once() -> None:
    post = Post()
    trouble = Trouble("s1", post.job.id, "NMT_TIMEOUT", "out of luck", {"n": 1})
    post.take(trouble, trouble)
    assert post.sent(ErrorMessage) == [
        ErrorMessage(code="NMT_TIMEOUT", message=ErrorCode.NMT_TIMEOUT.failure)
    ]


def test_audio_is_sent_to_the_instance_that_asks_for_it() -> None:
    post = Post()
    post.take(Resend(post.job.id, 2, "n7", "c0", "there"))
    assert post.scene.post.sent == [
        ("there", Push(post.job.id, 2, "n7", "c0", body=post.job.body(), audio=b"sound"))
    ]


# Sessions and jobs that are not here.


@pytest.mark.parametrize(
    "letter",
    [
        Progress("s9", "job-9", 1, "n1", "running"),
        Partial("s9", "job-9", 1, "text", is_final=False),
        Trouble("s9", "job-9", "NMT_TIMEOUT", "late"),
        Outcomes("s9", "e1", 5, (Span("job-9", 1, 2),)),
        Taken("s9", 5),
        Stop("job-9", 1, "n9", "cancelled"),
        RoomChanged("999999"),
    ],
    ids=lambda letter: type(letter).__name__,
)
def test_a_letter_about_something_that_is_not_here_is_nothing(letter: Letter) -> None:
    post = Post()
    post.take(letter)
    assert post.scene.outlet.sent == []
    assert post.scene.post.sent == []
    assert post.scene.tasks.started == []
    assert post.scene.session.deliverer.seq == 0


def test_signalling_for_a_member_here_is_passed_on_for_others_it_is_nothing() -> None:
    post = Post()
    offer = WebrtcOfferRelay(room_code="123456", to="s9", sdp="v=0")
    message = SERVER_MESSAGES[1].encode(offer)
    post.take(Relay("s5", message), Relay("s1", message))
    assert post.scene.outlet.sent == [offer]


# Taken.


def test_a_session_that_another_instance_took_is_dropped() -> None:
    outlet = ClosingOutlet()
    post = Post(outlet)
    session = post.scene.session
    post.take(Taken("s1", session.fence + 1))
    assert session.lapsed
    assert post.scene.board.sessions == {}
    assert post.scene.board.jobs == {}
    assert post.scene.dropped == [session]
    assert outlet.closed_with == CloseCode.REPLACED
    assert session.admission.idle.is_set()


@pytest.mark.parametrize("fence", [0, 1])
def test_a_letter_from_before_the_session_was_ours_takes_nothing(fence: int) -> None:
    post = Post()
    post.take(Taken("s1", fence))
    assert not post.scene.session.lapsed
    assert post.scene.board.sessions.keys() == {"s1"}


# Letters to ourselves.


def test_a_letter_to_ourselves_does_not_go_by_the_store() -> None:
    post = Post()
    post.scene.board.take_letter = post.mail.take
    post.scene.board.write("here", Partial("s1", post.job.id, 2, "ni", is_final=False))
    assert len(post.sent(AsrPartial)) == 1
    post.scene.board.write("here", Outcomes("s1", "e1", 1))
    assert post.scene.tasks.started == ["_outcomes"]
    assert post.scene.post.sent == []


def test_a_letter_to_nobody_is_not_written() -> None:
    post = Post()
    post.scene.board.write("", Taken("s1", 9))
    assert (post.scene.post.sent, post.scene.tasks.started) == ([], [])
    assert post.scene.own_letters == []


# Outcomes.


async def said(owner: Office, host: Office, count: int = 1) -> tuple[Speaker, Outcomes]:
    """Let a node elsewhere finish some utterances; return the letter about the last of them."""
    worker = await host.node()
    speaker = await owner.speaker()
    for _ in range(count):
        speaker.say()
    await until(lambda: len(speaker.accepted) == count, "all is accepted")
    await owner.quiet()
    await host.read_mail()
    for assign in worker.assigned:
        host.workshop.accepted(worker.node, assign.job_id, assign.attempt_id, running=False)
        await worker.report(assign)
    await host.quiet()
    letters = [told for told in await owner.letters() if isinstance(told, Outcomes)]
    assert [letter.seq for letter in letters] == list(range(1, count + 1))
    return speaker, letters[-1]


def test_outcomes_are_read_from_the_outbox_and_delivered(store: Server) -> None:
    async def scenario(here: Office, there: Office) -> None:
        speaker, last = await said(here, there, 3)
        # The letters before it are lost.
        await here.apply(last)
        assert [outcome.seq for outcome in speaker.outcomes] == [1, 2, 3]
        assert here.board.jobs == {}
        await here.apply(last)
        assert len(speaker.outcomes) == 3

    play(store, scenario, "AB")


def test_what_the_nodes_instance_measured_is_in_the_timeline(store: Server) -> None:
    async def scenario(here: Office, there: Office) -> None:
        speaker, letter = await said(here, there)
        (span,) = letter.spans
        long = Outcomes(letter.session, letter.epoch, letter.seq, (Span(span.job, 1, 0),))
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
    async def scenario(here: Office, there: Office) -> None:
        speaker, letter = await said(here, there)
        await here.apply(Outcomes(letter.session, "1", letter.seq))
        assert speaker.outcomes == []

    play(store, scenario, "AB")


def test_outcomes_that_an_emptied_store_lost_start_the_session_over(store: Server) -> None:
    async def scenario(here: Office, there: Office) -> None:
        speaker, letter = await said(here, there)
        await here.empty_the_store()
        await here.apply(letter)
        assert [message.epoch for message in speaker.of(SessionReset)] == [speaker.session.epoch]
        assert speaker.session.epoch != letter.epoch

    play(store, scenario, "AB")


def test_outcomes_for_a_session_that_went_on_elsewhere_are_nothing(store: Server) -> None:
    async def scenario(here: Office, there: Office) -> None:
        speaker, letter = await said(here, there)
        back = await there.comes_back(speaker)
        (taken,) = await here.letters()
        assert taken == Taken(speaker.session.id, back.session.fence)
        await here.apply(taken)
        await here.apply(letter)
        assert speaker.outcomes == []
        # The new owner found it by itself.
        assert [outcome.seq for outcome in back.outcomes] == [1]

    play(store, scenario, "AB")


# What takes too long.


def test_a_letter_that_takes_too_long_is_tried_again_later(
    store: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mail_module, "APPLY_S", 0.05)

    async def scenario(here: Office, there: Office) -> None:
        _, letter = await said(here, there)
        store.pause()
        try:
            with pytest.raises(Undeliverable) as problem:
                await here.apply(letter)
        finally:
            store.resume()
        assert problem.value.reason == "too_slow"

    play(store, scenario, "AB")


# Letters of a dead instance.


async def placed_with(dead: Office, owner: Office) -> Push:
    """Let a job be placed on a node of an instance that never reads its letter."""
    await dead.node()
    speaker = await owner.speaker()
    speaker.say()
    await owner.quiet()
    (letter,) = await dead.letters()
    assert isinstance(letter, Push)
    return letter


def test_an_adopted_push_goes_where_its_node_is_now(store: Server) -> None:
    async def scenario(dead: Office, owner: Office, heir: Office) -> None:
        letter = await placed_with(dead, owner)
        node = await heir.idle_node("n1")
        await heir.quiet()
        node.socket.take()
        heir.workshop.held.clear()
        await heir.mail.apply_adopted(envelope(letter))
        assert [job.job_id for job in node.assigned] == [letter.job]
        assert node.assigned[0].audio

    play(store, scenario, "ABC")


def test_an_adopted_push_for_a_node_that_is_nowhere_moves_the_job(store: Server) -> None:
    async def scenario(dead: Office, owner: Office, heir: Office) -> None:
        letter = await placed_with(dead, owner)
        lost = dead.board.nodes["n1"]
        await heir.store.node_offline(heir.cell, "n1", lost.conn)
        other = await heir.node("n2")
        await heir.mail.apply_adopted(envelope(letter))
        await heir.quiet()
        assert [(job.job_id, job.attempt_id) for job in other.assigned] == [(letter.job, 2)]

    play(store, scenario, "ABC")


def test_an_adopted_stop_reaches_the_node_where_it_is_now(store: Server) -> None:
    async def scenario(dead: Office, other: Office, heir: Office) -> None:
        here, there = await heir.idle_node("n1"), await other.idle_node("n2")
        for node in ("n1", "n2", "n-nowhere"):
            await heir.mail.apply_adopted(envelope(Stop("job-1", 3, node, "cancelled")))
        assert [message.job_id for message in here.of(JobCancel)] == ["job-1"]
        assert await other.read_mail() == [Stop("job-1", 3, "n2", "cancelled")]
        assert [message.job_id for message in there.of(JobCancel)] == ["job-1"]
        assert await dead.letters() == []

    play(store, scenario, "ABC")


def test_what_was_for_a_clients_socket_died_with_it(store: Server) -> None:
    async def scenario(dead: Office, owner: Office, heir: Office) -> None:
        letter = await placed_with(dead, owner)
        (job,) = owner.board.jobs.values()
        speaker = job.session.id
        for told in (
            Outcomes(speaker, "1", 9), Progress(speaker, job.id, 1, "n1", "running"),
            Partial(speaker, job.id, 1, "x", is_final=False), Trouble(speaker, job.id, "X", "x"),
            Resend(letter.job, 1, "n1", "c0", "A"), Taken(speaker, 99), RoomChanged("123456"),
            Relay(speaker, b"{}"),
        ):  # fmt: skip
            await owner.mail.apply_adopted(envelope(told))
        assert not owner.board.sessions[speaker].lapsed
        assert job.state == "assigned"
        assert await heir.letters() == await dead.letters() == []

    play(store, scenario, "ABC")
