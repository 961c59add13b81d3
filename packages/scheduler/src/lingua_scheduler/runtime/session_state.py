"""The state machine of a session on one instance, and what all parts of the session know of it.

    OPENING ──> CONNECTED <──> DISCONNECTED        a client with a token may come back
                  │  ^  \\          │
                  v  │   v         v
                MOVING ──> CLOSING ──> ENDED       closed in the store by this instance
                   any ──> TAKEN                   another instance is the owner

MOVING: the instance stops and the client was asked to resume elsewhere; its audio is not accepted
here any more. CLOSING: no more audio comes; accepted speech is finished first. A client that
resumes here while its session is CLOSING reopens it. ENDED and TAKEN are final: pending work must
not be submitted, and outcomes are not delivered from here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from lingua_scheduler.state.records import request_scope
from lingua_scheduler.transitions import IllegalTransition

if TYPE_CHECKING:
    from lingua_scheduler.runtime.session_fields import SessionFields
    from lingua_scheduler.state.keys import Cell
    from lingua_scheduler.state.records import Released


class SessionState(StrEnum):
    """Where a session is in its life on this instance."""

    OPENING = "opening"
    CONNECTED = "connected"
    DISCONNECTED = "disconnected"
    MOVING = "moving"
    CLOSING = "closing"
    ENDED = "ended"
    TAKEN = "taken"


S = SessionState
TRANSITIONS: dict[SessionState, frozenset[SessionState]] = {
    S.OPENING: frozenset({S.CONNECTED, S.DISCONNECTED, S.CLOSING, S.TAKEN}),
    S.CONNECTED: frozenset({S.DISCONNECTED, S.MOVING, S.CLOSING, S.TAKEN}),
    S.DISCONNECTED: frozenset({S.CONNECTED, S.MOVING, S.CLOSING, S.TAKEN}),
    S.MOVING: frozenset({S.CONNECTED, S.DISCONNECTED, S.CLOSING, S.TAKEN}),
    S.CLOSING: frozenset({S.CONNECTED, S.DISCONNECTED, S.ENDED, S.TAKEN}),
    S.ENDED: frozenset(),
    S.TAKEN: frozenset(),
}


def session_transition(before: SessionState, after: SessionState) -> SessionState:
    """Return the new state; raises `IllegalTransition` if the machine does not have this one."""
    if after not in TRANSITIONS[before]:
        raise IllegalTransition("session", before, after)
    return after


@dataclass(slots=True)
class SessionRecord:
    """What all parts of a session share: identity, the owner's fence, and the state."""

    id: str
    home: Cell
    tenant: str
    trace_id: str
    # The digest of the token its client may come back with; empty: it cannot.
    token: str = ""
    # Names the order of positions: they start over with another epoch.
    epoch: str = ""
    # Grows with each owner: what a former owner does is refused.
    fence: int = 0
    # What another instance needs to restore the session.
    fields: SessionFields | None = None
    state: SessionState = SessionState.OPENING
    # The store-loss generation that the session was last verified against (`loops.py`).
    verified: int = 0
    # Where the request ids of its utterances are unique.
    scope: str = field(init=False)

    def __post_init__(self) -> None:
        self.scope = request_scope(self.tenant, self.id)

    @property
    def is_resumable(self) -> bool:
        """Tell whether its client was given what it needs to come back."""
        return bool(self.token)

    @property
    def is_over(self) -> bool:
        """Tell whether this instance must do nothing more for it: it ended or was taken over."""
        return self.state in (SessionState.ENDED, SessionState.TAKEN)

    @property
    def is_disconnected(self) -> bool:
        """Tell whether its client's socket is lost and may come back."""
        return self.state is SessionState.DISCONNECTED

    @property
    def is_closing(self) -> bool:
        """Tell whether no more audio comes and accepted speech is being finished."""
        return self.state is SessionState.CLOSING

    def move(self, state: SessionState) -> None:
        """Go to another state; staying in the same one is no transition."""
        if state is not self.state:
            self.state = session_transition(self.state, state)

    def own(self, epoch: str, fence: int) -> None:
        """Take the answer of the store: this instance is the owner under this fence."""
        self.epoch, self.fence = epoch, fence

    def restore(self, fields: SessionFields) -> None:
        """Take over what a former owner stored."""
        self.fields, self.trace_id = fields, fields.trace_id

    def keep(self, fields: SessionFields) -> SessionFields:
        """Replace what another instance needs to restore it; returns that."""
        self.fields = fields
        return fields

    def verify(self, generation: int) -> None:
        """Note that the session was verified against this store-loss generation."""
        self.verified = generation


class OutcomeReceiver(Protocol):
    """A session of this instance, as the parts see it that deliver outcomes."""

    def deliver(self, epoch: str, outcomes: tuple[Released, ...]) -> None:
        """Deliver released outcomes in the order of their positions."""
