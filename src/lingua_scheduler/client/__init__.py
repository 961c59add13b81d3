"""The client SDK: open a session, send audio, iterate outcomes; it resumes by itself.

    session (Session) ──> link ──> line      one connection after another, on any of several URLs
        └──> talk ──> replay, heard,         what is said and heard: kept for the server,
                      pace, mailbox, rooms   kept for the user

It needs the wire (`lingua_scheduler.messages`) and nothing of the server. See docs/client-sdk.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

from lingua_scheduler.client.events import (
    Event,
    Notice,
    Outcome,
    Partial,
    Reset,
    RoomRefused,
    SessionLost,
    SessionRefused,
)
from lingua_scheduler.client.link import Link
from lingua_scheduler.client.options import Options, Wish
from lingua_scheduler.client.session import Session
from lingua_scheduler.messages.shared import Coverage

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping, Sequence
    from typing import Unpack

    from lingua_scheduler.dial import TokenSource

__all__ = [
    "Coverage",
    "Event",
    "Notice",
    "Options",
    "Outcome",
    "Partial",
    "Reset",
    "RoomRefused",
    "Session",
    "SessionLost",
    "SessionRefused",
    "connect",
]


class Settings(TypedDict, total=False):
    """What `connect` takes besides the URLs and the languages."""

    # `pcm16` (little-endian, mono) or `opus`; samples per second.
    audio_format: str
    sample_rate: int
    # A token, or what gives one each time it is needed, at once or when awaited.
    token: TokenSource
    # For `wss://`, instead of the system's.
    tls: ssl.SSLContext | None
    # What is kept in translations, or called as it says: term -> language -> words, or nothing.
    glossary: Mapping[str, Mapping[str, str] | None] | None
    # More fields of `session_init`.
    init: Mapping[str, Any] | None
    options: Options | None


def connect(
    urls: str | Sequence[str],
    *,
    source: str,
    targets: str | Sequence[str] = (),
    **settings: Unpack[Settings],
) -> Session:
    """Return a session to be used with `async with`; nothing is connected before."""
    options = settings.get("options") or Options()
    wish = Wish(
        source,
        (targets,) if isinstance(targets, str) else tuple(targets),
        audio_format=settings.get("audio_format", "pcm16"),
        sample_rate=settings.get("sample_rate", 16_000),
        token=settings.get("token"),
        glossary=settings.get("glossary") or {},
        more=settings.get("init") or {},
    )
    link = Link((urls,) if isinstance(urls, str) else tuple(urls), options, settings.get("tls"))
    return Session(link, wish, options)
