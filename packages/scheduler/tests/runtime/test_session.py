"""A session on its instance: acknowledgements, its end here, and what the store keeps of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from lingua_scheduler.runtime.peer_instances import PeerInstances
from lingua_scheduler.runtime.session_fields import decode_fields
from lingua_scheduler.runtime.session_state import SessionState
from lingua_wire.codes import CloseCode
from lingua_wire.errors import InvalidMessage
from lingua_wire.from_client import SessionUpdate
from lingua_wire.to_client import AudioAck, Gap, SessionResumed
from runtime.bare_instances import CHUNK, BareInstance, outcomes_of, play, until
from runtime.stand_ins import ClosingOutlet, Scene

if TYPE_CHECKING:
    from servers import Server

pytestmark = pytest.mark.store


# What its client need not keep.


def test_speech_is_not_acknowledged_before_it_is_admitted(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        speaker = await here.speaker()
        acknowledge = speaker.session.input.acknowledge
        acknowledge()
        speaker.stream((0, 1))
        # The store was not even asked.
        acknowledge()
        assert speaker.of(AudioAck) == []
        await until(lambda: speaker.accepted == [0], "it is accepted")
        await here.quiet()
        acknowledge()
        assert speaker.of(AudioAck) == [], "its acceptance is enough"

    play(store, scenario)


def test_silence_is_acknowledged_but_for_what_may_begin_a_word(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        speaker = await here.speaker()
        for seq in range(10):
            speaker.session.input.audio(bytes(len(CHUNK)), seq=seq, is_final=False)
        for _ in range(2):
            speaker.session.input.acknowledge()
        assert [(m.seq, m.audio_ms) for m in speaker.of(AudioAck)] == [(6, 700)]
        # A later owner continues there.
        assert speaker.session.admission.parts.ledger.summary().admitted_ms == 0

    play(store, scenario, segmentation={"voice_detector": "energy"})


def test_a_client_goes_on_elsewhere_after_the_silence_that_was_acknowledged(store: Server) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        speaker = await here.speaker()
        for seq in range(10):
            speaker.session.input.audio(bytes(len(CHUNK)), seq=seq, is_final=False)
        speaker.session.input.acknowledge()
        back = await there.resume(speaker, next_audio_seq=7, audio_ms=700)
        (resumed,) = back.of(SessionResumed)
        assert (resumed.next_audio_seq, resumed.audio_ms) == (7, 700)
        coverage = back.session.admission.parts.ledger.summary()
        assert (coverage.admitted_ms, coverage.silent_ms, coverage.earlier_ms) == (700, 700, 0)

    play(store, scenario, "AB", segmentation={"voice_detector": "energy"})


def test_chunks_that_wait_for_the_window_are_kept_by_the_client(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        speaker = await here.speaker()
        speaker.stream((0,))
        speaker.stream((1,))
        await here.quiet()
        speaker.session.input.acknowledge()
        assert speaker.of(AudioAck) == []
        assert speaker.accepted == [0]

    play(store, scenario, jobs={"in_flight_max": 1})


def test_a_client_that_cannot_come_back_is_not_told_what_to_keep(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        speaker = await here.speaker(additions=False)
        speaker.stream((0,))
        await here.quiet()
        speaker.session.input.acknowledge()
        assert speaker.of(AudioAck) == []

    play(store, scenario)


def test_a_client_on_its_way_elsewhere_keeps_what_it_says_meanwhile(store: Server) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        speaker = await here.speaker()
        speaker.stream((0, 1), is_final=False)
        here.instance.lifecycle.drain()
        speaker.session.record.move(SessionState.MOVING)
        speaker.stream((2, 3), is_final=False)
        # No gap: nothing is lost, the client sends it again elsewhere.
        assert speaker.of(Gap) == []
        back = await there.resume(speaker, next_audio_seq=0)
        assert back.of(SessionResumed)[0].next_audio_seq == 0
        back.stream((0, 1, 2, 3))
        await until(lambda: back.accepted == [0], "it is accepted")
        (job,) = there.jobs
        assert job.audio == CHUNK * 4
        assert outcomes_of(speaker.outlet.sent) == []

    play(store, scenario, "AB")


def test_a_client_that_resumes_while_the_instance_stops_keeps_what_it_says(
    store: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PeerInstances, "are_there", True)

    async def scenario(here: BareInstance, there: BareInstance) -> None:
        speaker = await here.speaker()
        here.registry.disconnected(speaker.session, speaker.outlet)
        outlet = ClosingOutlet()
        returned = await here.registry.resume(speaker.back(), outlet, tenant="")
        draining = asyncio.create_task(here.instance.drain())
        await until(lambda: here.instance.lifecycle.is_draining, "the instance stops")
        assert await here.registry.attach(returned, outlet)
        returned.session.input.audio(CHUNK, seq=0, is_final=False)
        # No gap, and its number is not taken: the client sends it again elsewhere.
        assert [message for message in outlet.sent if isinstance(message, Gap)] == []
        assert returned.session.input.newest_seq == -1
        await draining
        back = await there.resume(speaker, next_audio_seq=0)
        assert back.of(SessionResumed)[0].next_audio_seq == 0

    play(store, scenario, "AB")


# Its end here.


def test_a_dropped_session_is_let_go_once() -> None:
    outlet = ClosingOutlet()
    scene = Scene(outlet=outlet)
    scene.job(0)
    for _ in range(2):
        scene.session.give_up()
    assert scene.taken == [scene.session]
    assert (scene.instance.sessions, len(scene.jobs)) == ({}, 0)
    assert scene.metrics.peers.sessions_handed_over_total.value == 1
    assert outlet.closed_with == CloseCode.REPLACED


def test_a_session_that_another_of_its_name_replaced_leaves_that_one() -> None:
    scene = Scene(outlet=ClosingOutlet())
    former = scene.session
    scene.job(0)
    later = scene.session = scene.enter("s1", ClosingOutlet())
    job = scene.job(1)
    former.give_up()
    assert scene.instance.sessions == {"s1": later}
    assert list(scene.jobs) == [job], "the jobs of its successor stay"


def test_a_client_that_went_elsewhere_is_not_waited_for() -> None:
    async def scenario() -> None:
        scene = Scene(outlet=ClosingOutlet(), token="secret")
        waiting = asyncio.create_task(scene.session.until_elsewhere(10_000))
        await asyncio.sleep(0)
        scene.session.give_up()
        assert await waiting

    asyncio.run(scenario())


def test_a_client_that_is_on_its_way_is_not_waited_for() -> None:
    async def scenario() -> None:
        scene = Scene(token="secret")
        scene.session.notifier.detach()
        assert await scene.session.until_elsewhere(10_000)

    asyncio.run(scenario())


def test_a_client_that_stays_is_finished_here() -> None:
    async def scenario() -> None:
        scene = Scene(token="secret")
        scene.session.record.move(SessionState.MOVING)
        assert not await scene.session.until_elsewhere(1)
        assert scene.session.record.state is SessionState.CONNECTED

    asyncio.run(scenario())


def test_a_pause_ends_what_was_said_though_the_client_is_away(store: Server) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        speaker = await here.speaker()
        speaker.stream((0, 1), is_final=False)
        here.registry.disconnected(speaker.session, speaker.outlet)
        await until(
            lambda: speaker.session.admission.parts.progress.stored[:2] == (1, 200),
            "it is admitted",
        )
        (job,) = here.jobs
        assert job.audio == CHUNK * 2
        # The client, which was not sent that, need not send the audio again elsewhere.
        back = await there.resume(speaker, next_audio_seq=0)
        assert back.of(SessionResumed)[0].next_audio_seq == 2

    play(store, scenario, "AB", segmentation={"pause_ms": 50, "short_merge_ms": 0})


# What the store keeps of it.


def test_what_a_later_owner_needs_is_in_the_store(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        speaker = await here.speaker(trace_id="t-mine", token="a token", tgt_langs=("en", "de"))
        key = here.cell.key("session", speaker.session.id)
        fields = decode_fields(await here.connection.command(here.cell.slot, "HGET", key, "about"))
        assert fields.init.tgt_langs == ("en", "de")
        assert (fields.trace_id, fields.paired) == ("t-mine", "")
        assert (fields.speaks_additions, fields.wants_events) == (True, True)
        # Its credentials are not stored.
        assert (fields.init.token, fields.init.pairing_code) == (None, None)

    play(store, scenario)


def test_a_former_owner_notes_nothing_any_more(store: Server) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        speaker = await here.speaker()
        back = await there.resume(speaker)
        speaker.session.update(SessionUpdate(session_id=back.session.id, tgt_lang="de"))
        await here.quiet()
        key = here.cell.key("session", back.session.id)
        fields = decode_fields(await here.connection.command(here.cell.slot, "HGET", key, "about"))
        assert fields.init.tgt_lang == "en"

    play(store, scenario, "AB")


def test_half_a_sample_is_no_audio() -> None:
    scene = Scene(audio_format="pcm16")
    with pytest.raises(InvalidMessage, match="two bytes per sample"):
        scene.session.input.audio(b"odd", seq=0, is_final=False)
