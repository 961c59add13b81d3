"""What goes into the scripts and what comes back, typed.

Requests are Structs that are packed as they are; answers are read once here, so that no caller
meets raw replies. No logic: what an answer means for a job is decided in `jobs/`.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from lingua_scheduler.errors import InvalidDemand, InvalidNode
from lingua_scheduler.state.reply import Reply  # noqa: TC001 read by NamedTuple at run time

if TYPE_CHECKING:
    from lingua_scheduler.state.keys import Cell

UNSAFE_IN_REASON = re.compile(r"[^A-Za-z0-9_.:-]")
# Lua writes whole numbers in full up to 1e14; no conversation comes near this.
INDEX_MAX = 1 << 40
LANE = re.compile(r"[A-Za-z0-9~_-]{1,64}")


class JobSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the store must know of a job to place it, order it and move it."""

    session: str
    index: int
    lane: str
    demand: str
    turn: str = ""
    is_slice: bool = False
    closes_turn: bool = False
    preferred: str = ""
    unwanted_from: int = -1
    audio: bool = False
    # Which owner submits it: a former one's is refused. 0: nobody asks.
    fence: int = 0
    # What a later owner needs: the next free index, and up to where the speech is admitted.
    top: int = 0
    heard: int = -1
    heard_ms: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.index < INDEX_MAX:
            raise InvalidDemand("not an utterance index", self.index)
        if not LANE.fullmatch(self.lane):
            raise InvalidDemand("not a lane", self.lane)


class NodeAbout(msgspec.Struct, frozen=True, kw_only=True):
    """What a node says of itself besides its abilities."""

    instance: str
    max: int
    silence_ms: int
    acks: bool = False
    draining: bool = False
    info: str = ""
    # The same socket once more: a newer one of the node keeps its place.
    again: bool = False

    def __post_init__(self) -> None:
        if self.max < 1:
            raise InvalidNode("a node needs at least one slot", self.max)


class Beat(msgspec.Struct, frozen=True, kw_only=True):
    """One heartbeat, judged: was it good, is the machine over its thresholds, what runs there."""

    good: bool = True
    over: bool = False
    acks: bool = False
    running: int = 0
    jobs: list[str] | None = None


class Placement(NamedTuple):
    """A job's attempt on a node, to be pushed to it by the instance that has the node."""

    job: str
    attempt: int
    node: str
    cell: str
    instance: str
    context_reset: bool
    ends_at_ms: int
    # The job's cell; `cell` is the node's.
    home: str = ""


class Released(NamedTuple):
    """An outcome that entered the outbox."""

    seq: int
    kind: str
    utterance: int
    lane: str
    job: str
    attempt: int
    reason: str
    payload: bytes


class Lease(NamedTuple):
    """A slot held for an attempt. `home` is the job's cell when that is not the node's."""

    job: str
    attempt: int
    home: str

    @property
    def member(self) -> str:
        """Return how the lease is written in the node's set."""
        plain = f"{self.job}|{self.attempt}"
        return f"{plain}|{self.home}" if self.home else plain

    @classmethod
    def read(cls, raw: bytes) -> Lease:
        """Read a member of a node's lease set."""
        job, attempt, *home = raw.decode().split("|")
        return cls(job, int(attempt), home[0] if home else "")


class ForeignSlot(NamedTuple):
    """A slot in another cell that a settled or moved attempt has left behind."""

    cell: str
    node: str
    job: str
    attempt: int


class Effects(NamedTuple):
    """What an ended or moved job leaves to be done: deliver, give back, push."""

    epoch: str = ""
    owner: str = ""
    session: str = ""
    released: tuple[Released, ...] = ()
    freed: tuple[ForeignSlot, ...] = ()
    placed: tuple[Placement, ...] = ()


class Submitted(NamedTuple):
    """The answer to a submit or a place."""

    reply: Reply
    placement: Placement | None = None
    # Why it waits or was refused: the code nobody could take it with, and the label.
    code: Reply | None = None
    label: str = ""
    # `cell/node` of the turn's node when that is in another cell.
    affinity: str = ""
    # What a duplicate finds: state, attempt, node, outcome and seq of the first.
    state: str = ""
    attempt: int = 0
    node: str = ""
    outcome: str = ""
    seq: int = 0
    effects: Effects = Effects()


class WaitingJob(NamedTuple):
    """A job in the queue, as one that asks other cells for it needs it."""

    job: str
    attempt: int
    demand: str
    preferred: str = ""
    tried: str = ""
    # `cell/node` of its turn's node.
    affinity: str = ""


class Settled(NamedTuple):
    """The answer to a settle or a cancel."""

    reply: Reply
    effects: Effects = Effects()
    # The current attempt of a stale call, or the holder of a mismatched one, or the known outcome.
    current_attempt: int = 0
    holder: str = ""
    outcome: str = ""
    seq: int = 0


class Moved(NamedTuple):
    """The answer to a failover."""

    reply: Reply
    placement: Placement | None = None
    code: Reply | None = None
    label: str = ""
    effects: Effects = Effects()
    reason: str = ""
    left_node: str = ""
    # The attempt that was taken away or goes on; where a deferred slice is held, and until when.
    cell: str = ""
    attempt: int = 0
    ends_at_ms: int = 0
    # What one that waits again needs from a node.
    waiting: WaitingJob | None = None


