"""The tree of settings: each has a type, bounds, a unit, a default and a description.

docs/config.md is generated from this file, so the descriptions are written for operators. Rules
about two settings are in `consistency`. Limits that no operator should tune are not settings: they
are constants beside the code that they bound.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from lingua_scheduler.config.described import HOUR_MS, MINUTE_MS
from lingua_scheduler.config.described import milliseconds as _ms
from lingua_scheduler.config.described import text as _text
from lingua_scheduler.config.described import whole as _int
from lingua_scheduler.config.room_settings import RoomSettings
from lingua_scheduler.secret import Secret, SecretUrl
from lingua_wire.errors import ConfigError
from lingua_wire.labels import LABEL_PATTERN

AUTO = "auto"
WORKERS_MAX = 64


_ID_PATTERN = r"\A[A-Za-z0-9_.:-]{1,128}\Z"
_ID_ALLOWED = "1 to 128 characters of A-Z a-z 0-9 _ . : -"
_Label = Annotated[
    str,
    _text(
        "A label of nodes.",
        allowed="1 to 63 characters of A-Z a-z 0-9 _ . -, a letter or digit first",
        pattern=LABEL_PATTERN,
    ),
]
_Id = Annotated[str, _text("An identifier.", allowed=_ID_ALLOWED, pattern=_ID_PATTERN)]


class ServerSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The port that clients, nodes and HTTP share, and the limits of one connection."""

    host: Annotated[
        str, _text("Address to listen on; other than loopback it needs keys, and TLS or a proxy.")
    ] = "127.0.0.1"
    port: Annotated[int, _int(0, 65535, "Port to listen on; 0: any free port.")] = 5010
    workers: Annotated[
        Annotated[int, Meta(ge=1, le=WORKERS_MAX)] | Literal["auto"],
        _text(
            "Processes behind the port, each one an instance; `auto`: one per usable core. 1: no "
            "supervisor.",
            allowed=f'"auto" or a whole number from 1 to {WORKERS_MAX}',
        ),
    ] = 1
    tls_cert_file: Annotated[str, _text("Certificate chain (PEM); empty: no TLS.")] = ""
    tls_key_file: Annotated[str, _text("The private key (PEM) of `tls_cert_file`.")] = ""
    behind_proxy: Annotated[
        bool,
        _text(
            "A proxy terminates TLS and names its clients (`X-Forwarded-For`): listening without "
            "TLS beyond loopback is allowed."
        ),
    ] = False
    origins: Annotated[
        tuple[str, ...],
        _text("Web origins whose pages may connect; empty: loopback and this host."),
    ] = ()
    connections_max: Annotated[
        int, _int(1, 1_000_000, "Simultaneous connections of all kinds.")
    ] = 20_000
    connections_per_ip_max: Annotated[
        int, _int(0, 1_000_000, "Simultaneous connections from one address; 0: no limit.")
    ] = 0
    handshake_ms: Annotated[
        int, _ms(100, MINUTE_MS, "How long a new connection may take to send its first message.")
    ] = 10_000
    message_bytes_max: Annotated[
        int, _int(1024, 1 << 26, "Largest message from a client.", "bytes")
    ] = 1 << 20
    node_message_bytes_max: Annotated[
        int, _int(1024, 1 << 28, "Largest message from a node.", "bytes")
    ] = 1 << 24
    unread_bytes_max: Annotated[
        int,
        _int(1024, 1 << 28, "Unread data after which a client is disconnected.", "bytes"),
    ] = 1 << 22
    node_unread_bytes_max: Annotated[
        int, _int(1024, 1 << 30, "Unread data after which a node is disconnected.", "bytes")
    ] = 1 << 24
    ping_ms: Annotated[int, _ms(100, MINUTE_MS, "How often a silent client is pinged.")] = 15_000
    dead_ms: Annotated[
        int,
        _ms(
            200,
            HOUR_MS,
            "How long a client may send nothing, not even a pong.",
        ),
    ] = 45_000
    node_ping_ms: Annotated[int, _ms(100, MINUTE_MS, "How often a silent node is pinged.")] = 2000
    node_dead_ms: Annotated[
        int,
        _ms(
            200,
            HOUR_MS,
            "How long a node may send nothing, not even a pong.",
        ),
    ] = 6000
    drain_ms: Annotated[
        int, _ms(0, HOUR_MS, "How long a shutdown by SIGTERM waits for work in progress.")
    ] = 20_000


class AuthSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Who may connect. Without keys there is no authentication, which only loopback allows."""

    client_keys: Annotated[
        tuple[Secret, ...],
        _text(
            "Keys of client tokens: the first one signs, all verify.",
            allowed="texts of at least 32 characters",
        ),
    ] = ()
    node_keys: Annotated[
        tuple[Secret, ...],
        _text(
            "Keys of node tokens: the first one signs, all verify.",
            allowed="texts of at least 32 characters",
        ),
    ] = ()


class SegmentationSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where a stream of speech is cut into utterances."""

    pause_ms: Annotated[
        int, _ms(0, HOUR_MS, "A pause without audio of this length ends an utterance; 0: never.")
    ] = 3000
    # The same default for the service, the command line, the demo and the benchmarks; all published
    # figures were measured with it. Listeners wait this long after every sentence. Twice as much
    # would split fewer sentences and make everybody wait longer.
    silence_ms: Annotated[
        int,
        _ms(
            100,
            HOUR_MS,
            "Silence of this length in a pcm16 stream ends an utterance. A lower value is faster "
            "and splits more sentences.",
        ),
    ] = 400
    voice_detector: Annotated[
        Literal["energy", "webrtc", "off"],
        _text("Detector of speech in pcm16; `webrtc` needs the extra `vad`."),
    ] = "energy"
    max_duration_ms: Annotated[
        int, _ms(0, HOUR_MS, "Longer speech is sliced while the turn continues; 0: never.")
    ] = 10_000
    max_bytes: Annotated[
        int, _int(1024, 1 << 26, "Audio beyond this size is sliced at once.", "bytes")
    ] = 500 * 1024
    slice_search_ms: Annotated[
        int,
        _ms(
            0,
            MINUTE_MS,
            "How far back a slice is searched for a quiet point to end at (pcm16); 0: no search.",
        ),
    ] = 3000
    hangover_auto_ms: Annotated[
        int, _ms(0, MINUTE_MS, "How long a slice still accepts audio after its maximum duration.")
    ] = 150
    hangover_manual_ms: Annotated[
        int, _ms(0, MINUTE_MS, "How long an utterance still accepts audio after its final chunk.")
    ] = 200
    padding_auto_ms: Annotated[
        int, _ms(0, MINUTE_MS, "Silence that a node appends to an automatic cut.")
    ] = 220
    padding_manual_ms: Annotated[
        int, _ms(0, MINUTE_MS, "Silence that a node appends to a manual cut.")
    ] = 280
    short_merge_ms: Annotated[
        int, _ms(0, MINUTE_MS, "A shorter utterance waits for more audio, once.")
    ] = 400
    silence_min_ms: Annotated[
        int,
        _ms(
            100,
            HOUR_MS,
            "Silence that ends an utterance whose text is a whole sentence, where a node listens "
            "while one speaks; never more than `silence_ms`.",
        ),
    ] = 300
    silence_max_ms: Annotated[
        int,
        _ms(
            100,
            HOUR_MS,
            "Silence that ends an utterance whose sentence is plainly not complete, where a node "
            "listens; never less than `silence_ms`.",
        ),
    ] = 900
    sentence_cuts: Annotated[
        bool, _text("Cut speech without a pause where a node hears that a sentence has ended.")
    ] = True
    sentence_min_ms: Annotated[int, _ms(500, HOUR_MS, "The shortest sentence that is cut so.")] = (
        2000
    )


class StreamSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Nodes that listen while one speaks: a head start, and words at once."""

    enabled: Annotated[bool, _text("Let nodes listen while one speaks, where both sides can.")] = (
        True
    )
    open_after_ms: Annotated[
        int, _ms(0, MINUTE_MS, "How much of an utterance must be spoken before a node listens.")
    ] = 300
    chunk_ms: Annotated[
        int, _ms(20, 5000, "The least audio that is sent to a listening node at once.")
    ] = 200
    remote_chunk_ms: Annotated[
        int, _ms(20, 5000, "The same to a node on another instance, by way of the store.")
    ] = 400
    partial_every_ms: Annotated[
        int, _ms(0, MINUTE_MS, "The shortest time between two partial results of an utterance.")
    ] = 150


class RedisSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The external server of `cross_instance` mode; `local` mode starts its own."""

    mode: Annotated[
        Literal["single", "cluster"],
        _text("One server (`url`) or a cluster (`urls`)."),
    ] = "single"
    url: Annotated[
        SecretUrl,
        _text("URL of the server, with the ACL user and password; `rediss://` enables TLS."),
    ] = SecretUrl("")
    urls: Annotated[
        tuple[SecretUrl, ...],
        _text("URLs of some nodes of the cluster; the others are discovered."),
    ] = ()
    key_prefix: Annotated[
        str,
        _text(
            "First part of every key, so that several deployments can share one server.",
            allowed="1 to 32 characters of A-Z a-z 0-9 _ . -",
            pattern=r"\A[A-Za-z0-9_.-]{1,32}\Z",
        ),
    ] = "lingua"
    call_timeout_ms: Annotated[
        int,
        _ms(10, MINUTE_MS, "How long one call may take before the store counts as unavailable."),
    ] = 1000
    connect_timeout_ms: Annotated[
        int, _ms(10, MINUTE_MS, "How long opening a connection may take, TLS and login included.")
    ] = 1000
    tls_ca_file: Annotated[
        str, _text("CA certificates (PEM) that verify the server; empty: those of the system.")
    ] = ""
    tls_cert_file: Annotated[
        str, _text("Client certificate (PEM), if the server requires one.")
    ] = ""
    tls_key_file: Annotated[str, _text("The private key (PEM) of `tls_cert_file`.")] = ""


class JobSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The lifecycle of a job: how long each step may take and how many jobs may wait."""

    pending_ms: Annotated[
        int, _ms(100, HOUR_MS, "How long a job may wait for a free node before it expires.")
    ] = 10_000
    attempt_ms: Annotated[
        int, _ms(100, HOUR_MS, "How long a node may work on a job before another node gets it.")
    ] = 30_000
    ack_ms: Annotated[
        int,
        _ms(50, MINUTE_MS, "How long a node that acknowledges jobs may take to acknowledge one."),
    ] = 2000
    attempts_max: Annotated[
        int,
        _int(1, 10, "How many attempts a job has before it fails; refusals by nodes do not count."),
    ] = 3
    binding_ms: Annotated[
        int, _ms(1000, HOUR_MS, "How long a repeated request id is answered with the same job.")
    ] = 90_000
    pending_jobs_max: Annotated[
        int, _int(1, 1_000_000, "Jobs that may wait in one cell; further ones are refused.")
    ] = 1000
    in_flight_max: Annotated[
        int, _int(1, 1000, "Utterances of one session and language that may be unsettled at once.")
    ] = 8
    outbox_max: Annotated[int, _int(1, 1_000_000, "Undelivered outcomes kept for one session.")] = (
        1000
    )
    gap_ms: Annotated[
        int, _ms(100, HOUR_MS, "How long later outcomes wait for a missing earlier one.")
    ] = 10_000
    reserve_ms: Annotated[
        int,
        _ms(50, MINUTE_MS, "How long a slot in another cell is held until its job is committed."),
    ] = 2000
    lease_grace_ms: Annotated[
        int, _ms(0, MINUTE_MS, "How long after its attempt a slot stays taken if it is not freed.")
    ] = 5000
    retry_after_ms: Annotated[
        int, _ms(50, MINUTE_MS, "The wait that a refused client is asked for before it retries.")
    ] = 1000
    sweep_interval_ms: Annotated[
        int, _ms(20, MINUTE_MS, "How often each instance checks for expired timers.")
    ] = 500
    refuse_unserved_pairs: Annotated[
        bool,
        _text("Refuse a language pair that no known node serves, instead of waiting for a node."),
    ] = False
    spread: Annotated[
        bool,
        _text(
            "Avoid the node that a session used last, so that no node receives all of its speech."
        ),
    ] = False
    spread_ms: Annotated[int, _ms(1000, HOUR_MS, "How long `spread` avoids the last node.")] = (
        30_000
    )
    sticky_pools: Annotated[
        bool,
        _text(
            "Among equally broad pools prefer the one that last served a session and its "
            "languages, unless another one is less loaded by a quarter of its slots."
        ),
    ] = True
    retain_audio: Annotated[
        bool,
        _text(
            "In `cross_instance` mode, and with several workers: keep audio in the store until its "
            "outcome."
        ),
    ] = True


class NodeSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """When a node is considered able to work."""

    max_jobs: Annotated[
        int, _int(1, 1024, "Simultaneous jobs on a node that declares no number of its own.")
    ] = 4
    good_beats: Annotated[int, _int(1, 100, "Good heartbeats before a new node gets work.")] = 1
    bad_beats: Annotated[
        int, _int(1, 100, "Bad heartbeats within the window after which a node gets no work.")
    ] = 3
    bad_beats_window: Annotated[
        int, _int(1, 100, "Number of recent heartbeats in which `bad_beats` are counted.")
    ] = 5
    warmup_ms: Annotated[
        int, _ms(1000, HOUR_MS, "How long a new node may take to become ready.")
    ] = 60_000
    silence_ms: Annotated[
        int, _ms(500, HOUR_MS, "How long a node may send no heartbeat before it counts as offline.")
    ] = 45_000
    stale_ms: Annotated[
        int,
        _ms(
            1000,
            24 * HOUR_MS,
            "How long after its last heartbeat a node is removed from the store.",
        ),
    ] = 600_000
    resource_percent_max: Annotated[
        int,
        _int(1, 100, "CPU, GPU or memory use above which a node gets no new job.", "%"),
    ] = 85
    require_gpu: Annotated[bool, _text("Refuse nodes that report no GPU.")] = False


class ModelSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What happens when a node reports that a model is not available."""

    unavailable_ms: Annotated[
        int, _ms(1000, HOUR_MS, "How long the service of that node is excluded from placement.")
    ] = 60_000
    debounce_ms: Annotated[
        int, _ms(1000, MINUTE_MS, "How long repeated reports of one service count as one.")
    ] = 5000
    rate_window_ms: Annotated[
        int, _ms(1000, 5 * MINUTE_MS, "The window over which `rate_max` is counted.")
    ] = 10_000
    rate_max: Annotated[
        int, _int(1, 10_000, "Reports accepted from one node per window; further ones are dropped.")
    ] = 30


class SessionSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How sessions survive the loss of their socket or their instance."""

    lease_ms: Annotated[
        int,
        _ms(
            1000,
            HOUR_MS,
            "How long a session stays with a silent instance before another one may adopt it.",
        ),
    ] = 60_000
    resume_ms: Annotated[
        int,
        _ms(1000, 24 * HOUR_MS, "How long a client that lost its socket may resume its session."),
    ] = 120_000
    backlog_max: Annotated[
        int, _int(1, 1000, "Utterances of a session that may wait for earlier ones.")
    ] = 16
    utterances_per_s_max: Annotated[
        int, _int(1, 1_000_000, "Whole utterances a session may send per second.")
    ] = 1000


class InstanceSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How instances that share a store monitor and reach each other."""

    silence_ms: Annotated[
        int,
        _ms(500, MINUTE_MS, "How long an instance may be silent before others take over its work."),
    ] = 4000
    deliveries_max: Annotated[
        int,
        _int(
            1,
            100,
            "How often a message between instances is tried before it becomes a dead letter.",
        ),
    ] = 5
    letters_max: Annotated[
        int,
        _int(
            100,
            10_000_000,
            "Approximate number of messages that the inbox of one instance may hold.",
        ),
    ] = 10_000
    url: Annotated[str, _text("Address of this instance; only shown to operators.")] = ""


class OpenAiSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Recordings received over HTTP from clients of the OpenAI API."""

    upload_bytes_max: Annotated[
        int, _int(1024, 1 << 30, "The largest recording that is accepted.", "bytes")
    ] = 25 * 1024 * 1024
    max_duration_ms: Annotated[
        int, _ms(1000, 24 * HOUR_MS, "The longest recording that is accepted.")
    ] = 4 * HOUR_MS
    requests_max: Annotated[
        int,
        _int(
            1,
            1000,
            "Recordings in progress on one instance; further requests are asked to retry later.",
        ),
    ] = 16
    answer_ms: Annotated[
        int,
        _ms(
            100, HOUR_MS, "How long an answer may take, in addition to the share of its recording."
        ),
    ] = MINUTE_MS
    answer_factor: Annotated[
        int, _int(0, 100, "The share of a recording: this many times its length.")
    ] = 10


class LogSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the log contains about jobs: ids, times and reasons, never what was said."""

    jobs: Annotated[
        Literal["failures", "all"],
        _text(
            "`failures`: a line for each job that is refused, moved or ends without a result; "
            "`all`: a line for every step of every job, with the nodes each placement considered."
        ),
    ] = "failures"
    node_errors: Annotated[
        Literal["codes", "words"],
        _text(
            "`codes`: only the code of a node's error; `words`: also the beginning of its message, "
            "which may quote what was said."
        ),
    ] = "codes"


class Tenant(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A tenant with its own placement or with a glossary."""

    id: Annotated[
        str, _text("The tenant, as named in its tokens.", allowed=_ID_ALLOWED, pattern=_ID_PATTERN)
    ]
    labels: Annotated[
        tuple[_Label, ...],
        _text(
            "Its jobs go only to nodes that have all of these labels; empty: to any suitable node."
        ),
    ] = ()
    pools: Annotated[
        tuple[_Id, ...], _text("The old name of `labels`; its values are added to them.")
    ] = ()
    cells: Annotated[int, _int(1, 1024, "Number of cells over which its sessions are spread.")] = 1
    glossary_file: Annotated[
        str,
        _text(
            'Its glossary (TOML: `term = { es = "..." }`): terms that translations keep or render '
            "in the given way; read at the start. Empty: no glossary."
        ),
    ] = ""

    @property
    def pinned(self) -> tuple[str, ...]:
        """Return the labels a node must have for this tenant's jobs."""
        return tuple(sorted({*self.labels, *self.pools}))


def _home_data_dir() -> Path:
    try:
        return Path.home() / ".local" / "share" / "lingua"
    except RuntimeError:
        problem = "is needed: this user has no home directory to put it in"
        raise ConfigError("data_dir", problem) from None


class Settings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The instance as a whole."""

    deployment_mode: Annotated[
        Literal["local", "cross_instance"],
        _text("`local` starts a private server; `cross_instance` shares the one in `[redis]`."),
    ] = "local"
    data_dir: Annotated[
        Path,
        Meta(
            description="Where `local` mode keeps its server's socket and files.",
            extra={"default": "$XDG_DATA_HOME/lingua, else ~/.local/share/lingua"},
        ),
    ] = msgspec.field(default_factory=_home_data_dir)
    instance_id: Annotated[
        str,
        _text(
            "Name of this process among all instances; `auto` makes a name of host and pid.",
            allowed=_ID_ALLOWED,
            pattern=_ID_PATTERN,
        ),
    ] = AUTO
    cells: Annotated[
        int,
        _int(
            1,
            1024,
            "Number of placement cells: about four per cluster master, equal on all instances.",
        ),
    ] = 1
    server: ServerSettings = ServerSettings()
    auth: AuthSettings = AuthSettings()
    redis: RedisSettings = RedisSettings()
    jobs: JobSettings = JobSettings()
    nodes: NodeSettings = NodeSettings()
    models: ModelSettings = ModelSettings()
    sessions: SessionSettings = SessionSettings()
    instances: InstanceSettings = InstanceSettings()
    segmentation: SegmentationSettings = SegmentationSettings()
    streams: StreamSettings = StreamSettings()
    rooms: RoomSettings = RoomSettings()
    openai: OpenAiSettings = OpenAiSettings()
    log: LogSettings = LogSettings()
    tenants: Annotated[
        tuple[Tenant, ...], _text("Tenants with their own placement or with a glossary.")
    ] = ()
