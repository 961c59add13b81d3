"""What a session requests (`SessionRequest`) and how it behaves (`Options`).

Both are checked when they are created.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from lingua_wire import __version__, glossary
from lingua_wire.codec import JSON_PROTOCOL, MSGPACK_PROTOCOL
from lingua_wire.errors import ConfigError, InvalidInput
from lingua_wire.from_client import SessionInit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lingua_wire.token_source import TokenSource

PLATFORM: Final = "python"
OPUS_FRAME_MS, OPUS_FRAME_BYTES = 20, 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a session behaves; times are in seconds."""

    # MessagePack, or JSON for human-readable messages.
    form: Literal["msgpack", "json"] = "msgpack"
    # Open a new session when the old one cannot be resumed; otherwise the iterator raises.
    reopen: bool = True
    # Audio kept until the server has it permanently; `send` waits when it is full.
    replay_bytes: int = 8 << 20
    # Events that may wait to be iterated; beyond either bound reading stops.
    events_max: int = 1024
    event_bytes_max: int = 16 << 20
    # A server that sends nothing for this long, including pings, is abandoned.
    silence_s: float = 5.0
    # How long connecting to one URL, and its first answer, may each take.
    attempt_s: float = 2.0
    # How long opening a session is tried, also after a session was lost.
    open_s: float = 30.0
    # How long resuming is tried; None: as long as the server announced.
    resume_s: float | None = None
    # Acknowledge received outcomes after this many outcomes, or after this time.
    ack_every: int = 8
    ack_s: float = 2.0

    def __post_init__(self) -> None:
        if self.form not in {"msgpack", "json"}:
            raise ConfigError("form", "must be msgpack or json")
        for name in ("replay_bytes", "events_max", "event_bytes_max", "silence_s", "attempt_s"):
            if getattr(self, name) <= 0:
                raise ConfigError(name, "must be more than 0")
        if self.ack_every < 1 or self.ack_s <= 0:
            raise ConfigError("ack_every", "must be at least 1, and ack_s more than 0")

    @property
    def offered(self) -> tuple[str, ...]:
        """Return the WebSocket subprotocols to offer."""
        json_only = self.form == "json"
        return (JSON_PROTOCOL,) if json_only else (MSGPACK_PROTOCOL, JSON_PROTOCOL)


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """The languages, the audio format and the other fields of `session_init`."""

    source: str
    targets: tuple[str, ...]
    _: KW_ONLY
    audio_format: str = "pcm16"
    sample_rate: int = 16_000
    # A token, or a function, plain or async, that returns one each time it is needed.
    token: TokenSource = field(default=None, repr=False)
    # Terms to keep, or to translate as given: term -> language -> translation, or None.
    glossary: Mapping[str, Mapping[str, str] | None] = field(default_factory=dict)
    # More fields of `session_init`.
    more: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.source:
            raise ConfigError("source", "is needed: a language code, or auto")
        unknown = set(self.more) - set(SessionInit.__struct_fields__)
        if unknown:
            raise ConfigError("init", f"session_init has no {', '.join(sorted(unknown))}")
        try:
            glossary.of_table(self.glossary)
        except InvalidInput as error:
            raise ConfigError("glossary", str(error)) from error

    def init(self, token: str | None) -> SessionInit:
        """Return the message that opens the session, with the token to present now."""
        fields: dict[str, Any] = {
            "client_version": __version__,
            "platform": PLATFORM,
            "src_lang": self.source,
            "tgt_lang": self.targets[0] if self.targets else "",
            "tgt_langs": self.targets if len(self.targets) > 1 else None,
            "audio_format": self.audio_format,
            "sample_rate": self.sample_rate,
            "token": token,
            "glossary": glossary.of_table(self.glossary) or None,
        }
        return SessionInit(**(fields | dict(self.more)))

    @property
    def outcomes_per_utterance(self) -> int:
        """Return the number of outcomes of each utterance, outside of rooms."""
        if self.more.get("mode") == "two_way_auto":
            return 1
        return max(1, len(set(self.more.get("tgt_langs") or self.targets)))

    def duration_ms(self, size: int) -> int:
        """Return the length of this many bytes of audio."""
        if self.audio_format == "pcm16":
            return size * 500 // self.sample_rate
        return size // OPUS_FRAME_BYTES * OPUS_FRAME_MS
