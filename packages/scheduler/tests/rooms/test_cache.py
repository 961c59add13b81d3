"""A room as one instance knows it, and the timer that ends it."""

from __future__ import annotations

import asyncio

import pytest

import servers
from lingua_scheduler.state.room_scripts import RoomPolicy
from lingua_wire.to_client import RoomExpired
from rooms.room_stage import RoomInstance, gathered, play

pytestmark = pytest.mark.store


def test_a_room_nobody_spoke_in_is_ended_by_its_timer(server: servers.Server) -> None:
    async def scenario(instance: RoomInstance) -> None:
        code, everyone = await gathered(instance, ann="en", bob="ja")
        await asyncio.sleep(0.3)
        await instance.cache.sweep(code)
        for member in everyone:
            assert member.sent == [
                RoomExpired(room_code=code, message="nobody spoke for a long time")
            ]
        assert len(instance.cache.rooms) == 0
        await instance.cache.sweep(code)
        await instance.room_of(everyone[0])

    play(server, scenario, RoomPolicy(idle_ms=250))
