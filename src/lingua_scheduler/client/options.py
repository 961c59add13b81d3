"""What a session asks for (`Wish`) and how it behaves (`Options`); both are checked when made."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from lingua_scheduler import __version__, glossary
from lingua_scheduler.errors import ConfigError, InvalidInput
from lingua_scheduler.messages.codec import JSON_PROTOCOL, MSGPACK_PROTOCOL
from lingua_scheduler.messages.from_client import SessionInit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lingua_scheduler.dial import TokenSource

PLATFORM: Final = "python"
OPUS_FRAME_MS, OPUS_FRAME_BYTES = 20, 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a session behaves; times in seconds, as asyncio takes them."""

    # MessagePack, or JSON to read along.
    form: Literal["msgpack", "json"] = "msgpack"
    # A new session is opened when the old one cannot be resumed; else the iterator raises.
    reopen: bool = True
    # Audio kept until the server has it for good; `send` waits when it is full.
    replay_bytes: int = 8 << 20
    # Events that wait to be iterated; beyond either bound nothing more is read.
    events_max: int = 1024
    event_bytes_max: int = 16 << 20
    # A server that is silent for so long, pings included, is left.
    silence_s: float = 5.0
    # How long one try at one URL may take, upgrade and answer included.
    attempt_s: float = 2.0
    # How long opening is tried, also after a session was lost.
    open_s: float = 30.0
    # How long resuming is tried; None: as long as the server said it keeps the session.
    resume_s: float | None = None
    # Tell the server what was received: so many outcomes at the latest, or after so long.
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
        """Return the subprotocols to offer."""
        json_only = self.form == "json"
        return (JSON_PROTOCOL,) if json_only else (MSGPACK_PROTOCOL, JSON_PROTOCOL)


@dataclass(frozen=True, slots=True)
class Wish:
    """What is spoken and what is wanted."""

    source: str
    targets: tuple[str, ...]
    _: KW_ONLY
    audio_format: str = "pcm16"
    sample_rate: int = 16_000
    # A token, or what gives one each time it is needed, at once or when awaited.
    token: TokenSource = field(default=None, repr=False)
    # What is kept in translations, or called as it says: term -> language -> words, or nothing.
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
        """Return the message that opens the session, with the token to show now."""
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
        """Return how many outcomes each utterance has, outside of rooms."""
        if self.more.get("mode") == "two_way_auto":
            return 1
        return max(1, len(set(self.more.get("tgt_langs") or self.targets)))

    def duration_ms(self, size: int) -> int:
        """Return how long so many bytes of audio last."""
        if self.audio_format == "pcm16":
            return size * 500 // self.sample_rate
        return size // OPUS_FRAME_BYTES * OPUS_FRAME_MS
