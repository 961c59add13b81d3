"""The typed arguments and answers of the scripts.

Arguments are Structs that are packed as they are; answers are read in `answers.py`, so that no
caller gets raw replies. Those of the usual path are Structs, too: one is made in a quarter of the
time that a NamedTuple takes, and the collector need not look at those without cycles (`gc=False`).
There is no logic here; `jobs/` decides what an answer means.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from lingua_scheduler.errors import InvalidDemand, InvalidNode
from lingua_scheduler.state.reply import Reply  # noqa: TC001 read by NamedTuple at run time

UNSAFE_IN_REASON = re.compile(r"[^A-Za-z0-9_.:-]")
# Lua writes whole numbers in full up to 1e14; no conversation has as many utterances.
INDEX_MAX = 1 << 40
LANE = re.compile(r"[A-Za-z0-9~_-]{1,64}")
# The prefix of the kind of an outcome that is for listeners and not for the speaker; the prefix of
# the id of an outcome of which only the kind and the reason are kept.
PASSED = "+"
UNKEPT = "!"
# The lane of the text as it was spoken, for listeners of the speaker's language.
AS_SPOKEN = "~"


@lru_cache(maxsize=1024)
def is_lane(lane: str) -> bool:
    """Tell whether a name can be that of a lane."""
    return LANE.fullmatch(lane) is not None


class JobSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The description of a job that the store needs to place, order and move it."""

    session: str
    index: int
    lane: str
    demand: str
    turn: str = ""
    is_slice: bool = False
    closes_turn: bool = False
    preferred: str = ""
    unwanted_from: int = -1
    # The audio is in the store until the outcome: once for all jobs of the utterance, or in the
    # record of its only one.
    audio: bool = False
    own_audio: bool = False
    # The fence of the owner that submits it: a former owner is refused. 0: no check.
    fence: int = 0
    # For a later owner: the next free index, and up to where the speech is admitted.
    top: int = 0
    heard: int = -1
    heard_ms: int = 0
    # The earlier speech ends with this chunk and must be admitted first, because a client forgets
    # everything before admitted speech. -1: there is none, or the client will not resume.
    heard_after: int = -1
    # The listeners that receive the outcome instead of the speaker, fixed when the utterance was
    # cut: `cell/session` of each, separated by spaces. `readers` receive the text as spoken;
    # the indices from `readers_from` up to this one are not for them.
    audience: str = ""
    readers: str = ""
    readers_from: int = -1
    # How much of the stream became jobs up to there; the rest was silence.
    speech: int = 0
    # The utterance's length and its number of languages: its end is counted once.
    ms: int = 0
    lanes: int = 1
    # Only for a named request: a digest of its sound, and in the record of its first language the
    # other languages.
    sound: str = ""
    also: tuple[str, ...] = ()
    # The stream that a node heard before, which ends with the submit, and `cell/node` of the node.
    stream: str = ""
    stream_node: str = ""

    def is_place_of(self, other: JobSpec) -> bool:
        """Tell whether both belong to the same utterance."""
        return self.session == other.session and self.index == other.index

    def __post_init__(self) -> None:
        if not 0 <= self.index < INDEX_MAX:
            raise InvalidDemand("not an utterance index", self.index)
        if not is_lane(self.lane):
            raise InvalidDemand("not a lane", self.lane)


class NodeAbout(msgspec.Struct, frozen=True, kw_only=True):
    """The declaration of a node, without its abilities."""

    instance: str
    max: int
    silence_ms: int
    # How many streams it takes, beside its slots.
    streams: int = 0
    acks: bool = False
    draining: bool = False
    info: str = ""
    # The same socket registers again: a newer socket of the node keeps its place.
    again: bool = False

    def __post_init__(self) -> None:
        if self.max < 1:
            raise InvalidNode("a node needs at least one slot", self.max)


class NodeBeat(msgspec.Struct, frozen=True, kw_only=True):
    """One evaluated heartbeat: good or bad, over the thresholds or not, and the running jobs."""

    good: bool = True
    over: bool = False
    # The resources that exceed their threshold; see `nodes/pressure.py`.
    pressure: str = ""
    acks: bool = False
    running: int = 0
    jobs: list[str] | None = None


