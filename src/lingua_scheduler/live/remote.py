"""A session on another instance, as a job that runs on a node here sees it.

What its client is told goes to the session's owner by letter; outcomes do not pass here, they are
in the session's outbox.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_scheduler.between.letters import Partial, Progress, Trouble
from lingua_scheduler.live.teller import code_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from lingua_scheduler.between.letters import Letter
    from lingua_scheduler.live.job import LiveJob

    Write = Callable[[str, Letter], None]

# Steps that only the node's instance sees -> what they are called in a letter.
STEPS = {"NODE_ACCEPTED": "accepted", "KEPT": "kept"}


class RemoteTeller:
    """Tells the owner what the session's client should hear of."""

    def __init__(self, session: str, owner: str, write: Write) -> None:
        self._session = session
        self._owner = owner
        self._write = write

    def event(self, job: LiveJob, event: str) -> None:
        """Tell of a step on a job's way."""
        step = STEPS.get(event)
        if step is not None:
            self._write(self._owner, Progress(self._session, job.id, job.attempt, job.node, step))

    def partial(self, job: LiveJob, text: str, *, is_final: bool) -> None:
        """Pass on what was recognised so far."""
        self._write(self._owner, Partial(self._session, job.id, job.attempt, text, is_final))

    def failed(self, job: LiveJob, reason: str) -> None:
        """Tell at once that a job failed; an owner of an older release passes the words on."""
        if job.told:
            return
        job.told = True
        code = code_for(reason)
        self._write(self._owner, Trouble(self._session, job.id, code, code.failure, None))

    def store_lost(self) -> None:
        """Nothing is submitted for a session elsewhere."""


class RemoteSession:
    """A session whose owner is another instance."""

    def __init__(self, session: str, owner: str, write: Write) -> None:
        self.id = session
        # Known to its owner.
        self.tenant = ""
        self.teller = RemoteTeller(session, owner, write)

    async def recover(self) -> None:
        """Outcomes are looked for by the owner."""