class Reserved(NamedTuple):
    """The answer to a reservation in another cell."""

    reply: Reply
    node: str = ""
    boot: str = ""
    acks: bool = False
    instance: str = ""
    expires_at_ms: int = 0
    label: str = ""


class NodeReply(NamedTuple):
    """The answer to what happens to a node."""

    reply: Reply
    status: str = ""
    pool: str = ""
    lost: tuple[Lease, ...] = ()
    unknown: tuple[str, ...] = ()
    placed: tuple[Placement, ...] = ()
    # What a process that came back still has.
    held: tuple[Lease, ...] = ()


class Cancelled(NamedTuple):
    """A job that ended with its session, and who must be told to stop."""

    job: str
    attempt: int
    cell: str
    node: str


class Opening(NamedTuple):
    """How a session is opened: by whom before, and what a later owner must know."""

    # The owner's own number when it opens its session again; 0: a new session.
    fence: int = 0
    # Positions start over: the store went back behind what was delivered.
    restart: bool = False
    # token, about, heard, heard_ms, top
    fields: tuple[bytes | str | int, ...] = ()


class Claim(NamedTuple):
    """What a client that comes back says: its token's digest and its position."""

    token: str
    epoch: str
    last_seq: int


class Resumed(NamedTuple):
    """The answer to a client that came back, for the session's new owner."""

    reply: Reply
    epoch: str = ""
    fence: int = 0
    previous_owner: str = ""
    about: bytes = b""
    # The last chunk of admitted speech, -1 if none had a number, and where in the audio it ends.
    heard: int = -1
    heard_ms: int = 0
    next_index: int = 0
    last_seq: int = 0
    # Lane -> the next index it has not heard of.
    lanes: tuple[tuple[str, int], ...] = ()
    # Indices of outcomes still to come, one for each language.
    open: tuple[int, ...] = ()
    turns: tuple[str, ...] = ()


class Fetched(NamedTuple):
    """A job as its node's instance needs it."""

    reply: Reply
    spec: JobSpec | None = None
    body: bytes = b""
    audio: bytes = b""
    owner: str = ""


class OutboxPage(NamedTuple):
    """Outcomes after a position."""

    reply: Reply
    epoch: str = ""
    last_seq: int = 0
    entries: tuple[Released, ...] = ()
    # Up to where outcomes were forgotten, if the position asked for is outside of what is kept.
    trimmed: int = 0


class PoolRow(NamedTuple):
    """A pool as the fleet snapshot sees it."""

    pool: str
    descriptor: bytes
    members: int
    free: int


class NodeRow(NamedTuple):
    """A node as the fleet snapshot sees it."""

    node: str
    status: str
    draining: bool
    over: bool
    max: int
    extra: int
    pool: str
    boot: str
    acks: bool
    instance: str
    leased: int
    score: float
    beat_at_ms: int
    info: str


def request_scope(tenant: str, session: str) -> str:
    """Return within what a request id is unique: the tenant, or the session if there is none."""
    return f"tenant {tenant}" if tenant else f"session {session}"


def job_id_of(scope: str, request_id: str) -> str:
    """Return the one job id a request id has within its scope.

    The id follows from the request, so that the job's record is itself the binding: two racing
    submits meet at one key, with no lock and no second record to keep in step.
    """
    digest = hashlib.blake2b(f"{scope}\0{request_id}".encode(), digest_size=16)
    return f"job-{digest.hexdigest()}"


def reason_word(text: str) -> str:
    """Return a reason as one safe word for the head of an outbox entry."""
    return UNSAFE_IN_REASON.sub("_", text)[:64] or "-"


def read_entry(seq: int, raw: bytes) -> Released:
    """Read an outbox entry."""
    head, _, payload = raw.partition(b"\n")
    kind, index, lane, job, attempt, reason = head.decode().split(" ")
    return Released(seq, kind, int(index), lane, job, int(attempt), reason, payload)


def read_released(raw: list[Any]) -> tuple[Released, ...]:
    """Read the `seq, entry, ...` part of an answer."""
    return tuple(read_entry(raw[i], raw[i + 1]) for i in range(0, len(raw), 2))


def read_placement(raw: list[Any], home: Cell) -> Placement:
    """Read one placement of a cell's answer: a cell places only its own jobs."""
    job, attempt, node, cell, instance, moved, ends_at = raw
    return Placement(
        job.decode(), attempt, node.decode(), cell.decode(), instance.decode(), moved == 1, ends_at,
        home.name,
    )  # fmt: skip


def read_placements(raw: list[Any], home: Cell) -> tuple[Placement, ...]:
    """Read the placements of a cell's answer."""
    return tuple(read_placement(item, home) for item in raw) if raw else ()


def read_freed(raw: list[Any]) -> tuple[ForeignSlot, ...]:
    """Read the slots of other cells that must be given back."""
    if not raw:
        return ()
    return tuple(ForeignSlot(c.decode(), n.decode(), j.decode(), a) for c, n, j, a in raw)
