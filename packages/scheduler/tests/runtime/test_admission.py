"""From a cut to the store: the window, the backlog, refusals, and which owner may submit."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from lingua_scheduler.errors import StoreUnavailable
from lingua_scheduler.runtime.session_registry import ResumeRefused
from lingua_scheduler.runtime.submission import Submission
from lingua_scheduler.runtime.utterance import PendingUtterance
from lingua_scheduler.runtime.utterance_indices import INDEX_MAX
from lingua_scheduler.session.utterance import Target
from lingua_scheduler.state.reply import Reply
from lingua_wire.codes import CloseCode
from lingua_wire.errors import InvalidMessage
from lingua_wire.to_client import (
    Backpressure,
    ErrorMessage,
    Gap,
    SessionReset,
    UtteranceAccepted,
)
from runtime.bare_instances import (
    CHUNK,
    PAUSED_CALL_MS,
    BareInstance,
    Speaker,
    outcomes_of,
    play,
    until,
)
from runtime.stand_ins import ClosingOutlet, Scene

if TYPE_CHECKING:
    from lingua_scheduler.runtime.job import LiveJob
    from servers import Server

pytestmark = pytest.mark.store

# There is no node: admitted utterances stay in the queue.
NARROW = {"in_flight_max": 2}
SHORT = {"backlog_max": 4}


def in_flight(speaker: Speaker) -> tuple[list[int], list[int]]:
    """Return the utterances in flight, and those in the backlog."""
    parts = speaker.session.admission.parts
    return sorted(parts.window.open), [utterance.index for utterance in parts.backlog]


def pressure(speaker: Speaker) -> list[str]:
    return [message.action for message in speaker.of(Backpressure)]


async def accepted(speaker: Speaker, *indices: int) -> None:
    await until(lambda: speaker.accepted == list(indices), f"{indices} are accepted")


async def store_missed(here: BareInstance) -> None:
    retry = here.registry.retry
    await until(lambda: not retry.is_store_available, "the store is found unavailable")


# The window.


def test_only_so_many_utterances_are_in_the_store_at_once_the_others_wait(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        speaker = await here.speaker()
        for _ in range(4):
            speaker.say()
        assert in_flight(speaker) == ([0, 1], [2, 3])
        await accepted(speaker, 0, 1)
        assert not speaker.session.admission.idle.is_set()

    play(store, scenario, jobs=NARROW)


def test_an_outcome_lets_the_next_one_in_and_in_order(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        worker = await here.node()
        speaker = await here.speaker()
        for _ in range(4):
            speaker.say()
        await worker.report(await worker.job(0))
        assert in_flight(speaker) == ([1, 2], [3])
        for number in (1, 2, 3):
            await worker.report(await worker.job(number))
        await until(speaker.session.admission.idle.is_set, "all is settled")
        assert [outcome.utterance_index for outcome in speaker.outcomes] == [0, 1, 2, 3]
        assert speaker.accepted == [0, 1, 2, 3]

    play(store, scenario, jobs=NARROW)


def test_the_window_counts_from_the_oldest_that_is_open(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        worker = await here.node()
        speaker = await here.speaker()
        for _ in range(3):
            speaker.say()
        await worker.job(1)
        # The second is done before the first: the third must not pass the first by two.
        await worker.report(worker.assigned[1])
        assert in_flight(speaker) == ([0, 1], [2])

    play(store, scenario, jobs=NARROW)


# The backlog.


def test_a_client_is_told_to_slow_down_to_pause_and_to_go_on(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        worker = await here.node()
        speaker = await here.speaker()
        for _ in range(4):
            speaker.say()
        assert pressure(speaker) == ["SLOW_DOWN"]
        # Early enough: utterances that are on their way still have a place.
        speaker.say()
        assert pressure(speaker) == ["SLOW_DOWN", "PAUSE"]
        assert speaker.session.admission.has_room()
        speaker.say()
        assert pressure(speaker) == ["SLOW_DOWN", "PAUSE"]
        assert speaker.session.admission.parts.backlog.is_paused
        for number in range(2):
            assert speaker.session.admission.parts.backlog.is_paused
            await worker.report(await worker.job(number))
        assert pressure(speaker) == ["SLOW_DOWN", "PAUSE", "RESUME"]
        assert not speaker.session.admission.parts.backlog.is_paused

    play(store, scenario, jobs=NARROW, sessions=SHORT)


def test_one_more_than_may_wait_is_refused_and_may_be_sent_again(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        worker = await here.node()
        speaker = await here.speaker()
        for _ in range(6):
            speaker.say()
        speaker.say(6)
        assert speaker.errors == ["BUSY"]
        assert in_flight(speaker) == ([0, 1], [2, 3, 4, 5])
        await worker.report(await worker.job(0))
        speaker.say(6)
        assert in_flight(speaker)[1] == [3, 4, 5, 6]
        assert speaker.errors == ["BUSY"]

    play(store, scenario, jobs=NARROW, sessions=SHORT)


def test_audio_that_nobody_can_take_is_a_gap_and_ends_what_was_said(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        await here.node()
        speaker = await here.speaker()
        for _ in range(6):
            speaker.say()
        before = speaker.session.input.position
        speaker.stream((0, 1), is_final=False)
        gaps = speaker.of(Gap)
        assert [(gap.reason, gap.end_ms - gap.start_ms) for gap in gaps] == [
            ("backpressure", 100),
            ("backpressure", 100),
        ]
        assert speaker.errors == ["BUSY"]
        assert speaker.session.input.position == (2, before[1])

    play(store, scenario, jobs=NARROW, sessions=SHORT)


# While the store is unavailable.


def test_what_is_refused_while_the_store_is_away_is_refused_for_that(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        worker = await here.node()
        speaker = await here.speaker()
        store.pause()
        try:
            for _ in range(5):
                speaker.say()
            await store_missed(here)
            assert "SCHEDULER_DEPENDENCY_DOWN" in speaker.errors
            speaker.outlet.take()
            speaker.say(5)
            speaker.say(6)
            assert speaker.accepted == []
            (refusal,) = speaker.of(ErrorMessage)
            assert refusal.code == "SCHEDULER_DEPENDENCY_DOWN"
            assert refusal.details == {"utterance_index": 6}
            assert refusal.retry_after_ms
        finally:
            store.resume()
        # Accepted utterances are not lost, and are admitted once.
        for number in range(6):
            await worker.report(await worker.job(number))
        await until(speaker.session.admission.idle.is_set, "all is settled")
        assert [outcome.utterance_index for outcome in speaker.outcomes] == list(range(6))
        assert speaker.accepted == list(range(6))

    play(store, scenario, call_ms=PAUSED_CALL_MS, jobs=NARROW, sessions=SHORT)


def test_audio_is_refused_for_the_store_while_that_is_away(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        await here.node()
        speaker = await here.speaker()
        store.pause()
        try:
            for _ in range(6):
                speaker.say()
            await store_missed(here)
            speaker.stream((0,), is_final=False)
            assert [gap.reason for gap in speaker.of(Gap)] == ["backpressure"]
            assert "BUSY" not in speaker.errors
            assert "SCHEDULER_DEPENDENCY_DOWN" in speaker.errors
        finally:
            store.resume()
        await accepted(speaker, 0, 1)

    play(store, scenario, call_ms=PAUSED_CALL_MS, jobs=NARROW, sessions=SHORT)


# Which owner may submit.


def test_what_was_made_before_the_client_came_back_here_is_submitted_again(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        worker = await here.node()
        speaker = await here.speaker()
        outlet = ClosingOutlet()
        # The server has the script from now on, so that calls stay in order.
        with pytest.raises(ResumeRefused):
            await here.registry.resume(speaker.back(resume_token="x"), outlet, tenant="")
        # Its job is built under the old fence; the new one reaches the store first.
        resuming = asyncio.create_task(here.registry.resume(speaker.back(), outlet, tenant=""))
        await asyncio.sleep(0)
        speaker.say()
        back = await resuming
        job = await worker.job()
        assert back.session is speaker.session
        stored = here.jobs.get(job.job_id)
        assert stored is not None
        assert stored.spec.fence == back.session.record.fence == 2
        assert await here.registry.attach(back, outlet)
        await worker.report(job)
        (outcome,) = outcomes_of(outlet.sent)
        assert (outcome.utterance_index, outcome.seq) == (0, 1)
        assert not back.session.record.is_over
        assert speaker.outlet.closed_with == CloseCode.REPLACED

    play(store, scenario)


def test_another_owner_makes_the_session_nothing_that_counts_here(store: Server) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        speaker = await here.speaker()
        for _ in range(3):
            speaker.say()
        await accepted(speaker, 0, 1)
        await there.resume(speaker)
        # The message about it is on its way; this instance does not know yet.
        speaker.session.reopening.submit_again()
        await here.quiet()
        assert not speaker.session.record.is_over, "the store has these jobs already"
        speaker.session.admission.parts.window.open.clear()
        speaker.session.admission.pump()
        await until(lambda: speaker.session.record.is_over, "the session is dropped")
        assert speaker.session.id not in here.sessions
        assert here.jobs.of(speaker.session.id) == []
        assert speaker.outlet.closed_with == CloseCode.REPLACED
        assert in_flight(speaker)[1] == []
        assert speaker.session.admission.idle.is_set()
        assert speaker.accepted == [0, 1]
        # None of it was admitted.
        assert await here.field(speaker, "at:en:2") is None
        assert here.instance.metrics.peers.sessions_handed_over_total.value == 1

    play(store, scenario, "AB", jobs=NARROW)


def test_a_dropped_session_takes_nothing_more_to_the_store(store: Server) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        speaker = await here.speaker()
        await there.resume(speaker)
        speaker.session.give_up()
        speaker.say()
        await here.quiet()
        assert speaker.accepted == []
        assert await here.field(speaker, "at:en:0") is None

    play(store, scenario, "AB")


# Acceptances.


def test_utterances_are_accepted_in_the_order_of_their_audio_whatever_overtakes_what() -> None:
    # A client discards all chunks up to the last one of an accepted utterance.
    scene = Scene(token="secret")
    admission, targets = scene.session.admission, (Target("en", "en"), Target("de", "de"))
    utterances = [
        PendingUtterance(
            index=index,
            audio=b"",
            profile=scene.session.languages.profile,
            trace_id="t1",
            trigger="manual",
            speech_end_ms=0,
            cut_ms=0,
            first_seq=2 * index,
            last_seq=2 * index + 1,
            turn_id=f"t{index}",
            targets=targets,
        )
        for index in range(3)
    ]
    for utterance in utterances:
        admission._submit(utterance, utterance.cut_ms)
    acceptances = admission.parts.acceptances

    def answer(index: int, *, is_taken: bool) -> list[int]:
        """The store answers for one language; return what is accepted by then."""
        acceptances.answered(utterances[index], is_taken=is_taken)
        sent = scene.outlet.sent
        return [m.utterance_index for m in sent if isinstance(m, UtteranceAccepted)]

    assert [answer(2, is_taken=True), answer(2, is_taken=True)] == [[], []]
    assert answer(0, is_taken=True) == []
    assert acceptances.acknowledged_seq == -1
    assert answer(0, is_taken=False) == [0]
    assert acceptances.acknowledged_seq == 1
    assert admission.is_owed
    # An utterance that is refused in all languages is not accepted, and delays no other.
    assert answer(1, is_taken=False) == [0]
    assert answer(1, is_taken=False) == [0, 2]
    assert acceptances.acknowledged_seq == 5
    assert not admission.is_owed


# Earlier speech goes first.


class Stalled:
    """A dispatcher whose submissions of one utterance fail until `is_over` is set."""

    def __init__(self, instance: BareInstance, index: int) -> None:
        self._submit_all = instance.effects.dispatcher.submit_all
        self._index = index
        self.is_over = False
        self.tries = 0
        instance.effects.dispatcher.submit_all = self  # type: ignore[method-assign,assignment]

    async def __call__(self, home: Any, jobs: Any, audio: bytes, besides: Any) -> Any:
        if jobs[0][1].index == self._index and not self.is_over:
            self.tries += 1
            raise StoreUnavailable("here", "stalled")
        return await self._submit_all(home, jobs, audio, besides)


def test_what_is_said_later_is_taken_after_what_was_said_before(store: Server) -> None:
    # If it were stored first, its client would discard all audio before it, and a later owner of
    # the session would never get that audio.
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        speaker = await here.speaker(tgt_langs=("en", "de"))
        stalled = Stalled(here, 0)
        speaker.stream((0, 1))
        speaker.stream((2, 3))
        await until(lambda: stalled.tries > 2, "the first one does not get through")
        assert await here.field(speaker, "heard") is None
        assert [await here.field(speaker, f"at:{lane}:1") for lane in ("en", "de")] == [None, None]
        assert speaker.accepted == []
        back = await there.resume(speaker)
        assert back.session.admission.parts.progress.stored[:2] == (-1, 0), (
            "its client says all of it again"
        )
        stalled.is_over = True
        await until(lambda: speaker.session.record.is_over, "it is another's now")
        await here.quiet()
        assert await here.field(speaker, "at:en:0") is None

    play(store, scenario, "AB")


def test_what_waited_for_what_was_said_before_is_taken_then(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        speaker = await here.speaker()
        stalled = Stalled(here, 1)
        for first in (0, 2, 4):
            speaker.stream((first, first + 1))
        await until(lambda: stalled.tries > 2, "the second one does not get through")
        assert await here.field(speaker, "heard") == "1"
        stalled.is_over = True
        await accepted(speaker, 0, 1, 2)
        assert await here.field(speaker, "heard") == "5"
        assert await here.field(speaker, "speech") == "600"

    play(store, scenario)


def test_what_nobody_needs_translated_waits_for_what_was_said_before_too(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        speaker = await here.speaker()
        stalled = Stalled(here, 0)
        speaker.stream((0, 1))
        admission, profile = speaker.session.admission, speaker.session.languages.profile
        utterance = PendingUtterance(
            index=1,
            audio=b"",
            profile=profile,
            trace_id="t1",
            trigger="manual",
            speech_end_ms=0,
            cut_ms=0,
            start_ms=200,
            end_ms=400,
            first_seq=2,
            last_seq=3,
            turn_id="t1",
        )
        admission._submit(utterance, utterance.cut_ms)
        await until(lambda: stalled.tries > 2, "the first one does not get through")
        assert await here.field(speaker, "heard") is None
        assert speaker.accepted == []
        stalled.is_over = True
        await accepted(speaker, 0, 1)
        assert admission.parts.progress.stored[:2] == (3, 400)
        assert [await here.field(speaker, name) for name in ("heard", "top")] == ["3", "2"]

    play(store, scenario)


def test_what_was_refused_is_not_asked_for_again_and_holds_nothing_up(store: Server) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        speaker = await here.speaker()
        speaker.stream((0, 1))
        speaker.stream((2, 3))
        await until(lambda: len(speaker.outcomes) == 2, "both have their outcomes")
        assert speaker.accepted == []
        back = await there.resume(speaker)
        assert back.session.admission.parts.progress.stored[:2] == (3, 400)

    play(store, scenario, "AB", jobs={"refuse_unserved_pairs": True})


def test_a_store_that_forgot_how_far_it_was_is_told(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        speaker = await here.speaker()
        speaker.stream((0, 1))
        await accepted(speaker, 0)
        key = here.cell.key("session", speaker.session.id)
        await here.connection.command(here.cell.slot, "HDEL", key, "heard", "heard_ms", "speech")
        speaker.stream((2, 3))
        await accepted(speaker, 0, 1)
        fields = [await here.field(speaker, name) for name in ("heard", "heard_ms", "speech")]
        assert fields == ["3", "400", "400"]

    play(store, scenario)


# What a later owner continues from.


def test_speech_counts_as_heard_with_the_last_language_of_its_utterance(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        speaker = await here.speaker(tgt_langs=("en", "de"))
        speaker.stream((10, 11, 12))
        await until(lambda: len(here.jobs.of(speaker.session.id)) == 2, "both are made")
        english, german = here.jobs.of(speaker.session.id)
        assert (english.spec.heard, english.spec.heard_ms) == (-1, 0)
        assert (german.spec.heard, german.spec.heard_ms) == (12, 300)
        assert english.spec.top == german.spec.top == 1
        await here.quiet()
        assert speaker.session.admission.parts.progress.stored[:2] == (12, 300)
        fields = [await here.field(speaker, name) for name in ("heard", "heard_ms", "top")]
        assert fields == ["12", "300", "1"]

    play(store, scenario)


def test_without_its_last_language_an_utterance_is_not_heard(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        speaker = await here.speaker(tgt_langs=("en", "de"))
        # The second language cannot be taken.
        taken = here.cell.key("session", speaker.session.id)
        await here.connection.command(here.cell.slot, "HSET", taken, "at:de:0", "1 other")
        speaker.stream((10, 11, 12))
        await here.quiet()
        assert await here.field(speaker, "at:en:0") is not None
        assert speaker.session.admission.parts.progress.stored[:2] == (-1, 0)
        assert await here.field(speaker, "heard") is None
        assert await here.field(speaker, "top") == "1"

    play(store, scenario)


def test_whole_utterances_have_no_chunks_and_move_only_the_top(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        speaker = await here.speaker()
        speaker.say()
        speaker.say()
        await here.quiet()
        assert speaker.session.admission.parts.progress.stored[:2] == (-1, 0)
        assert await here.field(speaker, "heard") is None
        assert await here.field(speaker, "top") == "2"

    play(store, scenario)


def test_what_waits_for_the_window_is_not_heard_yet(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        speaker = await here.speaker()
        for first in (0, 2, 4):
            speaker.stream((first, first + 1))
        await accepted(speaker, 0, 1)
        assert in_flight(speaker) == ([0, 1], [2])
        assert await here.field(speaker, "heard") == "3"
        assert await here.field(speaker, "top") == "2"

    play(store, scenario, jobs=NARROW)


def test_a_later_owner_waits_for_what_the_former_one_admitted(store: Server) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        speaker = await here.speaker(tgt_langs=("en", "de"))
        speaker.stream((0, 1))
        speaker.stream((2, 3))
        await here.quiet()
        back = await there.resume(speaker)
        admission = back.session.admission
        assert admission.parts.window.open == {0: 2, 1: 2}
        assert admission.parts.indices.next == admission.parts.progress.top == 2
        assert admission.parts.progress.stored[:2] == (3, 400)
        assert not admission.idle.is_set()
        # The next utterance is number 2, and both lanes know their place.
        back.stream((4, 5))
        await there.quiet()
        assert back.accepted == [2]
        assert await there.field(back, "skip:en") is None
        assert await there.field(back, "heard") == "5"

    play(store, scenario, "AB")


def test_a_request_that_a_former_owner_took_has_its_outcome_at_that_place(store: Server) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        speaker = await here.speaker()
        speaker.say(0, request_id="r1")
        await accepted(speaker, 0)
        back = await there.resume(speaker)
        # The client was never sent the acceptance: it is sent now, with the place.
        back.say(1, request_id="r1", audio=CHUNK + bytes([0, 0]))
        back.say(1, request_id="r2")
        await accepted(back, 0, 1)
        worker = await there.node()
        await worker.report(await worker.job())
        await worker.report(await worker.job(1))
        await until(lambda: len(back.outcomes) == 2, "both have an outcome")
        kinds = [(type(outcome).__name__, outcome.utterance_index) for outcome in back.outcomes]
        assert kinds == [("TranslationResult", 0), ("TranslationResult", 1)]
        assert len(worker.assigned) == 2

    play(store, scenario, "AB")


# A store that lost its data.


def test_what_was_admitted_is_submitted_again_to_an_emptied_store(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        speaker = await here.speaker()
        speaker.say()
        speaker.say()
        await accepted(speaker, 0, 1)
        before = speaker.session.record.epoch
        await here.empty_the_store()
        await speaker.session.verify()
        worker = await here.node()
        for number in (0, 1):
            await worker.report(await worker.job(number))
        await until(lambda: len(speaker.outcomes) == 2, "both outcomes are delivered")
        assert [message.epoch for message in speaker.of(SessionReset)] == [
            speaker.session.record.epoch
        ]
        assert speaker.session.record.epoch != before
        found = [(outcome.seq, outcome.utterance_index) for outcome in speaker.outcomes]
        assert found == [(1, 0), (2, 1)]
        # The acceptance is not sent twice.
        assert speaker.accepted == [0, 1]

    play(store, scenario)


def test_a_session_that_the_store_forgot_is_opened_by_what_is_said_next(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        speaker = await here.speaker()
        speaker.stream((0, 1))
        await accepted(speaker, 0)
        await here.empty_the_store()
        speaker.stream((2, 3))
        await accepted(speaker, 0, 1)
        await here.quiet()
        assert await here.field(speaker, "heard") == "3"
        assert await here.field(speaker, "token") == speaker.session.record.token
        assert await here.field(speaker, "at:en:0") is not None
        assert await here.field(speaker, "at:en:1") is not None

    play(store, scenario)


def test_what_the_store_knows_is_not_submitted_twice(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        worker = await here.node()
        speaker = await here.speaker()
        speaker.say()
        job = await worker.job()
        speaker.session.reopening.submit_again()
        await here.quiet()
        assert worker.assigned == [job]
        await worker.report(job)
        assert [outcome.utterance_index for outcome in speaker.outcomes] == [0]

    play(store, scenario)


# Refusals.


def test_an_utterance_that_the_store_refuses_has_its_outcome_at_once(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        speaker = await here.speaker()
        speaker.say()
        await until(lambda: speaker.outcomes, "it has an outcome")
        (outcome,) = speaker.outcomes
        assert (outcome.utterance_index, outcome.seq) == (0, 1)
        assert speaker.accepted == []
        assert speaker.errors == ["NO_AVAILABLE_NODE"]
        assert len(here.jobs) == 0
        assert speaker.session.admission.idle.is_set()

    play(store, scenario, jobs={"refuse_unserved_pairs": True})


def test_an_outbox_that_is_full_is_waited_for(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        worker = await here.node()
        speaker = await here.speaker()
        for number in range(4):
            speaker.say()
            await worker.report(await worker.job(number))
        await until(lambda: len(speaker.outcomes) == 4, "all outcomes are delivered")
        assert speaker.accepted == [0, 1, 2, 3]

    play(store, scenario, jobs={"outbox_max": 2})


def test_only_a_full_outbox_is_trimmed_while_the_store_refuses(
    store: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client has not confirmed what is there, and may be about to resume before it."""

    async def scenario(here: BareInstance) -> None:
        worker = await here.node()
        speaker = await here.speaker()
        parts, refused = speaker.session.admission.parts, []
        mend = Submission._mend

        async def mend_noted(self: Submission, jobs: list[LiveJob], reply: Reply) -> None:
            refused.append(reply)
            await mend(self, jobs, reply)

        monkeypatch.setattr(Submission, "_mend", mend_noted)
        speaker.say()
        await worker.report(await worker.job(0))
        # As if what the store has in flight were not known here.
        parts.window._in_flight_max = 9
        for _ in range(3):
            speaker.say()
        await until(lambda: len(refused) > 1, "it is refused, and once more")
        assert set(refused) == {Reply.IN_FLIGHT_LIMIT}
        for number in (1, 2, 3):
            await worker.report(await worker.job(number))
        await until(lambda: len(speaker.outcomes) == 4, "all outcomes are delivered")
        assert len(await here.outbox(speaker)) == 4

    play(store, scenario, jobs=NARROW)


