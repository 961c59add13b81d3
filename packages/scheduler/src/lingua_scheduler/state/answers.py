"""Reads the answers of the scripts into the records of `records.py`.

There is no logic here; `jobs/` decides what an answer means for a job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lingua_scheduler.state.packing import read_spec
from lingua_scheduler.state.records import (
    AS_SPOKEN,
    ForeignSlot,
    Lease,
    ListenerOutcome,
    ListenerPosition,
    MovedJob,
    NodeRow,
    Placement,
    Released,
    ScriptEffects,
    Settled,
    Submitted,
    UndeliveredOutcome,
    WaitingJob,
    read_entry,
)
from lingua_scheduler.state.reply import UNPLACEABLE, Reply

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lingua_scheduler.state.keys import Cell

# Looked up once, not for every answer.
PLACED, SETTLED = Reply.PLACED, Reply.SETTLED


def read_effects(
    raw: list[Any], cell: Cell, job: str = "", payload: bytes = b"", text: bytes = b""
) -> ScriptEffects:
    """Read `_, epoch, owner, session, outcomes, freed, placed` of an answer.

    `job_settle` does not return the payload of the job's own outcome to its caller, who gives it
    here: with its sound, and as text.
    """
    entries, rows, is_relaying = read_outcomes(raw[4])
    released = []
    for i in range(0, len(entries), 2):  # a comprehension is a function of its own
        released.append(read_entry(entries[i], entries[i + 1], job, payload))  # noqa: PERF401
    heard = read_heard(rows, cell) if rows else ()
    if heard and payload:
        heard = tuple([item_with(item, job, payload, text) for item in heard])
    return ScriptEffects(
        epoch=raw[1].decode(),
        owner=raw[2].decode(),
        session=raw[3].decode(),
        released=tuple(released),
        freed=read_freed(raw[5]) if raw[5] else (),
        placed=read_placements(raw[6], cell) if raw[6] else (),
        heard=heard,
        is_relaying=is_relaying,
        home=cell.name,
    )


def read_outcomes(raw: list[Any]) -> tuple[list[Any], Sequence[Any], bool]:
    """Read the outcomes for the speaker, those for listeners, and whether some do not have them."""
    if raw and raw[0].__class__ is list:
        return raw[0], raw[1] or (), raw[2] == 1
    return raw, (), False


def read_all_submitted(cell: Cell, raw: bytes | list[Any]) -> list[Submitted]:
    """Read the answers of job_submit, one for each language of an utterance."""
    if isinstance(raw, bytes):
        return [Submitted(PLACED, read_placement(raw, cell))]
    answers = []
    for answer in raw:  # a comprehension is a function of its own, and most have one language
        answers.append(read_submitted(answer, cell))  # noqa: PERF401
    return answers


def read_submitted(raw: bytes | list[Any], cell: Cell) -> Submitted:
    """Read the answer of job_submit, job_place and job_commit."""
    if isinstance(raw, bytes) or raw[0] == PLACED:
        placement = raw if isinstance(raw, bytes) else raw[1]
        return Submitted(PLACED, read_placement(placement, cell))
    reply = Reply(raw[0])
    if reply in (Reply.QUEUED, Reply.PARKED):
        affinity, avoid, *_ = (*(text.decode() for text in raw[3:5]), "", "")
        return Submitted(
            reply,
            code=Reply(raw[1]),
            label=raw[2].decode(),
            affinity=affinity,
            avoid=avoid,
            looked=read_looked(raw[5:]),
        )
    if reply is Reply.DUPLICATE:
        _, state, attempt, node, outcome, seq, spec = raw
        return Submitted(
            reply,
            state=state.decode(),
            attempt=attempt,
            node=node.decode(),
            outcome=outcome.decode(),
            seq=seq,
            known=read_spec(spec),
        )
    if reply is Reply.SETTLED:
        return Submitted(reply, effects=read_effects([*raw, [], []], cell))
    if reply is Reply.HELD:
        return Submitted(reply, attempt=raw[1], node=raw[2].decode(), affinity=raw[3].decode())
    label = raw[1].decode() if len(raw) > 1 and isinstance(raw[1], bytes) else ""
    return Submitted(reply, code=reply if reply in UNPLACEABLE else None, label=label)


def read_settled(
    cell: Cell, job: str, payload: bytes, text: bytes, raw: bytes | list[Any]
) -> Settled:
    """Read the answer of job_settle; see `read_effects` for what its caller gives."""
    if isinstance(raw, bytes):
        return Settled(SETTLED, read_own_outcome(raw, cell, payload))
    if raw[0] == SETTLED:
        return Settled(SETTLED, read_effects(raw, cell, job, payload, text))
    reply = Reply(raw[0])
    if reply is Reply.ALREADY:
        return Settled(reply, outcome=raw[1].decode(), seq=raw[2])
    if reply is Reply.STALE_ATTEMPT:
        return Settled(reply, current_attempt=raw[1])
    if reply is Reply.NODE_MISMATCH:
        return Settled(reply, holder=raw[1].decode())
    return Settled(reply, outcome=raw[1].decode() if len(raw) > 1 else "")


def read_own_outcome(raw: bytes, cell: Cell, payload: bytes) -> ScriptEffects:
    """Read the usual answer of job_settle: the job's own outcome alone was released."""
    epoch, owner, session, seq, kind, index, lane, job, attempt, reason = raw.decode().split(" ")
    released = Released(
        seq=int(seq),
        kind=kind,
        utterance=int(index),
        lane=lane,
        job=job,
        attempt=int(attempt),
        reason=reason[:-1],  # the entry's head ends with its line
        payload=payload,
    )
    return ScriptEffects(
        epoch=epoch, owner=owner, session=session, released=(released,), home=cell.name
    )


