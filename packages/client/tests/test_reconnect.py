"""A server lost at any step: the session resumes, audio is sent again, outcomes are unique."""

from __future__ import annotations

import asyncio

import pytest

from client_peer import (
    CHUNK,
    ack,
    next_of,
    opened,
    result,
    scripted_service,
    texts,
    until,
)
from lingua_client import Notice, Outcome, Reset, SessionLost, SessionRefused
from lingua_wire.codes import CloseCode, ErrorCode
from lingua_wire.from_client import (
    AudioChunk,
    OutcomeAck,
    RoomCreate,
    RoomJoin,
    SessionClose,
    SessionInit,
    SessionResume,
)
from lingua_wire.shared import Coverage, Participant
from lingua_wire.to_client import (
    AudioAck,
    ErrorMessage,
    GoAway,
    ResumeRejected,
    RoomCreateAck,
    RoomMembers,
    SessionCloseAck,
    SessionReset,
)
from node_peer import run

pytestmark = pytest.mark.unit

COVERAGE = Coverage(admitted_ms=200, delivered_ms=200, silent_ms=0, failed_ms=0, skipped_ms=0)
NO_RESUMING = {"resume_token": None, "resume_ms": None}
GO_AWAY = GoAway(reason="shutdown", reconnect_after_ms=0, closes_in_ms=1000)


def test_a_lost_session_is_resumed_at_the_next_url_with_all_it_knows() -> None:
    async def scenario() -> None:
        async with (
            scripted_service() as one,
            scripted_service() as two,
            opened(one, two) as (session, first),
        ):
            assert (session.id, session.epoch, session.url) == ("s1", "e1", one.url)
            for _ in range(3):
                await session.send(CHUNK)
            await session.cut()
            assert await first.chunks(4) == [0, 1, 2, 3]
            first.accept(0, 0, 1)
            first.outcome(1)
            assert await texts(session, 1) == ["hola 1"]
            first.cut()
            second = await two.caller()
            asked = await second.resume()
            assert (asked.session_id, asked.resume_token) == ("s1", "secret")
            assert (asked.epoch, asked.last_seq) == ("e1", 1)
            assert (asked.next_audio_seq, asked.audio_ms) == (2, 200)
            again = [await second.expect(AudioChunk) for _ in range(2)]
            assert [(c.seq, c.is_final, c.payload) for c in again] == [
                (2, False, CHUNK),
                (3, True, None),
            ]
            await session.send(CHUNK)
            assert await second.chunks(1) == [4]
            assert (session.resumes, session.url) == (1, two.url)

    run(scenario())


@pytest.mark.parametrize(
    ("wanted", "sent"),
    [(None, [2, 3, 4]), (0, [2, 3, 4]), (2, [2, 3, 4]), (4, [4]), (5, []), (9, [])],
)
def test_chunks_are_sent_again_from_where_the_server_says_and_never_earlier(
    wanted: int | None, sent: list[int]
) -> None:
    async def scenario() -> None:
        async with scripted_service() as one, opened(one) as (session, first):
            for _ in range(5):
                await session.send(CHUNK)
            await first.chunks(5)
            first.send(AudioAck(session_id="s1", seq=1, audio_ms=200))
            first.outcome(1)
            await texts(session, 1)
            first.cut()
            second = await one.caller()
            await second.resume(next_audio_seq=wanted)
            await session.send(CHUNK)
            assert await second.chunks(len(sent) + 1) == [*sent, 5]
            second.cut()
            third = await one.caller()
            # Earlier chunks may be in the memory of one server only: they are still kept.
            assert (await third.resume()).next_audio_seq == 2

    run(scenario())


def test_what_is_said_without_a_connection_is_sent_with_the_next_one() -> None:
    async def scenario() -> None:
        async with scripted_service() as one, opened(one) as (session, first):
            first.cut()
            second = await one.caller()
            await session.send(CHUNK)
            await session.cut()
            await second.resume(next_audio_seq=0)
            assert await second.chunks(2) == [0, 1]

    run(scenario())


