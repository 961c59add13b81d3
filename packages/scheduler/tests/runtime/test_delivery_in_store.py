"""Outcomes and the outbox: what is read again, what is kept for whom, what was lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lingua_scheduler.runtime.delivery import OUTBOX_PAGE, TRIM_CONFIRMED
from lingua_scheduler.runtime.session_state import SessionState
from lingua_scheduler.state.reply import Reply
from lingua_wire.from_client import RoomCreate, RoomJoin
from lingua_wire.to_client import RoomCreateAck, RoomMembers, SessionReset
from runtime.bare_instances import BareInstance, Speaker, outcomes_of, play, until
from runtime.stand_ins import KeepingOutlet

if TYPE_CHECKING:
    from lingua_wire.to_client import ToClient
    from servers import Server

pytestmark = pytest.mark.store


async def with_outcomes(instance: BareInstance, count: int) -> Speaker:
    """Return a session with so many outcomes in its outbox, that were not announced."""
    speaker = await instance.speaker()
    session = speaker.session
    for index in range(count):
        answer = await instance.store.outbox.fill_lane(
            session.record.home, session.id, "en", index=index
        )
        assert answer.reply is Reply.SETTLED
    return speaker


def seqs(messages: list[ToClient]) -> list[int | None]:
    return [outcome.seq for outcome in outcomes_of(messages)]


# Catching up


def test_the_outbox_is_read_page_by_page(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        count = 2 * OUTBOX_PAGE + 3
        speaker = await with_outcomes(here, count)
        assert await speaker.session.deliverer.catch_up() is Reply.OK
        assert seqs(speaker.outlet.sent) == list(range(1, count + 1))
        assert await speaker.session.deliverer.catch_up() is Reply.OK
        assert len(speaker.outcomes) == count

    play(store, scenario)


def test_trimmed_outcomes_are_skipped(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        speaker = await with_outcomes(here, 5)
        session = speaker.session
        await here.store.outbox.ack(session.record.home, session.id, session.record.epoch, 3)
        assert await session.deliverer.catch_up() is Reply.OK
        assert seqs(speaker.outlet.sent) == [4, 5]

    play(store, scenario)


def test_a_store_that_has_less_than_was_delivered_is_detected(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        speaker = await with_outcomes(here, 2)
        speaker.session.deliverer.seq = 5
        assert await speaker.session.deliverer.catch_up() is Reply.TRIMMED
        before = speaker.record.epoch
        await speaker.session.recover()
        (reset,) = speaker.of(SessionReset)
        assert reset.epoch == speaker.record.epoch != before
        assert seqs(speaker.outlet.sent) == [1, 2]

    play(store, scenario)


def test_after_a_store_lost_its_last_writes_nothing_is_delivered_twice(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        worker = await here.node()
        speaker = await here.speaker()
        for number in range(3):
            speaker.say()
            await worker.report(await worker.job(number))
        assert seqs(speaker.outlet.sent) == [1, 2, 3]
        # It forgets the last outcome, as a replica that was behind would.
        session, key = speaker.session, here.cell.key("session", speaker.session.id)
        slot = here.cell.slot
        await here.connection.command(slot, "HSET", key, "seq", 2)
        await here.connection.command(slot, "RPOP", here.cell.key("outbox", session.id))
        await session.verify()
        await here.quiet()
        assert [outcome.utterance_index for outcome in speaker.outcomes] == [0, 1, 2]
        # And goes on under positions of the new epoch.
        speaker.say()
        await worker.report(await worker.job(3))
        last = speaker.outcomes[-1]
        assert (last.utterance_index, last.seq, last.epoch) == (3, 3, session.record.epoch)

    play(store, scenario)


# Replay


def test_delivered_outcomes_are_sent_again_to_a_client_that_missed_them(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        count = OUTBOX_PAGE + 5
        speaker = await with_outcomes(here, count)
        deliverer = speaker.session.deliverer
        await deliverer.catch_up()
        for after in (0, 3, count - 1, count):
            again = KeepingOutlet()
            assert await deliverer.replay(after, again)
            assert seqs(again.sent) == list(range(after + 1, count + 1))

    play(store, scenario)


def test_outcomes_that_were_not_delivered_yet_are_not_replayed(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        speaker = await with_outcomes(here, 5)
        deliverer = speaker.session.deliverer
        deliverer.seq = 3
        again = KeepingOutlet()
        assert await deliverer.replay(1, again)
        assert seqs(again.sent) == [2, 3]

    play(store, scenario)


def test_a_replay_goes_on_after_what_was_trimmed_meanwhile(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        speaker = await with_outcomes(here, 6)
        session = speaker.session
        await session.deliverer.catch_up()
        await here.store.outbox.ack(session.record.home, session.id, session.record.epoch, 4)
        again = KeepingOutlet()
        assert await session.deliverer.replay(1, again)
        assert seqs(again.sent) == [5, 6]

    play(store, scenario)


@pytest.mark.parametrize("loss", ["emptied", "started over"])
def test_an_impossible_replay_is_reported(store: Server, loss: str) -> None:
    async def scenario(here: BareInstance) -> None:
        speaker = await with_outcomes(here, 3)
        session = speaker.session
        await session.deliverer.catch_up()
        if loss == "emptied":
            await here.empty_the_store()
        else:
            session.record.epoch = "1"
        again = KeepingOutlet()
        assert not await session.deliverer.replay(1, again)
        assert again.sent == []

    play(store, scenario)


# What is kept


def test_confirmed_outcomes_are_trimmed_and_no_others(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        speaker = await with_outcomes(here, TRIM_CONFIRMED + 4)
        deliverer = speaker.session.deliverer
        await deliverer.catch_up()
        deliverer.confirmed(TRIM_CONFIRMED - 1)
        await here.quiet()
        assert len(await here.outbox(speaker)) == TRIM_CONFIRMED + 4
        deliverer.confirmed(TRIM_CONFIRMED)
        await here.quiet()
        assert [entry.seq for entry in await here.outbox(speaker)] == [
            TRIM_CONFIRMED + number for number in (1, 2, 3, 4)
        ]

    play(store, scenario)


def test_a_former_owner_trims_nothing(store: Server) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        speaker = await with_outcomes(here, TRIM_CONFIRMED)
        deliverer = speaker.session.deliverer
        await deliverer.catch_up()
        await there.resume(speaker)
        deliverer.confirmed(TRIM_CONFIRMED)
        await here.quiet()
        assert len(await here.outbox(speaker)) == TRIM_CONFIRMED

    play(store, scenario, "AB")


def test_room_is_made_in_a_full_outbox_unless_its_client_may_resume(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        speaker = await with_outcomes(here, 3)
        session = speaker.session
        await session.deliverer.catch_up()
        session.notifier.detach()
        await session.deliverer.trim()
        assert len(await here.outbox(speaker)) == 3
        session.attach(speaker.outlet)
        session.record.move(SessionState.MOVING)
        await session.deliverer.trim()
        assert len(await here.outbox(speaker)) == 3
        session.record.move(SessionState.CONNECTED)
        await session.deliverer.trim()
        assert await here.outbox(speaker) == ()

    play(store, scenario)


def test_an_outcome_is_sent_again_as_far_as_it_is_kept(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        speaker = await with_outcomes(here, 3)
        session = speaker.session
        await session.deliverer.catch_up()
        speaker.outlet.take()
        await session.deliverer.repeat(1)
        assert seqs(speaker.outlet.take()) == [2]
        await here.store.outbox.ack(session.record.home, session.id, session.record.epoch, 2)
        await session.deliverer.repeat(1)
        assert speaker.outlet.take() == []

    play(store, scenario)


# Rooms


async def gathered(instance: BareInstance) -> tuple[Speaker, Speaker]:
    """Return a speaker of zh and a listener of en, in one room."""
    rooms = instance.rooms.service
    speaker, listener = await instance.speaker(), await instance.speaker()
    rooms.create(speaker.session, RoomCreate(preferred_lang="zh"))
    await until(lambda: speaker.of(RoomCreateAck), "the room is created")
    code = speaker.of(RoomCreateAck)[0].room_code
    rooms.join(listener.session, RoomJoin(room_code=code, preferred_lang="en"))
    await until(lambda: listener.of(RoomMembers), "the listener is in the room")
    await instance.quiet()
    return speaker, listener


def test_outcomes_of_others_are_sent_to_a_listener_that_comes_back(store: Server) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        worker = await here.node()
        speaker, listener = await gathered(here)
        speaker.say()
        await worker.report(await worker.job())
        await until(lambda: listener.outcomes, "the listener hears it")
        (heard,) = listener.outcomes
        assert (heard.session_id, heard.seq) == (speaker.session.id, 1)
        back = await there.resume(listener)
        await until(lambda: back.outcomes, "it is sent again")
        assert [(o.session_id, o.seq) for o in back.outcomes] == [(speaker.session.id, 1)]

    play(store, scenario, "AB")


def test_a_speaker_that_comes_back_is_not_sent_outcomes_for_others(store: Server) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        worker = await here.node()
        speaker, listener = await gathered(here)
        speaker.say()
        await worker.report(await worker.job())
        await until(lambda: listener.outcomes, "the listener hears it")
        assert speaker.outcomes == []
        for instance in (here, there):
            back = await instance.resume(speaker)
            await instance.quiet()
            assert back.outcomes == []

    play(store, scenario, "AB")
