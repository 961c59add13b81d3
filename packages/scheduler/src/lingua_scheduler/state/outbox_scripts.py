"""The scripts about outcomes: in order for their session, and for listeners in other cells."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_scheduler.state.answers import (
    read_ahead,
    read_effects,
    read_heard,
    read_outcomes,
    read_released,
)
from lingua_scheduler.state.packing import pack
from lingua_scheduler.state.records import (
    REFUSED,
    LaneFill,
    OutboxPage,
    Relayed,
    ScriptEffects,
    Settled,
    reason_word,
)
from lingua_scheduler.state.reply import Reply

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lingua_scheduler.state.keys import Cell
    from lingua_scheduler.state.policy import FleetPolicy
    from lingua_scheduler.state.records import UndeliveredOutcome
    from lingua_scheduler.state.script_runner import ScriptRunner

# The largest answer of one read, because translated speech is large.
PAGE_BYTES = 1 << 20


class OutboxScripts:
    """Fills lanes, reads and forgets outcomes, and takes outcomes to listeners."""

    def __init__(self, runner: ScriptRunner, policy: FleetPolicy) -> None:
        self._runner = runner
        # Packed once, because the policy is sent with every call that needs it.
        self._policy = pack(policy.for_jobs())

    async def fill_lane(  # noqa: PLR0913 where, why and by whom
        self,
        cell: Cell,
        session: str,
        lane: str,
        *,
        index: int = -1,
        unwanted_from: int = -1,
        answer: LaneFill = REFUSED,
        fence: int = 0,
    ) -> Settled:
        """Put an explicit outcome at one index, or into every hole that is due."""
        reason = reason_word(answer.reason if index >= 0 else "gap_timeout")
        account = (answer.ms, answer.lanes)
        result = (answer.kind, answer.job, answer.attempt, answer.payload)
        where = (session, lane, index, unwanted_from)
        raw = await self._runner.run(
            "lane_fill",
            cell,
            (self._policy, *where, reason, fence, *account, *result, answer.others, answer.stream),
        )
        if raw[0] != Reply.SETTLED:
            return Settled(Reply(raw[0]))
        return Settled(Reply.SETTLED, read_effects([*raw, [], []], cell))

    async def read(
        self, cell: Cell, session: str, *, epoch: str = "", after_seq: int = 0, limit: int = 256
    ) -> OutboxPage:
        """Read outcomes after a position."""
        raw = await self._runner.run(
            "outbox_read", cell, (session, epoch, after_seq, limit, PAGE_BYTES)
        )
        reply = Reply(raw[0])
        if reply is Reply.OK:
            return OutboxPage(reply, raw[1].decode(), raw[2], read_released(raw[3]))
        if reply is Reply.TRIMMED:
            return OutboxPage(reply, last_seq=raw[2], trimmed=raw[1])
        return OutboxPage(reply, raw[1].decode() if reply is Reply.EPOCH_CHANGED else "")

    async def ack(
        self,
        cell: Cell,
        session: str,
        epoch: str,
        seq: int,
        *,
        fence: int = 0,
        is_confirmed: bool = False,
    ) -> Reply:
        """Forget outcomes up to a position; the client may have confirmed that it has them."""
        words = (session, epoch, seq, fence, int(is_confirmed))
        raw = await self._runner.run("outbox_ack", cell, words)
        return Reply(raw[0])

    # Listeners

    async def relay(self, cell: Cell, session: str, done: Sequence[str] = ()) -> Relayed:
        """Continue with the outcomes that a speaker's listeners have not received."""
        raw = await self._runner.run("relay_run", cell, (self._policy, session, *done))
        effects = read_effects([*raw[:5], [], []], cell)
        return Relayed(effects, read_ahead(raw[5]), bool(raw[6]))

    async def put(
        self, cell: Cell, item: UndeliveredOutcome, listeners: Sequence[str]
    ) -> tuple[ScriptEffects, tuple[str, ...]]:
        """Give an outcome to listeners of this cell; returns those whose session is missing."""
        outcome = (item.id, item.kind, item.head, item.payload, item.text)
        raw = await self._runner.run("outbox_put", cell, (self._policy, *outcome, *listeners))
        effects = ScriptEffects(heard=read_heard(read_outcomes(raw[1])[1], cell))
        return effects, tuple(name.decode() for name in raw[2])

    async def read_result(self, cell: Cell, heard_id: str) -> bytes:
        """Read a result kept for listeners: the text if the sound was dropped, b'' if neither."""
        key = cell.key("heard", heard_id)
        payload, text = await self._runner.command(cell, ("HMGET", key, "p", "t"))
        return payload or text or b""
