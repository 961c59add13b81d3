"""A session on another instance: which reports of a job on a node here its owner is sent."""

from __future__ import annotations

import asyncio

import pytest

from lingua_scheduler.peers.messages import (
    JobProgress,
    PartialTranscript,
    PeerMessage,
    SessionProblem,
)
from lingua_scheduler.runtime.job import LiveJob
from lingua_scheduler.runtime.remote_session import RemoteSession
from lingua_wire.codes import ErrorCode
from runtime.stand_ins import Scene

pytestmark = pytest.mark.unit


class Written:
    """A job of a session whose owner is `there`, and the messages about it."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, PeerMessage]] = []
        self.session = RemoteSession(
            "s7", "there", lambda to, what: self.messages.append((to, what))
        )
        self.job: LiveJob = Scene().job(3)
        self.job.owner = self.session
        self.job.run.follow(2, "n1")

    def take(self) -> PeerMessage:
        """Return the one message that was sent, to the owner."""
        ((to, message),) = self.messages
        assert to == "there"
        self.messages.clear()
        return message


@pytest.mark.parametrize(("event", "step"), [("NODE_ACCEPTED", "accepted"), ("KEPT", "kept")])
def test_a_step_that_only_the_nodes_instance_sees_is_told_the_owner(event: str, step: str) -> None:
    written = Written()
    written.session.notifier.event(written.job, event)
    assert written.take() == JobProgress("s7", written.job.id, 2, "n1", step)


@pytest.mark.parametrize("event", ["DISPATCHED", "ASR_FINAL", "NMT_DONE", "ASR_PARTIAL"])
def test_a_step_that_the_owner_sees_by_itself_is_not_told(event: str) -> None:
    written = Written()
    written.session.notifier.event(written.job, event)
    assert written.messages == []


@pytest.mark.parametrize("is_final", [True, False])
def test_what_was_recognised_so_far_is_passed_on(is_final: bool) -> None:
    written = Written()
    written.session.notifier.partial(written.job, "ni hao", is_final=is_final)
    assert written.take() == PartialTranscript("s7", written.job.id, 2, "ni hao", is_final)


def test_a_failure_is_told_once_in_our_own_words() -> None:
    written = Written()
    written.session.notifier.failed(written.job, "NMT_TIMEOUT")
    said = ErrorCode.NMT_TIMEOUT.failure
    assert written.take() == SessionProblem("s7", written.job.id, "NMT_TIMEOUT", said, None)
    assert written.job.is_failure_sent
    written.session.notifier.failed(written.job, "JOB_TIMEOUT")
    assert written.messages == []


def test_the_owner_looks_for_outcomes_and_for_the_store_by_itself() -> None:
    written = Written()
    asyncio.run(written.session.recover())
    written.session.notifier.store_lost()
    written.job.owner.notifier.store_lost()
    assert written.messages == []
    assert written.session.id == "s7"
