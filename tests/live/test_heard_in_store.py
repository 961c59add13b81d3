"""A room on real instances and a real store: who hears an utterance was decided at its cut."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from lingua_scheduler.between.letters import Said
from lingua_scheduler.live.delivery import BEHIND_MS_MAX
from lingua_scheduler.messages.codes import CloseCode
from lingua_scheduler.messages.from_client import RoomCreate, RoomJoin
from lingua_scheduler.messages.to_client import (
    MissingResult,
    OutcomePassed,
    RoomCreateAck,
    RoomMembers,
    TranslationResult,
)
from live.offices import PATIENCE_S, Office, Speaker, outcomes_of, play, until
from live.stand_ins import KeepingOutlet

if TYPE_CHECKING:
    from collections.abc import Callable

    from lingua_scheduler.messages.to_node import JobAssign
    from live.offices import Worker
    from servers import Server

pytestmark = pytest.mark.store


async def room_of(office: Office, speaker: Speaker) -> str:
    """Let a speaker of zh make a room; return its code."""
    office.instance.hall.create(speaker.session, RoomCreate(preferred_lang="zh"))
    await until(lambda: speaker.of(RoomCreateAck), "the room is made")
    return str(speaker.of(RoomCreateAck)[0].room_code)


async def joins(office: Office, code: str, lang: str, home: str = "") -> Speaker:
    """Let somebody listen, whose home may be asked for."""
    listener = await office.speaker()
    while home and listener.session.home.name != home:
        listener = await office.speaker()
    office.instance.hall.join(listener.session, RoomJoin(room_code=code, preferred_lang=lang))
    await until(lambda: listener.of(RoomMembers), "the listener is in the room")
    return listener


async def knows(office: Office, speaker: Speaker, count: int) -> None:
    """Wait until a speaker's instance knows so many members."""

    def members() -> int:
        room = office.instance.hall.rooms.room_of(speaker.session.id)
        return len(room.members) if room is not None else 0

    await reading_until(office, lambda: members() >= count)