def test_an_outcome_that_comes_again_is_given_out_once() -> None:
    async def scenario() -> None:
        async with scripted_service() as one, opened(one) as (session, first):
            for seq in (1, 2, 2, 1, 3):
                first.outcome(seq)
            assert await texts(session, 3) == ["hola 1", "hola 2", "hola 3"]
            first.cut()
            second = await one.caller()
            assert (await second.resume()).last_seq == 3
            for seq in (2, 3, 4):
                second.outcome(seq)
            assert await texts(session, 1) == ["hola 4"]
            assert (session.seq, session.duplicates) == (4, 4)

    run(scenario())


def test_a_reset_when_resuming_and_one_on_a_live_socket_start_positions_over() -> None:
    async def scenario() -> None:
        async with scripted_service() as one, opened(one) as (session, first):
            for seq in (1, 2):
                first.outcome(seq)
            await texts(session, 2)
            first.cut()
            second = await one.caller()
            await second.resume(epoch="e2", reset=True)
            second.outcome(1, epoch="e2", utterance_index=2, text_translated="anew")
            assert await texts(session, 1) == ["anew"]
            assert (session.epoch, session.seq) == ("e2", 1)
            second.send(SessionReset(session_id="s1", epoch="e3", reason="store_emptied"))
            second.outcome(1, epoch="e3", utterance_index=3, text_translated="once more")
            assert await texts(session, 1) == ["once more"]
            second.cut()
            third = await one.caller()
            asked = await third.resume()
            assert (asked.epoch, asked.last_seq) == ("e3", 1)

    run(scenario())


def test_a_rejected_session_is_opened_anew_and_what_was_not_accepted_is_said_again() -> None:
    async def scenario() -> None:
        async with scripted_service() as one, opened(one) as (session, first):
            for _ in range(4):
                await session.send(CHUNK)
            await first.chunks(4)
            first.accept(0, 0, 0)
            first.accept(1, 1, 2)
            first.outcome(1)
            await texts(session, 1)
            first.cut()
            second = await one.caller()
            await second.expect(SessionResume)
            second.send(ResumeRejected(session_id="s1", reason="expired"))
            await second.expect(SessionInit)
            second.send(ack(session_id="s2", epoch="e9"))
            # Utterance 1 (two chunks) was accepted and has no outcome; chunk 3 was not accepted.
            reset = await next_of(session, Reset)
            assert (reset.reason, reset.lost_ms) == ("expired", 200)
            assert (reset.former_id, reset.session_id) == ("s1", "s2")
            chunk = await second.expect(AudioChunk)
            assert (chunk.session_id, chunk.seq) == ("s2", 3)
            second.outcome(1, session_id="s2", epoch="e9")
            outcome = await next_of(session, Outcome)
            assert (outcome.is_own, session.id, session.seq) == (True, "s2", 1)
            assert session.resumes == 0

    run(scenario())


def test_a_rejected_session_that_is_not_to_be_opened_anew_is_lost() -> None:
    async def scenario() -> None:
        async with scripted_service() as one, opened(one, reopen=False) as (session, first):
            await session.send(CHUNK + CHUNK)
            await first.chunks(1)
            first.cut()
            second = await one.caller()
            await second.expect(SessionResume)
            second.send(ResumeRejected(session_id="s1", reason="unknown_session"))
            with pytest.raises(SessionLost) as lost:
                await next_of(session, Outcome)
            assert (lost.value.reason, lost.value.lost_ms) == ("unknown_session", 200)
            with pytest.raises(SessionLost):
                await session.send(CHUNK)
            with pytest.raises(SessionLost):
                await session.close()
            await asyncio.wait_for(second.lost.wait(), 10)
            assert second.of(SessionInit) == []

    run(scenario())


def test_a_server_without_resuming_means_a_new_session_at_once() -> None:
    async def scenario() -> None:
        async with scripted_service() as one, opened(one, told=NO_RESUMING) as (session, first):
            await session.send(CHUNK)
            await first.chunks(1)
            for seq in range(1, 20):
                first.outcome(seq)
            await texts(session, 19)
            first.cut()
            second = await one.caller()
            await second.greet(session_id="s2")
            assert (await next_of(session, Reset)).reason == "not_resumable"
            assert await second.chunks(1) == [0]
            assert first.of(OutcomeAck) == []
            assert second.of(SessionResume) == []

    run(scenario())


