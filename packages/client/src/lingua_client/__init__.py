"""The client SDK: open a session, send audio, iterate outcomes; it resumes by itself.

    session ──> endpoints ──> connection    one connection after another, to any of several URLs
       └──> conversation                    the messages of the session, over any connection:
              ├──> audio_sender ──> replay_buffer, audio_pacer
              ├──> outcome_tracker, early_filter, acknowledger, event_queue
              ├──> room_membership
              └──> current_connection, session_state

The package depends on `lingua_wire`, not on the server. See docs/client-sdk.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypedDict

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
    SpeechPart,
    TextSoFar,
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
    "SpeechPart",
    "TextSoFar",
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
    # `Partial`s while somebody still speaks; `SpeechPart`s before an outcome.
    partials: bool | None
    tts_parts: bool | None
    # Whether speech without a pause is cut where a sentence ends; None: as configured there.
    sentence_cuts: bool | None
    # The silence that ends an utterance: after a whole sentence, and after an incomplete one.
    silence_min_ms: int | None
    silence_max_ms: int | None
    # More fields of `session_init`; they override the settings above.
    init: Mapping[str, Any] | None
    options: Options | None


# Settings that are fields of `session_init`; one that is None is not sent.
EARLY_FIELDS: Final = (
    "partials",
    "tts_parts",
    "sentence_cuts",
    "silence_min_ms",
    "silence_max_ms",
)


def early_fields(settings: SessionSettings) -> dict[str, Any]:
    """Return the fields of `session_init` for results before the end of an utterance."""
    chosen = {name: settings.get(name) for name in EARLY_FIELDS}
    return {name: value for name, value in chosen.items() if value is not None}


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
        more=early_fields(settings) | dict(settings.get("init") or {}),
    )
    addresses = (urls,) if isinstance(urls, str) else tuple(urls)
    endpoints = Endpoints(addresses, options, settings.get("tls"))
    return Session(endpoints, request, options)