async def reading_until(office: Office, is_so: Callable[[], bool]) -> None:
    """Let an instance read its letters until something is so."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():
            await office.read_mail()
            await asyncio.sleep(0.005)


async def gathered(office: Office, *langs: str) -> tuple[Speaker, list[Speaker]]:
    """Return a speaker of zh and listeners of these languages, in one room on one instance."""
    speaker = await office.speaker()
    code = await room_of(office, speaker)
    listeners = [await joins(office, code, lang) for lang in langs]
    await office.quiet()
    return speaker, listeners


async def until_heard(listener: Speaker, count: int) -> None:
    await until(lambda: len(listener.outcomes) >= count, f"{count} are heard")


def texts(listener: Speaker) -> list[str]:
    """Return what somebody heard: translations, or why there is none."""
    return [
        outcome.text_translated if isinstance(outcome, TranslationResult) else outcome.reason
        for outcome in listener.outcomes
    ]


async def translate(worker: Worker, job: JobAssign) -> None:
    """Report a translation that says what was translated into what."""
    await worker.report(
        job, text_asr=f"said {job.utterance_index}",
        text_translated=f"{job.tgt_lang} {job.utterance_index}", tts_audio=b"sound",
    )  # fmt: skip


# The cut decides


def test_who_left_after_the_cut_still_hears_it_and_who_came_after_it_does_not(
    store: Server,
) -> None:
    async def scenario(here: Office) -> None:
        worker = await here.node()
        speaker, (stays, leaves) = await gathered(here, "en", "en")
        speaker.say()
        job = await worker.job()
        hall, code = here.instance.hall, speaker.of(RoomCreateAck)[0].room_code
        hall.leave(leaves.session, code)
        late = await joins(here, code, "en")
        await here.quiet()
        await translate(worker, job)
        for listener in (stays, leaves):
            await until_heard(listener, 1)
        # The next one is for those who are there at its cut.
        speaker.say()
        await translate(worker, await worker.job(1))
        for listener in (stays, late):
            await until(lambda who=listener: "en 1" in texts(who), "the second is heard")
        await here.quiet()
        assert texts(stays) == ["en 0", "en 1"]
        assert (texts(leaves), texts(late)) == (["en 0"], ["en 1"])

    play(store, scenario)


def test_a_language_that_is_changed_counts_from_the_next_cut(store: Server) -> None:
    async def scenario(here: Office) -> None:
        worker = await here.node()
        speaker, (listener,) = await gathered(here, "en")
        speaker.say()
        job = await worker.job()
        here.instance.hall.set_language(listener.session, "de")
        await here.quiet()
        speaker.say()
        await translate(worker, await worker.job(1))
        await translate(worker, job)
        await until_heard(listener, 2)
        assert sorted(texts(listener)) == ["de 1", "en 0"]

    play(store, scenario)


def test_a_speaker_that_left_is_heard_to_its_last_word(store: Server) -> None:
    async def scenario(here: Office) -> None:
        worker = await here.node()
        speaker, (listener,) = await gathered(here, "en")
        speaker.say()
        job = await worker.job()
        here.instance.hall.leave(speaker.session, speaker.of(RoomCreateAck)[0].room_code)
        await here.quiet()
        await translate(worker, job)
        await until_heard(listener, 1)
        assert texts(listener) == ["en 0"]
        assert speaker.outcomes == []
        (told,) = speaker.of(OutcomePassed)
        assert (told.utterance_index, told.seq) == (0, 1)

    play(store, scenario)


def test_readers_of_the_speakers_language_get_the_words_without_sound(store: Server) -> None:
    async def scenario(here: Office) -> None:
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

    play(store, scenario)


# Instances and cells


def test_listeners_in_all_cells_and_on_other_instances_hear_all_of_it_in_order(
    store: Server,
) -> None:
    async def scenario(here: Office, there: Office) -> None:
        worker = await there.node()
        speaker = await here.speaker()
        code = await room_of(here, speaker)
        listeners = [
            await joins(office, code, "en", home)
            for office in (here, there)
            for home in ("c0", "c1", "c2")
        ]
        await knows(here, speaker, 7)
        for number in range(4):
            speaker.say()
            await reading_until(there, lambda n=number: len(worker.assigned) > n)
            await translate(worker, await worker.job(number))
        await there.quiet()
        said = [letter for letter in await here.read_mail() if isinstance(letter, Said)]
        # One letter for all listeners of a cell that an instance has.
        assert len(said) == 4 * 3
        for listener in listeners:
            await until_heard(listener, 4)
        for listener in listeners:
            assert texts(listener) == [f"en {number}" for number in range(4)]
            assert [outcome.seq for outcome in listener.outcomes] == [1, 2, 3, 4]
        await here.read_mail()
        await until(lambda: len(speaker.of(OutcomePassed)) == 4, "the speaker knows")

    play(store, scenario, "AB", cells=3)


def test_the_death_of_the_speakers_instance_takes_nothing_from_those_who_listen(
    store: Server,
) -> None:
    async def scenario(here: Office, there: Office) -> None:
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

    play(store, scenario, "AB", cells=3)


def test_a_listener_that_goes_on_elsewhere_hears_each_of_it_once(store: Server) -> None:
    async def scenario(here: Office, there: Office) -> None:
        worker = await here.node()
        speaker, (listener,) = await gathered(here, "en")
        speaker.say()
        await translate(worker, await worker.job())
        await until_heard(listener, 1)
        speaker.say()
        job = await worker.job(1)
        back = await there.comes_back(listener, last_seq=1)
        await translate(worker, job)
        await here.quiet()
        await there.read_mail()
        await until_heard(back, 1)
        assert (texts(listener), texts(back)) == (["en 0"], ["en 1"])
        # With all of what it was.
        assert back.of(TranslationResult)[0].tts_audio == b"sound"

    play(store, scenario, "AB")


def test_a_letter_that_was_lost_costs_until_the_listener_looks(store: Server) -> None:
    async def scenario(here: Office, there: Office) -> None:
        worker = await here.node()
        speaker = await here.speaker()
        code = await room_of(here, speaker)
        listener = await joins(there, code, "en")
        await knows(here, speaker, 2)
        speaker.say()
        await translate(worker, await worker.job())
        await here.quiet()
        assert [type(letter) for letter in await there.letters()][-1:] == [Said]
        assert listener.outcomes == []
        await listener.session.deliverer.catch_up()
        assert texts(listener) == ["en 0"]

    play(store, scenario, "AB")


# What is kept


def test_what_was_not_kept_is_said_to_be_missing_and_holds_nothing_up(store: Server) -> None:
    async def scenario(here: Office, there: Office) -> None:
        worker = await here.node()
        speaker, (listener,) = await gathered(here, "en")
        for number in range(2):
            speaker.say()
            await translate(worker, await worker.job(number))
        await until_heard(listener, 2)
        entries = await here.outbox(listener)
        first = entries[0].payload.decode().split(" ")[1]
        await here.connection.command(here.cell.slot, "DEL", here.cell.key("heard", first))
        back = await there.comes_back(listener)
        await until_heard(back, 2)
        assert texts(back) == ["failed", "en 1"]
        missing = back.of(MissingResult)[0]
        assert (missing.detail, missing.session_id) == ("no_longer_kept", speaker.session.id)

    play(store, scenario, "AB")


def test_what_listeners_confirmed_is_not_kept_for_them(store: Server) -> None:
    async def scenario(here: Office) -> None:
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

    play(store, scenario)


def test_a_speaker_that_asks_again_is_told_again_that_it_passed(store: Server) -> None:
    async def scenario(here: Office) -> None:
        worker = await here.node()
        speaker, (listener,) = await gathered(here, "en")
        speaker.say()
        await translate(worker, await worker.job())
        await until_heard(listener, 1)
        (told,) = speaker.of(OutcomePassed)
        await speaker.session.deliverer.repeat(0)
        again = KeepingOutlet()
        assert await speaker.session.deliverer.replay(0, again)
        assert speaker.of(OutcomePassed) == [told, told]
        assert again.sent == [told]

    play(store, scenario)


# A client that does not read


def test_a_client_that_is_behind_gets_all_of_it_from_its_outbox(store: Server) -> None:
    async def scenario(here: Office) -> None:
        worker = await here.node()
        speaker, (slow, quick) = await gathered(here, "en", "en")
        slow.outlet.is_behind = True
        for number in range(5):
            speaker.say()
            await translate(worker, await worker.job(number))
        # Nobody waits for it: the others hear, and the speaker is told that it passed.
        await until_heard(quick, 5)
        await until(lambda: len(speaker.of(OutcomePassed)) == 5, "all have it")
        deliverer = slow.session.deliverer
        await deliverer.catch_up()
        assert slow.outcomes == []
        slow.outlet.is_behind = False
        assert deliverer.is_overdue(here.board.clock.now_ms())
        await deliverer.catch_up()
        assert texts(slow) == [f"en {number}" for number in range(5)]
        assert [outcome.seq for outcome in slow.outcomes] == [1, 2, 3, 4, 5]

    play(store, scenario)


def test_a_client_that_never_reads_is_let_go_and_finds_it_when_it_is_back(store: Server) -> None:
    async def scenario(here: Office) -> None:
        worker = await here.node()
        speaker, (slow,) = await gathered(here, "en")
        slow.outlet.is_behind = True
        speaker.say()
        await translate(worker, await worker.job())
        await until(lambda: speaker.of(OutcomePassed), "it passed")
        now = here.board.clock.now_ms()
        assert not slow.session.deliverer.is_overdue(now)
        assert slow.outlet.closed_with == 0
        assert not slow.session.deliverer.is_overdue(now + BEHIND_MS_MAX + 1)
        assert slow.outlet.closed_with == CloseCode.SLOW_READER
        here.reception.away(slow.session, slow.outlet)
        back = await here.comes_back(slow)
        await back.session.deliverer.catch_up()
        assert outcomes_of(slow.outlet.sent) == []
        assert texts(back) == ["en 0"]

    play(store, scenario)


# What the store refuses or forgets


def test_an_utterance_that_is_refused_is_told_those_who_would_have_heard_it(store: Server) -> None:
    async def scenario(here: Office) -> None:
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
        assert sorted(told.tgt_lang for told in speaker.of(OutcomePassed)) == ["en", "fr"]

    play(store, scenario, jobs={"refuse_unserved_pairs": True})


def test_what_an_emptied_store_forgot_of_a_moment_ago_is_heard_by_who_did_not(
    store: Server,
) -> None:
    async def scenario(here: Office, there: Office) -> None:
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
        # Its instance was not told yet; then everything is gone.
        await here.empty_the_store()
        for office in (here, there):
            await office.instance.neighbours.inbox.open()
        for listener in (heard, missed):
            await listener.session.verify()
        await speaker.session.verify()
        again = await here.node("n2")
        await translate(again, await again.job())
        await here.quiet()
        await there.read_mail()
        await until_heard(missed, 1)
        assert (texts(heard), texts(missed)) == (["en 0"], ["en 0"])
        assert len(speaker.of(OutcomePassed)) == 1
        # And all goes on.
        speaker.say()
        await translate(again, await again.job(1))
        await here.quiet()
        await there.read_mail()
        for listener in (heard, missed):
            await until_heard(listener, 2)
            assert texts(listener) == ["en 0", "en 1"]

    play(store, scenario, "AB")


def test_whoever_ended_before_it_heard_is_told_its_last_words(store: Server) -> None:
    async def scenario(here: Office, there: Office) -> None:
        worker = await here.node()
        speaker, (listener, reader) = await gathered(here, "en", "zh")
        for number in range(2):
            speaker.say()
            await translate(worker, await worker.job(number))
        for who in (listener, reader):
            await until_heard(who, 2)
        await until(lambda: len(speaker.of(OutcomePassed)) == 2, "both passed")
        for who in (listener, reader, speaker):
            await here.reception.end(who.session, "client")
        words: list[Any] = []
        for who in (listener, reader, speaker):
            ask = who.back(last_seq=1)
            _, word, _ = await there.reception.last_words(ask, who.session.home)
            words.append(word)
        heard, read, told = words
        assert (heard.text_translated, heard.tts_audio, heard.seq) == ("en 1", b"sound", 2)
        assert (read.text_translated, read.tts_audio, read.seq) == ("said 1", b"", 2)
        assert told == speaker.of(OutcomePassed)[1]

    play(store, scenario, "AB")
