"""A session on another instance, as a job that runs on a node here sees it.

Reports for its client go to the session's owner by a peer message. Outcomes do not pass here:
they are in the session's outbox.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_scheduler.peers.messages import JobProgress, PartialTranscript, SessionProblem
from lingua_scheduler.runtime.client_notifier import code_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from lingua_scheduler.peers.messages import PartSpoken, PeerMessage
    from lingua_scheduler.runtime.job import LiveJob

    Write = Callable[[str, PeerMessage], None]

# Steps that only the node's instance sees -> their names in a peer message.
STEPS = {"NODE_ACCEPTED": "accepted", "KEPT": "kept"}


class RemoteNotifier:
    """Sends the reports of a job to the owner of its session."""

    def __init__(self, session: str, owner: str, write: Write) -> None:
        self._session = session
        self._owner = owner
        self._write = write

    def event(self, job: LiveJob, event: str) -> None:
        """Report a step of a job."""
        step = STEPS.get(event)
        if step is not None:
            self._write(
                self._owner, JobProgress(self._session, job.id, job.attempt, job.node, step)
            )

    def partial(self, job: LiveJob, text: str, *, is_final: bool) -> None:
        """Pass on the text recognised so far."""
        self._write(
            self._owner, PartialTranscript(self._session, job.id, job.attempt, text, is_final)
        )

    def failed(self, job: LiveJob, reason: str) -> None:
        """Report at once that a job failed; owners of older releases pass the message on."""
        if job.first_failure():
            code = code_for(reason)
            self._write(
                self._owner, SessionProblem(self._session, job.id, code, code.failure, None)
            )

    def part(self, job: LiveJob, part: PartSpoken) -> None:  # noqa: ARG002 the part names it
        """Pass on a part of the spoken translation."""
        self._write(self._owner, part)

    def store_lost(self) -> None:
        """Report nothing: no job is submitted here for a session elsewhere."""


class RemoteSession:
    """A session whose owner is another instance."""

    def __init__(self, session: str, owner: str, write: Write) -> None:
        self.id = session
        self.notifier = RemoteNotifier(session, owner, write)

    async def recover(self) -> None:
        """Do nothing: the owner looks for outcomes."""