def test_resuming_is_given_up_when_the_time_is_over() -> None:
    async def scenario() -> None:
        async with scripted_service() as one:
            async with opened(one, reopen=False, resume_s=0.2) as (session, first):
                one.http_status = 503
                first.cut()
                with pytest.raises(SessionLost, match="expired"):
                    await next_of(session, Outcome)
            one.http_status = 0
            async with opened(one, resume_s=0.2) as (session, first):
                one.http_status = 503
                first.cut()
                await until(lambda: session._lost_reason)
                one.http_status = 0
                second = await one.caller()
                await second.greet(session_id="s2")
                assert (await next_of(session, Reset)).reason == "expired"
            async with opened(one, resume_s=0.1, open_s=0.1) as (session, first):
                one.http_status = 503
                first.cut()
                with pytest.raises(SessionLost, match="no session could be opened"):
                    await next_of(session, Outcome)

    run(scenario())


def test_a_try_that_is_lost_before_its_answer_is_followed_by_another() -> None:
    async def scenario() -> None:
        async with (
            scripted_service() as one,
            scripted_service() as two,
            opened(one, two) as (session, first),
        ):
            await session.send(CHUNK)
            first.cut()
            for service in (two, one, two):
                caller = await service.caller()
                assert (await caller.expect(SessionResume)).next_audio_seq == 0
                caller.cut()
            last = await one.caller()
            await last.resume()
            assert await last.chunks(1) == [0]
            assert session.resumes == 1

    run(scenario())


def test_a_server_that_does_not_answer_is_left_for_the_next_url() -> None:
    async def scenario() -> None:
        async with (
            scripted_service() as one,
            scripted_service() as two,
            opened(one, two, attempt_s=0.2) as (session, first),
        ):
            first.cut()
            silent = await two.caller()
            await silent.expect(SessionResume)
            third = await one.caller()
            await third.resume()
            await asyncio.wait_for(silent.lost.wait(), 10)
            # The late request to the silent server takes the session: the client takes it back.
            third.close(CloseCode.REPLACED)
            fourth = await two.caller()
            await fourth.resume()
            # But only once: a second time it is another client.
            fourth.close(CloseCode.REPLACED)
            with pytest.raises(SessionRefused) as refused:
                await next_of(session, Outcome)
            assert refused.value.code == "REPLACED"

    run(scenario())


def test_an_unavailable_store_does_not_end_the_session() -> None:
    async def scenario() -> None:
        async with scripted_service() as one, opened(one) as (_, first):
            first.cut()
            second = await one.caller()
            await second.expect(SessionResume)
            code = ErrorCode.SCHEDULER_DEPENDENCY_DOWN
            second.send(ErrorMessage(code=code, message="away", retry_after_ms=10))
            third = await one.caller()
            await third.resume()

    run(scenario())


def test_go_away_moves_the_session_while_the_old_connection_is_still_read() -> None:
    async def scenario() -> None:
        async with (
            scripted_service() as one,
            scripted_service() as two,
            opened(one, two, ack_every=1) as (session, first),
        ):
            await session.send(CHUNK)
            await first.chunks(1)
            first.send(GO_AWAY)
            second = await two.caller()
            asked = await second.expect(SessionResume)
            first.outcome(1)
            assert await texts(session, 1) == ["hola 1"]
            await session.send(CHUNK)
            second.answer(asked, next_audio_seq=1)
            assert await second.chunks(1) == [1]
            second.outcome(1)
            second.outcome(2)
            assert await texts(session, 1) == ["hola 2"]
            await asyncio.wait_for(first.lost.wait(), 10)
            assert (len(first.of(AudioChunk)), first.of(OutcomeAck)) == (1, [])
            assert (await second.expect(OutcomeAck)).seq == 2
            assert (session.resumes, session.duplicates) == (1, 1)

    run(scenario())