def item_with(item: ListenerOutcome, job: str, payload: bytes, text: bytes) -> ListenerOutcome:
    """Add the payload to a listeners' outcome, if it is that of the job."""
    _, lane, of_job, _, _ = item.head.split(" ")
    if of_job != job:
        return item
    return item._replace(payload=text if lane == AS_SPOKEN and text else payload)


def read_moved(job: str, raw: list[Any], cell: Cell) -> MovedJob:
    """Read the answer of job_failover."""
    reply = Reply(raw[0])
    if reply is Reply.PLACED:
        _, placement, freed, placed, reason, left = raw
        effects = ScriptEffects(freed=read_freed(freed), placed=read_placements(placed, cell))
        return MovedJob(
            reply,
            placement=read_placement(placement, cell),
            effects=effects,
            reason=reason.decode(),
            left_node=left.decode(),
        )
    if reply in (Reply.QUEUED, Reply.PARKED):
        _, code, label, freed, placed, reason, left, attempt, *need = raw
        effects = ScriptEffects(freed=read_freed(freed), placed=read_placements(placed, cell))
        waiting = WaitingJob(job, attempt, *(text.decode() for text in need))
        return MovedJob(
            reply,
            code=Reply(code),
            label=label.decode(),
            effects=effects,
            reason=reason.decode(),
            left_node=left.decode(),
            waiting=waiting,
        )
    if reply is Reply.SETTLED:
        return MovedJob(
            reply,
            effects=read_effects(raw, cell),
            reason=raw[7].decode(),
            left_node=raw[8].decode(),
            attempt=raw[9],
        )
    if reply is Reply.DEFERRED:
        _, node_cell, node, ends_at, attempt = raw
        return MovedJob(
            reply,
            cell=node_cell.decode(),
            left_node=node.decode(),
            ends_at_ms=ends_at,
            attempt=attempt,
        )
    return MovedJob(reply)


def read_leases(raw: list[bytes]) -> tuple[Lease, ...]:
    """Read members of a node's lease set."""
    return tuple(Lease.read(item) for item in raw)


