"""Members that disconnect and come back stay in their room."""

from __future__ import annotations

import pytest

import servers
from rooms.room_stage import RoomInstance, gathered, play

pytestmark = pytest.mark.store


def test_a_client_that_comes_back_is_sent_the_members(server: servers.Server) -> None:
    async def scenario(instance: RoomInstance) -> None:
        _, (ann, bob) = await gathered(instance, ann="en", bob="ja")
        instance.membership.disconnected(bob)
        instance.membership.returned(bob)
        assert bob.sees == ["ann", "bob"]
        assert ann.sent == []
        alone = await instance.member("alone")
        instance.membership.returned(alone)
        assert alone.sent == []

    play(server, scenario)
