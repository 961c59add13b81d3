"""A session on another instance: what its owner is told of a job that runs on a node here."""

from __future__ import annotations

import asyncio

import pytest

from lingua_scheduler.between.letters import Letter, Partial, Progress, Trouble
from lingua_scheduler.live.job import LiveJob
from lingua_scheduler.live.remote import RemoteSession
from lingua_scheduler.messages.codes import ErrorCode
from live.stand_ins import Scene

pytestmark = pytest.mark.unit


class Written:
    """A job of a session whose owner is `there`, and the letters written about it."""

    def __init__(self) -> None:
        self.letters: list[tuple[str, Letter]] = []
        self.session = RemoteSession(
            "s7", "there", lambda to, what: self.letters.append((to, what))
        )
        self.job: LiveJob = Scene().job(3)
        self.job.session = self.session
        self.job.attempt, self.job.node = 2, "n1"

    def take(self) -> Letter:
        """Return the one letter that was written, to the owner."""
        ((to, letter),) = self.letters
        assert to == "there"
        self.letters.clear()
        return letter


@pytest.mark.parametrize(("event", "step"), [("NODE_ACCEPTED", "accepted"), ("KEPT", "kept")])
def test_a_step_that_only_the_nodes_instance_sees_is_told_the_owner(event: str, step: str) -> None:
    written = Written()
    written.session.teller.event(written.job, event)
    assert written.take() == Progress("s7", written.job.id, 2, "n1", step)


@pytest.mark.parametrize("event", ["DISPATCHED", "ASR_FINAL", "NMT_DONE", "ASR_PARTIAL"])
def test_a_step_that_the_owner_sees_by_itself_is_not_told(event: str) -> None:
    written = Written()
    written.session.teller.event(written.job, event)
    assert written.letters == []


@pytest.mark.parametrize("is_final", [True, False])
def test_what_was_recognised_so_far_is_passed_on(is_final: bool) -> None:
    written = Written()
    written.session.teller.partial(written.job, "ni hao", is_final=is_final)
    assert written.take() == Partial("s7", written.job.id, 2, "ni hao", is_final)


def test_a_failure_is_told_once_in_our_own_words() -> None:
    written = Written()
    written.session.teller.failed(written.job, "NMT_TIMEOUT")
    said = ErrorCode.NMT_TIMEOUT.failure
    assert written.take() == Trouble("s7", written.job.id, "NMT_TIMEOUT", said, None)
    assert written.job.told
    written.session.teller.failed(written.job, "JOB_TIMEOUT")
    assert written.letters == []


def test_the_owner_looks_for_outcomes_and_for_the_store_by_itself() -> None:
    written = Written()
    asyncio.run(written.session.recover())
    written.session.teller.store_lost()
    written.job.store_lost()
    assert written.letters == []
    assert (written.session.id, written.session.tenant) == ("s7", "")
