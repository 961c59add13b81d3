"""One stream: its states, what was sent of it, and which partials count."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lingua_scheduler.state.stream_scripts import OpenedStream
from lingua_scheduler.streams.speech_stream import SpeechStream, StreamState
from lingua_scheduler.transitions import IllegalTransition
from lingua_wire.from_node import StreamPartial

if TYPE_CHECKING:
    from lingua_wire.to_node import StreamAudio, StreamEnd, StreamOpen

pytestmark = pytest.mark.unit

LEASE = OpenedStream("s-h1.1", "n", "c0", "here", 5000)


class Outlet:
    """Keeps what a node would get."""

    chunk_ms = 200

    def __init__(self) -> None:
        self.sent: list[tuple[int, bytes]] = []
        self.ends: list[StreamEnd] = []

    def open(self, message: StreamOpen) -> bool:
        return bool(message.stream_id)

    def feed(self, message: StreamAudio, at_bytes: int) -> bool:
        self.sent.append((at_bytes, message.audio))
        return True

    def end(self, message: StreamEnd) -> None:
        self.ends.append(message)


class Listener:
    """A session that is told what becomes of its stream."""

    def opened(self, stream: SpeechStream) -> None: ...

    def refused(self, stream: SpeechStream, retry_at_ms: float) -> None: ...

    def heard(self, stream: SpeechStream, partial: StreamPartial) -> None: ...

    def lost(self, stream: SpeechStream) -> None: ...


def stream() -> SpeechStream:
    return SpeechStream("s-h1.1", Listener(), start_ms=0)


def test_audio_goes_on_where_it_ended() -> None:
    one, outlet = stream(), Outlet()
    one.opened(LEASE, outlet, 4)
    one.feed(b"abcd", 2, now_ms=1)
    one.feed(b"ef", 3, now_ms=2)
    assert outlet.sent == [(0, b"abcd"), (4, b"ef")]
    assert (one.sent_bytes, one.sent_chunks, one.fed_at_ms) == (6, 3, 2)


def test_nothing_is_worth_sending_before_a_node_listens() -> None:
    assert stream().step_bytes > 1 << 40


def test_a_partial_counts_once_and_in_order() -> None:
    one = stream()
    revisions = [0, 2, 1, 2, 3]
    partials = [StreamPartial(stream_id=one.id, revision=n, upto_ms=0) for n in revisions]
    assert [one.is_newer(partial) for partial in partials] == [True, True, False, False, True]


def test_its_node_is_told_why_it_ended_and_how_much_belongs_to_the_utterance() -> None:
    one, outlet = stream(), Outlet()
    one.opened(LEASE, outlet, 4)
    one.end("cut", 640)
    assert [(end.reason, end.audio_bytes) for end in outlet.ends] == [("cut", 640)]
    assert one.is_over


def test_a_stream_that_never_opened_ends_silently() -> None:
    one = stream()
    one.end("dropped")
    assert one.is_over


@pytest.mark.parametrize("state", list(StreamState))
def test_what_is_over_stays_over(state: StreamState) -> None:
    one = stream()
    one.lost()
    with pytest.raises(IllegalTransition):
        one.move(state)
