"""The loops of an instance log once that the store is unavailable."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from lingua_scheduler.config import load_settings
from lingua_scheduler.errors import StoreUnavailable
from lingua_scheduler.runtime.instance import Instance

pytestmark = pytest.mark.unit


class NoStore:
    """A connection that is never used."""

    generation = 0


def test_a_loop_that_does_not_ask_the_store_does_not_say_that_it_is_back(tmp_path: Path) -> None:
    events: list[str] = []
    steps: list[None] = []

    def note(event: str, **_: object) -> None:
        events.append(event)

    async def scenario() -> None:
        settings = load_settings(None, {"LINGUA_DATA_DIR": str(tmp_path)})
        instance = Instance(settings, cast("Any", NoStore()), cast("Any", note))

        async def unavailable() -> None:
            raise StoreUnavailable("here", "it was stopped")

        enough = asyncio.Event()

        async def rooms() -> None:
            await instance.loops.refresh_rooms()
            steps.append(None)
            if len(steps) == 5:
                enough.set()

        loops = [
            asyncio.create_task(instance.loops._every(0, unavailable)),
            asyncio.create_task(instance.loops._every(0, rooms)),
        ]
        async with asyncio.timeout(30):
            await enough.wait()
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)

    asyncio.run(scenario())
    assert events == ["store.unavailable"]