def test_an_old_connection_that_is_replaced_means_nothing() -> None:
    async def scenario() -> None:
        async with (
            scripted_service() as one,
            scripted_service() as two,
            opened(one, two) as (session, first),
        ):
            first.send(GO_AWAY)
            second = await two.caller()
            first.close(CloseCode.REPLACED)
            await asyncio.wait_for(first.lost.wait(), 10)
            await second.resume()
            second.outcome(1)
            assert await texts(session, 1) == ["hola 1"]

    run(scenario())


def test_go_away_right_after_resuming_is_followed_too() -> None:
    async def scenario() -> None:
        async with (
            scripted_service() as one,
            scripted_service() as two,
            opened(one, two) as (session, first),
        ):
            first.close(CloseCode.GOING_AWAY)
            second = await two.caller()
            await second.resume()
            second.send(GO_AWAY)
            third = await one.caller()
            await third.resume()
            third.outcome(1)
            assert await texts(session, 1) == ["hola 1"]

    run(scenario())


def test_with_one_url_a_server_that_stops_is_read_to_its_end() -> None:
    async def scenario() -> None:
        async with scripted_service() as one, opened(one) as (session, first):
            one.http_status = 503
            first.send(GO_AWAY)
            await next_of(session, Notice)
            for seq in (1, 2):
                first.outcome(seq)
                await texts(session, 1)
            first.close(CloseCode.GOING_AWAY)
            one.http_status = 0
            second = await one.caller()
            assert (await second.resume()).last_seq == 2

    run(scenario())


@pytest.mark.parametrize(
    "code",
    [
        CloseCode.UNAUTHORIZED,
        CloseCode.FORBIDDEN,
        CloseCode.REPLACED,
        CloseCode.REFUSED,
        CloseCode.TOO_MANY_ERRORS,
        CloseCode.MESSAGE_TOO_BIG,
        CloseCode.POLICY_VIOLATION,
    ],
)
def test_a_close_that_coming_back_does_not_help_ends_the_session(code: CloseCode) -> None:
    async def scenario() -> None:
        async with scripted_service() as one, opened(one) as (session, first):
            first.outcome(1)
            first.close(code)
            assert await texts(session, 1) == ["hola 1"]
            with pytest.raises(SessionRefused) as refused:
                await next_of(session, Outcome)
            assert refused.value.code == code.name
            with pytest.raises(SessionRefused):
                await session.close()
        assert len(one.all) == 1

    run(scenario())


@pytest.mark.parametrize(
    "code",
    [
        0,
        CloseCode.NORMAL,
        CloseCode.INTERNAL,
        CloseCode.TRY_AGAIN_LATER,
        CloseCode.SLOW_READER,
        CloseCode.RATE_LIMITED,
        CloseCode.HANDSHAKE_TIMEOUT,
    ],
)
def test_after_any_other_close_the_session_goes_on(code: int) -> None:
    async def scenario() -> None:
        async with scripted_service() as one, opened(one) as (session, first):
            first.close(code) if code else first.cut()
            second = await one.caller()
            await second.resume()
            second.outcome(1)
            assert await texts(session, 1) == ["hola 1"]

    run(scenario())


def test_closing_survives_the_loss_of_the_connection() -> None:
    async def scenario() -> None:
        async with scripted_service() as one, opened(one) as (session, first):
            await session.send(CHUNK)
            closing = asyncio.create_task(session.close("done"))
            assert (await first.expect(SessionClose)).reason == "done"
            assert [type(m) for m in first.received[1:]] == [AudioChunk, SessionClose]
            first.cut()
            second = await one.caller()
            await second.resume()
            await second.expect(SessionClose)
            assert [type(m) for m in second.received[1:]] == [AudioChunk, SessionClose]
            second.accept(0, 0, 0)
            second.outcome(1)
            second.send(SessionCloseAck(session_id="s1", coverage=COVERAGE))
            second.close(CloseCode.NORMAL)
            assert await asyncio.wait_for(closing, 10) == COVERAGE
            assert await texts(session, 1) == ["hola 1"]
            assert [event async for event in session if isinstance(event, Outcome)] == []
            with pytest.raises(SessionLost):
                await session.send(CHUNK)

    run(scenario())


