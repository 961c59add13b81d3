"""The room of a session, as the SDK asks for it: lost questions, lost leaves, refusals."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from lingua_scheduler.client.events import RoomRefused
from lingua_scheduler.client.rooms import Rooms
from lingua_scheduler.messages.codes import ErrorCode
from lingua_scheduler.messages.from_client import FromClient, RoomCreate, RoomJoin, RoomLeave
from lingua_scheduler.messages.shared import Participant
from lingua_scheduler.messages.to_client import ErrorMessage, RoomError, RoomMembers

pytestmark = pytest.mark.unit

HERE, THERE, ME = "111111", "222222", "s-1"
AWAY = ErrorMessage(
    code=ErrorCode.SCHEDULER_DEPENDENCY_DOWN, message="the store is away", retry_after_ms=1
)


def already_in(room: str | None) -> RoomError:
    return RoomError(code=ErrorCode.ALREADY_IN_ROOM, room_code=room)


def members(room: str, *, since: int) -> RoomMembers:
    """A room that the session has been in since then."""
    own = Participant(participant_id=ME, session_id=ME, joined_at=since)
    return RoomMembers(room_code=room, members=(own,))


class Asker:
    """A session's rooms, and what was sent of it."""

    def __init__(self) -> None:
        self.sent: list[FromClient] = []
        self.asked = asyncio.Event()
        self.rooms = Rooms(self._send, lambda: ME)

    def _send(self, message: FromClient) -> None:
        self.sent.append(message)
        self.asked.set()

    def take_sent(self) -> list[FromClient]:
        sent = self.sent[:]
        self.sent.clear()
        return sent

    async def asks(self, question: Awaitable[object]) -> asyncio.Future[object]:
        asking = asyncio.ensure_future(question)
        await asyncio.sleep(0)
        return asking

    async def is_in(self, room: str) -> None:
        joining = await self.asks(self.rooms.join(RoomJoin(room_code=room)))
        self.rooms.take(RoomMembers(room_code=room, members=()))
        await joining
        self.sent.clear()


def play(scenario: Callable[[Asker], Awaitable[None]]) -> None:
    async def whole() -> None:
        await scenario(Asker())

    asyncio.run(whole())


@pytest.mark.parametrize("said", [THERE, None], ids=["told which room", "older server"])
def test_a_repeated_join_that_had_been_heard_is_answered_by_being_in_the_room(
    said: str | None,
) -> None:
    async def scenario(asker: Asker) -> None:
        joining = await asker.asks(asker.rooms.join(RoomJoin(room_code=THERE)))
        asker.rooms.connected(is_other_session=False)
        assert asker.take_sent() == [RoomJoin(room_code=THERE)] * 2
        asker.rooms.take(already_in(said))
        await joining
        assert asker.rooms.code == THERE

    play(scenario)


def test_a_repeated_create_that_had_been_heard_tells_the_room_that_was_made() -> None:
    async def scenario(asker: Asker) -> None:
        making = await asker.asks(asker.rooms.create(RoomCreate()))
        asker.rooms.connected(is_other_session=False)
        asker.rooms.take(already_in(HERE))
        assert await making == asker.rooms.code == HERE

    play(scenario)


@pytest.mark.parametrize("is_cut", [True, False], ids=["connection lost", "store away"])
def test_who_is_still_in_the_room_it_left_leaves_it_again_and_then_gets_where_it_wants(
    is_cut: bool,
) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.is_in(HERE)
        asker.rooms.leave()
        joining = await asker.asks(asker.rooms.join(RoomJoin(room_code=THERE)))
        assert asker.take_sent() == [RoomLeave(room_code=HERE), RoomJoin(room_code=THERE)]
        if is_cut:
            asker.rooms.connected(is_other_session=False)
            asker.take_sent()
        # The leave was lost, the join was not: it is not taken for the room that was asked for.
        asker.rooms.take(already_in(HERE))
        assert asker.rooms.code == ""
        assert not joining.done()
        assert asker.take_sent() == [RoomLeave(room_code=HERE), RoomJoin(room_code=THERE)]
        asker.rooms.take(RoomMembers(room_code=THERE, members=()))
        await joining
        assert asker.rooms.code == THERE

    play(scenario)


@pytest.mark.parametrize("is_cut", [True, False], ids=["connection lost", "on its way"])
def test_who_enters_the_room_it_left_is_in_when_its_new_stay_is_told(is_cut: bool) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.is_in(HERE)
        asker.rooms.take(members(HERE, since=1))
        asker.rooms.leave()
        joining = await asker.asks(asker.rooms.join(RoomJoin(room_code=HERE)))
        assert asker.take_sent() == [RoomLeave(room_code=HERE), RoomJoin(room_code=HERE)]
        if is_cut:
            # Who said it left once more would leave what it may have entered since.
            asker.rooms.connected(is_other_session=False)
            assert asker.take_sent() == [RoomJoin(room_code=HERE)]
        asker.rooms.take(members(HERE, since=1))
        await asyncio.sleep(0)
        assert not joining.done(), "that is how it was before"
        asker.rooms.take(members(HERE, since=2))
        await joining
        assert asker.rooms.code == HERE

    play(scenario)


def test_who_was_not_heard_leaving_the_room_it_enters_again_leaves_it_then() -> None:
    async def scenario(asker: Asker) -> None:
        await asker.is_in(HERE)
        asker.rooms.take(members(HERE, since=1))
        asker.rooms.leave()
        joining = await asker.asks(asker.rooms.join(RoomJoin(room_code=HERE)))
        asker.rooms.connected(is_other_session=False)
        asker.take_sent()
        asker.rooms.take(members(HERE, since=1))
        asker.rooms.take(already_in(HERE))
        assert asker.take_sent() == [RoomLeave(room_code=HERE), RoomJoin(room_code=HERE)]
        asker.rooms.take(members(HERE, since=2))
        await joining
        assert asker.rooms.code == HERE

    play(scenario)


def test_a_store_that_was_away_is_asked_again_after_the_time_it_says() -> None:
    async def scenario(asker: Asker) -> None:
        joining = await asker.asks(asker.rooms.join(RoomJoin(room_code=THERE)))
        asker.take_sent()
        asker.asked.clear()
        asker.rooms.take(AWAY)
        await asker.asked.wait()
        assert asker.take_sent() == [RoomJoin(room_code=THERE)]
        asker.rooms.take(RoomMembers(room_code=THERE, members=()))
        await joining

    play(scenario)


@pytest.mark.parametrize("room", [HERE, None])
def test_a_second_room_is_refused_to_who_is_in_one(room: str | None) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.is_in(HERE)
        for question in (
            asker.rooms.join(RoomJoin(room_code=THERE)),
            asker.rooms.create(RoomCreate()),
        ):
            asking = await asker.asks(question)
            asker.rooms.take(already_in(room))
            with pytest.raises(RoomRefused) as refused:
                await asking
            assert refused.value.code == ErrorCode.ALREADY_IN_ROOM
        assert asker.rooms.code == HERE

    play(scenario)


def test_a_repeated_join_that_finds_itself_in_a_third_room_is_refused() -> None:
    async def scenario(asker: Asker) -> None:
        joining = await asker.asks(asker.rooms.join(RoomJoin(room_code=THERE)))
        asker.rooms.connected(is_other_session=False)
        asker.rooms.take(already_in("333333"))
        with pytest.raises(RoomRefused):
            await joining
        assert asker.rooms.code == ""

    play(scenario)
