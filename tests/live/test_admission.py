"""From a cut to the store: the window, what waits, what is refused, and who may submit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lingua_scheduler.errors import InvalidMessage, StoreUnavailable
from lingua_scheduler.live.admission import INDEX_MAX
from lingua_scheduler.live.piece import Piece
from lingua_scheduler.live.profile import Target
from lingua_scheduler.live.reception import ResumeRefused
from lingua_scheduler.messages.codes import CloseCode
from lingua_scheduler.messages.to_client import (
    Backpressure,
    ErrorMessage,
    Gap,
    SessionReset,
    UtteranceAccepted,
)
from lingua_scheduler.state.reply import Reply
from live.offices import CHUNK, Office, Speaker, outcomes_of, play, until
from live.stand_ins import ClosingOutlet, Scene

if TYPE_CHECKING:
    from servers import Server

pytestmark = pytest.mark.store

# No node: what is admitted stays in the queue.
NARROW = {"in_flight_max": 2}
SHORT = {"backlog_max": 4}


def under_way(speaker: Speaker) -> tuple[list[int], list[int]]:
    """Return the utterances in the store, and those that wait for their turn."""
    admission = speaker.session.admission
    return sorted(admission.open), [piece.index for piece in admission.backlog]


def pressure(speaker: Speaker) -> list[str]:
    return [message.action for message in speaker.of(Backpressure)]


async def accepted(speaker: Speaker, *indices: int) -> None:
    await until(lambda: speaker.accepted == list(indices), f"{indices} are accepted")


# The window.


def test_only_so_many_utterances_are_in_the_store_at_once_the_others_wait(store: Server) -> None:
    async def scenario(here: Office) -> None:
        speaker = await here.speaker()
        for _ in range(4):
            speaker.say()
        assert under_way(speaker) == ([0, 1], [2, 3])
        await accepted(speaker, 0, 1)
        assert not speaker.session.admission.idle.is_set()

    play(store, scenario, jobs=NARROW)


def test_an_outcome_lets_the_next_one_in_and_in_order(store: Server) -> None:
    async def scenario(here: Office) -> None:
        worker = await here.node()
        speaker = await here.speaker()
        for _ in range(4):
            speaker.say()
        await worker.report(await worker.job(0))
        assert under_way(speaker) == ([1, 2], [3])
        for number in (1, 2, 3):
            await worker.report(await worker.job(number))
        await until(speaker.session.admission.idle.is_set, "all is settled")
        assert [outcome.utterance_index for outcome in speaker.outcomes] == [0, 1, 2, 3]
        assert speaker.accepted == [0, 1, 2, 3]

    play(store, scenario, jobs=NARROW)


def test_the_window_counts_from_the_oldest_that_is_open(store: Server) -> None:
    async def scenario(here: Office) -> None:
        worker = await here.node()
        speaker = await here.speaker()
        for _ in range(3):
            speaker.say()
        await worker.job(1)
        # The second is done before the first: the third must not pass the first by two.
        await worker.report(worker.assigned[1])
        assert under_way(speaker) == ([0, 1], [2])

    play(store, scenario, jobs=NARROW)


# What waits.


def test_a_client_is_told_to_slow_down_to_pause_and_to_go_on(store: Server) -> None:
    async def scenario(here: Office) -> None:
        worker = await here.node()
        speaker = await here.speaker()
        for _ in range(4):
            speaker.say()
        assert pressure(speaker) == ["SLOW_DOWN"]
        # Before nothing more is taken: what is on its way still has a place.
        speaker.say()
        assert pressure(speaker) == ["SLOW_DOWN", "PAUSE"]
        assert speaker.session.admission.has_room()
        speaker.say()
        assert pressure(speaker) == ["SLOW_DOWN", "PAUSE"]
        assert speaker.session.admission.paused
        for number in range(2):
            assert speaker.session.admission.paused
            await worker.report(await worker.job(number))
        assert pressure(speaker) == ["SLOW_DOWN", "PAUSE", "RESUME"]
        assert not speaker.session.admission.paused

    play(store, scenario, jobs=NARROW, sessions=SHORT)


def test_one_more_than_may_wait_is_refused_and_may_be_sent_again(store: Server) -> None:
    async def scenario(here: Office) -> None:
        worker = await here.node()
        speaker = await here.speaker()
        for _ in range(6):
            speaker.say()
        speaker.say(6)
        assert speaker.errors == ["BUSY"]
        assert under_way(speaker) == ([0, 1], [2, 3, 4, 5])
        await worker.report(await worker.job(0))
        speaker.say(6)
        assert under_way(speaker)[1] == [3, 4, 5, 6]
        assert speaker.errors == ["BUSY"]

    play(store, scenario, jobs=NARROW, sessions=SHORT)


def test_audio_that_nobody_can_take_is_a_gap_and_ends_what_was_said(store: Server) -> None:
    async def scenario(here: Office) -> None:
        await here.node()
        speaker = await here.speaker()
        for _ in range(6):
            speaker.say()
        before = speaker.session.audio_position
        speaker.stream((0, 1), is_final=False)
        gaps = speaker.of(Gap)
        assert [(gap.reason, gap.end_ms - gap.start_ms) for gap in gaps] == [
            ("backpressure", 100), ("backpressure", 100),
        ]  # fmt: skip
        assert speaker.errors == ["BUSY"]
        assert speaker.session.audio_position == (2, before[1])

    play(store, scenario, jobs=NARROW, sessions=SHORT)


# While the store is away.


def test_what_is_refused_while_the_store_is_away_is_refused_for_that(store: Server) -> None:
    async def scenario(here: Office) -> None:
        worker = await here.node()
        speaker = await here.speaker()
        store.pause()
        try:
            for _ in range(5):
                speaker.say()
            await until(lambda: not here.board.store_is_there, "the store is missed")
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
        # What was taken is not lost, and is admitted once.
        for number in range(6):
            await worker.report(await worker.job(number))
        await until(speaker.session.admission.idle.is_set, "all is settled")
        assert [outcome.utterance_index for outcome in speaker.outcomes] == list(range(6))
        assert speaker.accepted == list(range(6))

    play(store, scenario, jobs=NARROW, sessions=SHORT)


def test_audio_is_refused_for_the_store_while_that_is_away(store: Server) -> None:
    async def scenario(here: Office) -> None:
        await here.node()
        speaker = await here.speaker()
        store.pause()
        try:
            for _ in range(6):
                speaker.say()
            await until(lambda: not here.board.store_is_there, "the store is missed")
            speaker.stream((0,), is_final=False)
            assert [gap.reason for gap in speaker.of(Gap)] == ["backpressure"]
            assert "BUSY" not in speaker.errors
            assert "SCHEDULER_DEPENDENCY_DOWN" in speaker.errors
        finally:
            store.resume()
        await accepted(speaker, 0, 1)

    play(store, scenario, jobs=NARROW, sessions=SHORT)


# Who may submit.


def test_what_was_made_before_the_client_came_back_here_is_submitted_again(store: Server) -> None:
    async def scenario(here: Office) -> None:
        worker = await here.node()
        speaker = await here.speaker()
        outlet = ClosingOutlet()
        # The server knows the script from now on: calls are not sent again and stay in order.
        with pytest.raises(ResumeRefused):
            await here.reception.resume(speaker.back(resume_token="x"), outlet, tenant="")
        # Its job is made under the old number; the store hears of the new one first.
        speaker.say()
        back = await here.reception.resume(speaker.back(), outlet, tenant="")
        job = await worker.job()
        assert back.session is speaker.session
        assert here.board.jobs[job.job_id].spec.fence == back.session.fence == 2
        assert await here.reception.attach(back, outlet)
        await worker.report(job)
        (outcome,) = outcomes_of(outlet.sent)
        assert (outcome.utterance_index, outcome.seq) == (0, 1)
        assert not back.session.lapsed
        assert speaker.outlet.closed_with == CloseCode.REPLACED

    play(store, scenario)


def test_another_owner_makes_the_session_nothing_that_counts_here(store: Server) -> None:
    async def scenario(here: Office, there: Office) -> None:
        speaker = await here.speaker()
        for _ in range(3):
            speaker.say()
        await accepted(speaker, 0, 1)
        await there.comes_back(speaker)
        # The letter about it is on its way; until then nothing here knows.
        speaker.session.admission.submit_again()
        await here.quiet()
        assert not speaker.session.lapsed, "what the store has already is no news"
        speaker.session.admission.open.clear()
        speaker.session.admission.pump()
        await until(lambda: speaker.session.lapsed, "the session is dropped")
        assert speaker.session.id not in here.board.sessions
        assert here.board.jobs_of(speaker.session) == []
        assert speaker.outlet.closed_with == CloseCode.REPLACED
        assert under_way(speaker)[1] == []
        assert speaker.session.admission.idle.is_set()
        assert speaker.accepted == [0, 1]
        # And nothing of it was admitted.
        assert await here.field(speaker, "at:en:2") is None
        assert here.instance.metrics.sessions_handed_over_total.value == 1

    play(store, scenario, "AB", jobs=NARROW)


def test_a_dropped_session_takes_nothing_more_to_the_store(store: Server) -> None:
    async def scenario(here: Office, there: Office) -> None:
        speaker = await here.speaker()
        await there.comes_back(speaker)
        speaker.session.drop()
        speaker.say()
        await here.quiet()
        assert speaker.accepted == []
        assert await here.field(speaker, "at:en:0") is None

    play(store, scenario, "AB")


# What a client is told.


def test_pieces_are_accepted_in_the_order_of_their_audio_whatever_overtakes_what() -> None:
    # A client forgets all chunks up to the last one of what was accepted.
    scene = Scene(token="secret")
    admission, targets = scene.session.admission, (Target("en", "en"), Target("de", "de"))
    pieces = [
        Piece(
            index, b"", scene.session.profile, targets, "t1", "manual", 0, 0, turn=f"t{index}",
            first_seq=2 * index, last_seq=2 * index + 1,
        )
        for index in range(3)
    ]  # fmt: skip
    for piece in pieces:
        admission._submit(piece)

    def answer(index: int, *, is_taken: bool) -> list[int]:
        """The store answers for one language; return what is accepted by then."""
        pieces[index].unanswered -= 1
        pieces[index].is_taken |= is_taken
        admission._tell_accepted(pieces[index])
        told = scene.outlet.sent
        return [m.utterance_index for m in told if isinstance(m, UtteranceAccepted)]

    assert [answer(2, is_taken=True), answer(2, is_taken=True)] == [[], []]
    assert answer(0, is_taken=True) == []
    assert scene.session.acked_audio == -1
    assert answer(0, is_taken=False) == [0]
    assert scene.session.acked_audio == 1
    assert admission.is_owed
    # What is refused in all languages is not accepted, and holds nothing back.
    assert answer(1, is_taken=False) == [0]
    assert answer(1, is_taken=False) == [0, 2]
    assert scene.session.acked_audio == 5
    assert not admission.is_owed


# What was said before comes first.


class Stalled:
    """The way to a store that does not get through for one utterance, until it is let through."""

    def __init__(self, office: Office, index: int) -> None:
        self._submit_all = office.board.dispatcher.submit_all
        self._index = index
        self.is_over = False
        self.tries = 0
        office.board.dispatcher.submit_all = self  # type: ignore[method-assign,assignment]

    async def __call__(self, home: Any, jobs: Any, audio: bytes = b"") -> Any:
        if jobs[0][1].index == self._index and not self.is_over:
            self.tries += 1
            raise StoreUnavailable("here", "stalled")
        return await self._submit_all(home, jobs, audio)


def test_what_is_said_later_is_taken_after_what_was_said_before(store: Server) -> None:
    # If it were taken first, its client would forget all that comes before it; whoever goes on
    # with the session then would never get that.
    async def scenario(here: Office, there: Office) -> None:
        speaker = await here.speaker(tgt_langs=("en", "de"))
        stalled = Stalled(here, 0)
        speaker.stream((0, 1))
        speaker.stream((2, 3))
        await until(lambda: stalled.tries > 2, "the first one does not get through")
        assert await here.field(speaker, "heard") is None
        assert [await here.field(speaker, f"at:{lane}:1") for lane in ("en", "de")] == [None, None]
        assert speaker.accepted == []
        back = await there.comes_back(speaker)
        assert back.session.admission.heard == (-1, 0), "its client says all of it again"
        stalled.is_over = True
        await until(lambda: speaker.session.lapsed, "it is another's now")
        await here.quiet()
        assert await here.field(speaker, "at:en:0") is None

    play(store, scenario, "AB")


def test_what_waited_for_what_was_said_before_is_taken_then(store: Server) -> None:
    async def scenario(here: Office) -> None:
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
    async def scenario(here: Office) -> None:
        speaker = await here.speaker()
        stalled = Stalled(here, 0)
        speaker.stream((0, 1))
        admission, profile = speaker.session.admission, speaker.session.profile
        piece = Piece(
            1, b"", profile, (), "t1", "manual", 0, 0, 200, 400, turn="t1", first_seq=2, last_seq=3
        )
        admission._submit(piece)
        await until(lambda: stalled.tries > 2, "the first one does not get through")
        assert await here.field(speaker, "heard") is None
        assert speaker.accepted == []
        stalled.is_over = True
        await accepted(speaker, 0, 1)
        assert admission.heard == (3, 400)
        assert [await here.field(speaker, name) for name in ("heard", "top")] == ["3", "2"]

    play(store, scenario)


def test_what_was_refused_is_not_asked_for_again_and_holds_nothing_up(store: Server) -> None:
    async def scenario(here: Office, there: Office) -> None:
        speaker = await here.speaker()
        speaker.stream((0, 1))
        speaker.stream((2, 3))
        await until(lambda: len(speaker.outcomes) == 2, "both have their outcomes")
        assert speaker.accepted == []
        back = await there.comes_back(speaker)
        assert back.session.admission.heard == (3, 400)

    play(store, scenario, "AB", jobs={"refuse_unserved_pairs": True})


def test_a_store_that_forgot_how_far_it_was_is_told(store: Server) -> None:
    async def scenario(here: Office) -> None:
        speaker = await here.speaker()
        speaker.stream((0, 1))
        await accepted(speaker, 0)
        key = here.cell.key("session", speaker.session.id)
        await here.connection.command(here.cell.slot, "HDEL", key, "heard", "heard_ms", "speech")
        speaker.stream((2, 3))
        await accepted(speaker, 0, 1)
        told = [await here.field(speaker, name) for name in ("heard", "heard_ms", "speech")]
        assert told == ["3", "400", "400"]

    play(store, scenario)


# What a later owner goes on from.


def test_speech_counts_as_heard_with_the_last_language_of_its_piece(store: Server) -> None:
    async def scenario(here: Office) -> None:
        speaker = await here.speaker(tgt_langs=("en", "de"))
        speaker.stream((10, 11, 12))
        await until(lambda: len(here.board.jobs_of(speaker.session)) == 2, "both are made")
        english, german = here.board.jobs_of(speaker.session)
        assert (english.spec.heard, english.spec.heard_ms) == (-1, 0)
        assert (german.spec.heard, german.spec.heard_ms) == (12, 300)
        assert english.spec.top == german.spec.top == 1
        await here.quiet()
        assert speaker.session.admission.heard == (12, 300)
        told = [await here.field(speaker, name) for name in ("heard", "heard_ms", "top")]
        assert told == ["12", "300", "1"]

    play(store, scenario)


def test_without_its_last_language_a_piece_is_not_heard(store: Server) -> None:
    async def scenario(here: Office) -> None:
        speaker = await here.speaker(tgt_langs=("en", "de"))
        # Whatever the second language is answered, it is not taken.
        taken = here.cell.key("session", speaker.session.id)
        await here.connection.command(here.cell.slot, "HSET", taken, "at:de:0", "1 other")
        speaker.stream((10, 11, 12))
        await here.quiet()
        assert await here.field(speaker, "at:en:0") is not None
        assert speaker.session.admission.heard == (-1, 0)
        assert await here.field(speaker, "heard") is None
        assert await here.field(speaker, "top") == "1"

    play(store, scenario)


def test_whole_utterances_have_no_chunks_and_move_only_the_top(store: Server) -> None:
    async def scenario(here: Office) -> None:
        speaker = await here.speaker()
        speaker.say()
        speaker.say()
        await here.quiet()
        assert speaker.session.admission.heard == (-1, 0)
        assert await here.field(speaker, "heard") is None
        assert await here.field(speaker, "top") == "2"

    play(store, scenario)


def test_what_waits_for_the_window_is_not_heard_yet(store: Server) -> None:
    async def scenario(here: Office) -> None:
        speaker = await here.speaker()
        for first in (0, 2, 4):
            speaker.stream((first, first + 1))
        await accepted(speaker, 0, 1)
        assert under_way(speaker) == ([0, 1], [2])
        assert await here.field(speaker, "heard") == "3"
        assert await here.field(speaker, "top") == "2"

    play(store, scenario, jobs=NARROW)


def test_a_later_owner_waits_for_what_the_former_one_admitted(store: Server) -> None:
    async def scenario(here: Office, there: Office) -> None:
        speaker = await here.speaker(tgt_langs=("en", "de"))
        speaker.stream((0, 1))
        speaker.stream((2, 3))
        await here.quiet()
        back = await there.comes_back(speaker)
        admission = back.session.admission
        assert admission.open == {0: 2, 1: 2}
        assert admission.next_index == admission.top == 2
        assert admission.heard == (3, 400)
        assert not admission.idle.is_set()
        # What is said next is number 2, and both languages know where they are.
        back.stream((4, 5))
        await there.quiet()
        assert back.accepted == [2]
        assert await there.field(back, "skip:en") is None
        assert await there.field(back, "heard") == "5"

    play(store, scenario, "AB")


def test_a_request_that_a_former_owner_took_has_its_outcome_at_that_place(store: Server) -> None:
    async def scenario(here: Office, there: Office) -> None:
        speaker = await here.speaker()
        speaker.say(0, request_id="r1")
        await accepted(speaker, 0)
        back = await there.comes_back(speaker)
        # The client never heard that it was accepted: it is told now, and where.
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


# A store that lost its memory.


def test_what_was_admitted_is_submitted_again_to_an_emptied_store(store: Server) -> None:
    async def scenario(here: Office) -> None:
        speaker = await here.speaker()
        speaker.say()
        speaker.say()
        await accepted(speaker, 0, 1)
        before = speaker.session.epoch
        await here.empty_the_store()
        await speaker.session.verify()
        worker = await here.node()
        for number in (0, 1):
            await worker.report(await worker.job(number))
        await until(lambda: len(speaker.outcomes) == 2, "both outcomes are delivered")
        assert [message.epoch for message in speaker.of(SessionReset)] == [speaker.session.epoch]
        assert speaker.session.epoch != before
        found = [(outcome.seq, outcome.utterance_index) for outcome in speaker.outcomes]
        assert found == [(1, 0), (2, 1)]
        # Accepted is accepted: it is not told twice.
        assert speaker.accepted == [0, 1]

    play(store, scenario)


def test_a_session_that_the_store_forgot_is_opened_by_what_is_said_next(store: Server) -> None:
    async def scenario(here: Office) -> None:
        speaker = await here.speaker()
        speaker.stream((0, 1))
        await accepted(speaker, 0)
        await here.empty_the_store()
        speaker.stream((2, 3))
        await accepted(speaker, 0, 1)
        await here.quiet()
        assert await here.field(speaker, "heard") == "3"
        assert await here.field(speaker, "token") == speaker.session.token
        assert await here.field(speaker, "at:en:0") is not None
        assert await here.field(speaker, "at:en:1") is not None

    play(store, scenario)


def test_what_the_store_knows_is_not_submitted_twice(store: Server) -> None:
    async def scenario(here: Office) -> None:
        worker = await here.node()
        speaker = await here.speaker()
        speaker.say()
        job = await worker.job()
        speaker.session.admission.submit_again()
        await here.quiet()
        assert worker.assigned == [job]
        await worker.report(job)
        assert [outcome.utterance_index for outcome in speaker.outcomes] == [0]

    play(store, scenario)


# Refusals.


def test_an_utterance_that_the_store_refuses_has_its_outcome_at_once(store: Server) -> None:
    async def scenario(here: Office) -> None:
        speaker = await here.speaker()
        speaker.say()
        await until(lambda: speaker.outcomes, "it has an outcome")
        (outcome,) = speaker.outcomes
        assert (outcome.utterance_index, outcome.seq) == (0, 1)
        assert speaker.accepted == []
        assert speaker.errors == ["NO_AVAILABLE_NODE"]
        assert here.board.jobs == {}
        assert speaker.session.admission.idle.is_set()

    play(store, scenario, jobs={"refuse_unserved_pairs": True})


def test_an_outbox_that_is_full_is_waited_for(store: Server) -> None:
    async def scenario(here: Office) -> None:
        worker = await here.node()
        speaker = await here.speaker()
        for number in range(4):
            speaker.say()
            await worker.report(await worker.job(number))
        await until(lambda: len(speaker.outcomes) == 4, "all outcomes are delivered")
        assert speaker.accepted == [0, 1, 2, 3]

    play(store, scenario, jobs={"outbox_max": 2})


# Numbers of whole utterances.


def test_an_empty_utterance_and_one_far_ahead_are_refused(store: Server) -> None:
    async def scenario(here: Office) -> None:
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
    async def scenario(here: Office) -> None:
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
    async def scenario(here: Office) -> None:
        speaker = await here.speaker()
        speaker.say(0, audio=CHUNK)
        speaker.say(0, audio=CHUNK * 2)
        await accepted(speaker, 0, 1)
        assert [m.requested_index for m in speaker.of(UtteranceAccepted)] == [None, 0]

    play(store, scenario)


def test_reopening_where_another_is_the_owner_drops_the_session(store: Server) -> None:
    async def scenario(here: Office, there: Office) -> None:
        speaker = await here.speaker()
        await there.comes_back(speaker)
        await speaker.session.admission.reopen()
        assert speaker.session.lapsed
        assert (await speaker.session.open_in_store())[0] is Reply.FENCED

    play(store, scenario, "AB")
