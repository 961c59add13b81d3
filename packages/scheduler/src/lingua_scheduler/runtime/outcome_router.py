"""Outcomes on their way to the owner of their session: here, or on another instance.

They are in the session's outbox already, so that nothing is lost if this report is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_scheduler.peers.messages import JobTimes, OutcomesReady

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lingua_scheduler.runtime.held_jobs import HeldJobs
    from lingua_scheduler.runtime.job_log import JobLog
    from lingua_scheduler.runtime.job_table import JobTable
    from lingua_scheduler.runtime.peer_writer import PeerWriter
    from lingua_scheduler.runtime.session_state import OutcomeReceiver
    from lingua_scheduler.state.records import ScriptEffects


class OutcomeRouter:
    """Hands outcomes to the owners of their sessions."""

    def __init__(
        self,
        sessions: Mapping[str, OutcomeReceiver],
        jobs: JobTable,
        held: HeldJobs,
        peers: PeerWriter,
        log: JobLog,
    ) -> None:
        self._sessions = sessions
        self._jobs = jobs
        self._held = held
        self._peers = peers
        self._log = log

    def deliver(self, done: ScriptEffects) -> None:
        """Hand the outcomes that a script released to their session's owner."""
        if done.owner == self._peers.instance:
            session = self._sessions.get(done.session)
            if session is not None:
                session.deliver(done.epoch, done.released)
            else:
                self._log_unreceived(done)
        elif done.owner:
            last = done.released[-1].seq
            spans = self._spans(done)
            message = OutcomesReady(done.session, done.epoch, last, spans)
            self._peers.write(done.owner, message)
        else:
            self._log_unreceived(done)

    def _spans(self, done: ScriptEffects) -> tuple[JobTimes, ...]:
        """Return how long the jobs took on nodes here, which their owner cannot know."""
        held = (self._held.get(outcome.job) for outcome in done.released)
        return tuple(
            JobTimes(
                job.id,
                job.times.since_push(job.times.accepted),
                job.times.since_push(job.times.result),
            )
            for job in held
            if job is not None
        )

    def _log_unreceived(self, done: ScriptEffects) -> None:
        for outcome in done.released:
            job = self._jobs.get(outcome.job) or self._held.get(outcome.job)
            self._log.ended_unheard(done.session, outcome, job)
