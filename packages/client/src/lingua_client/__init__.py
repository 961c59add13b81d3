"""The client SDK: open a session, send audio, iterate outcomes; it resumes by itself.

    session ──> endpoints ──> connection    one connection after another, to any of several URLs
       └──> conversation                    the messages of the session, over any connection:
              ├──> audio_sender ──> replay_buffer, audio_pacer
              ├──> outcome_tracker, acknowledger, event_queue
              ├──> room_membership
              └──> current_connection, session_state

The package depends on `lingua_wire`, not on the server. See docs/client-sdk.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

from lingua_client.endpoints import Endpoints
from lingua_client.events import (
    Event,
    Notice,
    Outcome,
    Partial,
    Reset,
    RoomRefused,
    SessionLost,
    SessionRefused,
)
from lingua_client.options import Options, SessionRequest
from lingua_client.session import Session
from lingua_wire.shared import Coverage

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping, Sequence
    from typing import Unpack

    from lingua_wire.token_source import TokenSource

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


class SessionSettings(TypedDict, total=False):
    """The settings of `connect` besides the URLs and the languages."""

    # `pcm16` (little-endian, mono) or `opus`; samples per second.
    audio_format: str
    sample_rate: int
    # A token, or a function, plain or async, that returns one each time it is needed.
    token: TokenSource
    # For `wss://`; default: the system's.
    tls: ssl.SSLContext | None
    # Terms to keep, or to translate as given: term -> language -> translation, or None.
    glossary: Mapping[str, Mapping[str, str] | None] | None
    # More fields of `session_init`.
    init: Mapping[str, Any] | None
    options: Options | None


def connect(
    urls: str | Sequence[str],
    *,
    source: str,
    targets: str | Sequence[str] = (),
    **settings: Unpack[SessionSettings],
) -> Session:
    """Return a session for `async with`, which connects; nothing is connected before."""
    options = settings.get("options") or Options()
    request = SessionRequest(
        source,
        (targets,) if isinstance(targets, str) else tuple(targets),
        audio_format=settings.get("audio_format", "pcm16"),
        sample_rate=settings.get("sample_rate", 16_000),
        token=settings.get("token"),
        glossary=settings.get("glossary") or {},
        more=settings.get("init") or {},
    )
    addresses = (urls,) if isinstance(urls, str) else tuple(urls)
    endpoints = Endpoints(addresses, options, settings.get("tls"))
    return Session(endpoints, request, options)
