"""The data dictionary: every key that exists, its content and what removes it.

A key is `<prefix>:v1:{cN}:<family...>`; the braces make the whole cell one cluster slot. Scripts
get the cell's `due` key and derive the others only by the patterns below. The keys of one instance
are `<prefix>:v1:{i:<instance>}:<family>`, and its scripts get `inbox`. `docs/keys.md` is generated
from this file, and tests compare every key that a script touches with it.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass

from lingua_scheduler.errors import InvalidIdentifier
from lingua_scheduler.state.cluster import key_slot

IDENTIFIER = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
# A key after its prefix: of a cell, or of an instance.
TAGGED = re.compile(r":v1:\{(?:(?P<cell>c\d+)|i:" + IDENTIFIER.pattern + r")\}:(?P<rest>.+)")


@dataclass(frozen=True, slots=True)
class KeyFamily:
    """One kind of key inside a cell."""

    pattern: str
    kind: str
    holds: str
    ended_by: str

    def regex(self) -> re.Pattern[str]:
        """Match the part of a key after its cell."""
        return re.compile(re.sub(r"<[a-z]+>", "[^{}]+", re.escape(self.pattern)))


FAMILIES = (
    KeyFamily("absent", "none", "never exists; it guards calls while a slot is migrated", "never"),
    KeyFamily(
        "clock",
        "string",
        "the server's time at the last write, and how far the cell's own time is ahead of it",
        "never",
    ),
    KeyFamily(
        "due",
        "zset",
        "timer -> ms when it is due; one set of timers per cell",
        "the end of its timers",
    ),
    KeyFamily(
        "session:<session>",
        "hash",
        "epoch, owner, positions, order per language, turn affinity, the pool of each language, "
        "the account of its speech",
        "session_close, then TTL resume_ms",
    ),
    KeyFamily(
        "outbox:<session>",
        "list",
        "released outcomes after `trimmed`, in seq order",
        "outbox_ack; session_close, then TTL resume_ms",
    ),
    KeyFamily(
        "relay:<session>",
        "list",
        "outcomes of a speaker that some listeners have not received yet (includes/relay.lua)",
        "relay_run, when all listeners have them",
    ),
    KeyFamily(
        "heard:<speaker>|<epoch>|<number>",
        "hash",
        "a result for listeners, with and without sound, and the outboxes that refer to it",
        "outbox_ack of the last listener; TTL 2 * resume_ms",
    ),
    KeyFamily(
        "said:<speaker>",
        "list",
        "size and id of a speaker's latest results for listeners, for the limit in bytes",
        "TTL 2 * resume_ms",
    ),
    KeyFamily(
        "job:<job>",
        "hash",
        "spec, body (in local mode the trace alone), state, attempt, holder, deadline, outcome; "
        "the audio of an utterance in one language, until the outcome; "
        "the answer of a named request; for operators: when and why each attempt began and ended",
        "TTL binding_ms after its release; this record is also the request binding",
    ),
    KeyFamily(
        "request:<job>",
        "hash",
        "the cell of a named request's job, for a tenant in several cells",
        "its PX, which outlives the job and its binding_ms",
    ),
    KeyFamily(
        "audio:<session>|<index>",
        "hash",
        "the audio of an utterance in several languages and the jobs that need it",
        "the end of the last of these jobs",
    ),
    KeyFamily(
        "pending", "zset", "waiting job -> deadline, all demands", "placement or end of the job"
    ),
    KeyFamily(
        "waiting",
        "zset",
        "demand with waiting jobs -> its earliest deadline",
        "the end of its queue",
    ),
    KeyFamily("queue:<demand>", "zset", "waiting job -> deadline", "placement or end of the job"),
    KeyFamily(
        "demands",
        "hash",
        "demand -> the cell's pools that serve it (a cache)",
        "any pool being added or removed",
    ),
    KeyFamily(
        "pools", "hash", "pool -> the abilities of its nodes (json)", "its last member leaving"
    ),
    KeyFamily(
        "pool:<pool>",
        "zset",
        "node -> load, or the band of the reason why it gets no work",
        "its last member leaving",
    ),
    KeyFamily("nodes", "zset", "all known nodes, by id", "node_check after stale_ms"),
    KeyFamily(
        "node:<node>",
        "hash",
        "boot, socket, status, capacity, capability, last beat",
        "node_check after stale_ms",
    ),
    KeyFamily(
        "leases:<node>",
        "zset",
        "job|attempt[|home cell] -> expiry",
        "end of the attempt, or its expiry",
    ),
    KeyFamily(
        "marks:<node>",
        "zset",
        "service -> ms until it counts as available again",
        "node_mark at that time",
    ),
    KeyFamily(
        "streams:<node>",
        "zset",
        "stream -> expiry; what nodes hear before its job, beside their job slots",
        "stream_close, job_submit, its expiry; the loss of the node's socket",
    ),
    KeyFamily(
        "stream:<stream>",
        "string",
        "the node of an open stream, so that a repeated call gets the same answer",
        "as its lease; its PX",
    ),
    KeyFamily(
        "streaming:<pool>",
        "zset",
        "node that can take a stream -> load of its streams",
        "its last member leaving",
    ),
    KeyFamily("pair:<code>", "string", "the node a pairing code is for (c0)", "its use, or its PX"),
    KeyFamily(
        "reserved",
        "hash",
        "job|attempt|home cell -> node, for jobs of other cells",
        "lease_release",
    ),
    KeyFamily(
        "room:<code>",
        "hash",
        "a room: tenant, times, version, and its members (includes/room.lua)",
        "its last member leaving; room_check after idle_ms without speech",
    ),
    KeyFamily(
        "captions:<code>|<language>",
        "hash",
        "what was said in a room in one language: the latest captions, numbered "
        "(includes/caption.lua)",
        "the end of the room; the oldest beyond rooms.captions_kept",
    ),
    KeyFamily(
        "revoked",
        "zset",
        "kind|tenant|id or subject of a token -> ms until its refusal ends (only in c0)",
        "that time; the PX of the last entry",
    ),
    KeyFamily(
        "revocations",
        "string",
        "the version of `revoked`: when and by which writer it was changed (only in c0)",
        "the PX of `revoked`",
    ),
    KeyFamily(
        "instances",
        "zset",
        "instance -> ms of its last beat (only in c0)",
        "its own end; instance_forget by a survivor",
    ),
    KeyFamily(
        "instance:<instance>",
        "hash",
        "boot, started_at, host, pid, version, url, draining (only in c0)",
        "its own end; instance_forget by a survivor",
    ),
    KeyFamily(
        "inboxes",
        "set",
        "all instances that may have an inbox (only in c0)",
        "the removal of the inbox",
    ),
    KeyFamily(
        "dlqs",
        "set",
        "all instances that may have dead letters (only in c0)",
        "the removal of the last dead letter",
    ),
)

# The keys of one instance, which share the tag `{i:<instance>}`.
INSTANCE_FAMILIES = (
    KeyFamily("absent", "none", "never exists; it guards calls while a slot is migrated", "never"),
    KeyFamily(
        "inbox",
        "stream",
        "messages to this instance that were not applied yet",
        "an orderly shutdown; otherwise a survivor, after reading it",
    ),
    KeyFamily(
        "dlq",
        "stream",
        "messages that could not be applied, with the reason (dead letters)",
        "an operator (replay, drop); bounded in length",
    ),
    KeyFamily(
        "adopter", "string", "the survivor that reads the inbox now", "its release, or its PX"
    ),
)


class Cell:
    """The unit of placement state: one hash tag, so one slot of a cluster."""

    __slots__ = ("base", "due", "keys", "name", "slot")

    def __init__(self, prefix: str, number: int) -> None:
        self.name = f"c{number}"
        self.base = f"{prefix}:v1:{{{self.name}}}:"
        # The key that every script gets and derives the others from.
        self.due = f"{self.base}due".encode()
        # The second key never exists. While a slot is migrated key by key, a call with a missing
        # key is refused before it runs, instead of stopping half-way.
        self.keys = (self.due, f"{self.base}absent".encode())
        self.slot = key_slot(self.due)

    def key(self, family: str, rest: str = "") -> str:
        """Return the full name of a key."""
        return f"{self.base}{family}:{rest}" if rest else f"{self.base}{family}"


class InstanceKeys:
    """The keys of one instance: one hash tag, so one slot of a cluster."""

    __slots__ = ("absent", "adopter", "base", "dlq", "inbox", "instance", "keys", "slot")

    def __init__(self, prefix: str, instance: str) -> None:
        self.instance = identifier("instance", instance)
        self.base = f"{prefix}:v1:{{i:{instance}}}:"
        self.inbox = f"{self.base}inbox".encode()
        self.dlq = f"{self.base}dlq".encode()
        self.adopter = f"{self.base}adopter".encode()
        self.absent = f"{self.base}absent".encode()
        # The keys that a script gets, for the same reasons as those of a cell.
        self.keys = (self.inbox, self.absent)
        self.slot = key_slot(self.inbox)


class Cells:
    """All cells of a deployment, and which of them a session or a node belongs to."""

    def __init__(self, prefix: str, count: int) -> None:
        self.all = tuple(Cell(prefix, number) for number in range(count))
        self._by_name = {cell.name: cell for cell in self.all}
        # No job is ever placed in another cell than its own.
        self.is_one = count == 1

    def named(self, name: str) -> Cell:
        """Return a cell by its name."""
        return self._by_name[name]

    def of_node(self, node: str) -> Cell:
        """Return the cell of a node's record, leases and pool."""
        return self.all[zlib.crc32(node.encode()) % len(self.all)]

    def home_of(self, routing_key: str, session: str = "", spread: int = 1) -> Cell:
        """Return a session's home; a tenant spread over several cells uses adjacent ones."""
        first = zlib.crc32(routing_key.encode())
        if spread > 1:
            first += zlib.crc32(session.encode()) % spread
        return self.all[first % len(self.all)]

    def ring_after(self, cell: Cell) -> tuple[Cell, ...]:
        """Return the other cells in ring order from one."""
        at = self.all.index(cell)
        return self.all[at + 1 :] + self.all[:at]


