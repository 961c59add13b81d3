"""Events wait for their reader within bounds, and a full queue reports it."""

from __future__ import annotations

import asyncio

import pytest

from lingua_client import Reset, SessionLost
from lingua_client.event_queue import EventQueue

pytestmark = pytest.mark.unit


def test_a_queue_reports_when_it_is_full_and_when_half_of_it_is_free() -> None:
    async def scenario() -> None:
        told: list[str] = []
        queue = EventQueue(4, 1000, lambda: told.append("full"), lambda: told.append("room"))
        event = Reset("", 0, "", "")
        for _ in range(5):
            queue.put(event)
        assert told == ["full"]
        for _ in range(4):
            await queue.get()
        assert told == ["full", "room"]
        queue.put(event, 1000)
        assert told == ["full", "room", "full"]
        queue.lift_bound()
        queue.put(event, 1000)
        assert told == ["full", "room", "full", "room"]
        queue.end(SessionLost("over"))
        for _ in range(3):
            await queue.get()
        with pytest.raises(SessionLost):
            await queue.get()

    asyncio.run(scenario())
