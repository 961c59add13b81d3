"""Clients come, go, come back and leave: whose a session is, and where it goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lingua_scheduler.between.letters import Taken
from lingua_scheduler.config import Settings
from lingua_scheduler.live.reception import (
    ResumeRefused,
    SessionEnded,
    audio_after,
    digest_of,
    rules_of,
)
from lingua_scheduler.messages.codes import CloseCode
from lingua_scheduler.messages.from_client import SessionResume, SessionUpdate
from lingua_scheduler.messages.to_client import (
    SessionCloseAck,
    SessionReset,
    SessionResumed,
)
from lingua_scheduler.state.records import Resumed
from lingua_scheduler.state.reply import Reply
from live.offices import CHUNK, Office, Speaker, outcomes_of, play, until
from live.stand_ins import ClosingOutlet

if TYPE_CHECKING:
    from servers import Server

pytestmark = pytest.mark.store

SOON = {"resume_ms": 100}


# From which chunk on.


@pytest.mark.parametrize(
    ("heard", "first", "told_ms", "expected"),
    [
        # No chunk was admitted and the client numbers none.
        ((-1, 0), None, None, (None, 0)),
        # It numbers them, and has all from the first on.
        ((-1, 0), 0, None, (0, 0)),
        # It kept what was admitted meanwhile: after that.
        ((9, 1000), 4, 400, (10, 1000)),
        ((9, 1000), 10, 1000, (10, 1000)),
        # What it no longer has was acknowledged as silence after that.
        ((9, 1000), 14, 1400, (14, 1400)),
        ((-1, 0), 7, 700, (7, 700)),
        # It does not say where that is, or says what cannot be.
        ((9, 1000), 14, None, (14, 1000)),
        ((9, 1000), 14, 300, (14, 1000)),
        # It lost count: after the last one that was admitted.
        ((9, 1000), None, 1000, (10, 1000)),
        # Whole utterances have no chunks.
        ((-1, 0), None, 500, (None, 0)),
    ],
)
def test_a_client_goes_on_after_what_was_admitted_or_acknowledged(
    heard: tuple[int, int],
    first: int | None,
    told_ms: int | None,
    expected: tuple[int | None, int],
) -> None:
    ask = SessionResume(
        session_id="s", resume_token="t", epoch="1", last_seq=0, next_audio_seq=first,
        audio_ms=told_ms,
    )  # fmt: skip
    found = Resumed(Reply.RESUMED, heard=heard[0], heard_ms=heard[1])
    assert audio_after(ask, found) == expected


def test_the_store_is_told_a_digest_that_says_nothing_of_the_token() -> None:
    assert digest_of("secret") == digest_of("secret")
    assert digest_of("secret") != digest_of("Secret")
    assert len(digest_of("secret")) == 32
    assert "secret" not in digest_of("secret")


def test_the_rules_of_cutting_are_those_of_the_settings() -> None:
    settings = Settings()
    rules, cuts = rules_of(settings), settings.segmentation
    assert (rules.pause_ms, rules.max_duration_ms, rules.max_bytes) == (
        cuts.pause_ms, cuts.max_duration_ms, cuts.max_bytes,
    )  # fmt: skip
    assert (rules.short_merge_ms, rules.silence_ms) == (cuts.short_merge_ms, cuts.silence_ms)


# Opening.


def test_a_client_that_speaks_additions_gets_a_token_the_store_does_not_know(store: Server) -> None:
    async def scenario(here: Office) -> None:
        speaker = await here.speaker()
        assert speaker.session.is_resumable
        assert await here.field(speaker, "token") == digest_of(speaker.token)
        about = await here.connection.command(
            here.cell.slot, "HGET", here.cell.key("session", speaker.session.id), "about"
        )
        assert speaker.token.encode() not in about
        assert (speaker.session.fence, await here.field(speaker, "fence")) == (1, "1")

    play(store, scenario)


def test_a_client_of_the_older_protocol_gets_none_and_cannot_come_back(store: Server) -> None:
    async def scenario(here: Office) -> None:
        speaker = await here.speaker(additions=False)
        assert (speaker.token, speaker.session.is_resumable) == ("", False)
        for token in ("", "anything"):
            await refused(here, speaker, "wrong_token", resume_token=token)

    play(store, scenario)


# Refusals.


async def refused(office: Office, speaker: Speaker, reason: str, **claim: Any) -> None:
    ask = speaker.back(**claim)
    with pytest.raises(ResumeRefused) as problem:
        await office.reception.resume(ask, ClosingOutlet(), tenant="")
    assert problem.value.reason == reason
    counted = office.instance.metrics.resumes_rejected_total
    assert counted.labels(reason=reason).value >= 1


def test_who_has_not_the_token_does_not_get_the_session(store: Server) -> None:
    async def scenario(here: Office, there: Office) -> None:
        speaker = await here.speaker()
        for office in (here, there):
            await refused(office, speaker, "wrong_token", resume_token="guess")
        with pytest.raises(ResumeRefused, match="wrong_token"):
            await there.reception.resume(speaker.back(), ClosingOutlet(), tenant="acme")
        assert (speaker.session.fence, await here.field(speaker, "fence")) == (1, "1")
        assert speaker.session.outlet is speaker.outlet

    play(store, scenario, "AB")


def test_a_session_that_is_unknown_or_over_cannot_go_on(store: Server) -> None:
    async def scenario(here: Office) -> None:
        speaker = await here.speaker()
        await refused(here, speaker, "unknown_session", session_id="s-other")
        await here.reception.end(speaker.session, "client")
        with pytest.raises(SessionEnded):
            await here.reception.resume(speaker.back(), ClosingOutlet(), tenant="")
        # Of a closed one nobody is told without its token either.
        await refused(here, speaker, "wrong_token", resume_token="guess")

    play(store, scenario)


def test_a_client_of_a_closed_session_is_told_what_it_has_not_heard(store: Server) -> None:
    async def scenario(here: Office, there: Office) -> None:
        speaker = await speaker_with_outcomes(here, 3)
        session = speaker.session
        await here.reception.end(session, "client")
        for claim, reset, seqs in (
            ({"last_seq": 1}, False, [2, 3]), ({"last_seq": 3}, False, []),
            ({"last_seq": 9, "epoch": "1"}, True, [1, 2, 3]),
        ):  # fmt: skip
            ask = speaker.back(**claim)
            resumed, *words, end = await there.reception.last_words(ask, session.home)
            assert isinstance(resumed, SessionResumed)
            assert (resumed.epoch, resumed.reset) == (session.epoch, reset)
            assert [outcome.seq for outcome in outcomes_of(words)] == seqs
            assert isinstance(end, SessionCloseAck)

    play(store, scenario, "AB")


def test_a_client_whose_outcomes_are_forgotten_cannot_go_on(store: Server) -> None:
    async def scenario(here: Office) -> None:
        speaker = await speaker_with_outcomes(here, 3)
        session = speaker.session
        await here.store.outbox_ack(session.home, session.id, session.epoch, 2)
        await refused(here, speaker, "positions_lost", last_seq=1)
        assert (await here.comes_back(speaker, last_seq=2)).outcomes[0].seq == 3

    play(store, scenario)


async def speaker_with_outcomes(office: Office, count: int) -> Speaker:
    worker = await office.node()
    speaker = await office.speaker()
    for number in range(count):
        speaker.say()
        await worker.report(await worker.job(number))
    await until(lambda: len(speaker.outcomes) == count, "all outcomes are delivered")
    return speaker


# The same instance.


def test_on_the_same_instance_only_the_socket_is_another(store: Server) -> None:
    async def scenario(here: Office) -> None:
        speaker = await here.speaker()
        speaker.stream((0, 1, 2), is_final=False)
        here.reception.lost(speaker.session, speaker.outlet)
        assert speaker.session.outlet is None
        back = await here.comes_back(speaker, next_audio_seq=0)
        assert back.session is speaker.session
        (resumed,) = back.of(SessionResumed)
        assert (resumed.next_audio_seq, resumed.audio_ms) == (3, 300)
        assert not resumed.reset
        assert back.session.fence == 2
        # What was buffered is still there.
        back.stream((3,))
        await until(lambda: back.accepted == [0], "it is accepted")
        (job,) = here.board.jobs.values()
        assert job.audio == CHUNK * 4
        counted = here.instance.metrics.sessions_resumed_total
        assert counted.labels(origin="here").value == 1

    play(store, scenario)


def test_a_socket_that_is_still_open_is_replaced(store: Server) -> None:
    async def scenario(here: Office) -> None:
        speaker = await here.speaker()
        back = await here.comes_back(speaker)
        assert speaker.outlet.closed_with == CloseCode.REPLACED
        assert back.session.outlet is back.outlet
        # Its end, noticed late, is not the session's.
        here.reception.lost(back.session, speaker.outlet)
        assert back.session.outlet is back.outlet

    play(store, scenario)


# Another instance.


def test_on_another_instance_it_goes_on_after_the_last_admitted_chunk(store: Server) -> None:
    async def scenario(here: Office, there: Office) -> None:
        speaker = await here.speaker(trace_id="t-mine")
        speaker.stream((0, 1))
        await until(lambda: speaker.accepted == [0], "it is accepted")
        speaker.stream((2, 3), is_final=False)
        back = await there.comes_back(speaker, next_audio_seq=0)
        (resumed,) = back.of(SessionResumed)
        assert (resumed.next_audio_seq, resumed.audio_ms) == (2, 200)
        assert (resumed.next_utterance_index, resumed.reset) == (1, False)
        session = back.session
        assert session is not speaker.session
        assert (session.id, session.epoch) == (speaker.session.id, speaker.session.epoch)
        assert (session.trace_id, session.fence) == ("t-mine", 2)
        assert session.profile == speaker.session.profile
        # What the former owner admitted is in this one's account, and still open.
        assert (session.ledger.summary().admitted_ms, session.ledger.open_ms) == (200, 200)
        assert await there.field(back, "owner") == "B"
        counted = there.instance.metrics.sessions_resumed_total
        assert counted.labels(origin="elsewhere").value == 1

    play(store, scenario, "AB")


def test_the_former_owner_is_told_and_lets_go(store: Server) -> None:
    async def scenario(here: Office, there: Office) -> None:
        speaker = await here.speaker()
        await there.comes_back(speaker)
        assert await here.read_mail() == [Taken(speaker.session.id, 2)]
        assert speaker.session.lapsed
        assert here.board.sessions == {}
        assert speaker.outlet.closed_with == CloseCode.REPLACED

    play(store, scenario, "AB")


def test_what_the_client_wants_to_be_told_comes_along(store: Server) -> None:
    async def scenario(here: Office, there: Office) -> None:
        speaker = await here.speaker()
        outlet = ClosingOutlet(speaks_additions=False, wants_events=False)
        await there.reception.resume(speaker.back(), outlet, tenant="")
        assert (outlet.speaks_additions, outlet.wants_events) == (True, True)

    play(store, scenario, "AB")


def test_a_change_of_languages_is_known_to_a_later_owner(store: Server) -> None:
    async def scenario(here: Office, there: Office) -> None:
        speaker = await here.speaker()
        change = SessionUpdate(session_id=speaker.session.id, tgt_langs=("de", "en"))
        speaker.session.update(change)
        await here.quiet()
        back = await there.comes_back(speaker)
        assert back.session.profile.targets == ("de", "en")
        assert back.session.profile.source == "zh"

    play(store, scenario, "AB")


def test_a_process_of_the_same_name_takes_over_without_a_letter(store: Server) -> None:
    async def scenario(here: Office) -> None:
        speaker = await here.speaker()
        speaker.stream((0, 1))
        await until(lambda: speaker.accepted == [0], "it is accepted")
        # As after a restart: nothing in memory knows it.
        del here.board.sessions[speaker.session.id]
        back = await here.comes_back(speaker, next_audio_seq=0)
        assert back.session is not speaker.session
        assert back.of(SessionResumed)[0].next_audio_seq == 2
        assert await here.letters() == []

    play(store, scenario)


def test_a_client_that_went_and_came_back_finds_nothing_of_before(store: Server) -> None:
    async def scenario(here: Office, there: Office) -> None:
        speaker = await here.speaker()
        speaker.stream((0, 1), is_final=False)
        away = await there.comes_back(speaker, next_audio_seq=0)
        # The letter to the first one is lost: it still has a session that is not its own.
        await here.letters()
        back = await here.comes_back(away, next_audio_seq=0)
        assert speaker.session.lapsed
        assert back.session is not speaker.session
        assert here.board.sessions[back.session.id] is back.session
        assert back.session.fence == 3
        assert back.of(SessionResumed)[0].next_audio_seq == 0

    play(store, scenario, "AB")


def test_a_dropped_session_is_taken_over_again_not_gone_on_with(store: Server) -> None:
    async def scenario(here: Office) -> None:
        speaker = await here.speaker()
        speaker.session.lapsed = True
        back = await here.comes_back(speaker)
        assert back.session is not speaker.session

    play(store, scenario)


# Outcomes of the meantime.


def test_what_was_missed_follows_before_anything_new(store: Server) -> None:
    async def scenario(here: Office, there: Office) -> None:
        speaker = await speaker_with_outcomes(here, 3)
        for office in (here, there):
            back = await office.comes_back(speaker, last_seq=1)
            await until(lambda back=back: len(back.outcomes) == 2, "what was missed is told")
            assert isinstance(back.outlet.sent[0], SessionResumed)
            assert [outcome.seq for outcome in back.outcomes] == [2, 3]
            assert back.session.deliverer.seq == 3

    play(store, scenario, "AB")


def test_outcomes_that_came_while_nobody_owned_it_are_told_the_next_owner(store: Server) -> None:
    async def scenario(here: Office, there: Office) -> None:
        worker = await there.node()
        speaker = await here.speaker()
        speaker.say()
        await here.quiet()
        await there.read_mail()
        # The owner is dead; the node's instance settles all the same.
        await worker.report(await worker.job())
        back = await there.comes_back(speaker)
        await until(lambda: back.outcomes, "its outcome is delivered")
        assert [(o.seq, o.utterance_index) for o in back.outcomes] == [(1, 0)]
        assert back.session.admission.idle.is_set()

    play(store, scenario, "AB")


def test_positions_the_store_lost_start_over(store: Server) -> None:
    async def scenario(here: Office, there: Office) -> None:
        speaker = await speaker_with_outcomes(here, 2)
        # The client has more than the store: that went back to an older state.
        back = await there.comes_back(speaker, last_seq=7)
        (resumed,) = back.of(SessionResumed)
        assert resumed.reset
        assert resumed.epoch != speaker.session.epoch
        await until(lambda: len(back.outcomes) == 2, "all that is there is told again")
        assert [(o.epoch, o.seq) for o in back.outcomes] == [(resumed.epoch, n) for n in (1, 2)]

    play(store, scenario, "AB")


def test_another_epoch_on_the_same_instance_starts_it_over_here_too(store: Server) -> None:
    async def scenario(here: Office) -> None:
        speaker = await speaker_with_outcomes(here, 2)
        before = speaker.session.epoch
        back = await here.comes_back(speaker, last_seq=7)
        assert back.session is speaker.session
        assert back.session.epoch != before
        assert back.of(SessionResumed)[0].reset
        assert speaker.of(SessionReset) == []

    play(store, scenario)


def test_a_client_whose_session_went_on_while_it_was_told_must_come_back_once_more(
    store: Server,
) -> None:
    async def scenario(here: Office, there: Office) -> None:
        speaker = await speaker_with_outcomes(here, 1)
        outlet = ClosingOutlet()
        await here.reception.resume(speaker.back(), outlet, tenant="")
        newer = await here.reception.resume(speaker.back(), outlet, tenant="")
        assert await here.reception.attach(newer, outlet)
        # Taken over: it is nobody's socket here.
        other = ClosingOutlet()
        again = await here.reception.resume(speaker.back(), other, tenant="")
        await there.comes_back(speaker)
        await here.read_mail()
        assert not await here.reception.attach(again, other)
        assert again.session.outlet is not other

    play(store, scenario, "AB")


# They go.


def test_a_client_that_does_not_come_back_has_what_it_said_finished(store: Server) -> None:
    async def scenario(here: Office) -> None:
        worker = await here.node()
        speaker = await here.speaker()
        speaker.stream((0, 1), is_final=False)
        here.reception.lost(speaker.session, speaker.outlet)
        assert not speaker.session.closing
        assert worker.assigned == []
        job = await worker.job()
        assert job.audio == CHUNK * 2
        await worker.report(job)
        await until(lambda: not here.board.sessions, "the session is closed")
        assert await here.field(speaker, "closed") is not None

    play(store, scenario, sessions=SOON)


def test_a_client_that_comes_back_in_time_is_not_given_up(store: Server) -> None:
    async def scenario(here: Office) -> None:
        speaker = await here.speaker()
        here.reception.lost(speaker.session, speaker.outlet)
        timer = speaker.session._return_timer
        assert timer is not None
        back = await here.comes_back(speaker)
        assert timer.cancelled()
        assert not back.session.closing

    play(store, scenario)


def test_a_client_that_cannot_come_back_is_given_up_at_once(store: Server) -> None:
    async def scenario(here: Office) -> None:
        speaker = await here.speaker(additions=False)
        here.reception.lost(speaker.session, speaker.outlet)
        assert speaker.session.closing
        await until(lambda: not here.board.sessions, "the session is closed")
        assert await here.field(speaker, "closed") is not None

    play(store, scenario)


def test_a_client_that_was_lost_while_it_was_told_may_try_again(store: Server) -> None:
    async def scenario(here: Office) -> None:
        speaker = await here.speaker()
        outlet = ClosingOutlet()
        back = await here.reception.resume(speaker.back(), outlet, tenant="")
        # It was never attached.
        here.reception.away(back.session, outlet)
        assert back.session._return_timer is not None
        again = await here.comes_back(speaker)
        here.reception.away(again.session, again.outlet)
        assert again.session.outlet is None
        assert again.session._return_timer is not None
        again.session.stop_awaiting()

    play(store, scenario)


def test_the_end_of_a_session_says_what_became_of_its_speech(store: Server) -> None:
    async def scenario(here: Office) -> None:
        worker = await here.node()
        speaker = await here.speaker()
        speaker.stream((0, 1, 2))
        await worker.report(await worker.job())
        coverage = await here.reception.end(speaker.session, "client")
        assert (coverage.admitted_ms, coverage.delivered_ms) == (300, 300)
        assert here.board.sessions == {}
        total = here.instance.metrics.coverage_ms_total
        assert total.labels(fate="delivered").value == 300

    play(store, scenario)


def test_a_session_that_is_anothers_is_not_closed_by_its_former_owner(store: Server) -> None:
    async def scenario(here: Office, there: Office) -> None:
        speaker = await here.speaker()
        back = await there.comes_back(speaker)
        # The letter is not here yet, and the store knows better.
        await here.reception.end(speaker.session, "client")
        assert await there.field(back, "closed") is None
        assert here.board.sessions == {}
        back.say()
        await until(lambda: back.accepted == [0], "the new owner goes on")

    play(store, scenario, "AB")