class Placement(msgspec.Struct, frozen=True, gc=False):
    """A job's attempt on a node, which the node's instance must push to it."""

    job: str
    attempt: int
    node: str
    cell: str
    instance: str
    context_reset: bool
    ends_at_ms: int
    # The job's cell; `cell` is the node's.
    home: str = ""
    # The node's pool; and why this node was chosen: `turn`, `stream` (it heard the job's stream),
    # `preferred`, `pool` (one of the narrowest that serve the job), `fallback` (a broader one), or
    # '' if the job had waited.
    pool: str = ""
    how: str = ""
    # The considered nodes, if the policy asks for them: `pool node score`.
    looked: tuple[str, ...] = ()


class Released(msgspec.Struct, frozen=True, gc=False):
    """An outcome that entered the outbox."""

    seq: int
    kind: str
    utterance: int
    lane: str
    job: str
    attempt: int
    reason: str
    payload: bytes
    # It was for listeners; the speaker is only informed of that.
    is_passed: bool = False


class ListenerPosition(NamedTuple):
    """Where an outcome is in a listener's own outbox."""

    session: str
    owner: str
    epoch: str
    seq: int


class ListenerOutcome(NamedTuple):
    """An outcome that is in the outboxes of listeners of one cell."""

    # The id of the kept result, the same for all of them; see `speaker_of`.
    id: str
    kind: str
    # `index lane job attempt reason`
    head: str
    cell: str
    listeners: tuple[ListenerPosition, ...]
    # Empty if the result must be read from the store.
    payload: bytes = b""


class UndeliveredOutcome(NamedTuple):
    """An outcome that listeners in other cells have not received yet."""

    id: str
    kind: str
    head: str
    age_ms: int
    payload: bytes
    text: bytes
    # `cell/session` of each.
    listeners: tuple[str, ...]


class Relayed(NamedTuple):
    """The result of one step for a speaker's listeners."""

    effects: ScriptEffects
    # The outcomes for other cells.
    ahead: tuple[UndeliveredOutcome, ...]
    # More listeners of the speaker's own cell follow in the next step.
    is_cut: bool


class Lease(NamedTuple):
    """A slot held for an attempt. `home` is the job's cell when that is not the node's."""

    job: str
    attempt: int
    home: str

    @property
    def member(self) -> str:
        """Return the lease as a member of the node's set."""
        plain = f"{self.job}|{self.attempt}"
        return f"{plain}|{self.home}" if self.home else plain

    @classmethod
    def read(cls, raw: bytes) -> Lease:
        """Read a member of a node's lease set."""
        job, attempt, *home = raw.decode().split("|")
        return cls(job, int(attempt), home[0] if home else "")


class ForeignSlot(NamedTuple):
    """A slot in another cell that a settled or moved attempt no longer needs."""

    cell: str
    node: str
    job: str
    attempt: int


class ScriptEffects(msgspec.Struct, frozen=True, gc=False):
    """The consequences of an ended or moved job: deliveries, slots to give back, pushes."""

    epoch: str = ""
    owner: str = ""
    session: str = ""
    released: tuple[Released, ...] = ()
    freed: tuple[ForeignSlot, ...] = ()
    placed: tuple[Placement, ...] = ()
    # The outcomes for listeners in the room, and whether some listeners do not have them yet.
    heard: tuple[ListenerOutcome, ...] = ()
    is_relaying: bool = False
    # The session's cell.
    home: str = ""


class Submitted(msgspec.Struct, frozen=True, gc=False):
    """The answer to a submit or a place."""

    reply: Reply
    placement: Placement | None = None
    # Why it waits or was refused: the code and the label.
    code: Reply | None = None
    label: str = ""
    # `cell/node,...` of the turn's nodes, in the order of asking.
    affinity: str = ""
    # A node to avoid if another one can take it.
    avoid: str = ""
    # For a duplicate: state, attempt, node, outcome and seq of the first job.
    state: str = ""
    attempt: int = 0
    node: str = ""
    outcome: str = ""
    seq: int = 0
    effects: ScriptEffects = ScriptEffects()
    # The considered nodes, if the policy asks for them.
    looked: tuple[str, ...] = ()
    # The spec of the existing job.
    known: JobSpec | None = None


