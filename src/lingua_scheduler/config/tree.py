"""The tree of settings: every one with its type, bound, unit, default and one sentence.

docs/config.md is generated from this file, so the sentence is written for an operator. Rules that
join two settings are in `consistency`. Limits that no operator should tune are not here at all:
they are constants beside the code they bound.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from lingua_scheduler.errors import ConfigError
from lingua_scheduler.labels import LABEL_PATTERN
from lingua_scheduler.secret import Secret, SecretUrl

AUTO = "auto"
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS


def _int(low: int, high: int, text: str, unit: str = "") -> Meta:
    return Meta(ge=low, le=high, description=text, extra={"unit": unit})


def _ms(low: int, high: int, text: str) -> Meta:
    return _int(low, high, text, "ms")


def _text(text: str, *, allowed: str = "", pattern: str | None = None) -> Meta:
    return Meta(pattern=pattern, description=text, extra={"allowed": allowed})


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


class Server(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The port that clients, nodes and HTTP share, and what one connection may cost."""

    host: Annotated[
        str, _text("Address to listen on; anything but loopback needs keys and TLS or a proxy.")
    ] = "127.0.0.1"
    port: Annotated[int, _int(0, 65535, "Port to listen on; 0 takes a free one.")] = 5010
    tls_cert_file: Annotated[str, _text("Certificate chain (PEM); empty: no TLS here.")] = ""
    tls_key_file: Annotated[str, _text("The private key (PEM) of `tls_cert_file`.")] = ""
    behind_proxy: Annotated[
        bool, _text("A proxy in front ends TLS: listening beyond loopback without it is meant.")
    ] = False
    origins: Annotated[
        tuple[str, ...],
        _text("Web origins whose pages may connect; empty: loopback and this host itself."),
    ] = ()
    connections_max: Annotated[int, _int(1, 1_000_000, "Connections at once, all kinds.")] = 20_000
    connections_per_ip_max: Annotated[
        int, _int(0, 1_000_000, "Connections at once from one address; 0: no bound.")
    ] = 0
    handshake_ms: Annotated[
        int, _ms(100, MINUTE_MS, "How long a connection may take to its first message.")
    ] = 10_000
    message_bytes_max: Annotated[
        int, _int(1024, 1 << 26, "Largest message of a client.", "bytes")
    ] = 1 << 20
    node_message_bytes_max: Annotated[
        int, _int(1024, 1 << 28, "Largest message of a node.", "bytes")
    ] = 1 << 24
    unread_bytes_max: Annotated[
        int,
        _int(1024, 1 << 28, "What a client may leave unread before it is dropped.", "bytes"),
    ] = 1 << 22
    node_unread_bytes_max: Annotated[
        int, _int(1024, 1 << 30, "What a node may leave unread before it is dropped.", "bytes")
    ] = 1 << 24
    ping_ms: Annotated[int, _ms(100, MINUTE_MS, "How often a silent client is pinged.")] = 15_000
    dead_ms: Annotated[
        int, _ms(200, HOUR_MS, "How long a client may be silent, pongs included.")
    ] = 45_000
    node_ping_ms: Annotated[int, _ms(100, MINUTE_MS, "How often a silent node is pinged.")] = 2000
    node_dead_ms: Annotated[
        int, _ms(200, HOUR_MS, "How long a node may be silent, pongs included.")
    ] = 6000
    drain_ms: Annotated[int, _ms(0, HOUR_MS, "How long SIGTERM waits for what is under way.")] = (
        20_000
    )