@pytest.mark.parametrize(("answered", "lost_ms"), [(True, 0), (False, 100)])
def test_a_closed_session_whose_acknowledgement_was_lost_is_not_opened_anew(
    answered: bool, lost_ms: int
) -> None:
    async def scenario() -> None:
        async with scripted_service() as one, opened(one) as (session, first):
            await session.send(CHUNK)
            closing = asyncio.create_task(session.close())
            await first.expect(SessionClose)
            first.accept(0, 0, 0)
            if answered:
                first.outcome(1)
            first.close(CloseCode.NORMAL)
            second = await one.caller()
            await second.expect(SessionResume)
            second.send(ResumeRejected(session_id="s1", reason="closed"))
            assert await asyncio.wait_for(closing, 10) is None
            events = [event async for event in session]
            lost = [event.lost_ms for event in events if isinstance(event, Reset)]
            assert sum(lost) == lost_ms
            assert second.of(SessionInit) == []

    run(scenario())


def test_outcomes_are_acknowledged_after_some_or_after_a_time() -> None:
    async def scenario() -> None:
        async with scripted_service() as one, opened(one, ack_s=0.1) as (session, first):
            for seq in range(1, 9):
                first.outcome(seq)
            told = await first.expect(OutcomeAck)
            assert (told.session_id, told.epoch, told.seq) == ("s1", "e1", 8)
            first.outcome(9)
            assert (await first.expect(OutcomeAck)).seq == 9
            first.outcome(9)
            first.outcome(10)
            assert (await first.expect(OutcomeAck)).seq == 10
            assert len(first.of(OutcomeAck)) == 3
            assert session.seq == 10

    run(scenario())


def test_moving_drops_the_connection_and_ends_with_the_next_one() -> None:
    async def scenario() -> None:
        async with (
            scripted_service() as one,
            scripted_service() as two,
            opened(one, two) as (session, _),
        ):
            for number in range(6):
                moved = session.move()
                caller = await (two, one)[number % 2].caller()
                await caller.resume()
                await asyncio.wait_for(moved, 10)
                assert session.resumes == number + 1

    run(scenario())


def test_a_frozen_server_is_left() -> None:
    async def scenario() -> None:
        async with (
            scripted_service(answers_pings=False) as one,
            scripted_service() as two,
            opened(one, two, silence_s=0.2) as (session, _),
        ):
            second = await two.caller()
            await second.resume()
            second.outcome(1)
            assert await texts(session, 1) == ["hola 1"]

    run(scenario())


def test_a_room_is_asked_for_again_and_a_new_session_enters_it_by_itself() -> None:
    async def scenario() -> None:
        async with scripted_service() as one, opened(one) as (session, first):
            making = asyncio.create_task(session.create_room(preferred_lang="es"))
            await first.expect(RoomCreate)
            first.cut()
            second = await one.caller()
            await second.resume()
            assert (await second.expect(RoomCreate)).preferred_lang == "es"
            second.send(RoomCreateAck(room_code="123456"))
            assert await asyncio.wait_for(making, 10) == session.room == "123456"
            second.cut()
            third = await one.caller()
            await third.expect(SessionResume)
            third.send(ResumeRejected(session_id="s1", reason="unknown_session"))
            await third.greet(session_id="s2")
            joined = await third.expect(RoomJoin)
            assert (joined.room_code, joined.preferred_lang) == ("123456", "es")
            member = Participant(participant_id="s2", session_id="s2", joined_at=1)
            third.send(RoomMembers(room_code="123456", members=(member,)))
            await session.leave_room()
            assert session.room == ""

    run(scenario())


def test_an_outcome_of_another_speaker_with_a_count_of_its_own_leaves_ours_alone() -> None:
    async def scenario() -> None:
        async with scripted_service() as one, opened(one) as (session, first):
            first.outcome(1)
            first.send(result(7, session_id="other", epoch="e7"))
            first.outcome(2)
            found = [await next_of(session, Outcome) for _ in range(3)]
            assert [(event.speaker, event.is_own) for event in found] == [
                ("s1", True),
                ("other", False),
                ("s1", True),
            ]
            assert (session.epoch, session.seq) == ("e1", 2)

    run(scenario())
