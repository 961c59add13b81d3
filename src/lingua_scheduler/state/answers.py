"""The answers of the scripts, read: from what the server sends to the records of `records.py`.

No logic: what an answer means for a job is decided in `jobs/`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from lingua_scheduler.state.records import (
    AS_SPOKEN,
    Ahead,
    Effects,
    ForeignSlot,
    Heard,
    JobSpec,
    Lease,
    Listener,
    Moved,
    NodeRow,
    Placement,
    Released,
    Settled,
    Submitted,
    WaitingJob,
    read_entry,
)
from lingua_scheduler.state.reply import UNPLACEABLE, Reply

read_spec = msgspec.msgpack.Decoder(JobSpec).decode

if TYPE_CHECKING:
    from lingua_scheduler.state.keys import Cell


class Given(NamedTuple):
    """What job_settle does not return of a job's own outcome: the caller has it."""

    job: str
    payload: bytes
    # The same without its sound.
    text: bytes


def read_effects(raw: list[Any], cell: Cell, given: Given | None = None) -> Effects:
    """Read `_, epoch, owner, session, outcomes, freed, placed` of an answer."""
    entries, rows, is_relaying = raw[4]
    released, heard = read_released(entries), read_heard(rows, cell) if rows else ()
    if given is not None and given.payload:
        released = tuple([outcome_with(outcome, given) for outcome in released])
        heard = tuple([item_with(item, given) for item in heard]) if heard else ()
    return Effects(
        raw[1].decode(), raw[2].decode(), raw[3].decode(),
        released, read_freed(raw[5]), read_placements(raw[6], cell),
        heard, is_relaying == 1, cell.name,
    )  # fmt: skip


def read_submitted(raw: list[Any], cell: Cell) -> Submitted:
    """Read the answer of job_submit, job_place and job_commit."""
    reply = Reply(raw[0])
    if reply is Reply.PLACED:
        return Submitted(reply, read_placement(raw[1], cell))
    if reply in (Reply.QUEUED, Reply.PARKED):
        affinity, avoid, *_ = (*(text.decode() for text in raw[3:5]), "", "")
        return Submitted(
            reply, code=Reply(raw[1]), label=raw[2].decode(), affinity=affinity, avoid=avoid,
            looked=read_looked(raw[5:]),
        )  # fmt: skip
    if reply is Reply.DUPLICATE:
        _, state, attempt, node, outcome, seq, spec = raw
        return Submitted(
            reply, state=state.decode(), attempt=attempt, node=node.decode(),
            outcome=outcome.decode(), seq=seq, known=read_spec(spec),
        )  # fmt: skip
    if reply is Reply.SETTLED:
        return Submitted(reply, effects=read_effects([*raw, [], []], cell))
    if reply is Reply.HELD:
        return Submitted(reply, attempt=raw[1], node=raw[2].decode(), affinity=raw[3].decode())
    label = raw[1].decode() if len(raw) > 1 and isinstance(raw[1], bytes) else ""
    return Submitted(reply, code=reply if reply in UNPLACEABLE else None, label=label)


def read_settled(raw: list[Any], cell: Cell, given: Given) -> Settled:
    """Read the answer of job_settle."""
    reply = Reply(raw[0])
    if reply is Reply.SETTLED:
        return Settled(reply, read_effects(raw, cell, given))
    if reply is Reply.ALREADY:
        return Settled(reply, outcome=raw[1].decode(), seq=raw[2])
    if reply is Reply.STALE_ATTEMPT:
        return Settled(reply, current_attempt=raw[1])
    if reply is Reply.NODE_MISMATCH:
        return Settled(reply, holder=raw[1].decode())
    return Settled(reply, outcome=raw[1].decode() if len(raw) > 1 else "")


def outcome_with(outcome: Released, given: Given) -> Released:
    """Give a speaker's outcome its payload, if it is of the job."""
    if outcome.job != given.job or outcome.is_passed:
        return outcome
    # As `_replace` does, in a third of the time: each utterance comes by here.
    return Released(*outcome[:7], given.payload, outcome.is_passed)


def item_with(item: Heard, given: Given) -> Heard:
    """Give what listeners got its payload, if it is of the job."""
    _, lane, of_job, _, _ = item.head.split(" ")
    if of_job != given.job:
        return item
    is_text = lane == AS_SPOKEN and given.text
    return item._replace(payload=given.text if is_text else given.payload)


