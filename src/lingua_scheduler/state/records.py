"""What goes into the scripts and what comes back, typed.

Requests are Structs that are packed as they are; answers are read once here, so that no caller
meets raw replies. No logic: what an answer means for a job is decided in `jobs/`.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, NamedTuple

import msgspec

from lingua_scheduler.errors import InvalidDemand, InvalidNode
from lingua_scheduler.state.reply import Reply  # noqa: TC001 read by NamedTuple at run time

UNSAFE_IN_REASON = re.compile(r"[^A-Za-z0-9_.:-]")
# Lua writes whole numbers in full up to 1e14; no conversation comes near this.
INDEX_MAX = 1 << 40
LANE = re.compile(r"[A-Za-z0-9~_-]{1,64}")
# Before the kind of an outcome that is for others than the speaker; before the id of one of which
# nothing but the kind and the reason is to be kept.
PASSED = "+"
UNKEPT = "!"
# The lane of the text as it was spoken, for listeners of the speaker's language.
AS_SPOKEN = "~"


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
    # What was said before it ends with this chunk, and is taken first: a client forgets all that
    # comes before what was taken. -1: nothing was, or nobody comes back for it.
    heard_after: int = -1
    # Who hears the outcome instead of the speaker, decided when the utterance was cut: of each
    # `cell/session`, with spaces between. Who reads it as it was spoken, and what these never
    # hear of.
    audience: str = ""
    readers: str = ""
    readers_from: int = -1
    # How much of the stream became jobs up to there: the rest was silence.
    speech: int = 0
    # The utterance's length and how many languages it goes into: its end is counted once.
    ms: int = 0
    lanes: int = 1
    # Only of a request that its client named: what it sounds like, and, in the record of its first
    # language, the others.
    sound: str = ""
    also: tuple[str, ...] = ()

    def is_place_of(self, other: JobSpec) -> bool:
        """Tell whether both are of the same utterance."""
        return self.session == other.session and self.index == other.index

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
    # Which of its resources are over which threshold; see `nodes/health.py`.
    pressure: str = ""
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
    # The node's pool; and why it was this node: `turn`, `preferred`, `pool` (of the narrowest that
    # serve it), `fallback` (of broader ones), or nothing where a node was free for who waited.
    pool: str = ""
    how: str = ""
    # What was looked at on the way, if the policy explains: `pool node score`.
    looked: tuple[str, ...] = ()


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
    # Others have heard it; the speaker is told only that.
    is_passed: bool = False


class Listener(NamedTuple):
    """Where an outcome is in a listener's own outbox."""

    session: str
    owner: str
    epoch: str
    seq: int


class Heard(NamedTuple):
    """An outcome that is in the outboxes of listeners of one cell."""

    # What it is kept under, for all of them; see `speaker_of`.
    id: str
    kind: str
    # `index lane job attempt reason`
    head: str
    cell: str
    listeners: tuple[Listener, ...]
    # Whoever brought it may have it at hand.
    payload: bytes = b""


class Ahead(NamedTuple):
    """An outcome that listeners in other cells have not got yet."""

    id: str
    kind: str
    head: str
    age_ms: int
    payload: bytes
    text: bytes
    # `cell/session` of each.
    listeners: tuple[str, ...]


class Relayed(NamedTuple):
    """What one step brought to a speaker's listeners."""

    effects: Effects
    # What is for other cells.
    ahead: tuple[Ahead, ...]
    # More listeners of the speaker's own cell only wait for their turn.
    is_cut: bool


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
    # What listeners of the session's room got, and whether some are still to be reached.
    heard: tuple[Heard, ...] = ()
    is_relaying: bool = False
    # The session's cell.
    home: str = ""


class Submitted(NamedTuple):
    """The answer to a submit or a place."""

    reply: Reply
    placement: Placement | None = None
    # Why it waits or was refused: the code nobody could take it with, and the label.
    code: Reply | None = None
    label: str = ""
    # `cell/node,...` of the turn's nodes, in the order they are asked.
    affinity: str = ""
    # A node to stay away from while another can take it.
    avoid: str = ""
    # What a duplicate finds: state, attempt, node, outcome and seq of the first.
    state: str = ""
    attempt: int = 0
    node: str = ""
    outcome: str = ""
    seq: int = 0
    effects: Effects = Effects()
    # What was looked at in vain, if the policy explains.
    looked: tuple[str, ...] = ()
    # The spec of the job that is there already.
    known: JobSpec | None = None


