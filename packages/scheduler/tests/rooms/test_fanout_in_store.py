"""A room on real instances and a real store: the cut decides who hears an utterance."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from lingua_scheduler.peers.messages import ListenerOutcomeReady
from lingua_scheduler.runtime.delivery import BEHIND_MS_MAX
from lingua_wire.codes import CloseCode
from lingua_wire.from_client import RoomCreate, RoomJoin
from lingua_wire.to_client import (
    MissingResult,
    OutcomePassed,
    RoomCreateAck,
    RoomMembers,
    TranslationResult,
)
from runtime.bare_instances import PATIENCE_S, BareInstance, Speaker, outcomes_of, play, until
from runtime.stand_ins import KeepingOutlet

if TYPE_CHECKING:
    from collections.abc import Callable

    from lingua_wire.to_node import JobAssign
    from runtime.bare_instances import Worker
    from servers import Server

pytestmark = pytest.mark.store


async def room_of(instance: BareInstance, speaker: Speaker) -> str:
    """Let a speaker of zh create a room; return its code."""
    instance.rooms.service.create(speaker.session, RoomCreate(preferred_lang="zh"))
    await until(lambda: speaker.of(RoomCreateAck), "the room is created")
    return str(speaker.of(RoomCreateAck)[0].room_code)


async def joins(instance: BareInstance, code: str, lang: str, home: str = "") -> Speaker:
    """Add a listener; its home cell may be chosen."""
    listener = await instance.speaker()
    while home and listener.record.home.name != home:
        listener = await instance.speaker()
    instance.rooms.service.join(listener.session, RoomJoin(room_code=code, preferred_lang=lang))
    await until(lambda: listener.of(RoomMembers), "the listener is in the room")
    return listener


async def knows(instance: BareInstance, speaker: Speaker, count: int) -> None:
    """Wait until a speaker's instance knows so many members."""

    def members() -> int:
        room = instance.rooms.cache.rooms.room_of(speaker.session.id)
        return len(room.members) if room is not None else 0

    await reading_until(instance, lambda: members() >= count)


