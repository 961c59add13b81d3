"""What a client is sent besides its outcomes: which clients get which messages, and how often."""

from __future__ import annotations

import pytest

from lingua_wire.codes import NODE_ERRORS, ErrorCode
from lingua_wire.to_client import (
    AsrPartial,
    ErrorMessage,
    Gap,
    UiEvent,
    UtteranceAccepted,
)
from runtime.stand_ins import NotifiedClient

pytestmark = pytest.mark.unit

GAP = Gap(start_ms=0, end_ms=1, reason="lost_chunks")


# Additions.


def test_additions_go_only_to_clients_that_know_them() -> None:
    new, old = NotifiedClient(), NotifiedClient(speaks_additions=False)
    for client in (new, old):
        client.notifier.addition(GAP)
        client.replies.accepted(client.utterance())
    assert [type(m) for m in new.outlet.sent] == [Gap, UtteranceAccepted]
    assert old.outlet.sent == []


def test_steps_go_only_to_clients_that_want_them() -> None:
    curious, other = NotifiedClient(), NotifiedClient(wants_events=False)
    curious.clock.at_ms += 41.6
    for client in (curious, other):
        client.notifier.event(client.job, "DISPATCHED")
    assert curious.outlet.sent == [
        UiEvent(
            trace_id="t1",
            session_id="s1",
            job_id=curious.job.id,
            utterance_index=3,
            event="DISPATCHED",
            elapsed_ms=42,
            status="ok",
        )
    ]
    assert other.outlet.sent == []


def test_a_step_never_lasted_less_than_nothing() -> None:
    client = NotifiedClient()
    client.clock.at_ms -= 10
    client.notifier.event(client.job, "DISPATCHED")
    (event,) = client.outlet.sent
    assert isinstance(event, UiEvent)
    assert event.elapsed_ms == 0


@pytest.mark.parametrize("wants_events", [True, False])
def test_what_is_recognised_so_far_goes_to_everybody_its_step_to_who_wants_it(
    wants_events: bool,
) -> None:
    client = NotifiedClient(speaks_additions=False, wants_events=wants_events)
    client.notifier.partial(client.job, "ni", is_final=False)
    assert client.outlet.sent[0] == AsrPartial(
        session_id="s1",
        utterance_index=3,
        job_id=client.job.id,
        text="ni",
        is_final=False,
        trace_id="t1",
    )
    events = [m.event for m in client.outlet.sent if isinstance(m, UiEvent)]
    assert events == (["ASR_PARTIAL"] if wants_events else [])


def test_a_client_that_is_gone_is_told_nothing() -> None:
    client = NotifiedClient()
    client.notifier.detach()
    client.notifier.send(GAP)
    client.notifier.addition(GAP)
    client.notifier.event(client.job, "DISPATCHED")
    client.notifier.partial(client.job, "ni", is_final=True)
    client.notifier.failed(client.job, "NMT_TIMEOUT")
    client.replies.accepted(client.utterance())
    client.replies.busy()
    client.notifier.store_lost()
    client.replies.pressure("PAUSE")
    assert client.outlet.sent == []


# Failures.


@pytest.mark.parametrize("wants_events", [True, False])
def test_a_failure_is_told_everybody_as_a_step_and_as_an_error(wants_events: bool) -> None:
    client = NotifiedClient(speaks_additions=False, wants_events=wants_events)
    client.notifier.failed(client.job, "NMT_TIMEOUT")
    event, error = client.outlet.sent
    assert isinstance(event, UiEvent)
    assert (event.event, event.status, event.error_code) == ("ERROR", "error", "NMT_TIMEOUT")
    assert event.hint == ErrorCode.NMT_TIMEOUT.failure
    assert error == ErrorMessage(
        code="NMT_TIMEOUT", message="This was not translated: translating took too long."
    )


@pytest.mark.parametrize("code", sorted(NODE_ERRORS | {"JOB_TIMEOUT", "BUSY", "NO_AVAILABLE_NODE"}))
def test_every_failure_is_a_sentence_for_people(code: str) -> None:
    client = NotifiedClient()
    client.notifier.failed(client.job, code)
    error = client.outlet.sent[1]
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
    client = NotifiedClient()
    client.notifier.failed(client.job, reason)
    event, error = client.outlet.sent
    assert isinstance(event, UiEvent)
    assert (event.error_code, event.hint) == (code, ErrorCode[code].failure)
    assert isinstance(error, ErrorMessage)
    assert (error.code, error.message) == (code, ErrorCode[code].failure)


def test_a_job_fails_once() -> None:
    client = NotifiedClient()
    client.notifier.failed(client.job, "NMT_TIMEOUT")
    client.notifier.failed(client.job, "JOB_TIMEOUT")
    assert client.codes() == ["NMT_TIMEOUT"]
    assert client.job.is_failure_sent
