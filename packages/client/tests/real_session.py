"""A session of the SDK on a real server, and utterances for it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from lingua_client import Session, connect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from edge.live_server import Stage

# Loud enough for any voice activity detector.
SPEECH = b"\x00\x40\x00\xc0" * 800


def url_of(stage: Stage) -> str:
    return f"{stage.server.url}/ws/session".replace("http", "ws", 1)


@asynccontextmanager
async def session_of(stage: Stage, *targets: str, **settings: Any) -> AsyncIterator[Session]:
    chosen = {"source": "zh", "targets": targets or ("en",), **settings}
    async with connect(url_of(stage), **chosen) as session:
        yield session


async def say(session: Session, chunks: int = 5) -> None:
    """Send one utterance of 100 ms chunks."""
    for _ in range(chunks):
        await session.send(SPEECH)
    await session.cut()