class WaitingJob(NamedTuple):
    """A job in the queue, for a search in other cells."""

    job: str
    attempt: int
    demand: str
    preferred: str = ""
    tried: str = ""
    # `cell/node,...` of its turn's nodes, in the order of asking.
    affinity: str = ""
    # A node to avoid if another one can take it.
    avoid: str = ""
    # `cell/node` of the one that heard its stream.
    stream_node: str = ""


class Settled(msgspec.Struct, frozen=True, gc=False):
    """The answer to a settle or a cancel."""

    reply: Reply
    effects: ScriptEffects = ScriptEffects()
    # For a stale call the current attempt, for a mismatch the holder, else the known outcome.
    current_attempt: int = 0
    holder: str = ""
    outcome: str = ""
    seq: int = 0


class MovedJob(msgspec.Struct, frozen=True):
    """The answer to a failover."""

    reply: Reply
    placement: Placement | None = None
    code: Reply | None = None
    label: str = ""
    effects: ScriptEffects = ScriptEffects()
    reason: str = ""
    left_node: str = ""
    # The attempt that was taken or continues; the cell of a deferred slice, and until when.
    cell: str = ""
    attempt: int = 0
    ends_at_ms: int = 0
    # The job as it waits again.
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
    """The answer of a script about a node."""

    reply: Reply
    status: str = ""
    pool: str = ""
    lost: tuple[Lease, ...] = ()
    unknown: tuple[str, ...] = ()
    placed: tuple[Placement, ...] = ()
    # The leases that a returning process still has.
    held: tuple[Lease, ...] = ()
    draining: bool = False


class Cancelled(NamedTuple):
    """A cancelled job, and the holder that must stop it."""

    job: str
    attempt: int
    cell: str
    node: str


class SessionOpening(NamedTuple):
    """How a session is opened: a former fence, and the data for a later owner."""

    # The owner's own fence if it opens its session again; 0: a new session.
    fence: int = 0
    # Positions start anew: the store lost outcomes that were delivered.
    restart: bool = False
    # token, about, heard, heard_ms, top, speech, passed
    fields: tuple[bytes | str | int, ...] = ()
    # The account of its speech so far, from the owner.
    ended: str = ""


class Speech(NamedTuple):
    """The account of a session's speech in the store, in ms."""

    delivered: int = 0
    silent: int = 0
    skipped: int = 0
    failed: int = 0
    # Utterances that needed no job for their listeners, and those of them in the stream.
    passed: int = 0
    passed_in_stream: int = 0
    # The part of the stream that became jobs, and the end of the last one.
    in_stream: int = 0
    heard_ms: int = 0
    # Silence in the stream from the last owner; -1: it follows from the client's position.
    silence: int = -1

    def silence_at(self, position_ms: int) -> int:
        """Return the silence in the stream up to a position."""
        if self.silence >= 0:
            return self.silence
        return max(0, position_ms - self.in_stream - self.passed_in_stream)

    @classmethod
    def read(cls, raw: list[Any]) -> Speech:
        """Read the answer of `includes/speech.lua`."""
        ended, passed, *stream = raw
        return cls._make((*map(int, ended.split()), *map(int, passed.split()), *stream))


class ClosedSession(NamedTuple):
    """The answer to the end of a session."""

    settled: Settled
    cancelled: tuple[Cancelled, ...] = ()
    speech: Speech = Speech()


class Unsettled(NamedTuple):
    """An utterance that has not ended in all its languages."""

    utterance: int
    ms: int
    lanes: int
    # The best fate so far, as its position in `delivered silent skipped failed`, from 1.
    best: int
    ended: tuple[str, ...]


class Claim(NamedTuple):
    """The claim of a resuming client: its token's digest and its position."""

    token: str
    epoch: str
    last_seq: int


