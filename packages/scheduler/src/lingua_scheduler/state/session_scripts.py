"""The scripts about sessions: one typed method for each, without logic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lingua_scheduler.state.answers import read_effects
from lingua_scheduler.state.packing import pack
from lingua_scheduler.state.records import (
    Cancelled,
    ClosedSession,
    ResumedSession,
    SessionOpening,
    Settled,
    Speech,
    Unsettled,
)
from lingua_scheduler.state.reply import Reply

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lingua_scheduler.state.keys import Cell
    from lingua_scheduler.state.policy import FleetPolicy
    from lingua_scheduler.state.records import Claim
    from lingua_scheduler.state.script import Word
    from lingua_scheduler.state.script_runner import ScriptRunner

NEW_SESSION = SessionOpening()


class SessionScripts:
    """Opens, resumes, renews and closes sessions, and stores what a later owner needs."""

    def __init__(self, runner: ScriptRunner, policy: FleetPolicy) -> None:
        self._runner = runner
        # Packed once, because the policy is sent with every call that needs it.
        self._jobs_policy = pack(policy.for_jobs())
        self._fleet_policy = pack(policy)

    async def open(
        self,
        cell: Cell,
        session: str,
        owner: str,
        *,
        tenant: str = "",
        lease_ms: int = 60_000,
        opening: SessionOpening = NEW_SESSION,
    ) -> tuple[Reply, str, int]:
        """Open a session, or open it again as its owner; returns its epoch and its fence."""
        who = (session, owner, tenant, lease_ms)
        how = (opening.fence, int(opening.restart), opening.ended, *opening.fields)
        raw = await self._runner.run("session_open", cell, (*who, *how))
        return Reply(raw[0]), raw[1].decode(), raw[2] if len(raw) > 2 else 0

    async def resume(
        self, cell: Cell, session: str, owner: str, *, tenant: str, lease_ms: int, claim: Claim
    ) -> ResumedSession:
        """Take a session over for a client that reconnected."""
        position = (claim.epoch, claim.last_seq)
        raw = await self._runner.run(
            "session_resume", cell, (session, owner, tenant, claim.token, lease_ms, *position)
        )
        return read_resumed(raw) if raw[0] == Reply.RESUMED else ResumedSession(Reply(raw[0]))

    async def speech(self, cell: Cell, session: str) -> Speech | None:
        """Return what became of a session's speech, while the store has a record of it."""
        raw = await self._runner.run("session_speech", cell, (session,))
        return Speech.read(raw[1]) if raw[0] == Reply.OK else None

    async def note(
        self,
        cell: Cell,
        session: str,
        fence: int,
        fields: Mapping[str, Word],
        *,
        heard_after: int = -1,
    ) -> Reply:
        """Store what a later owner needs, once the stream is admitted up to `heard_after`."""
        words = [word for pair in fields.items() for word in pair]
        raw = await self._runner.run("session_note", cell, (session, fence, heard_after, *words))
        return Reply(raw[0])

    async def renew(
        self, cell: Cell, owner: str, sessions: Sequence[str], lease_ms: int
    ) -> tuple[str, ...]:
        """Renew the leases of sessions; returns those that the owner does not own any more."""
        raw = await self._runner.run("session_renew", cell, (lease_ms, owner, *sessions))
        return tuple(name.decode() for name in raw[1])

    async def close(
        self,
        cell: Cell,
        session: str,
        reason: str,
        *,
        lapse_only: bool = False,
        fence: int = 0,
        fields: Mapping[str, Word] | None = None,
    ) -> ClosedSession:
        """Close a session; its live jobs end as cancelled."""
        words = [word for pair in (fields or {}).items() for word in pair]
        how = (reason, int(lapse_only), fence)
        raw = await self._runner.run(
            "session_close", cell, (self._fleet_policy, session, *how, *words)
        )
        if raw[0] != Reply.SETTLED:
            return ClosedSession(Settled(Reply(raw[0])))
        holders = tuple(Cancelled(j.decode(), a, c.decode(), n.decode()) for j, a, c, n in raw[7])
        return ClosedSession(
            Settled(Reply.SETTLED, read_effects(raw, cell)), holders, Speech.read(raw[8])
        )

    async def end_turn(self, cell: Cell, session: str, turn: str, *, fence: int = 0) -> Settled:
        """End a turn that has no closing piece."""
        raw = await self._runner.run("turn_end", cell, (self._jobs_policy, session, turn, fence))
        if raw[0] != Reply.SETTLED:
            return Settled(Reply(raw[0]))
        return Settled(Reply.SETTLED, read_effects([*raw, []], cell))


def read_resumed(raw: list[Any]) -> ResumedSession:
    """Read the answer of session_resume."""
    _, epoch, fence, previous, about, heard, heard_ms, top, seq, lanes, opened, turns = raw[:12]
    return ResumedSession(
        Reply.RESUMED,
        epoch=epoch.decode(),
        fence=fence,
        previous_owner=previous.decode(),
        about=about,
        heard=heard,
        heard_ms=heard_ms,
        next_index=top,
        last_seq=seq,
        lanes=tuple((lanes[i].decode(), lanes[i + 1]) for i in range(0, len(lanes), 2)),
        open=tuple(opened),
        turns=tuple(turn.decode() for turn in turns),
        speech=Speech.read(raw[12]),
        unsettled=tuple(
            Unsettled._make((*row[:4], (*row[4].decode().split(),))) for row in raw[13]
        ),
    )
