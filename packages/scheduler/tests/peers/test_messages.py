"""Messages between instances and their entries: round trips, and entries that cannot be read."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingua_scheduler.peers.messages import (
    BY_KIND,
    KIND_OF,
    ClientMessage,
    CloseStream,
    FeedStream,
    JobProgress,
    JobTimes,
    ListenerOutcomeReady,
    OpenStream,
    OutboxPosition,
    OutcomesReady,
    PartialHeard,
    PartialTranscript,
    PartSpoken,
    PeerMessage,
    PushJob,
    ReceivedMessage,
    ResendAudio,
    RoomChanged,
    SessionProblem,
    SessionTaken,
    StopAttempt,
    StreamGone,
    StreamText,
    UnreadableMessage,
    decode_entry,
    encode_entry,
)
from lingua_scheduler.state.records import read_entry
from lingua_wire.from_node import StreamPartial
from lingua_wire.shared import PartialTranslation
from lingua_wire.to_client import PartialResult

pytestmark = pytest.mark.unit

SAID = ListenerOutcomeReady(
    "a|5|7",
    "completed 3 en j 1 -",
    "c1",
    (OutboxPosition("s", "17", 4), OutboxPosition("t", "9", 1)),
)
HEARD_SO_FAR = StreamPartial(stream_id="s-h1.1", revision=3, upto_ms=900, stable="good")
SAID_SO_FAR = PartialResult(
    session_id="s",
    utterance_index=4,
    revision=3,
    start_ms=100,
    upto_ms=1000,
    stable="good",
    unstable="morn",
    translations=(PartialTranslation(tgt_lang="es", stable="buenos"),),
)
LETTERS: list[PeerMessage] = [
    PushJob("j", 2, "n", "c3"),
    PushJob("j", 2, "n", "c3", context_reset=True, ends_at_ms=9, body=b"b", audio=b"\x00\xff"),
    StopAttempt("j", 1, "n", "cancelled"),
    ResendAudio("j", 1, "n", "c0", "host-1"),
    OutcomesReady("s", "17", 5),
    OutcomesReady("s", "17", 5, (JobTimes("j", 3, 40), JobTimes("k", 0, 7))),
    JobProgress("s", "j", 1, "n", "accepted"),
    PartialTranscript("s", "j", 1, "hello 世界", is_final=True),
    OpenStream("s-h1.1", "s", "n", "host-1", b"opening"),
    FeedStream("s-h1.1", "n", 6400, b"\x00\xff"),
    CloseStream("s-h1.1", "n", "cut", 12_800),
    StreamText("s", HEARD_SO_FAR),
    StreamGone("s", "s-h1.1"),
    PartialHeard(SAID_SO_FAR, (("t", "es"), ("u", ""))),
    PartSpoken("s", "j", 1, 0, b"\x00\xff", "pcm16"),
    SessionProblem("s", "", "NO_NODE", "nobody"),
    SessionProblem("s", "j", "NO_NODE", "nobody", {"retry_after_ms": 5, "tried": ["a"]}),
    SessionTaken("s", 4),
    RoomChanged("ABC123"),
    ClientMessage("s", b"\x81raw"),
    SAID,
]


def entry_of(letter: PeerMessage, **other: Any) -> list[bytes]:
    """An entry as the server returns it; `other` replaces fields or, with None, removes them."""
    words = [word if isinstance(word, bytes) else str(word).encode() for word in sealed(letter)]
    found = dict(zip(words[::2], words[1::2], strict=True))
    for name, value in other.items():
        found[name.encode()] = value
    return [word for pair in found.items() if pair[1] is not None for word in pair]


def sealed(letter: PeerMessage) -> tuple[Any, ...]:
    return encode_entry(letter, "a", 1_700_000_000_123)


@pytest.mark.parametrize("letter", LETTERS, ids=lambda letter: type(letter).__name__)
def test_a_letter_is_read_as_it_was_written(letter: PeerMessage) -> None:
    envelope = decode_entry(b"5-1", entry_of(letter))
    assert envelope.message == letter
    assert (envelope.id, envelope.sender, envelope.sent_at_ms) == ("5-1", "a", 1_700_000_000_123)


def test_what_listeners_have_in_their_outboxes_is_told_as_it_is_there() -> None:
    entry = read_entry(0, b"heard 3 en j 1 -\ncompleted a|5|7")
    assert SAID.outcome() == entry


def test_every_letter_has_a_kind_and_was_tried_above() -> None:
    assert set(get_args(PeerMessage)) == set(BY_KIND.values()) == {type(each) for each in LETTERS}
    assert {KIND_OF[kind] for kind in BY_KIND.values()} == set(BY_KIND)


def test_the_entry_is_what_other_releases_read() -> None:
    # A change here is a change of the protocol between instances of two releases.
    assert encode_entry(StopAttempt("j", 1, "n", "r"), "a", 5) == (
        "v", 1, "k", "stop", "f", "a", "c", "j", "a", 1, "t", 5,
        "b", msgspec.msgpack.encode({"job": "j", "attempt": 1, "node": "n", "reason": "r"}),
    )  # fmt: skip
    assert set(BY_KIND) == {
        "push", "stop", "resend", "outcomes", "progress", "partial", "trouble", "taken",
        "room_changed", "relay", "said", "stream_open", "stream_feed", "stream_close",
        "stream_text", "stream_gone", "partial_heard", "speech_part",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("letter", "correlation", "attempt"),
    [
        (PushJob("j", 2, "n", "c3"), "j", 2),
        (PartialTranscript("s", "j", 3, "x", is_final=False), "j", 3),
        (SessionProblem("s", "j", "CODE", "m"), "j", None),
        (SessionProblem("s", "", "CODE", "m"), "s", None),
        (OutcomesReady("s", "1", 5), "s", None),
        (RoomChanged("ABC"), "ABC", None),
        (SAID, "j", None),
    ],
)
def test_an_envelope_says_what_the_letter_is_about(
    letter: PeerMessage, correlation: str, attempt: int | None
) -> None:
    envelope = decode_entry("1-0", entry_of(letter))
    assert (envelope.correlation, envelope.attempt) == (correlation, attempt)


def test_fields_and_parts_that_are_not_known_are_ignored() -> None:
    body = msgspec.msgpack.encode({"session": "s", "fence": 4, "since": "the next release"})
    envelope = decode_entry(b"1-0", entry_of(SessionTaken("s", 4), b=body, new=b"field"))
    assert envelope.message == SessionTaken("s", 4)


def test_what_an_older_release_did_not_say_has_its_default() -> None:
    body = msgspec.msgpack.encode({"job": "j", "attempt": 1, "node": "n", "home": "c0"})
    assert decode_entry(
        b"1-0", entry_of(PushJob("j", 1, "n", "c0"), b=body, a=None, c=None)
    ) == ReceivedMessage("1-0", PushJob("j", 1, "n", "c0"), "a", 1_700_000_000_123, "", None)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"k": b"ode"}, "unknown_kind"),
        ({"v": b"2"}, "newer_version"),
        ({"v": b"2", "k": b"ode", "b": b""}, "newer_version"),
        ({"v": b"x"}, "malformed"),
        ({"v": None}, "malformed"),
        ({"k": None}, "malformed"),
        ({"b": None}, "malformed"),
        ({"b": b""}, "malformed"),
        ({"b": b"\xc1"}, "malformed"),
        ({"b": msgspec.msgpack.encode({"session": "s"})}, "malformed"),
        ({"b": msgspec.msgpack.encode({"session": 1, "fence": 1})}, "malformed"),
        ({"b": msgspec.msgpack.encode([1])}, "malformed"),
        ({"t": b"soon"}, "malformed"),
        ({"a": b"first"}, "malformed"),
        ({"f": b"\xff"}, "malformed"),
        ({"f": None}, "malformed"),
    ],
)
def test_what_cannot_be_read_says_why(change: dict[str, bytes | None], reason: str) -> None:
    with pytest.raises(UnreadableMessage) as caught:
        decode_entry(b"1-0", entry_of(SessionTaken("s", 4), **change))
    assert caught.value.reason == reason


@given(st.lists(st.binary(max_size=12), max_size=16), st.binary(max_size=40))
def test_nothing_in_an_entry_breaks_the_reader(junk: list[bytes], body: bytes) -> None:
    for fields in (
        junk,
        entry_of(SessionTaken("s", 4), b=body),
        [*entry_of(SessionTaken("s", 4)), *junk],
    ):
        assert outcome_of(fields) in {"read", "unknown_kind", "newer_version", "malformed"}


def outcome_of(fields: list[bytes]) -> str:
    try:
        decode_entry(b"1-0", fields)
    except UnreadableMessage as error:
        return error.reason
    return "read"


def test_a_body_nested_without_end_is_only_malformed() -> None:
    inner = b"\x91" * 100_000
    body = msgspec.msgpack.encode({"session": "s", "job": "", "code": "c", "message": "m"})
    body = b"\x85" + body[1:] + msgspec.msgpack.encode("details") + b"\x81\xa1a" + inner
    assert outcome_of(entry_of(SessionProblem("s", "", "c", "m"), b=body)) == "malformed"
