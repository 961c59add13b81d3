"""Sessions are opened, resumed and ended; the store decides which instance owns a session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lingua_scheduler.config import Settings
from lingua_scheduler.peers.messages import SessionTaken
from lingua_scheduler.runtime.segment_rules import rules_of
from lingua_scheduler.runtime.session_registry import (
    ResumeRefused,
    SessionEnded,
    audio_after,
    digest_of,
)
from lingua_scheduler.runtime.session_state import SessionState
from lingua_scheduler.state.records import ResumedSession
from lingua_scheduler.state.reply import Reply
from lingua_wire.codes import CloseCode
from lingua_wire.from_client import SessionResume, SessionUpdate
from lingua_wire.to_client import (
    SessionCloseAck,
    SessionReset,
    SessionResumed,
)
from runtime.bare_instances import CHUNK, BareInstance, Speaker, outcomes_of, play, until
from runtime.stand_ins import ClosingOutlet

if TYPE_CHECKING:
    from servers import Server

pytestmark = pytest.mark.store

SOON = {"resume_ms": 100}


# The chunk after which a client goes on


@pytest.mark.parametrize(
    ("heard", "first", "reported_ms", "expected"),
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
        # It does not report the place of that chunk, or an impossible one.
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
    reported_ms: int | None,
    expected: tuple[int | None, int],
) -> None:
    ask = SessionResume(
        session_id="s",
        resume_token="t",
        epoch="1",
        last_seq=0,
        next_audio_seq=first,
        audio_ms=reported_ms,
    )
    found = ResumedSession(Reply.RESUMED, heard=heard[0], heard_ms=heard[1])
    assert audio_after(ask, found) == expected


def test_the_store_gets_a_digest_that_does_not_reveal_the_token() -> None:
    assert digest_of("secret") == digest_of("secret")
    assert digest_of("secret") != digest_of("Secret")
    assert len(digest_of("secret")) == 32
    assert "secret" not in digest_of("secret")


def test_the_rules_of_cutting_are_those_of_the_settings() -> None:
    settings = Settings()
    rules, cuts = rules_of(settings.segmentation), settings.segmentation
    assert (rules.pause_ms, rules.max_duration_ms, rules.max_bytes) == (
        cuts.pause_ms,
        cuts.max_duration_ms,
        cuts.max_bytes,
    )
    assert (rules.short_merge_ms, rules.silence_ms) == (cuts.short_merge_ms, cuts.silence_ms)


# Opening


def test_a_client_that_speaks_additions_gets_a_token_the_store_does_not_know(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        speaker = await here.speaker()
        assert speaker.record.is_resumable
        assert await here.field(speaker, "token") == digest_of(speaker.token)
        about = await here.connection.command(
            here.cell.slot, "HGET", here.cell.key("session", speaker.session.id), "about"
        )
        assert speaker.token.encode() not in about
        assert (speaker.record.fence, await here.field(speaker, "fence")) == (1, "1")

    play(store, scenario)


def test_a_client_of_the_older_protocol_gets_none_and_cannot_come_back(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        speaker = await here.speaker(additions=False)
        assert (speaker.token, speaker.record.is_resumable) == ("", False)
        for token in ("", "anything"):
            await refused(here, speaker, "wrong_token", resume_token=token)

    play(store, scenario)


# Refusals


async def refused(instance: BareInstance, speaker: Speaker, reason: str, **claim: Any) -> None:
    ask = speaker.back(**claim)
    with pytest.raises(ResumeRefused) as problem:
        await instance.registry.resume(ask, ClosingOutlet(), tenant="")
    assert problem.value.reason == reason
    counted = instance.instance.metrics.peers.resumes_rejected_total
    assert counted.labels(reason=reason).value >= 1


def test_a_client_without_the_token_does_not_get_the_session(store: Server) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        speaker = await here.speaker()
        for instance in (here, there):
            await refused(instance, speaker, "wrong_token", resume_token="guess")
        with pytest.raises(ResumeRefused, match="wrong_token"):
            await there.registry.resume(speaker.back(), ClosingOutlet(), tenant="acme")
        assert (speaker.record.fence, await here.field(speaker, "fence")) == (1, "1")
        assert speaker.session.notifier.outlet is speaker.outlet

    play(store, scenario, "AB")


def test_an_unknown_or_ended_session_cannot_be_resumed(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        speaker = await here.speaker()
        await refused(here, speaker, "unknown_session", session_id="s-other")
        await here.registry.end(speaker.session, "client")
        with pytest.raises(SessionEnded):
            await here.registry.resume(speaker.back(), ClosingOutlet(), tenant="")
        # A closed session is not revealed without its token either.
        await refused(here, speaker, "wrong_token", resume_token="guess")

    play(store, scenario)


def test_a_client_of_a_closed_session_is_sent_what_it_has_not_received(store: Server) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        speaker = await speaker_with_outcomes(here, 3)
        session = speaker.session
        await here.registry.end(session, "client")
        for claim, reset, seqs in (
            ({"last_seq": 1}, False, [2, 3]),
            ({"last_seq": 3}, False, []),
            ({"last_seq": 9, "epoch": "1"}, True, [1, 2, 3]),
        ):
            ask = speaker.back(**claim)
            resumed, *words, end = await there.ended.rest_of(ask, session.record.home)
            assert isinstance(resumed, SessionResumed)
            assert (resumed.epoch, resumed.reset) == (session.record.epoch, reset)
            assert [outcome.seq for outcome in outcomes_of(words)] == seqs
            assert isinstance(end, SessionCloseAck)

    play(store, scenario, "AB")


def test_a_client_whose_outcomes_are_trimmed_cannot_resume(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        speaker = await speaker_with_outcomes(here, 3)
        session = speaker.session
        await here.store.outbox.ack(session.record.home, session.id, session.record.epoch, 2)
        await refused(here, speaker, "positions_lost", last_seq=1)
        assert (await here.resume(speaker, last_seq=2)).outcomes[0].seq == 3

    play(store, scenario)


async def speaker_with_outcomes(instance: BareInstance, count: int) -> Speaker:
    worker = await instance.node()
    speaker = await instance.speaker()
    for number in range(count):
        speaker.say()
        await worker.report(await worker.job(number))
    await until(lambda: len(speaker.outcomes) == count, "all outcomes are delivered")
    return speaker


# The same instance


def test_on_the_same_instance_only_the_socket_changes(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        speaker = await here.speaker()
        speaker.stream((0, 1, 2), is_final=False)
        here.registry.disconnected(speaker.session, speaker.outlet)
        assert speaker.session.notifier.outlet is None
        back = await here.resume(speaker, next_audio_seq=0)
        assert back.session is speaker.session
        (resumed,) = back.of(SessionResumed)
        assert (resumed.next_audio_seq, resumed.audio_ms) == (3, 300)
        assert not resumed.reset
        assert back.record.fence == 2
        # The buffered audio is kept.
        back.stream((3,))
        await until(lambda: back.accepted == [0], "it is accepted")
        (job,) = here.jobs
        assert job.audio == CHUNK * 4
        counted = here.instance.metrics.peers.sessions_resumed_total
        assert counted.labels(origin="here").value == 1

    play(store, scenario)


def test_a_socket_that_is_still_open_is_replaced(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        speaker = await here.speaker()
        back = await here.resume(speaker)
        assert speaker.outlet.closed_with == CloseCode.REPLACED
        assert back.session.notifier.outlet is back.outlet
        # Its end, noticed late, is not the session's.
        here.registry.disconnected(back.session, speaker.outlet)
        assert back.session.notifier.outlet is back.outlet

    play(store, scenario)


# Another instance


def test_on_another_instance_a_session_goes_on_after_the_last_admitted_chunk(store: Server) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        speaker = await here.speaker(trace_id="t-mine")
        speaker.stream((0, 1))
        await until(lambda: speaker.accepted == [0], "it is accepted")
        speaker.stream((2, 3), is_final=False)
        back = await there.resume(speaker, next_audio_seq=0)
        (resumed,) = back.of(SessionResumed)
        assert (resumed.next_audio_seq, resumed.audio_ms) == (2, 200)
        assert (resumed.next_utterance_index, resumed.reset) == (1, False)
        session = back.session
        assert session is not speaker.session
        assert (session.id, session.record.epoch) == (
            speaker.session.id,
            speaker.record.epoch,
        )
        assert (session.record.trace_id, session.record.fence) == ("t-mine", 2)
        assert session.languages.profile == speaker.session.languages.profile
        # What the former owner admitted is in this one's account, and still open.
        assert (
            session.admission.parts.ledger.summary().admitted_ms,
            session.admission.parts.ledger.open_ms,
        ) == (200, 200)
        assert await there.field(back, "owner") == "B"
        counted = there.instance.metrics.peers.sessions_resumed_total
        assert counted.labels(origin="elsewhere").value == 1

    play(store, scenario, "AB")


def test_the_former_owner_is_informed_and_gives_the_session_up(store: Server) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        speaker = await here.speaker()
        await there.resume(speaker)
        assert await here.read_inbox() == [SessionTaken(speaker.session.id, 2)]
        assert speaker.record.state is SessionState.TAKEN
        assert here.sessions == {}
        assert speaker.outlet.closed_with == CloseCode.REPLACED

    play(store, scenario, "AB")


def test_the_choices_of_the_client_are_restored(store: Server) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        speaker = await here.speaker()
        outlet = ClosingOutlet(speaks_additions=False, wants_events=False)
        await there.registry.resume(speaker.back(), outlet, tenant="")
        assert (outlet.speaks_additions, outlet.wants_events) == (True, True)

    play(store, scenario, "AB")


def test_a_change_of_languages_is_known_to_a_later_owner(store: Server) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        speaker = await here.speaker()
        change = SessionUpdate(session_id=speaker.session.id, tgt_langs=("de", "en"))
        speaker.session.update(change)
        await here.quiet()
        back = await there.resume(speaker)
        assert back.session.languages.profile.targets == ("de", "en")
        assert back.session.languages.profile.source == "zh"

    play(store, scenario, "AB")


def test_a_process_of_the_same_name_takes_over_without_a_message(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        speaker = await here.speaker()
        speaker.stream((0, 1))
        await until(lambda: speaker.accepted == [0], "it is accepted")
        # As after a restart: nothing in memory knows it.
        del here.sessions[speaker.session.id]
        back = await here.resume(speaker, next_audio_seq=0)
        assert back.session is not speaker.session
        assert back.of(SessionResumed)[0].next_audio_seq == 2
        assert await here.take_messages() == []

    play(store, scenario)


def test_a_client_that_went_and_came_back_gets_a_new_session_object(store: Server) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        speaker = await here.speaker()
        speaker.stream((0, 1), is_final=False)
        away = await there.resume(speaker, next_audio_seq=0)
        # The message to the first instance is lost: it still has a session that it does not own.
        await here.take_messages()
        back = await here.resume(away, next_audio_seq=0)
        assert speaker.record.state is SessionState.TAKEN
        assert back.session is not speaker.session
        assert here.sessions[back.session.id] is back.session
        assert back.record.fence == 3
        assert back.of(SessionResumed)[0].next_audio_seq == 0

    play(store, scenario, "AB")


def test_a_session_that_was_given_up_is_taken_over_as_a_new_one(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        speaker = await here.speaker()
        speaker.record.move(SessionState.TAKEN)
        back = await here.resume(speaker)
        assert back.session is not speaker.session

    play(store, scenario)


# Outcomes of the meantime


def test_what_was_missed_follows_before_anything_new(store: Server) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        speaker = await speaker_with_outcomes(here, 3)
        for instance in (here, there):
            back = await instance.resume(speaker, last_seq=1)
            await until(lambda back=back: len(back.outcomes) == 2, "the missed outcomes are sent")
            assert isinstance(back.outlet.sent[0], SessionResumed)
            assert [outcome.seq for outcome in back.outcomes] == [2, 3]
            assert back.session.deliverer.seq == 3

    play(store, scenario, "AB")


def test_outcomes_of_a_session_without_an_owner_are_delivered_by_the_next_one(
    store: Server,
) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        worker = await there.node()
        speaker = await here.speaker()
        speaker.say()
        await here.quiet()
        await there.read_inbox()
        # The owner is dead; the node's instance settles all the same.
        await worker.report(await worker.job())
        back = await there.resume(speaker)
        await until(lambda: back.outcomes, "its outcome is delivered")
        assert [(o.seq, o.utterance_index) for o in back.outcomes] == [(1, 0)]
        assert back.session.admission.idle.is_set()

    play(store, scenario, "AB")


def test_positions_the_store_lost_start_over(store: Server) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        speaker = await speaker_with_outcomes(here, 2)
        # The client has more than the store: that went back to an older state.
        back = await there.resume(speaker, last_seq=7)
        (resumed,) = back.of(SessionResumed)
        assert resumed.reset
        assert resumed.epoch != speaker.record.epoch
        await until(lambda: len(back.outcomes) == 2, "all stored outcomes are sent again")
        assert [(o.epoch, o.seq) for o in back.outcomes] == [(resumed.epoch, n) for n in (1, 2)]

    play(store, scenario, "AB")


def test_another_epoch_on_the_same_instance_starts_positions_over(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        speaker = await speaker_with_outcomes(here, 2)
        before = speaker.record.epoch
        back = await here.resume(speaker, last_seq=7)
        assert back.session is speaker.session
        assert back.record.epoch != before
        assert back.of(SessionResumed)[0].reset
        assert speaker.of(SessionReset) == []

    play(store, scenario)


def test_a_client_whose_session_moved_on_before_it_was_attached_must_come_back_once_more(
    store: Server,
) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        speaker = await speaker_with_outcomes(here, 1)
        outlet = ClosingOutlet()
        await here.registry.resume(speaker.back(), outlet, tenant="")
        newer = await here.registry.resume(speaker.back(), outlet, tenant="")
        assert await here.registry.attach(newer, outlet)
        # Taken over: this socket is not attached here.
        other = ClosingOutlet()
        again = await here.registry.resume(speaker.back(), other, tenant="")
        await there.resume(speaker)
        await here.read_inbox()
        assert not await here.registry.attach(again, other)
        assert again.session.notifier.outlet is not other

    play(store, scenario, "AB")


# Disconnecting and ending


def test_the_speech_of_a_client_that_does_not_come_back_is_finished(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        worker = await here.node()
        speaker = await here.speaker()
        speaker.stream((0, 1), is_final=False)
        here.registry.disconnected(speaker.session, speaker.outlet)
        assert not speaker.record.is_closing
        assert worker.assigned == []
        job = await worker.job()
        assert job.audio == CHUNK * 2
        await worker.report(job)
        await until(lambda: not here.sessions, "the session is closed")
        assert await here.field(speaker, "closed") is not None

    play(store, scenario, sessions=SOON)


def test_a_client_that_comes_back_in_time_is_not_given_up(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        speaker = await here.speaker()
        here.registry.disconnected(speaker.session, speaker.outlet)
        timer = speaker.session.return_timer._timer
        assert timer is not None
        back = await here.resume(speaker)
        assert timer.cancelled()
        assert not back.record.is_closing

    play(store, scenario)


def test_a_client_that_cannot_come_back_is_given_up_at_once(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        speaker = await here.speaker(additions=False)
        here.registry.disconnected(speaker.session, speaker.outlet)
        assert speaker.record.is_closing
        await until(lambda: not here.sessions, "the session is closed")
        assert await here.field(speaker, "closed") is not None

    play(store, scenario)


def test_a_client_that_was_lost_before_it_was_attached_may_try_again(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        speaker = await here.speaker()
        outlet = ClosingOutlet()
        back = await here.registry.resume(speaker.back(), outlet, tenant="")
        # It was never attached.
        here.registry.unattached(back.session, outlet)
        assert back.session.return_timer._timer is not None
        again = await here.resume(speaker)
        here.registry.unattached(again.session, again.outlet)
        assert again.session.notifier.outlet is None
        assert again.session.return_timer._timer is not None
        again.session.return_timer.stop()

    play(store, scenario)


def test_the_end_of_a_session_reports_what_became_of_its_speech(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        worker = await here.node()
        speaker = await here.speaker()
        speaker.stream((0, 1, 2))
        await worker.report(await worker.job())
        coverage = await here.registry.end(speaker.session, "client")
        assert (coverage.admitted_ms, coverage.delivered_ms) == (300, 300)
        assert here.sessions == {}
        total = here.instance.metrics.speech.coverage_ms_total
        assert total.labels(fate="delivered").value == 300

    play(store, scenario)


def test_a_session_is_not_closed_by_its_former_owner(store: Server) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        speaker = await here.speaker()
        back = await there.resume(speaker)
        # The message is not here yet; the store knows the owner.
        await here.registry.end(speaker.session, "client")
        assert await there.field(back, "closed") is None
        assert here.sessions == {}
        back.say()
        await until(lambda: back.accepted == [0], "the new owner goes on")

    play(store, scenario, "AB")