class Auth(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Who may connect. Without keys nobody is asked, which only loopback allows."""

    client_keys: Annotated[
        tuple[Secret, ...],
        _text(
            "Keys of client tokens: the first signs, all are accepted.",
            allowed="texts of at least 32 characters",
        ),
    ] = ()
    node_keys: Annotated[
        tuple[Secret, ...],
        _text(
            "Keys of node tokens: the first signs, all are accepted.",
            allowed="texts of at least 32 characters",
        ),
    ] = ()


class Segmentation(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where a stream of speech is cut into utterances."""

    pause_ms: Annotated[
        int, _ms(0, HOUR_MS, "A pause without audio this long ends an utterance; 0: never.")
    ] = 3000
    # The one default of the service, the command line, the demo and the benchmarks. Who listens to
    # an interpreter waits for it after every sentence, and it is what all published figures were
    # measured with; twice as much cuts fewer sentences in two and makes everybody wait longer.
    silence_ms: Annotated[
        int,
        _ms(
            100,
            HOUR_MS,
            "Silence in a pcm16 stream this long ends an utterance. Less is quicker and cuts more "
            "sentences in two.",
        ),
    ] = 400
    voice_detector: Annotated[
        Literal["energy", "webrtc", "off"],
        _text("What tells speech from silence in pcm16; `webrtc` needs the extra `vad`."),
    ] = "energy"
    max_duration_ms: Annotated[
        int, _ms(0, HOUR_MS, "Longer speech is sliced, the turn goes on; 0: never.")
    ] = 10_000
    max_bytes: Annotated[
        int, _int(1024, 1 << 26, "Audio beyond this is sliced at once.", "bytes")
    ] = 500 * 1024
    slice_search_ms: Annotated[
        int,
        _ms(0, MINUTE_MS, "How far back a slice looks for a quiet place to end (pcm16); 0: not."),
    ] = 3000
    hangover_auto_ms: Annotated[
        int, _ms(0, MINUTE_MS, "How long a slice still takes audio after its time is up.")
    ] = 150
    hangover_manual_ms: Annotated[
        int, _ms(0, MINUTE_MS, "How long an utterance still takes audio after its final chunk.")
    ] = 200
    padding_auto_ms: Annotated[
        int, _ms(0, MINUTE_MS, "Silence a node is told to append to an automatic cut.")
    ] = 220
    padding_manual_ms: Annotated[
        int, _ms(0, MINUTE_MS, "Silence a node is told to append to a manual cut.")
    ] = 280
    short_merge_ms: Annotated[
        int, _ms(0, MINUTE_MS, "A shorter utterance waits for more audio, once.")
    ] = 400


class Rooms(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Conversations of several people."""

    idle_ms: Annotated[int, _ms(1000, 24 * HOUR_MS, "How long a room lives without speech.")] = (
        30 * MINUTE_MS
    )
    members_max: Annotated[int, _int(2, 10_000, "People in one room.")] = 100
    kept_bytes_max: Annotated[
        int,
        _int(
            1 << 16, 1 << 30,
            "What is kept of one speaker's results for listeners who are behind or away; beyond it"
            " the oldest lose their sound and keep their text.",
            "bytes",
        ),
    ] = 16 << 20  # fmt: skip


class Redis(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The external server of `cross_instance` mode; `local` mode starts its own."""

    mode: Annotated[
        Literal["single", "cluster"],
        _text("One server (`url`) or a cluster (`urls`)."),
    ] = "single"
    url: Annotated[
        SecretUrl,
        _text("The server; ACL user and password go in the URL, `rediss://` turns TLS on."),
    ] = SecretUrl("")
    urls: Annotated[
        tuple[SecretUrl, ...],
        _text("Some nodes of the cluster; the others are found through them."),
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
        int, _ms(10, MINUTE_MS, "How long one call may take before the store counts as gone.")
    ] = 1000
    connect_timeout_ms: Annotated[
        int, _ms(10, MINUTE_MS, "How long opening a connection may take, TLS and login included.")
    ] = 1000
    tls_ca_file: Annotated[
        str, _text("Certificates (PEM) the server is checked against; empty: the system's.")
    ] = ""
    tls_cert_file: Annotated[
        str, _text("Our own certificate (PEM), if the server asks clients for one.")
    ] = ""
    tls_key_file: Annotated[str, _text("The private key (PEM) of `tls_cert_file`.")] = ""


class Jobs(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The life of a job: how long each step may take and how much may wait."""

    pending_ms: Annotated[
        int, _ms(100, HOUR_MS, "How long a job may wait for a free node before it expires.")
    ] = 10_000
    attempt_ms: Annotated[
        int, _ms(100, HOUR_MS, "How long a node may work on a job before another one gets it.")
    ] = 30_000
    ack_ms: Annotated[
        int, _ms(50, MINUTE_MS, "How long a node that acknowledges jobs may stay silent on one.")
    ] = 2000
    attempts_max: Annotated[
        int, _int(1, 10, "How many nodes may try one job before it fails; refusals do not count.")
    ] = 3
    binding_ms: Annotated[
        int, _ms(1000, HOUR_MS, "How long a repeated request id is answered with the same job.")
    ] = 90_000
    pending_jobs_max: Annotated[
        int, _int(1, 1_000_000, "Jobs that may wait in one cell; beyond it new ones are refused.")
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
        int, _ms(0, MINUTE_MS, "How much longer than its attempt a slot stays taken if not freed.")
    ] = 5000
    retry_after_ms: Annotated[
        int, _ms(50, MINUTE_MS, "What a refused client is told to wait before it tries again.")
    ] = 1000
    sweep_interval_ms: Annotated[
        int, _ms(20, MINUTE_MS, "How often each instance looks for what has run out of time.")
    ] = 500
    refuse_unserved_pairs: Annotated[
        bool, _text("Refuse a language pair no known node serves, rather than wait for a node.")
    ] = False
    spread: Annotated[
        bool, _text("Avoid the node a session used last, so that no node hears all of it.")
    ] = False
    spread_ms: Annotated[
        int, _ms(1000, HOUR_MS, "How long `spread` avoids the node used last.")
    ] = 30_000
    sticky_pools: Annotated[
        bool,
        _text(
            "Of equally able pools prefer the one that served a session and its languages last, "
            "unless another is less loaded by a quarter of its slots."
        ),
    ] = True
    retain_audio: Annotated[
        bool, _text("In `cross_instance` mode: keep audio in the store until its outcome.")
    ] = True


class Nodes(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """When a node counts as able to work."""

    max_jobs: Annotated[
        int, _int(1, 1024, "Jobs at once on a node that does not say how many it takes.")
    ] = 4
    good_beats: Annotated[int, _int(1, 100, "Good heartbeats before a new node gets work.")] = 1
    bad_beats: Annotated[
        int, _int(1, 100, "Bad heartbeats within the window that take a node out of work.")
    ] = 3
    bad_beats_window: Annotated[
        int, _int(1, 100, "How many of the last heartbeats `bad_beats` is counted over.")
    ] = 5
    warmup_ms: Annotated[
        int, _ms(1000, HOUR_MS, "How long a new node may take to become ready.")
    ] = 60_000
    silence_ms: Annotated[
        int, _ms(500, HOUR_MS, "How long without a heartbeat until a node counts as offline.")
    ] = 45_000
    stale_ms: Annotated[
        int, _ms(1000, 24 * HOUR_MS, "How long after its last heartbeat a node is forgotten.")
    ] = 600_000
    resource_percent_max: Annotated[
        int,
        _int(1, 100, "CPU, GPU or memory use above which a node gets no new job.", "%"),
    ] = 85
    require_gpu: Annotated[bool, _text("Refuse nodes that report no GPU.")] = False


class Models(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What happens when a node says that a model is not available."""

    unavailable_ms: Annotated[
        int, _ms(1000, HOUR_MS, "How long that service of that node is left out of placement.")
    ] = 60_000
    debounce_ms: Annotated[
        int, _ms(1000, MINUTE_MS, "How long repeated reports of one service count as one.")
    ] = 5000
    rate_window_ms: Annotated[
        int, _ms(1000, 5 * MINUTE_MS, "The window over which `rate_max` is counted.")
    ] = 10_000
    rate_max: Annotated[
        int, _int(1, 10_000, "Reports taken from one node per window; further ones are dropped.")
    ] = 30


class Sessions(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How sessions outlive their socket and their instance."""

    lease_ms: Annotated[
        int, _ms(1000, HOUR_MS, "How long a silent instance keeps a session before it is adopted.")
    ] = 60_000
    resume_ms: Annotated[
        int, _ms(1000, 24 * HOUR_MS, "How long a client that lost its socket may come back.")
    ] = 120_000
    backlog_max: Annotated[
        int, _int(1, 1000, "Utterances of a session that may wait for those before them.")
    ] = 16
    utterances_per_s_max: Annotated[
        int, _int(1, 1_000_000, "Whole utterances a session may send per second.")
    ] = 1000


class Instances(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How instances that share a store know each other."""

    silence_ms: Annotated[
        int,
        _ms(500, MINUTE_MS, "How long an instance may be silent before others take over from it."),
    ] = 4000
    deliveries_max: Annotated[
        int, _int(1, 100, "How often a letter between instances is tried before it is put aside.")
    ] = 5
    letters_max: Annotated[
        int, _int(100, 10_000_000, "About how many letters one instance's inbox may hold.")
    ] = 10_000
    url: Annotated[str, _text("Where others may reach this instance; only shown to operators.")] = (
        ""
    )


class OpenAi(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Recordings that come by HTTP, as OpenAI's clients send them."""

    upload_bytes_max: Annotated[
        int, _int(1024, 1 << 30, "The largest recording that is taken.", "bytes")
    ] = 25 * 1024 * 1024
    max_duration_ms: Annotated[
        int, _ms(1000, 24 * HOUR_MS, "The longest recording that is taken.")
    ] = 4 * HOUR_MS
    requests_max: Annotated[
        int, _int(1, 1000, "Recordings under way on one instance; more are told to come back.")
    ] = 16
    answer_ms: Annotated[
        int, _ms(100, HOUR_MS, "How long an answer may take, beside its recording's share.")
    ] = MINUTE_MS
    answer_factor: Annotated[
        int, _int(0, 100, "And so many times the length of its recording.")
    ] = 10


class Log(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the log tells of jobs: ids, times and reasons, never what was said."""

    jobs: Annotated[
        Literal["failures", "all"],
        _text(
            "`failures`: a line for each job that is refused, moved or ends without a result; "
            "`all`: for every step of every job, with what each placement looked at."
        ),
    ] = "failures"
    node_errors: Annotated[
        Literal["codes", "words"],
        _text(
            "`codes`: of a node's error only its code; `words`: the beginning of its message too, "
            "which may quote what was said."
        ),
    ] = "codes"


class Tenant(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A tenant that needs other placement than the default, or has a glossary."""

    id: Annotated[
        str, _text("The tenant, as its tokens name it.", allowed=_ID_ALLOWED, pattern=_ID_PATTERN)
    ]
    labels: Annotated[
        tuple[_Label, ...],
        _text("Its jobs go only to nodes that have all of these labels; empty: to any that fits."),
    ] = ()
    pools: Annotated[
        tuple[_Id, ...], _text("The old name of `labels`: what is here counts as labels, too.")
    ] = ()
    cells: Annotated[int, _int(1, 1024, "Over how many cells its sessions are spread.")] = 1
    glossary_file: Annotated[
        str,
        _text(
            'Its glossary (TOML: `term = { es = "..." }`): what is kept in translations, or called '
            "as it says; read at the start. Empty: none."
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
            "Name of this process among all instances; `auto` makes one of host and pid.",
            allowed=_ID_ALLOWED,
            pattern=_ID_PATTERN,
        ),
    ] = AUTO
    cells: Annotated[
        int,
        _int(1, 1024, "Placement cells: about four per cluster master, the same everywhere."),
    ] = 1
    server: Server = Server()
    auth: Auth = Auth()
    redis: Redis = Redis()
    jobs: Jobs = Jobs()
    nodes: Nodes = Nodes()
    models: Models = Models()
    sessions: Sessions = Sessions()
    instances: Instances = Instances()
    segmentation: Segmentation = Segmentation()
    rooms: Rooms = Rooms()
    openai: OpenAi = OpenAi()
    log: Log = Log()
    tenants: Annotated[
        tuple[Tenant, ...], _text("Tenants that need other placement, or have a glossary.")
    ] = ()
