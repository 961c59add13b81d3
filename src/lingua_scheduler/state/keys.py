"""The data dictionary: every key that exists, what it holds and who ends it.

A key is `<prefix>:v1:{cN}:<family...>`; the braces make the whole cell one cluster slot. Scripts
are given the cell's `due` key and derive the others by the patterns below, and by no other.
`docs/keys.md` is generated from here, and tests compare every key a script touches with it.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass

from lingua_scheduler.errors import InvalidIdentifier
from lingua_scheduler.state.cluster import key_slot

IDENTIFIER = re.compile(r"[A-Za-z0-9_.:-]{1,128}")


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
    Family("due", "zset", "timer -> ms when it rings; one set of timers per cell", "its timers"),
    Family(
        "session:<session>",
        "hash",
        "epoch, owner, positions, order per language, turn affinity",
        "session_close, then TTL resume_ms",
    ),
    Family(
        "outbox:<session>",
        "list",
        "released outcomes after `trimmed`, in seq order",
        "outbox_ack; session_close, then TTL resume_ms",
    ),
    Family(
        "job:<job>",
        "hash",
        "spec, body, state, attempt, holder, deadline, outcome",
        "TTL binding_ms from its release; this record is also the request binding",
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
    Family(
        "reserved",
        "hash",
        "job|attempt|home cell -> node, for jobs of other cells",
        "lease_release",
    ),
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
    found = re.fullmatch(re.escape(prefix) + r":v1:\{c\d+\}:(?P<rest>.+)", key)
    if not found:
        return None
    return next((f for f in FAMILIES if f.regex().fullmatch(found["rest"])), None)


def keys_page() -> str:
    """Return `docs/keys.md`."""
    rows = [
        "# Keys",
        "",
        "Generated from `state/keys.py`. Every key is `<prefix>:v1:{cN}:` and one of these; the",
        "braces keep a cell in one slot of a cluster.",
        "",
        "| key | type | holds | ended by |",
        "|---|---|---|---|",
    ]
    for family in FAMILIES:
        pattern, holds = (text.replace("|", "\\|") for text in (family.pattern, family.holds))
        rows.append(f"| `{pattern}` | {family.kind} | {holds} | {family.ended_by} |")
    return "\n".join(rows) + "\n"