def identifier(kind: str, value: str) -> str:
    """Return an external id if it is valid in a key."""
    if not IDENTIFIER.fullmatch(value):
        raise InvalidIdentifier(kind, value)
    return value


def family_of(key: str, prefix: str) -> KeyFamily | None:
    """Return the family of a key, or None if the dictionary does not contain it."""
    found = TAGGED.fullmatch(key.removeprefix(prefix))
    if not found or not key.startswith(prefix):
        return None
    families = FAMILIES if found["cell"] else INSTANCE_FAMILIES
    return next((f for f in families if f.regex().fullmatch(found["rest"])), None)


def keys_page() -> str:
    """Return `docs/keys.md`."""
    rows = [
        "# Keys",
        "",
        "Generated from `state/keys.py`. Every key is `<prefix>:v1:{cN}:` and one of these; the",
        "braces keep a cell in one slot of a cluster.",
        "",
        *table_of(FAMILIES),
        "",
        "The keys of one instance are `<prefix>:v1:{i:<instance>}:` and one of these:",
        "",
        *table_of(INSTANCE_FAMILIES),
    ]
    return "\n".join(rows) + "\n"


def table_of(families: tuple[KeyFamily, ...]) -> list[str]:
    """Return the lines of a table with a row for each family."""
    rows = ["| key | type | content | removed by |", "|---|---|---|---|"]
    for family in families:
        pattern, holds = (text.replace("|", "\\|") for text in (family.pattern, family.holds))
        rows.append(f"| `{pattern}` | {family.kind} | {holds} | {family.ended_by} |")
    return rows