def read_moved(job: str, raw: list[Any], cell: Cell) -> Moved:
    """Read the answer of job_failover."""
    reply = Reply(raw[0])
    if reply is Reply.PLACED:
        _, placement, freed, placed, reason, left = raw
        effects = Effects(freed=read_freed(freed), placed=read_placements(placed, cell))
        return Moved(
            reply,
            read_placement(placement, cell),
            None,
            "",
            effects,
            reason.decode(),
            left.decode(),
        )
    if reply in (Reply.QUEUED, Reply.PARKED):
        _, code, label, freed, placed, reason, left, attempt, *need = raw
        effects = Effects(freed=read_freed(freed), placed=read_placements(placed, cell))
        waiting = WaitingJob(job, attempt, *(text.decode() for text in need))
        return Moved(
            reply, None, Reply(code), label.decode(), effects, reason.decode(), left.decode(),
            waiting=waiting,
        )  # fmt: skip
    if reply is Reply.SETTLED:
        return Moved(
            reply,
            effects=read_effects(raw, cell),
            reason=raw[7].decode(),
            left_node=raw[8].decode(),
            attempt=raw[9],
        )
    if reply is Reply.DEFERRED:
        _, node_cell, node, ends_at, attempt = raw
        return Moved(
            reply,
            cell=node_cell.decode(),
            left_node=node.decode(),
            ends_at_ms=ends_at,
            attempt=attempt,
        )
    return Moved(reply)


def read_leases(raw: list[bytes]) -> tuple[Lease, ...]:
    """Read members of a node's lease set."""
    return tuple(Lease.read(item) for item in raw)


def read_node_row(raw: list[Any], now_ms: int) -> NodeRow:
    """Read one node of a page."""
    text = [item.decode() if isinstance(item, bytes) else item for item in raw]
    return NodeRow(
        text[0], text[1], text[2] == "1", text[3] == "1", int(text[4] or 0), int(text[5] or 0),
        text[6], text[7], text[8] == "1", text[9], int(text[10]), float(text[11] or 0),
        max(0, now_ms - int(text[12] or 0)), text[13], text[14] == "1", text[15],
    )  # fmt: skip


def read_heard(raw: list[Any], cell: Cell) -> tuple[Heard, ...]:
    """Read the part of an answer that is about listeners."""
    items = []
    for heard_id, line, rows in raw:
        kind, head = line.decode().split(" ", 1)
        items.append(Heard(heard_id.decode(), kind, head, cell.name, read_listeners(rows)))
    return tuple(items)


def read_listeners(rows: list[Any]) -> tuple[Listener, ...]:
    """Read `listener, owner, epoch, seq, ...`."""
    return tuple(
        Listener(rows[i].decode(), rows[i + 1].decode(), rows[i + 2].decode(), rows[i + 3])
        for i in range(0, len(rows), 4)
    )


def read_ahead(raw: list[Any]) -> tuple[Ahead, ...]:
    """Read what is for listeners of other cells."""
    items = []
    for heard_id, line, age_ms, payload, text, names in raw:
        kind, head = line.decode().split(" ", 1)
        listeners = tuple(name.decode() for name in names)
        items.append(Ahead(heard_id.decode(), kind, head, age_ms, payload, text, listeners))
    return tuple(items)


def read_released(raw: list[Any]) -> tuple[Released, ...]:
    """Read the `seq, entry, ...` part of an answer."""
    return tuple([read_entry(raw[i], raw[i + 1]) for i in range(0, len(raw), 2)])


def read_placement(raw: list[Any], home: Cell) -> Placement:
    """Read one placement of a cell's answer: a cell places only its own jobs."""
    job, attempt, node, cell, instance, moved, ends_at, *chosen = raw
    return Placement(
        job.decode(), attempt, node.decode(), cell.decode(), instance.decode(), moved == 1, ends_at,
        home.name, chosen[0].decode() if chosen else "",
        read_how(chosen[1]) if len(chosen) > 1 else "", read_looked(chosen[2:]),
    )  # fmt: skip


def read_how(raw: bytes | int) -> str:
    """Read why a placement has its node: a word, or the rank of its pool among all that serve."""
    if isinstance(raw, bytes):
        return raw.decode()
    return "pool" if raw == 1 else "fallback"


def read_looked(raw: list[Any]) -> tuple[str, ...]:
    """Read what a placement looked at, where the answer has it."""
    return tuple(item.decode() for item in raw[0]) if raw else ()


def read_placements(raw: list[Any], home: Cell) -> tuple[Placement, ...]:
    """Read the placements of a cell's answer."""
    return tuple(read_placement(item, home) for item in raw) if raw else ()


def read_freed(raw: list[Any]) -> tuple[ForeignSlot, ...]:
    """Read the slots of other cells that must be given back."""
    if not raw:
        return ()
    return tuple(ForeignSlot(c.decode(), n.decode(), j.decode(), a) for c, n, j, a in raw)