class ResumedSession(NamedTuple):
    """The answer to a resuming client, for the session's new owner."""

    reply: Reply
    epoch: str = ""
    fence: int = 0
    previous_owner: str = ""
    about: bytes = b""
    # The last chunk of admitted speech (-1: no numbers), and its end in the audio.
    heard: int = -1
    heard_ms: int = 0
    next_index: int = 0
    last_seq: int = 0
    # Lane -> its next unknown index.
    lanes: tuple[tuple[str, int], ...] = ()
    # Indices of open outcomes, one for each language.
    open: tuple[int, ...] = ()
    turns: tuple[str, ...] = ()
    speech: Speech = Speech()
    unsettled: tuple[Unsettled, ...] = ()


class FoundRequest(NamedTuple):
    """The job of a named request."""

    reply: Reply
    state: str = ""
    # Empty until it ends.
    outcome: str = ""
    attempt: int = 0
    seq: int = 0
    reason: str = "-"
    spec: JobSpec | None = None
    answer: bytes = b""
    job: str = ""
    # Where the asking session received the answer of another's job: index, seq (0: not yet).
    told: tuple[int, ...] = ()

    def place_in(self, session: str) -> tuple[int, int] | None:
        """Return its index in a session, and the position of its outcome (0: not released)."""
        if self.told:
            return self.told[0], self.told[1]
        if self.spec is None or self.spec.session != session:
            return None
        return self.spec.index, self.seq if self.state == "RELEASED" else 0


class LaneFill(NamedTuple):
    """The outcome of an index without a job: a refusal, or the answer of another job."""

    kind: str = "missing"
    job: str = "-"
    attempt: int = 0
    reason: str = "refused"
    payload: bytes = b""
    # The utterance's length and its number of languages; 0: not in the account.
    ms: int = 0
    lanes: int = 1
    # The listeners instead of the speaker, packed for `lane_fill`.
    others: bytes = b""
    # For the last language of a piece of the stream: the data for a later owner, likewise.
    stream: bytes = b""


REFUSED = LaneFill()


class Fetched(NamedTuple):
    """A job for the instance of its node."""

    reply: Reply
    spec: JobSpec | None = None
    body: bytes = b""
    audio: bytes = b""
    owner: str = ""
    # The remaining time of the attempt.
    left_ms: int = 0


class OutboxPage(NamedTuple):
    """Outcomes after a position."""

    reply: Reply
    epoch: str = ""
    last_seq: int = 0
    entries: tuple[Released, ...] = ()
    # Up to where outcomes were removed, if the position is outside the kept ones.
    trimmed: int = 0


class PoolRow(NamedTuple):
    """A pool for the fleet snapshot."""

    pool: str
    descriptor: bytes
    members: int
    free: int
    offline: int = 0


class NodeRow(NamedTuple):
    """A node for the fleet snapshot."""

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
    # Drained by an operator, and only an operator can end that.
    held: bool = False
    # The resources that exceed their threshold.
    pressure: str = ""
    # Streams that it hears, and how many it takes.
    streams: int = 0
    streams_max: int = 0


def request_scope(tenant: str, session: str) -> str:
    """Return the scope in which a request id is unique: the tenant, else the session."""
    return f"tenant {tenant}" if tenant else f"session {session}"


def answered_by(job: str) -> str:
    """Return how an outcome names another job whose answer it repeats."""
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


def read_entry(seq: int, raw: bytes, own: str = "", own_payload: bytes = b"") -> Released:
    """Read an outbox entry; the payload of the caller's own job may not be in it."""
    head, _, payload = raw.partition(b"\n")
    kind, index, lane, job, attempt, reason = head.decode().split(" ")
    is_passed = kind[0] == PASSED
    if job == own and own_payload and not is_passed:
        payload = own_payload
    return Released(
        seq=seq,
        kind=kind[1:] if is_passed else kind,
        utterance=int(index),
        lane=lane,
        job=job,
        attempt=int(attempt),
        reason=reason,
        payload=payload,
        is_passed=is_passed,
    )


def speaker_of(heard_id: str) -> str:
    """Return the speaker of a kept result."""
    return heard_id.lstrip(UNKEPT).partition("|")[0]
