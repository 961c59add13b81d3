"""Readers of captions over real sockets, as a browser is one."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any

import aiohttp

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from edge.live_server import Message

PATIENCE_S = 30


class EventReader:
    """Reads Server-Sent Events; keeps all of them."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response
        self.events: list[Message] = []
        self.last_id = ""

    async def next(self) -> Message:
        """Return the next event; `type` is its name, {} the end of the response."""
        lines: dict[str, str] = {}
        async with asyncio.timeout(PATIENCE_S):
            while True:
                line = (await self.response.content.readline()).decode()
                if not line:
                    return {}
                name, _, value = line.rstrip("\n").partition(": ")
                if name in ("event", "data", "id"):
                    lines[name] = value
                elif name == "" and "data" in lines:
                    break
        event: Message = json.loads(lines["data"])
        assert event["type"] == lines["event"]
        if "id" in lines:
            assert event["id"] == lines["id"]
            self.last_id = lines["id"]
        self.events.append(event)
        return event

    async def expect(self, kind: str, **fields: Any) -> Message:
        """Return the next event of a kind with these fields."""
        while True:
            event = await self.next()
            assert event, f"the response ended before {kind} {fields}"
            if event["type"] == kind and fields.items() <= event.items():
                return event

    @property
    def texts(self) -> list[str]:
        """Return the captions so far."""
        return [event["text"] for event in self.events if event["type"] == "caption"]


class Browser:
    """Reads feeds of captions and pages; closes what it opened."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self.http = http
        self._opened: list[aiohttp.ClientResponse] = []

    async def read(
        self, url: str, *, last_id: str = "", token: str = "", **query: str
    ) -> EventReader:
        """Open a feed of captions; fails if it is refused."""
        headers = {"Last-Event-ID": last_id} if last_id else {}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        response = await self.http.get(url, params=query, headers=headers)
        self._opened.append(response)
        assert response.status == 200, await response.text()
        assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        return EventReader(response)

    async def status(self, url: str, **headers: str) -> int:
        """Return the status of a request; its answer is not read."""
        response = await self.http.get(url, headers=headers)
        self._opened.append(response)
        return response.status

    def close(self) -> None:
        """Close everything that was opened."""
        for response in self._opened:
            response.close()


@contextlib.asynccontextmanager
async def browser() -> AsyncIterator[Browser]:
    """A browser that is closed at the end."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as http:
        window = Browser(http)
        try:
            yield window
        finally:
            window.close()
