"""Replies about utterances: accepted, refused, unserved, and the pressure on the client."""

from __future__ import annotations

import pytest

from lingua_scheduler.runtime.client_notifier import REPORT_EVERY_MS, ClientNotifier
from lingua_scheduler.runtime.utterance_replies import UtteranceReplies
from lingua_scheduler.state.records import Submitted
from lingua_scheduler.state.reply import Reply
from lingua_wire.codes import ErrorCode
from lingua_wire.from_client import Utterance
from lingua_wire.to_client import Backpressure, ErrorMessage, UiEvent, UtteranceAccepted
from runtime.stand_ins import RETRY_MS, NotifiedClient

pytestmark = pytest.mark.unit


def test_an_utterance_is_accepted_once_though_it_has_several_jobs() -> None:
    client = NotifiedClient()
    mine = client.utterance(first_seq=4, last_seq=7, requested_index=2)
    client.replies.accepted(mine)
    client.replies.accepted(mine)
    assert client.outlet.sent == [
        UtteranceAccepted(
            session_id="s1",
            utterance_index=3,
            first_seq=4,
            last_seq=7,
            start_ms=10,
            end_ms=20,
            requested_index=2,
        )
    ]


def test_that_nobody_serves_a_language_is_told_with_the_reason() -> None:
    client = NotifiedClient(wants_events=False)
    answer = Submitted(Reply.QUEUED, code=Reply.NO_POOL_FOR_LANG_PAIR, label="lang_pair")
    client.replies.unserved(client.job, answer)
    event, error = client.outlet.sent
    assert isinstance(event, UiEvent)
    assert event.error_code == "NO_AVAILABLE_NODE"
    assert isinstance(error, ErrorMessage)
    assert error.code == "NO_AVAILABLE_NODE"
    assert error.details == {
        "utterance_index": 3,
        "tgt_lang": "en",
        "reason": "NO_POOL_FOR_LANG_PAIR",
        "label": "lang_pair",
    }
    assert not client.job.is_failure_sent


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (Reply.QUEUE_FULL, "BUSY"),
        (Reply.NO_POOL_FOR_LANG_PAIR, "NO_AVAILABLE_NODE"),
        (Reply.INDEX_TAKEN, "NO_AVAILABLE_NODE"),
    ],
)
def test_a_job_the_store_does_not_take_is_told_with_the_wait(reply: Reply, code: str) -> None:
    client = NotifiedClient()
    client.replies.not_taken(client.job, Submitted(reply))
    assert client.outlet.sent == [
        ErrorMessage(
            code=code,
            message=reply.meaning,
            retry_after_ms=RETRY_MS,
            details={"utterance_index": 3, "reason": reply.name},
        )
    ]


# Pressure.


def test_the_same_trouble_is_told_at_most_once_a_second() -> None:
    client = NotifiedClient()
    client.replies.busy()
    client.replies.busy()
    client.clock.at_ms += REPORT_EVERY_MS - 1
    client.replies.busy()
    assert client.codes() == ["BUSY"]
    client.clock.at_ms += 1
    client.replies.busy()
    client.replies.busy()
    assert client.codes() == ["BUSY"]


def test_one_trouble_does_not_keep_another_from_being_told() -> None:
    client = NotifiedClient()
    for _ in range(3):
        client.replies.busy()
        client.notifier.store_lost()
    assert client.codes() == ["BUSY", "SCHEDULER_DEPENDENCY_DOWN"]


def test_trouble_is_told_right_after_the_machine_was_started() -> None:
    client = NotifiedClient()
    client.clock.at_ms = 0.0
    client.replies.busy()
    client.notifier.store_lost()
    assert client.codes() == ["BUSY", "SCHEDULER_DEPENDENCY_DOWN"]


def test_one_sessions_trouble_is_not_anothers() -> None:
    client = NotifiedClient()
    notifier = ClientNotifier("s2", client.clock)
    notifier.attach(client.outlet)
    other = UtteranceReplies("s2", notifier, client.scene.metrics, RETRY_MS)
    client.replies.busy()
    other.busy()
    assert client.codes() == ["BUSY", "BUSY"]


@pytest.mark.parametrize(
    ("action", "after_ms"), [("SLOW_DOWN", RETRY_MS), ("PAUSE", RETRY_MS), ("RESUME", None)]
)
def test_pressure_says_how_long_unless_it_is_over(action: str, after_ms: int | None) -> None:
    client = NotifiedClient(speaks_additions=False)
    client.replies.pressure(action)
    assert client.outlet.sent == [Backpressure(action=action, resume_after_ms=after_ms)]
    assert client.scene.metrics.sockets.backpressure_total.labels(action=action).value == 1


def test_an_utterance_that_is_not_taken_is_named_each_time() -> None:
    client = NotifiedClient()
    message = Utterance(
        session_id="s1",
        utterance_index=8,
        src_lang="zh",
        tgt_lang="en",
        audio=b"x",
        audio_format="opus",
        sample_rate=16_000,
    )
    for _ in range(2):
        client.replies.refuse(ErrorCode.BUSY, "too many wait", message)
    assert client.outlet.sent == 2 * [
        ErrorMessage(
            code="BUSY",
            message="too many wait",
            details={"utterance_index": 8},
            retry_after_ms=RETRY_MS,
        )
    ]
    assert client.scene.metrics.sockets.backpressure_total.labels(action="BUSY").value == 2
