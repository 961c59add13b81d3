"""Which fields of a dead letter are shown, and which are not."""

from __future__ import annotations

import msgspec
import pytest

from lingua_scheduler.maintenance.dead_letter_admin import PLAIN, shown_body
from lingua_scheduler.peers.messages import (
    BY_KIND,
    ClientMessage,
    JobTimes,
    ListenerOutcomeReady,
    OutboxPosition,
    OutcomesReady,
    PartialTranscript,
    PeerMessage,
    PushJob,
    SessionProblem,
)

pytestmark = pytest.mark.unit

SECRET = "what somebody said"
SAID = [
    PushJob("job-1", 2, "n", "c0", body=SECRET.encode(), audio=SECRET.encode()),
    PartialTranscript("s", "job-1", 1, SECRET, is_final=True),
    SessionProblem("s", "job-1", "BAD", SECRET, {"heard": SECRET}),
    ClientMessage("s", SECRET.encode()),
]


@pytest.mark.parametrize("letter", SAID, ids=lambda letter: type(letter).__name__)
def test_what_was_said_is_never_shown(letter: PeerMessage) -> None:
    shown = shown_body(msgspec.msgpack.encode(letter))
    assert SECRET not in repr(shown)
    assert f"{len(SECRET)} " in repr(shown), "but its size is"


def test_ids_and_numbers_are_shown_and_of_the_rest_the_size() -> None:
    push = PushJob("job-1", 2, "n", "c0", audio=b"12345")
    assert shown_body(msgspec.msgpack.encode(push)) == {
        "job": "job-1", "attempt": 2, "node": "n", "home": "c0", "audio": "5 bytes",
    }  # fmt: skip
    outcomes = OutcomesReady("s", "17", 4, (JobTimes("job-1", 1, 2),))
    assert shown_body(msgspec.msgpack.encode(outcomes)) == {
        "session": "s", "epoch": "17", "seq": 4, "spans": "1 parts",
    }  # fmt: skip
    said = ListenerOutcomeReady(
        "a|5|7", "completed 3 en j 1 -", "c1", (OutboxPosition("s", "17", 4),)
    )
    assert shown_body(msgspec.msgpack.encode(said)) == {
        "id": "a|5|7", "line": "completed 3 en j 1 -", "cell": "c1", "places": "1 parts",
    }  # fmt: skip


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x91" * 5000, msgspec.msgpack.encode([1])])
def test_a_body_that_cannot_be_read_is_a_size(body: bytes) -> None:
    assert shown_body(body) == {"unreadable": f"{len(body)} bytes"}


def test_a_part_that_pretends_to_be_an_id_is_a_size() -> None:
    body = msgspec.msgpack.encode({"job": "x" * 1000, "new": SECRET, 7: None, "node": b"n"})
    assert shown_body(body) == {
        "job": "1000 characters", "new": "18 characters", "7": "NoneType", "node": "1 bytes",
    }  # fmt: skip


def test_every_part_that_is_shown_is_one_of_a_letter() -> None:
    parts = {name for kind in BY_KIND.values() for name in kind.__struct_fields__}
    assert parts >= PLAIN
    assert parts - PLAIN == {
        "body", "audio", "spans", "text", "message", "details", "places", "opening", "partial",
        "listeners",
    }  # fmt: skip