class WaitingJob(NamedTuple):
    """A job in the queue, as one that asks other cells for it needs it."""

    job: str
    attempt: int
    demand: str
    preferred: str = ""
    tried: str = ""
    # `cell/node,...` of its turn's nodes, in the order they are asked.
    affinity: str = ""
    # A node to stay away from while another can take it.
    avoid: str = ""


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
    draining: bool = False


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
    # token, about, heard, heard_ms, top, speech, passed
    fields: tuple[bytes | str | int, ...] = ()
    # What became of its speech so far, as the owner knows it.
    ended: str = ""


class Speech(NamedTuple):
    """What became of a session's speech as far as the store knows, in ms."""

    delivered: int = 0
    silent: int = 0
    skipped: int = 0
    failed: int = 0
    # Utterances without a job, because who listened needed none, and those of them in the stream.
    passed: int = 0
    passed_in_stream: int = 0
    # The stream that became jobs, and where the last of these ends.
    in_stream: int = 0
    heard_ms: int = 0
    # Silence in the stream as its last owner said; -1: it follows from where the client stands.
    silence: int = -1

    def silence_at(self, position_ms: int) -> int:
        """Return how much of the stream up to a position became no utterance."""
        if self.silence >= 0:
            return self.silence
        return max(0, position_ms - self.in_stream - self.passed_in_stream)

    @classmethod
    def read(cls, raw: list[Any]) -> Speech:
        """Read what `includes/speech.lua` returns."""
        ended, passed, *stream = raw
        return cls._make((*map(int, ended.split()), *map(int, passed.split()), *stream))


class Closed(NamedTuple):
    """The answer to the end of a session."""

    settled: Settled
    cancelled: tuple[Cancelled, ...] = ()
    speech: Speech = Speech()


class Unsettled(NamedTuple):
    """An utterance that has not ended in all its languages."""

    utterance: int
    ms: int
    lanes: int
    # The best end so far, as its place among `delivered silent skipped failed` from 1.
    best: int
    ended: tuple[str, ...]


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
    speech: Speech = Speech()
    unsettled: tuple[Unsettled, ...] = ()


class Found(NamedTuple):
    """The job of a request that its client named."""

    reply: Reply
    state: str = ""
    # Empty while it lives.
    outcome: str = ""
    attempt: int = 0
    seq: int = 0
    reason: str = "-"
    spec: JobSpec | None = None
    answer: bytes = b""
    job: str = ""
    # Where the asking session has had the answer of another's job: index, seq (0: not yet).
    told: tuple[int, ...] = ()

    def place_in(self, session: str) -> tuple[int, int] | None:
        """Return which index it has in a session, and the position of its outcome (0: none)."""
        if self.told:
            return self.told[0], self.told[1]
        if self.spec is None or self.spec.session != session:
            return None
        return self.spec.index, self.seq if self.state == "RELEASED" else 0


class Answer(NamedTuple):
    """What is put where no job is: that it was refused, or what another job has answered."""

    kind: str = "missing"
    job: str = "-"
    attempt: int = 0
    reason: str = "refused"
    payload: bytes = b""
    # Of the utterance: its length and its languages; 0: it is in no account.
    ms: int = 0
    lanes: int = 1
    # Who is told in place of the speaker, as `lane_fill` takes it.
    others: bytes = b""
    # Of the last language of a piece of the stream: what a later owner goes on from, likewise.
    stream: bytes = b""


REFUSED = Answer()


class Fetched(NamedTuple):
    """A job as its node's instance needs it."""

    reply: Reply
    spec: JobSpec | None = None
    body: bytes = b""
    audio: bytes = b""
    owner: str = ""
    # How much of the attempt's time is left.
    left_ms: int = 0


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
    offline: int = 0


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
    beat_age_ms: int
    info: str
    # An operator has stopped it, and only an operator lets work flow again.
    held: bool = False
    # What makes it busier than allowed.
    pressure: str = ""


def request_scope(tenant: str, session: str) -> str:
    """Return within what a request id is unique: the tenant, or the session if there is none."""
    return f"tenant {tenant}" if tenant else f"session {session}"


def answered_by(job: str) -> str:
    """Return how an outcome names a job that is not its own: one whose answer it repeats."""
    return f"={job}"


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
    is_passed = kind[0] == PASSED
    return Released(
        seq, kind[1:] if is_passed else kind, int(index), lane, job, int(attempt), reason, payload,
        is_passed,
    )  # fmt: skip


def speaker_of(heard_id: str) -> str:
    """Return who said what is kept under an id."""
    return heard_id.lstrip(UNKEPT).partition("|")[0]
