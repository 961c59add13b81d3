"""The room of a session: lost requests, lost leaves, refusals."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from lingua_client.events import RoomRefused
from lingua_client.room_membership import RoomMembership
from lingua_wire.codes import ErrorCode
from lingua_wire.from_client import FromClient, RoomCreate, RoomJoin, RoomLeave
from lingua_wire.shared import Participant
from lingua_wire.to_client import ErrorMessage, RoomError, RoomMembers

pytestmark = pytest.mark.unit

HERE, THERE, ME = "111111", "222222", "s-1"
UNAVAILABLE = ErrorMessage(
    code=ErrorCode.SCHEDULER_DEPENDENCY_DOWN, message="the store is unavailable", retry_after_ms=1
)


def already_in(room: str | None) -> RoomError:
    return RoomError(code=ErrorCode.ALREADY_IN_ROOM, room_code=room)


def members(room: str, *, since: int) -> RoomMembers:
    """The member list of a room that the session joined at a time."""
    own = Participant(participant_id=ME, session_id=ME, joined_at=since)
    return RoomMembers(room_code=room, members=(own,))


class Asker:
    """The membership of a session, and the messages that it sent."""

    def __init__(self) -> None:
        self.sent: list[FromClient] = []
        self.asked = asyncio.Event()
        self.room = RoomMembership(self._send, lambda: ME)

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
        joining = await self.asks(self.room.join(RoomJoin(room_code=room)))
        self.room.handle(RoomMembers(room_code=room, members=()))
        await joining
        self.sent.clear()


def play(scenario: Callable[[Asker], Awaitable[None]]) -> None:
    async def whole() -> None:
        await scenario(Asker())

    asyncio.run(whole())


@pytest.mark.parametrize("said", [THERE, None], ids=["room named", "older server"])
def test_a_repeated_join_whose_first_request_arrived_is_answered_by_the_room(
    said: str | None,
) -> None:
    async def scenario(asker: Asker) -> None:
        joining = await asker.asks(asker.room.join(RoomJoin(room_code=THERE)))
        asker.room.begin_connection(is_new_session=False)
        assert asker.take_sent() == [RoomJoin(room_code=THERE)] * 2
        asker.room.handle(already_in(said))
        await joining
        assert asker.room.code == THERE

    play(scenario)


def test_a_repeated_create_whose_first_request_arrived_returns_the_created_room() -> None:
    async def scenario(asker: Asker) -> None:
        making = await asker.asks(asker.room.create(RoomCreate()))
        asker.room.begin_connection(is_new_session=False)
        asker.room.handle(already_in(HERE))
        assert await making == asker.room.code == HERE

    play(scenario)


@pytest.mark.parametrize("is_cut", [True, False], ids=["connection lost", "store unavailable"])
def test_a_session_still_in_the_room_it_left_leaves_again_and_joins_the_requested_one(
    is_cut: bool,
) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.is_in(HERE)
        asker.room.leave()
        joining = await asker.asks(asker.room.join(RoomJoin(room_code=THERE)))
        assert asker.take_sent() == [RoomLeave(room_code=HERE), RoomJoin(room_code=THERE)]
        if is_cut:
            asker.room.begin_connection(is_new_session=False)
            asker.take_sent()
        # The leave was lost, the join was not: the old room is not taken for the requested one.
        asker.room.handle(already_in(HERE))
        assert asker.room.code == ""
        assert not joining.done()
        assert asker.take_sent() == [RoomLeave(room_code=HERE), RoomJoin(room_code=THERE)]
        asker.room.handle(RoomMembers(room_code=THERE, members=()))
        await joining
        assert asker.room.code == THERE

    play(scenario)


@pytest.mark.parametrize("is_cut", [True, False], ids=["connection lost", "on its way"])
def test_a_session_that_rejoins_a_room_is_in_it_when_its_new_stay_is_listed(is_cut: bool) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.is_in(HERE)
        asker.room.handle(members(HERE, since=1))
        asker.room.leave()
        joining = await asker.asks(asker.room.join(RoomJoin(room_code=HERE)))
        assert asker.take_sent() == [RoomLeave(room_code=HERE), RoomJoin(room_code=HERE)]
        if is_cut:
            # A second leave could leave the room that the session has joined since.
            asker.room.begin_connection(is_new_session=False)
            assert asker.take_sent() == [RoomJoin(room_code=HERE)]
        asker.room.handle(members(HERE, since=1))
        await asyncio.sleep(0)
        assert not joining.done(), "that is how it was before"
        asker.room.handle(members(HERE, since=2))
        await joining
        assert asker.room.code == HERE

    play(scenario)


def test_a_lost_leave_is_repeated_when_the_same_room_is_joined_again() -> None:
    async def scenario(asker: Asker) -> None:
        await asker.is_in(HERE)
        asker.room.handle(members(HERE, since=1))
        asker.room.leave()
        joining = await asker.asks(asker.room.join(RoomJoin(room_code=HERE)))
        asker.room.begin_connection(is_new_session=False)
        asker.take_sent()
        asker.room.handle(members(HERE, since=1))
        asker.room.handle(already_in(HERE))
        assert asker.take_sent() == [RoomLeave(room_code=HERE), RoomJoin(room_code=HERE)]
        asker.room.handle(members(HERE, since=2))
        await joining
        assert asker.room.code == HERE

    play(scenario)


def test_a_request_to_an_unavailable_store_is_repeated_after_the_announced_time() -> None:
    async def scenario(asker: Asker) -> None:
        joining = await asker.asks(asker.room.join(RoomJoin(room_code=THERE)))
        asker.take_sent()
        asker.asked.clear()
        asker.room.handle(UNAVAILABLE)
        await asker.asked.wait()
        assert asker.take_sent() == [RoomJoin(room_code=THERE)]
        asker.room.handle(RoomMembers(room_code=THERE, members=()))
        await joining

    play(scenario)


@pytest.mark.parametrize("room", [HERE, None])
def test_a_second_room_is_refused(room: str | None) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.is_in(HERE)
        for question in (
            asker.room.join(RoomJoin(room_code=THERE)),
            asker.room.create(RoomCreate()),
        ):
            asking = await asker.asks(question)
            asker.room.handle(already_in(room))
            with pytest.raises(RoomRefused) as refused:
                await asking
            assert refused.value.code == ErrorCode.ALREADY_IN_ROOM
        assert asker.room.code == HERE

    play(scenario)


def test_a_repeated_join_that_finds_itself_in_a_third_room_is_refused() -> None:
    async def scenario(asker: Asker) -> None:
        joining = await asker.asks(asker.room.join(RoomJoin(room_code=THERE)))
        asker.room.begin_connection(is_new_session=False)
        asker.room.handle(already_in("333333"))
        with pytest.raises(RoomRefused):
            await joining
        assert asker.room.code == ""

    play(scenario)
