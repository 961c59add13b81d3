"""Every answer a script can give, as one enumeration shared with the Lua files.

Lua writes `Reply.PLACED`; the loader replaces it by the number, so an unknown name fails when the
scripts are loaded. Negative answers are refusals: nothing was changed. `docs/replies.md` is
generated from this file.
"""

from __future__ import annotations

from enum import IntEnum


class Reply(IntEnum):
    """The answer of a script."""

    OK = 0
    PLACED = 1
    QUEUED = 2
    PARKED = 3
    DUPLICATE = 4
    SETTLED = 5
    ALREADY = 6
    DEFERRED = 7
    HELD = 8
    OPENED = 9
    RESUMED = 10
    RESERVED = 11
    REGISTERED = 12
    RESTORED = 13
    DEBOUNCED = 14
    GONE = 15
    STREAM_OPENED = 16

    NO_SESSION = -1
    SESSION_CLOSED = -2
    INDEX_RELEASED = -3
    INDEX_TAKEN = -4
    INDEX_AHEAD = -5
    IN_FLIGHT_LIMIT = -6
    OUTBOX_FULL = -7
    QUEUE_FULL = -8
    NO_POOL_FOR_LANG_PAIR = -9
    EMPTY_POOL = -10
    NO_AVAILABLE_NODE = -11
    NO_JOB = -12
    JOB_ENDED = -13
    STALE_ATTEMPT = -14
    NODE_MISMATCH = -15
    NOT_DUE = -16
    NO_NODE = -17
    FENCED = -18
    LEASE_LAPSED = -19
    RATE_LIMITED = -20
    EPOCH_CHANGED = -21
    TRIMMED = -22
    TOO_EARLY = -23

    @property
    def retryable(self) -> bool:
        """Tell whether the same call may succeed later."""
        return self in RETRYABLE

    @property
    def meaning(self) -> str:
        """Return the answer in a sentence."""
        return MEANINGS[self]


# Answers to a submit that mean that the store has the job.
ADMITTED = frozenset({Reply.PLACED, Reply.QUEUED, Reply.SETTLED, Reply.HELD, Reply.DUPLICATE})
RETRYABLE = frozenset(
    {
        Reply.INDEX_AHEAD,
        Reply.IN_FLIGHT_LIMIT,
        Reply.OUTBOX_FULL,
        Reply.QUEUE_FULL,
        Reply.NO_POOL_FOR_LANG_PAIR,
        Reply.EMPTY_POOL,
        Reply.NO_AVAILABLE_NODE,
        Reply.NOT_DUE,
        Reply.RATE_LIMITED,
        Reply.TOO_EARLY,
    }
)

MEANINGS = {
    Reply.OK: "Done.",
    Reply.PLACED: "The job has a node, an attempt number and a lease.",
    Reply.QUEUED: "No node can take the job now; it waits and is placed when a node can.",
    Reply.PARKED: "This cell cannot take the job; the caller first asks other cells.",
    Reply.DUPLICATE: "The request id already has a job; the answer describes that job.",
    Reply.SETTLED: "The outcome is recorded; the answer has the outcomes that it released.",
    Reply.ALREADY: "The same call was made before; nothing changed.",
    Reply.DEFERRED: "A silent slice of a turn that continues; its deadline was moved.",
    Reply.HELD: "The job already has a node.",
    Reply.OPENED: "A new session, under a new epoch.",
    Reply.RESUMED: "The session exists and continues.",
    Reply.RESERVED: "A slot is held for a short time for a job of another cell.",
    Reply.REGISTERED: "A new process of this node; its former process is fenced.",
    Reply.RESTORED: "Expired marks were removed.",
    Reply.DEBOUNCED: "The same mark was set a moment ago; nothing changed.",
    Reply.GONE: "The node was removed after a long silence, or the room has ended.",
    Reply.STREAM_OPENED: "A node listens to the utterance that is being spoken.",
    Reply.NO_SESSION: "The store has no such session: open it (again).",
    Reply.SESSION_CLOSED: "The session was closed.",
    Reply.INDEX_RELEASED: "This utterance index has been released, or was declared unwanted.",
    Reply.INDEX_TAKEN: "Another job holds this utterance index in this language.",
    Reply.INDEX_AHEAD: "The index is too far ahead of the released outcomes.",
    Reply.IN_FLIGHT_LIMIT: "Too many utterances of this session are in progress.",
    Reply.OUTBOX_FULL: "Too many outcomes of this session were not acknowledged.",
    Reply.QUEUE_FULL: "Too many jobs wait for a node.",
    Reply.NO_POOL_FOR_LANG_PAIR: "No known node serves this language pair.",
    Reply.EMPTY_POOL: "Nodes that serve this pair are known, but all are offline.",
    Reply.NO_AVAILABLE_NODE: "All nodes that serve this demand are full or excluded.",
    Reply.NO_JOB: "No such job.",
    Reply.JOB_ENDED: "The job ended with another outcome.",
    Reply.STALE_ATTEMPT: "Another attempt is current; this one is obsolete.",
    Reply.NODE_MISMATCH: "Another node holds this attempt.",
    Reply.NOT_DUE: "The deadline was moved; there is nothing to do yet.",
    Reply.NO_NODE: "The store has no such node: register it (again).",
    Reply.FENCED: "A newer process, socket or owner has replaced the caller.",
    Reply.LEASE_LAPSED: "The slot expired in the meantime and the node is full.",
    Reply.RATE_LIMITED: "Too many such reports from this node.",
    Reply.EPOCH_CHANGED: "The session was restarted; earlier positions are invalid.",
    Reply.TRIMMED: "The position is outside the kept outcomes.",
    Reply.TOO_EARLY: "Earlier speech of this session must be submitted first.",
}

# Answers that mean that no node can take the job now, with a reason label.
UNPLACEABLE = frozenset({Reply.NO_POOL_FOR_LANG_PAIR, Reply.EMPTY_POOL, Reply.NO_AVAILABLE_NODE})


def replies_page() -> str:
    """Return `docs/replies.md`."""
    rows = [
        "# Answers of the store's scripts",
        "",
        "Generated from `state/reply.py`. Negative answers are refusals: no job,",
        "session or node was changed.",
        "",
        "| code | name | retrying can help | meaning |",
        "|---:|---|---|---|",
    ]
    rows += [
        f"| {int(r)} | `{r.name}` | {'yes' if r.retryable else 'no'} | {r.meaning} |" for r in Reply
    ]
    return "\n".join(rows) + "\n"
