"""The settings of a node, as a user writes them; each is checked when the node is created."""

from __future__ import annotations

import logging
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Final, get_args
from uuid import uuid4

from lingua_node.addresses import addresses
from lingua_node.machine import default_node_id
from lingua_wire.codec import JSON_PROTOCOL, MSGPACK_PROTOCOL
from lingua_wire.errors import ConfigError
from lingua_wire.shared import FeatureFlags, Gpu, InstalledModel, InstalledService, ServiceType

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Sequence

    from lingua_wire.token_source import TokenSource

    # Receives what happens to the connection, as a word and a sentence.
    Watch = Callable[[str, str], None]

DEFAULT_URL: Final = "ws://127.0.0.1:5010/ws/node"
MAX_JOBS_LIMIT: Final = 1024
MAX_STREAMS_LIMIT: Final = 1024

_logger = logging.getLogger("lingua_node")


def log_state(word: str, detail: str) -> None:
    """Log what happens to a connection."""
    level = logging.WARNING if word in {"lost", "refused"} else logging.INFO
    _logger.log(level, "%s: %s", word, detail)


@dataclass(eq=False)
class NodeSettings:
    """How a node connects and what it offers. A node without languages takes any."""

    # The scheduler's address, or one per instance: the next is tried when one is lost.
    url: str | Sequence[str] = DEFAULT_URL
    _: KW_ONLY
    # The same after restarts, and different from any other node's (default: from the host's name).
    node_id: str = ""
    # Directions it translates, as "en>es". If empty: asr_languages x target_languages.
    pairs: Sequence[str] = ()
    asr_languages: Sequence[str] = ()
    target_languages: Sequence[str] = ()
    tts_languages: Sequence[str] = ()
    # What it can do: asr, nmt, tts, tone, semantic and others, by name or in detail; and feature
    # names of the protocol.
    services: Sequence[str | InstalledService] = ("asr", "nmt", "tts")
    features: Sequence[str] = ()
    models: Sequence[InstalledModel] = ()
    gpus: Sequence[Gpu] = ()
    # Jobs at the same time; more are refused.
    max_jobs: int = 4
    # Streams at the same time, if there is a handler for them; 0: none.
    max_streams: int = 4
    accept_public_jobs: bool = True
    # A node token, or a function, plain or async, that returns one each time it is needed.
    token: TokenSource = field(default=None, repr=False)
    # Words by which operators name groups of nodes, such as "eu" or "gpu-a".
    labels: Sequence[str] = ()
    # JSON instead of MessagePack, for human-readable messages.
    json_wire: bool = False
    # Report when a job has arrived and started; without this, only results are sent.
    acks: bool = True
    # Report how busy the machine is: the scheduler gives no new jobs to a machine that is too busy.
    reports_usage: bool = True
    # False for a node whose `max_jobs` was measured: its own jobs keep the CPU busy.
    reports_cpu: bool = True
    # The heartbeat interval, if the scheduler does not set one.
    heartbeat_ms: int = 2000
    # How long jobs may continue after `drain`, and how long the scheduler may send nothing.
    drain_s: float = 30.0
    silence_s: float = 4.0
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    # Called with ("connecting" | "registered" | "lost" | "refused" | "draining", detail).
    watch: Watch = log_state
    # Identifies this process of the node.
    boot_id: str = field(default_factory=lambda: uuid4().hex)

    def __post_init__(self) -> None:
        self.node_id = self.node_id or default_node_id()
        urls = addresses(self.url)
        if not urls or not all(url.startswith(("ws://", "wss://")) for url in urls):
            raise ConfigError("url", "must begin with ws:// or wss://, each of them")
        if not 1 <= self.max_jobs <= MAX_JOBS_LIMIT:
            raise ConfigError("max_jobs", f"must be from 1 to {MAX_JOBS_LIMIT}")
        if not 0 <= self.max_streams <= MAX_STREAMS_LIMIT:
            raise ConfigError("max_streams", f"must be from 0 to {MAX_STREAMS_LIMIT}")
        for name in ("heartbeat_ms", "silence_s"):
            if getattr(self, name) <= 0:
                raise ConfigError(name, "must be more than 0")
        _check_names("services", self.service_types, get_args(ServiceType))
        _check_names("features", self.features, FeatureFlags.__struct_fields__)

    @property
    def offered(self) -> tuple[str, ...]:
        """Return the WebSocket subprotocols to offer."""
        return (JSON_PROTOCOL,) if self.json_wire else (MSGPACK_PROTOCOL, JSON_PROTOCOL)

    @property
    def service_types(self) -> tuple[str, ...]:
        """Return the types of its services, each once."""
        types = (one if isinstance(one, str) else one.type for one in self.services)
        return tuple(dict.fromkeys(types))


def _check_names(setting: str, names: Sequence[str], known: Sequence[str]) -> None:
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise ConfigError(setting, f"{', '.join(unknown)} is not one of {', '.join(known)}")