# Indices of whole utterances.


def test_an_empty_utterance_and_one_far_ahead_are_refused(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        speaker = await here.speaker()
        for index, audio in ((0, b""), (INDEX_MAX + 1, CHUNK)):
            with pytest.raises(InvalidMessage):
                speaker.say(index, audio=audio)
        speaker.say(0)
        with pytest.raises(InvalidMessage, match="the next one is 1"):
            speaker.say(1 + here.settings.jobs.in_flight_max)
        await accepted(speaker, 0)

    play(store, scenario)


def test_a_repetition_is_answered_with_what_is_kept(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        worker = await here.node()
        speaker = await here.speaker()
        speaker.say(0, audio=CHUNK)
        await worker.report(await worker.job())
        first = speaker.outlet.take()
        speaker.say(0, audio=CHUNK)
        await until(lambda: speaker.outcomes, "it is told again")
        again = speaker.outcomes[0]
        assert (again.seq, again.utterance_index) == (1, 0)
        assert [m.utterance_index for m in first if isinstance(m, UtteranceAccepted)] == [0]
        assert len(worker.assigned) == 1

    play(store, scenario)


def test_a_number_that_is_taken_gets_the_next_one_and_is_told_so(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        speaker = await here.speaker()
        speaker.say(0, audio=CHUNK)
        speaker.say(0, audio=CHUNK * 2)
        await accepted(speaker, 0, 1)
        assert [m.requested_index for m in speaker.of(UtteranceAccepted)] == [None, 0]

    play(store, scenario)


def test_reopening_where_another_is_the_owner_drops_the_session(store: Server) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        speaker = await here.speaker()
        await there.resume(speaker)
        await speaker.session.reopening.reopen()
        assert speaker.session.record.is_over
        assert (await speaker.session.open_in_store())[0] is Reply.FENCED

    play(store, scenario, "AB")
