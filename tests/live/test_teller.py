"""What a client is told besides its outcomes: who gets what, and how often."""

from __future__ import annotations

from typing import Any

import pytest

from lingua_scheduler.live.piece import Piece
from lingua_scheduler.live.teller import TELL_EVERY_MS, Teller
from lingua_scheduler.messages.codes import NODE_ERRORS, ErrorCode
from lingua_scheduler.messages.from_client import Utterance
from lingua_scheduler.messages.to_client import (
    AsrPartial,
    Backpressure,
    ErrorMessage,
    Gap,
    UiEvent,
    UtteranceAccepted,
)
from lingua_scheduler.state.records import Submitted
from lingua_scheduler.state.reply import Reply
from live.stand_ins import KeepingOutlet, Scene

pytestmark = pytest.mark.unit

GAP = Gap(start_ms=0, end_ms=1, reason="lost_chunks")
RETRY_MS = 700


class Told:
    """A teller and the client it talks to."""

    def __init__(self, *, speaks_additions: bool = True, wants_events: bool = True) -> None:
        self.scene = Scene()
        self.outlet = KeepingOutlet(speaks_additions=speaks_additions, wants_events=wants_events)
        self.teller = Teller("s1", self.outlet, self.scene.board, RETRY_MS)
        self.job = self.scene.job(3)
        self.clock = self.scene.clock

    def codes(self) -> list[str]:
        """Return the codes of the errors sent since the last call."""
        return [m.code for m in self.outlet.take() if isinstance(m, ErrorMessage)]


def piece(told: Told, **more: Any) -> Piece:
    profile = told.scene.session.profile
    return Piece(3, b"", profile, (), "t1", "manual", 0.0, 0.0, start_ms=10, end_ms=20, **more)


# Additions.


def test_additions_go_only_to_clients_that_know_them() -> None:
    new, old = Told(), Told(speaks_additions=False)
    for told in (new, old):
        told.teller.addition(GAP)
        told.teller.accepted(piece(told))
    assert [type(m) for m in new.outlet.sent] == [Gap, UtteranceAccepted]
    assert old.outlet.sent == []


def test_an_utterance_is_accepted_once_though_it_has_several_jobs() -> None:
    told = Told()
    mine = piece(told, first_seq=4, last_seq=7, requested_index=2)
    told.teller.accepted(mine)
    told.teller.accepted(mine)
    assert told.outlet.sent == [
        UtteranceAccepted(
            session_id="s1", utterance_index=3, first_seq=4, last_seq=7, start_ms=10, end_ms=20,
            requested_index=2,
        )
    ]  # fmt: skip


def test_steps_go_only_to_clients_that_want_them() -> None:
    curious, other = Told(), Told(wants_events=False)
    curious.clock.at_ms += 41.6
    for told in (curious, other):
        told.teller.event(told.job, "DISPATCHED")
    assert curious.outlet.sent == [
        UiEvent(
            trace_id="t1", session_id="s1", job_id=curious.job.id, utterance_index=3,
            event="DISPATCHED", elapsed_ms=42, status="ok",
        )
    ]  # fmt: skip
    assert other.outlet.sent == []


def test_a_step_never_lasted_less_than_nothing() -> None:
    told = Told()
    told.clock.at_ms -= 10
    told.teller.event(told.job, "DISPATCHED")
    (event,) = told.outlet.sent
    assert isinstance(event, UiEvent)
    assert event.elapsed_ms == 0


@pytest.mark.parametrize("wants_events", [True, False])
def test_what_is_recognised_so_far_goes_to_everybody_its_step_to_who_wants_it(
    wants_events: bool,
) -> None:
    told = Told(speaks_additions=False, wants_events=wants_events)
    told.teller.partial(told.job, "ni", is_final=False)
    assert told.outlet.sent[0] == AsrPartial(
        session_id="s1", utterance_index=3, job_id=told.job.id, text="ni", is_final=False,
        trace_id="t1",
    )  # fmt: skip
    events = [m.event for m in told.outlet.sent if isinstance(m, UiEvent)]
    assert events == (["ASR_PARTIAL"] if wants_events else [])


def test_a_client_that_is_gone_is_told_nothing() -> None:
    told = Told()
    told.teller.outlet = None
    told.teller.tell(GAP)
    told.teller.addition(GAP)
    told.teller.event(told.job, "DISPATCHED")
    told.teller.partial(told.job, "ni", is_final=True)
    told.teller.failed(told.job, "NMT_TIMEOUT")
    told.teller.accepted(piece(told))
    told.teller.busy()
    told.teller.store_lost()
    told.teller.pressure("PAUSE")
    assert told.outlet.sent == []


# Failures.


@pytest.mark.parametrize("wants_events", [True, False])
def test_a_failure_is_told_everybody_as_a_step_and_as_an_error(wants_events: bool) -> None:
    told = Told(speaks_additions=False, wants_events=wants_events)
    told.teller.failed(told.job, "NMT_TIMEOUT")
    event, error = told.outlet.sent
    assert isinstance(event, UiEvent)
    assert (event.event, event.status, event.error_code) == ("ERROR", "error", "NMT_TIMEOUT")
    assert event.hint == ErrorCode.NMT_TIMEOUT.failure
    assert error == ErrorMessage(
        code="NMT_TIMEOUT", message="This was not translated: translating took too long."
    )