def read_node_row(raw: list[Any], now_ms: int) -> NodeRow:
    """Read one node of a page."""
    text = [item.decode() if isinstance(item, bytes) else item for item in raw]
    node, status, draining, over, slots, extra, pool, boot, *rest = text
    acks, instance, leased, score, beat_at_ms, info, held, pressure, *streams = rest
    return NodeRow(
        node=node,
        status=status,
        draining=draining == "1",
        over=over == "1",
        max=int(slots or 0),
        extra=int(extra or 0),
        pool=pool,
        boot=boot,
        acks=acks == "1",
        instance=instance,
        leased=int(leased),
        score=float(score or 0),
        beat_age_ms=max(0, now_ms - int(beat_at_ms or 0)),
        info=info,
        held=held == "1",
        pressure=pressure,
        streams=int(streams[0]),
        streams_max=int(streams[1]),
    )


def read_heard(raw: Sequence[Any], cell: Cell) -> tuple[ListenerOutcome, ...]:
    """Read the part of an answer that is about listeners."""
    items = []
    for heard_id, line, rows in raw:
        kind, head = line.decode().split(" ", 1)
        items.append(
            ListenerOutcome(heard_id.decode(), kind, head, cell.name, read_listeners(rows))
        )
    return tuple(items)


def read_listeners(rows: list[Any]) -> tuple[ListenerPosition, ...]:
    """Read `listener, owner, epoch, seq, ...`."""
    return tuple(
        ListenerPosition(rows[i].decode(), rows[i + 1].decode(), rows[i + 2].decode(), rows[i + 3])
        for i in range(0, len(rows), 4)
    )


def read_ahead(raw: list[Any]) -> tuple[UndeliveredOutcome, ...]:
    """Read the outcomes for listeners of other cells."""
    items = []
    for heard_id, line, age_ms, payload, text, names in raw:
        kind, head = line.decode().split(" ", 1)
        listeners = tuple(name.decode() for name in names)
        items.append(
            UndeliveredOutcome(
                id=heard_id.decode(),
                kind=kind,
                head=head,
                age_ms=age_ms,
                payload=payload,
                text=text,
                listeners=listeners,
            )
        )
    return tuple(items)


def read_released(raw: list[Any]) -> tuple[Released, ...]:
    """Read the `seq, entry, ...` part of an answer."""
    return tuple([read_entry(raw[i], raw[i + 1]) for i in range(0, len(raw), 2)])


def read_placement(raw: bytes, home: Cell) -> Placement:
    """Read one placement of a cell's answer: a cell places only its own jobs."""
    text = raw.decode()
    looked: tuple[str, ...] = ()
    if "\n" in text:
        text, *seen = text.split("\n")
        looked = tuple(seen)
    job, attempt, node, cell, instance, moved, ends_at, pool, how = text.split(" ")
    if how.isdecimal():  # the rank of its pool
        how = "pool" if how == "1" else "fallback"
    return Placement(
        job=job,
        attempt=int(attempt),
        node=node,
        cell=cell,
        instance=instance,
        context_reset=moved == "1",
        ends_at_ms=int(ends_at),
        home=home.name,
        pool=pool,
        how=how,
        looked=looked,
    )


def read_looked(raw: list[Any]) -> tuple[str, ...]:
    """Read the nodes that a placement considered, if the answer has them."""
    return tuple(item.decode() for item in raw[0]) if raw else ()


def read_placements(raw: list[bytes], home: Cell) -> tuple[Placement, ...]:
    """Read the placements of a cell's answer."""
    return tuple(read_placement(item, home) for item in raw) if raw else ()


def read_freed(raw: list[Any]) -> tuple[ForeignSlot, ...]:
    """Read the slots of other cells that must be given back."""
    if not raw:
        return ()
    return tuple(ForeignSlot(c.decode(), n.decode(), j.decode(), a) for c, n, j, a in raw)
