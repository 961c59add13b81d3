"""Answers of the store in the form of the twin's answers, to compare them."""

from __future__ import annotations

import msgspec

from lingua_scheduler.state.reply import Reply


def rows(placed) -> list[tuple[str, int, str, bool]]:
    return [(p.job, p.attempt, p.node, p.context_reset) for p in placed]


def settled(reply: Reply, effects) -> tuple:
    released = released_rows(effects.released)
    freed = [tuple(slot) for slot in effects.freed]
    return (reply.name, released, freed, rows(effects.placed))


def released_rows(released) -> list[tuple]:
    """Outcomes as the outbox has them: those for others have a mark before their kind."""
    return [
        (
            entry.seq,
            f"+{entry.kind}" if entry.is_passed else entry.kind,
            *msgspec.structs.astuple(entry)[2:-2],
        )
        for entry in released
    ]


def submitted(answer, width: int) -> tuple:
    """The answer of a submit, as wide as the twin's."""
    name = answer.reply.name
    if answer.placement is not None:
        return (name, rows([answer.placement])[0])
    if answer.reply is Reply.DUPLICATE:
        return (name, answer.state, answer.attempt, answer.node, answer.outcome, answer.seq)
    if answer.reply in (Reply.QUEUED, Reply.PARKED):
        return (name, answer.code.name, answer.label, answer.affinity, answer.avoid)[:width]
    return (name, answer.label)[:width]


def moved_row(moved, expected: tuple) -> tuple:
    """The answer of a failover, in the twin's shape."""
    name = moved.reply.name
    released, freed, placed = settled(moved.reply, moved.effects)[1:]
    tail = (freed, placed, moved.reason, moved.left_node)
    if moved.placement is not None:
        return (name, rows([moved.placement])[0], *tail)
    if moved.reply is Reply.SETTLED:
        return (name, released, *tail)
    if moved.reply in (Reply.QUEUED, Reply.PARKED):
        return (name, moved.code.name, moved.label, *tail)
    if moved.reply is Reply.DEFERRED:
        return (name, moved.cell, moved.left_node)
    return (name,)