@pytest.mark.parametrize("code", sorted(NODE_ERRORS | {"JOB_TIMEOUT", "BUSY", "NO_AVAILABLE_NODE"}))
def test_every_failure_is_a_sentence_for_people(code: str) -> None:
    told = Told()
    told.teller.failed(told.job, code)
    error = told.outlet.sent[1]
    assert isinstance(error, ErrorMessage)
    assert error.message.startswith("This was not translated: ")
    assert code not in error.message
    assert error.details is None


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("queue_full", "BUSY"),
        ("no_pool_for_lang_pair", "NO_AVAILABLE_NODE"),
        ("audio_lost", "NODE_UNAVAILABLE"),
        ("odd_code", "PROCESSING_ERROR"),
    ],
)
def test_a_reason_that_is_no_code_becomes_one(reason: str, code: str) -> None:
    told = Told()
    told.teller.failed(told.job, reason)
    event, error = told.outlet.sent
    assert isinstance(event, UiEvent)
    assert (event.error_code, event.hint) == (code, ErrorCode[code].failure)
    assert isinstance(error, ErrorMessage)
    assert (error.code, error.message) == (code, ErrorCode[code].failure)


def test_a_job_fails_once() -> None:
    told = Told()
    told.teller.failed(told.job, "NMT_TIMEOUT")
    told.teller.failed(told.job, "JOB_TIMEOUT")
    assert told.codes() == ["NMT_TIMEOUT"]
    assert told.job.told


def test_that_nobody_serves_a_language_is_told_with_the_reason() -> None:
    told = Told(wants_events=False)
    answer = Submitted(Reply.QUEUED, code=Reply.NO_POOL_FOR_LANG_PAIR, label="lang_pair")
    told.teller.unserved(told.job, answer)
    event, error = told.outlet.sent
    assert isinstance(event, UiEvent)
    assert event.error_code == "NO_AVAILABLE_NODE"
    assert isinstance(error, ErrorMessage)
    assert error.code == "NO_AVAILABLE_NODE"
    assert error.details == {
        "utterance_index": 3, "tgt_lang": "en", "reason": "NO_POOL_FOR_LANG_PAIR",
        "label": "lang_pair",
    }  # fmt: skip
    assert not told.job.told


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (Reply.QUEUE_FULL, "BUSY"),
        (Reply.NO_POOL_FOR_LANG_PAIR, "NO_AVAILABLE_NODE"),
        (Reply.INDEX_TAKEN, "NO_AVAILABLE_NODE"),
    ],
)
def test_a_job_the_store_does_not_take_is_told_with_the_wait(reply: Reply, code: str) -> None:
    told = Told()
    told.teller.not_taken(told.job, Submitted(reply))
    assert told.outlet.sent == [
        ErrorMessage(
            code=code, message=reply.meaning, retry_after_ms=RETRY_MS,
            details={"utterance_index": 3, "reason": reply.name},
        )
    ]  # fmt: skip


# Pressure.


def test_the_same_trouble_is_told_at_most_once_a_second() -> None:
    told = Told()
    told.teller.busy()
    told.teller.busy()
    told.clock.at_ms += TELL_EVERY_MS - 1
    told.teller.busy()
    assert told.codes() == ["BUSY"]
    told.clock.at_ms += 1
    told.teller.busy()
    told.teller.busy()
    assert told.codes() == ["BUSY"]


def test_one_trouble_does_not_keep_another_from_being_told() -> None:
    told = Told()
    for _ in range(3):
        told.teller.busy()
        told.teller.store_lost()
    assert told.codes() == ["BUSY", "SCHEDULER_DEPENDENCY_DOWN"]


def test_trouble_is_told_right_after_the_machine_was_started() -> None:
    told = Told()
    told.clock.at_ms = 0.0
    told.teller.busy()
    told.teller.store_lost()
    assert told.codes() == ["BUSY", "SCHEDULER_DEPENDENCY_DOWN"]


def test_one_sessions_trouble_is_not_anothers() -> None:
    told = Told()
    other = Teller("s2", told.outlet, told.scene.board, RETRY_MS)
    told.teller.busy()
    other.busy()
    assert told.codes() == ["BUSY", "BUSY"]


@pytest.mark.parametrize(
    ("action", "after_ms"), [("SLOW_DOWN", RETRY_MS), ("PAUSE", RETRY_MS), ("RESUME", None)]
)
def test_pressure_says_how_long_unless_it_is_over(action: str, after_ms: int | None) -> None:
    told = Told(speaks_additions=False)
    told.teller.pressure(action)
    assert told.outlet.sent == [Backpressure(action=action, resume_after_ms=after_ms)]
    assert told.scene.metrics.backpressure_total.labels(action=action).value == 1


def test_an_utterance_that_is_not_taken_is_named_each_time() -> None:
    told = Told()
    message = Utterance(
        session_id="s1", utterance_index=8, src_lang="zh", tgt_lang="en", audio=b"x",
        audio_format="opus", sample_rate=16_000,
    )  # fmt: skip
    for _ in range(2):
        told.teller.refuse(ErrorCode.BUSY, "too many wait", message)
    assert told.outlet.sent == 2 * [
        ErrorMessage(
            code="BUSY", message="too many wait", details={"utterance_index": 8},
            retry_after_ms=RETRY_MS,
        )
    ]  # fmt: skip
    assert told.scene.metrics.backpressure_total.labels(action="BUSY").value == 2
