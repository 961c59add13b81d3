"""The data dictionary: every key that exists, what it holds and who ends it.

A key is `<prefix>:v1:{cN}:<family...>`; the braces make the whole cell one cluster slot. Scripts
are given the cell's `due` key and derive the others by the patterns below, and by no other. What
belongs to one instance is `<prefix>:v1:{i:<instance>}:<family>`, and its scripts get `inbox`.
`docs/keys.md` is generated from here, and tests compare every key a script touches with it.
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
class Family:
    """One kind of key inside a cell."""

    pattern: str
    kind: str
    holds: str
    ended_by: str

    def regex(self) -> re.Pattern[str]:
        """Match the part of a key after its cell."""
        return re.compile(re.sub(r"<[a-z]+>", "[^{}]+", re.escape(self.pattern)))


FAMILIES = (
    Family("absent", "none", "nothing, ever: it guards calls while a slot is moved", "nobody"),
    Family(
        "clock",
        "string",
        "the server's time when it was written, and what the cell's own is ahead",
        "nobody",
    ),
    Family("due", "zset", "timer -> ms when it rings; one set of timers per cell", "its timers"),
    Family(
        "session:<session>",
        "hash",
        "epoch, owner, positions, order per language, turn affinity, the pool of each language, "
        "what became of its speech",
        "session_close, then TTL resume_ms",
    ),
    Family(
        "outbox:<session>",
        "list",
        "released outcomes after `trimmed`, in seq order",
        "outbox_ack; session_close, then TTL resume_ms",
    ),
    Family(
        "relay:<session>",
        "list",
        "outcomes of a speaker that listeners have not all got yet (includes/relay.lua)",
        "relay_run, when everybody has it",
    ),
    Family(
        "heard:<speaker>|<epoch>|<number>",
        "hash",
        "a result for listeners: with and without sound, and whose outboxes refer to it",
        "outbox_ack of the last listener; TTL 2 * resume_ms",
    ),
    Family(
        "said:<speaker>",
        "list",
        "size and id of a speaker's latest results for listeners, for their bound in bytes",
        "TTL 2 * resume_ms",
    ),
    Family(
        "job:<job>",
        "hash",
        "spec, body, state, attempt, holder, deadline, outcome; of a named request the answer; for "
        "people: when each attempt began and ended, and why",
        "TTL binding_ms from its release; this record is also the request binding",
    ),
    Family(
        "request:<job>",
        "hash",
        "the cell of a named request's job, of a tenant that is in several cells",
        "its PX, which outlives the job and its binding_ms",
    ),
    Family(
        "audio:<session>|<index>",
        "hash",
        "an utterance's audio and the jobs that need it",
        "the end of the last of these jobs",
    ),
    Family(
        "pending", "zset", "waiting job -> deadline, all demands", "placement or end of the job"
    ),
    Family("waiting", "zset", "demand that waits -> its earliest deadline", "its queue's end"),
    Family("queue:<demand>", "zset", "waiting job -> deadline", "placement or end of the job"),
    Family(
        "demands",
        "hash",
        "demand -> the cell's pools that serve it (a cache)",
        "a pool's appearance or disappearance",
    ),
    Family("pools", "hash", "pool -> what its nodes can do (json)", "the last member leaving"),
    Family(
        "pool:<pool>",
        "zset",
        "node -> load, or the band of what keeps it from work",
        "the last member leaving",
    ),
    Family("nodes", "zset", "every known node, by id", "node_check after stale_ms"),
    Family(
        "node:<node>",
        "hash",
        "boot, socket, status, capacity, capability, last beat",
        "node_check after stale_ms",
    ),
    Family(
        "leases:<node>",
        "zset",
        "job|attempt[|home cell] -> expiry",
        "end of the attempt, or its expiry",
    ),
    Family(
        "marks:<node>",
        "zset",
        "service -> ms until which it is unavailable",
        "node_mark at that time",
    ),
    Family("pair:<code>", "string", "the node a pairing code is for (c0)", "its use, or its PX"),
    Family(
        "reserved",
        "hash",
        "job|attempt|home cell -> node, for jobs of other cells",
        "lease_release",
    ),
    Family(
        "room:<code>",
        "hash",
        "a room: tenant, times, version, and its members (includes/room.lua)",
        "its last member leaving; room_check when nobody spoke",
    ),
    Family(
        "revoked",
        "zset",
        "kind|tenant|id or subject of a token -> ms until which it is refused (only in c0)",
        "its time; the last one's PX",
    ),
    Family(
        "revocations",
        "string",
        "which version of `revoked` this is: when and by whom it was changed (only in c0)",
        "the PX of `revoked`",
    ),
    Family(
        "instances",
        "zset",
        "instance -> ms of its last beat (only in c0)",
        "its own end; instance_forget by a survivor",
    ),
    Family(
        "instance:<instance>",
        "hash",
        "boot, started_at, host, pid, version, url, draining (only in c0)",
        "its own end; instance_forget by a survivor",
    ),
    Family(
        "inboxes",
        "set",
        "every instance that may have an inbox (only in c0)",
        "the removal of the inbox",
    ),
    Family(
        "dlqs",
        "set",
        "every instance that may have dead letters (only in c0)",
        "the last dead letter's end",
    ),
)

# The keys of one instance, which share the tag `{i:<instance>}`.
INSTANCE_FAMILIES = (
    Family("absent", "none", "nothing, ever: it guards calls while a slot is moved", "nobody"),
    Family(
        "inbox",
        "stream",
        "letters to this instance, until their effect",
        "its orderly end; else a survivor, when it is read",
    ),
    Family(
        "dlq",
        "stream",
        "letters that could not be applied, with the reason",
        "people (replay, drop); bounded in length",
    ),
    Family("adopter", "string", "the survivor that reads the inbox now", "its release, or its PX"),
)


class Cell:
    """The unit of placement state: one hash tag, so one slot of a cluster."""

    __slots__ = ("base", "due", "keys", "name", "slot")

    def __init__(self, prefix: str, number: int) -> None:
        self.name = f"c{number}"
        self.base = f"{prefix}:v1:{{{self.name}}}:"
        # The key every script is given and derives the others from.
        self.due = f"{self.base}due".encode()
        # And one that never exists: while a slot is moved key by key, a call that names a key that
        # is not there is refused before it runs, instead of stopping half-way.
        self.keys = (self.due, f"{self.base}absent".encode())
        self.slot = key_slot(self.due)

    def key(self, family: str, rest: str = "") -> str:
        """Name a key for reading in tests and tools."""
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
        # What a script is given, for the same reasons as a cell's.
        self.keys = (self.inbox, self.absent)
        self.slot = key_slot(self.inbox)


class Cells:
    """All cells of a deployment and who lives where."""

    def __init__(self, prefix: str, count: int) -> None:
        self.all = tuple(Cell(prefix, number) for number in range(count))
        self._by_name = {cell.name: cell for cell in self.all}

    def named(self, name: str) -> Cell:
        """Return a cell by the name that replies carry."""
        return self._by_name[name]

    def of_node(self, node: str) -> Cell:
        """Return the cell where a node's record, leases and pool live."""
        return self.all[zlib.crc32(node.encode()) % len(self.all)]

    def home_of(self, routing_key: str, session: str = "", spread: int = 1) -> Cell:
        """Return a session's home; a tenant spread over several cells uses that many in a row."""
        first = zlib.crc32(routing_key.encode())
        if spread > 1:
            first += zlib.crc32(session.encode()) % spread
        return self.all[first % len(self.all)]

    def ring_after(self, cell: Cell) -> tuple[Cell, ...]:
        """Return the other cells in ring order from one."""
        at = self.all.index(cell)
        return self.all[at + 1 :] + self.all[:at]


def identifier(kind: str, value: str) -> str:
    """Return an id from outside if a key may carry it."""
    if not IDENTIFIER.fullmatch(value):
        raise InvalidIdentifier(kind, value)
    return value


def family_of(key: str, prefix: str) -> Family | None:
    """Return the family a key belongs to, or None if the dictionary does not know it."""
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
        "What belongs to one instance is `<prefix>:v1:{i:<instance>}:` and one of these:",
        "",
        *table_of(INSTANCE_FAMILIES),
    ]
    return "\n".join(rows) + "\n"


def table_of(families: tuple[Family, ...]) -> list[str]:
    """Return the lines of a table with a row for each family."""
    rows = ["| key | type | holds | ended by |", "|---|---|---|---|"]
    for family in families:
        pattern, holds = (text.replace("|", "\\|") for text in (family.pattern, family.holds))
        rows.append(f"| `{pattern}` | {family.kind} | {holds} | {family.ended_by} |")
    return rows
