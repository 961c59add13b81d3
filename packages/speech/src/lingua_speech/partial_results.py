"""Sends the partial texts of a job at a limited rate, and its final text always."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lingua_node import Job

INTERVAL_MS: Final = 1000


class PartialResults:
    """The partial texts of one job; enter it with `async with` during recognition."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._is_wanted = job.enable_streaming_asr is not False
        self._interval_s = max(0, job.partial_update_interval_ms or INTERVAL_MS) / 1000
        # The newest text, and whether it is still to be sent.
        self._latest = ""
        self._is_new = asyncio.Event()
        self._sender: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        if self._is_wanted:
            self._sender = asyncio.create_task(self._send_all())

    async def __aexit__(self, *error: object) -> None:
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.wait([self._sender])

    def update(self, text: str) -> None:
        """Replace the text to send next; may be called at any rate."""
        if text and text != self._latest:
            self._latest = text
            self._is_new.set()

    async def send_final(self, text: str) -> None:
        """Send the whole text."""
        if self._is_wanted:
            await self._job.partial(text, is_final=True)

    async def _send_all(self) -> None:
        while True:
            await self._is_new.wait()
            self._is_new.clear()
            await self._job.partial(self._latest)
            await asyncio.sleep(self._interval_s)
