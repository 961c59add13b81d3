"""What is recognised so far, on its way to whoever speaks: not too often, and the end for sure."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lingua_scheduler.node import Job

INTERVAL_MS: Final = 1000


class Partials:
    """The partial texts of one job; `async with` it while there may be some."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._is_wanted = job.enable_streaming_asr is not False
        self._interval_s = max(0, job.partial_update_interval_ms or INTERVAL_MS) / 1000
        # The newest text, and whether there is one that was not told yet.
        self._latest = ""
        self._news = asyncio.Event()
        self._telling: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        if self._is_wanted:
            self._telling = asyncio.create_task(self._tell_all())

    async def __aexit__(self, *error: object) -> None:
        if self._telling is not None:
            self._telling.cancel()
            await asyncio.wait([self._telling])

    def tell(self, text: str) -> None:
        """Take what is known so far; at any rate."""
        if text and text != self._latest:
            self._latest = text
            self._news.set()

    async def finish(self, text: str) -> None:
        """Tell the whole text."""
        if self._is_wanted:
            await self._job.partial(text, is_final=True)

    async def _tell_all(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            await self._job.partial(self._latest)
            await asyncio.sleep(self._interval_s)
