"""A session on its instance: what its client need not keep, its going, and what it notes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from lingua_scheduler.errors import InvalidMessage
from lingua_scheduler.live.session import decode_about
from lingua_scheduler.messages.codes import CloseCode
from lingua_scheduler.messages.from_client import SessionUpdate
from lingua_scheduler.messages.to_client import AudioAck, Gap, SessionResumed
from live.offices import CHUNK, Office, outcomes_of, play, until
from live.stand_ins import ClosingOutlet, Scene

if TYPE_CHECKING:
    from servers import Server

pytestmark = pytest.mark.store


# What a client need not keep.


def test_speech_is_not_acknowledged_before_it_is_admitted(store: Server) -> None:
    async def scenario(here: Office) -> None:
        speaker = await here.speaker()
        acknowledge = speaker.session.acknowledge_audio
        acknowledge()
        speaker.stream((0, 1))
        # Nothing was even asked of the store.
        acknowledge()
        assert speaker.of(AudioAck) == []
        await until(lambda: speaker.accepted == [0], "it is accepted")
        await here.quiet()
        acknowledge()
        assert speaker.of(AudioAck) == [], "that it is accepted says so already"

    play(store, scenario)


def test_silence_is_acknowledged_but_for_what_may_begin_a_word(store: Server) -> None:
    async def scenario(here: Office) -> None:
        speaker = await here.speaker()
        for seq in range(10):
            speaker.session.audio(bytes(len(CHUNK)), seq=seq, is_final=False)
        for _ in range(2):
            speaker.session.acknowledge_audio()
        assert [(m.seq, m.audio_ms) for m in speaker.of(AudioAck)] == [(6, 700)]
        # Elsewhere it goes on there.
        assert speaker.session.ledger.summary().admitted_ms == 0

    play(store, scenario, segmentation={"voice_detector": "energy"})


def test_a_client_goes_on_elsewhere_after_the_silence_that_was_acknowledged(store: Server) -> None:
    async def scenario(here: Office, there: Office) -> None:
        speaker = await here.speaker()
        for seq in range(10):
            speaker.session.audio(bytes(len(CHUNK)), seq=seq, is_final=False)
        speaker.session.acknowledge_audio()
        back = await there.comes_back(speaker, next_audio_seq=7, audio_ms=700)
        (resumed,) = back.of(SessionResumed)
        assert (resumed.next_audio_seq, resumed.audio_ms) == (7, 700)
        coverage = back.session.ledger.summary()
        assert (coverage.admitted_ms, coverage.silent_ms, coverage.earlier_ms) == (700, 700, 0)

    play(store, scenario, "AB", segmentation={"voice_detector": "energy"})


def test_chunks_that_wait_for_the_window_are_kept_by_the_client(store: Server) -> None:
    async def scenario(here: Office) -> None:
        speaker = await here.speaker()
        speaker.stream((0,))
        speaker.stream((1,))
        await here.quiet()
        speaker.session.acknowledge_audio()
        assert speaker.of(AudioAck) == []
        assert speaker.accepted == [0]

    play(store, scenario, jobs={"in_flight_max": 1})


def test_a_client_that_cannot_come_back_is_not_told_what_to_keep(store: Server) -> None:
    async def scenario(here: Office) -> None:
        speaker = await here.speaker(additions=False)
        speaker.stream((0,))
        await here.quiet()
        speaker.session.acknowledge_audio()
        assert speaker.of(AudioAck) == []

    play(store, scenario)


def test_a_client_on_its_way_elsewhere_keeps_what_it_says_meanwhile(store: Server) -> None:
    async def scenario(here: Office, there: Office) -> None:
        speaker = await here.speaker()
        speaker.stream((0, 1), is_final=False)
        here.board.draining = True
        speaker.session.moves = True
        speaker.stream((2, 3), is_final=False)
        # No gap: nothing is lost, it comes along.
        assert speaker.of(Gap) == []
        back = await there.comes_back(speaker, next_audio_seq=0)
        assert back.of(SessionResumed)[0].next_audio_seq == 0
        back.stream((0, 1, 2, 3))
        await until(lambda: back.accepted == [0], "it is accepted")
        (job,) = there.board.jobs.values()
        assert job.audio == CHUNK * 4
        assert outcomes_of(speaker.outlet.sent) == []

    play(store, scenario, "AB")


# Its going.


def test_a_dropped_session_is_let_go_once() -> None:
    outlet = ClosingOutlet()
    scene = Scene(outlet=outlet)
    scene.job(0)
    for _ in range(2):
        scene.session.drop()
    assert scene.dropped == [scene.session]
    assert (scene.board.sessions, scene.board.jobs) == ({}, {})
    assert scene.metrics.sessions_handed_over_total.value == 1
    assert outlet.closed_with == CloseCode.REPLACED


def test_a_session_that_another_of_its_name_replaced_leaves_that_one() -> None:
    scene = Scene(outlet=ClosingOutlet())
    former = scene.session
    later = scene.enter("s1", ClosingOutlet())
    former.drop()
    assert scene.board.sessions == {"s1": later}


def test_a_client_that_went_elsewhere_is_not_waited_for() -> None:
    async def scenario() -> None:
        scene = Scene(outlet=ClosingOutlet(), token="secret")
        waiting = asyncio.create_task(scene.session.until_elsewhere(10_000))
        await asyncio.sleep(0)
        scene.session.drop()
        assert await waiting

    asyncio.run(scenario())


def test_a_client_that_is_on_its_way_is_not_waited_for() -> None:
    async def scenario() -> None:
        scene = Scene(token="secret")
        scene.session.detach()
        assert await scene.session.until_elsewhere(10_000)

    asyncio.run(scenario())


def test_a_client_that_stays_is_finished_here() -> None:
    async def scenario() -> None:
        scene = Scene(token="secret")
        scene.session.moves = True
        assert not await scene.session.until_elsewhere(1)
        assert not scene.session.moves

    asyncio.run(scenario())


def test_a_pause_ends_what_was_said_though_the_client_is_away(store: Server) -> None:
    async def scenario(here: Office, there: Office) -> None:
        speaker = await here.speaker()
        speaker.stream((0, 1), is_final=False)
        here.reception.lost(speaker.session, speaker.outlet)
        await until(lambda: speaker.session.admission.heard == (1, 200), "it is admitted")
        (job,) = here.board.jobs.values()
        assert job.audio == CHUNK * 2
        # The client, which heard nothing of that, need not say it again elsewhere.
        back = await there.comes_back(speaker, next_audio_seq=0)
        assert back.of(SessionResumed)[0].next_audio_seq == 2

    play(store, scenario, "AB", segmentation={"pause_ms": 50, "short_merge_ms": 0})


# What is kept of it.


def test_what_a_later_owner_needs_is_in_the_store(store: Server) -> None:
    async def scenario(here: Office) -> None:
        speaker = await here.speaker(trace_id="t-mine", token="a token", tgt_langs=("en", "de"))
        key = here.cell.key("session", speaker.session.id)
        about = decode_about(await here.connection.command(here.cell.slot, "HGET", key, "about"))
        assert about.init.tgt_langs == ("en", "de")
        assert (about.trace_id, about.paired) == ("t-mine", "")
        assert (about.speaks_additions, about.wants_events) == (True, True)
        # Its credentials are nobody else's business.
        assert (about.init.token, about.init.pairing_code) == (None, None)

    play(store, scenario)


def test_a_former_owner_notes_nothing_any_more(store: Server) -> None:
    async def scenario(here: Office, there: Office) -> None:
        speaker = await here.speaker()
        back = await there.comes_back(speaker)
        speaker.session.update(SessionUpdate(session_id=back.session.id, tgt_lang="de"))
        await here.quiet()
        key = here.cell.key("session", back.session.id)
        about = decode_about(await here.connection.command(here.cell.slot, "HGET", key, "about"))
        assert about.init.tgt_lang == "en"

    play(store, scenario, "AB")


def test_half_a_sample_is_no_audio() -> None:
    scene = Scene(audio_format="pcm16")
    with pytest.raises(InvalidMessage, match="two bytes per sample"):
        scene.session.audio(b"odd", seq=0, is_final=False)