async def reading_until(instance: BareInstance, is_so: Callable[[], bool]) -> None:
    """Let an instance read its inbox until a condition holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():
            await instance.read_inbox()
            await asyncio.sleep(0.005)


async def gathered(instance: BareInstance, *langs: str) -> tuple[Speaker, list[Speaker]]:
    """Return a speaker of zh and listeners of these languages, in one room on one instance."""
    speaker = await instance.speaker()
    code = await room_of(instance, speaker)
    listeners = [await joins(instance, code, lang) for lang in langs]
    await instance.quiet()
    return speaker, listeners


async def until_heard(listener: Speaker, count: int) -> None:
    await until(lambda: len(listener.outcomes) >= count, f"{count} are received")


def texts(listener: Speaker) -> list[str]:
    """Return what a listener received: translations, or the reason of a missing one."""
    return [
        outcome.text_translated if isinstance(outcome, TranslationResult) else outcome.reason
        for outcome in listener.outcomes
    ]


async def translate(worker: Worker, job: JobAssign) -> None:
    """Report a translation that names its language and utterance."""
    await worker.report(
        job,
        text_asr=f"said {job.utterance_index}",
        text_translated=f"{job.tgt_lang} {job.utterance_index}",
        tts_audio=b"sound",
    )


# The cut decides


def test_a_member_that_left_after_the_cut_hears_it_and_one_that_came_after_it_does_not(
    server: Server,
) -> None:
    async def scenario(here: BareInstance) -> None:
        worker = await here.node()
        speaker, (stays, leaves) = await gathered(here, "en", "en")
        speaker.say()
        job = await worker.job()
        service, code = here.rooms.service, speaker.of(RoomCreateAck)[0].room_code
        service.leave(leaves.session, code)
        late = await joins(here, code, "en")
        await here.quiet()
        await translate(worker, job)
        for listener in (stays, leaves):
            await until_heard(listener, 1)
        # The next one is for the members at its cut.
        speaker.say()
        await translate(worker, await worker.job(1))
        for listener in (stays, late):
            await until(lambda who=listener: "en 1" in texts(who), "the second is received")
        await here.quiet()
        assert texts(stays) == ["en 0", "en 1"]
        assert (texts(leaves), texts(late)) == (["en 0"], ["en 1"])

    play(server, scenario)


def test_a_language_that_is_changed_counts_from_the_next_cut(server: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        worker = await here.node()
        speaker, (listener,) = await gathered(here, "en")
        speaker.say()
        job = await worker.job()
        here.rooms.service.set_language(listener.session, "de")
        await here.quiet()
        speaker.say()
        await translate(worker, await worker.job(1))
        await translate(worker, job)
        await until_heard(listener, 2)
        assert sorted(texts(listener)) == ["de 1", "en 0"]

    play(server, scenario)


def test_listeners_receive_everything_a_speaker_said_before_it_left(server: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        worker = await here.node()
        speaker, (listener,) = await gathered(here, "en")
        speaker.say()
        job = await worker.job()
        here.rooms.service.leave(speaker.session, speaker.of(RoomCreateAck)[0].room_code)
        await here.quiet()
        await translate(worker, job)
        await until_heard(listener, 1)
        assert texts(listener) == ["en 0"]
        assert speaker.outcomes == []
        (sent,) = speaker.of(OutcomePassed)
        assert (sent.utterance_index, sent.seq) == (0, 1)

    play(server, scenario)


def test_readers_of_the_speakers_language_get_the_words_without_sound(server: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        worker = await here.node()
        speaker, (listener, reader) = await gathered(here, "en", "zh")
        for number in range(2):
            speaker.say()
            await translate(worker, await worker.job(number))
        await until_heard(reader, 2)
        await until_heard(listener, 2)
        assert texts(reader) == ["said 0", "said 1"]
        read, heard = reader.of(TranslationResult)[0], listener.of(TranslationResult)[0]
        assert (read.tts_audio, read.tgt_lang) == (b"", None)
        assert (heard.tts_audio, heard.tgt_lang) == (b"sound", "en")
        assert heard.timeline is not None
        assert heard.timeline.total_ms >= 0

    play(server, scenario)


# Instances and cells


def test_listeners_in_all_cells_and_on_other_instances_hear_all_of_it_in_order(
    server: Server,
) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        worker = await there.node()
        speaker = await here.speaker()
        code = await room_of(here, speaker)
        listeners = [
            await joins(instance, code, "en", home)
            for instance in (here, there)
            for home in ("c0", "c1", "c2")
        ]
        await knows(here, speaker, 7)
        for number in range(4):
            speaker.say()
            await reading_until(there, lambda n=number: len(worker.assigned) > n)
            await translate(worker, await worker.job(number))
        await there.quiet()
        announced = [
            message
            for message in await here.read_inbox()
            if isinstance(message, ListenerOutcomeReady)
        ]
        # One message for all listeners of a cell that an instance has.
        assert len(announced) == 4 * 3
        for listener in listeners:
            await until_heard(listener, 4)
        for listener in listeners:
            assert texts(listener) == [f"en {number}" for number in range(4)]
            assert [outcome.seq for outcome in listener.outcomes] == [1, 2, 3, 4]
        await here.read_inbox()
        await until(lambda: len(speaker.of(OutcomePassed)) == 4, "the speaker is informed")

    play(server, scenario, "AB", cells=3)


def test_the_death_of_the_speakers_instance_costs_listeners_nothing(
    server: Server,
) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        worker = await there.node()
        speaker = await here.speaker()
        code = await room_of(here, speaker)
        listener = await joins(there, code, "en")
        await knows(here, speaker, 2)
        speaker.say()
        await reading_until(there, lambda: bool(worker.assigned))
        job = await worker.job()
        await here.instance.tasks.end()
        await translate(worker, job)
        await until_heard(listener, 1)
        assert texts(listener) == ["en 0"]

    play(server, scenario, "AB", cells=3)


def test_a_listener_that_moves_to_another_instance_receives_each_outcome_once(
    server: Server,
) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        worker = await here.node()
        speaker, (listener,) = await gathered(here, "en")
        speaker.say()
        await translate(worker, await worker.job())
        await until_heard(listener, 1)
        speaker.say()
        job = await worker.job(1)
        back = await there.resume(listener, last_seq=1)
        await translate(worker, job)
        await here.quiet()
        await there.read_inbox()
        await until_heard(back, 1)
        assert (texts(listener), texts(back)) == (["en 0"], ["en 1"])
        # With its sound.
        assert back.of(TranslationResult)[0].tts_audio == b"sound"

    play(server, scenario, "AB")


def test_a_lost_message_costs_the_time_until_the_listener_looks(server: Server) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        worker = await here.node()
        speaker = await here.speaker()
        code = await room_of(here, speaker)
        listener = await joins(there, code, "en")
        await knows(here, speaker, 2)
        speaker.say()
        await translate(worker, await worker.job())
        await here.quiet()
        assert [type(message) for message in await there.take_messages()][-1:] == [
            ListenerOutcomeReady
        ]
        assert listener.outcomes == []
        await listener.session.deliverer.catch_up()
        assert texts(listener) == ["en 0"]

    play(server, scenario, "AB")


# What is kept


def test_a_result_that_is_not_kept_is_reported_missing_and_holds_nothing_up(server: Server) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        worker = await here.node()
        speaker, (listener,) = await gathered(here, "en")
        for number in range(2):
            speaker.say()
            await translate(worker, await worker.job(number))
        await until_heard(listener, 2)
        entries = await here.outbox(listener)
        first = entries[0].payload.decode().split(" ")[1]
        await here.connection.command(here.cell.slot, "DEL", here.cell.key("heard", first))
        back = await there.resume(listener)
        await until_heard(back, 2)
        assert texts(back) == ["failed", "en 1"]
        missing = back.of(MissingResult)[0]
        assert (missing.detail, missing.session_id) == ("no_longer_kept", speaker.session.id)

    play(server, scenario, "AB")


def test_a_result_is_not_kept_after_its_listeners_confirmed_it(server: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        worker = await here.node()
        speaker, listeners = await gathered(here, "en", "en")
        speaker.say()
        await translate(worker, await worker.job())
        for listener in listeners:
            await until_heard(listener, 1)

        async def kept() -> int:
            pattern = here.cell.base + "heard:*"
            return len(await here.connection.command(here.cell.slot, "KEYS", pattern))

        for listener, left in zip(listeners, (1, 0), strict=True):
            assert await kept() == 1
            await listener.session.deliverer.trim()
            assert await kept() == left

    play(server, scenario)


def test_a_speaker_that_repeats_an_utterance_is_sent_again_that_it_passed(server: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        worker = await here.node()
        speaker, (listener,) = await gathered(here, "en")
        speaker.say()
        await translate(worker, await worker.job())
        await until_heard(listener, 1)
        (sent,) = speaker.of(OutcomePassed)
        await speaker.session.deliverer.repeat(0)
        again = KeepingOutlet()
        assert await speaker.session.deliverer.replay(0, again)
        assert speaker.of(OutcomePassed) == [sent, sent]
        assert again.sent == [sent]

    play(server, scenario)


# A client that does not read


def test_a_client_that_is_behind_gets_all_of_it_from_its_outbox(server: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        worker = await here.node()
        speaker, (slow, quick) = await gathered(here, "en", "en")
        slow.outlet.is_behind = True
        for number in range(5):
            speaker.say()
            await translate(worker, await worker.job(number))
        # Nobody waits for it: other listeners receive the outcome, and the speaker that it passed.
        await until_heard(quick, 5)
        await until(lambda: len(speaker.of(OutcomePassed)) == 5, "all have it")
        deliverer = slow.session.deliverer
        await deliverer.catch_up()
        assert slow.outcomes == []
        slow.outlet.is_behind = False
        assert deliverer.is_overdue(here.clock.now_ms())
        await deliverer.catch_up()
        assert texts(slow) == [f"en {number}" for number in range(5)]
        assert [outcome.seq for outcome in slow.outcomes] == [1, 2, 3, 4, 5]

    play(server, scenario)


def test_a_client_that_never_reads_is_closed_and_receives_all_when_it_comes_back(
    server: Server,
) -> None:
    async def scenario(here: BareInstance) -> None:
        worker = await here.node()
        speaker, (slow,) = await gathered(here, "en")
        slow.outlet.is_behind = True
        speaker.say()
        await translate(worker, await worker.job())
        await until(lambda: speaker.of(OutcomePassed), "it passed")
        now = here.clock.now_ms()
        assert not slow.session.deliverer.is_overdue(now)
        assert slow.outlet.closed_with == 0
        assert not slow.session.deliverer.is_overdue(now + BEHIND_MS_MAX + 1)
        assert slow.outlet.closed_with == CloseCode.SLOW_READER
        here.registry.unattached(slow.session, slow.outlet)
        back = await here.resume(slow)
        await back.session.deliverer.catch_up()
        assert outcomes_of(slow.outlet.sent) == []
        assert texts(back) == ["en 0"]

    play(server, scenario)


# What the store refuses or forgets


def test_a_refused_utterance_is_reported_to_its_listeners(server: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        worker = await here.node()
        speaker, (listener, unserved, reader) = await gathered(here, "en", "fr", "zh")
        speaker.say()
        await until_heard(unserved, 1)
        assert texts(unserved) == ["failed"]
        assert unserved.of(MissingResult)[0].detail == "refused"
        assert reader.outcomes == []
        await translate(worker, await worker.job())
        await until_heard(listener, 1)
        await until_heard(reader, 1)
        assert (texts(listener), texts(reader)) == (["en 0"], ["said 0"])
        assert not any(speaker.of(kind) for kind in (TranslationResult, MissingResult))
        assert sorted(sent.tgt_lang for sent in speaker.of(OutcomePassed)) == ["en", "fr"]

    play(server, scenario, jobs={"refuse_unserved_pairs": True})


def test_an_outcome_that_an_emptied_store_lost_reaches_listeners_that_missed_it(
    server: Server,
) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        worker = await here.node()
        speaker = await here.speaker()
        code = await room_of(here, speaker)
        heard, missed = await joins(here, code, "en"), await joins(there, code, "en")
        await knows(here, speaker, 3)
        speaker.say()
        await translate(worker, await worker.job())
        await until_heard(heard, 1)
        await until(lambda: speaker.of(OutcomePassed), "it passed")
        await here.quiet()
        # The instance of the other listener was not informed yet; then the store loses everything.
        await here.empty_the_store()
        for instance in (here, there):
            await instance.instance.peers.inbox.open()
        for listener in (heard, missed):
            await listener.session.verify()
        await speaker.session.verify()
        again = await here.node("n2")
        await translate(again, await again.job())
        await here.quiet()
        await there.read_inbox()
        await until_heard(missed, 1)
        assert (texts(heard), texts(missed)) == (["en 0"], ["en 0"])
        assert len(speaker.of(OutcomePassed)) == 1
        # Everything goes on.
        speaker.say()
        await translate(again, await again.job(1))
        await here.quiet()
        await there.read_inbox()
        for listener in (heard, missed):
            await until_heard(listener, 2)
            assert texts(listener) == ["en 0", "en 1"]

    play(server, scenario, "AB")


def test_a_session_that_ended_before_it_received_an_outcome_can_still_read_it(
    server: Server,
) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        worker = await here.node()
        speaker, (listener, reader) = await gathered(here, "en", "zh")
        for number in range(2):
            speaker.say()
            await translate(worker, await worker.job(number))
        for who in (listener, reader):
            await until_heard(who, 2)
        await until(lambda: len(speaker.of(OutcomePassed)) == 2, "both passed")
        for who in (listener, reader, speaker):
            await here.registry.end(who.session, "client")
        words: list[Any] = []
        for who in (listener, reader, speaker):
            ask = who.back(last_seq=1)
            _, word, _ = await there.ended.rest_of(ask, who.record.home)
            words.append(word)
        heard, read, sent = words
        assert (heard.text_translated, heard.tts_audio, heard.seq) == ("en 1", b"sound", 2)
        assert (read.text_translated, read.tts_audio, read.seq) == ("said 1", b"", 2)
        assert sent == speaker.of(OutcomePassed)[1]

    play(server, scenario, "AB")
