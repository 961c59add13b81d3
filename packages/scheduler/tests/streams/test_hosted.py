"""Streams of sessions elsewhere to nodes here: in order or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from lingua_scheduler.peers.messages import (
    CloseStream,
    FeedStream,
    OpenStream,
    StreamGone,
    StreamText,
)
from lingua_scheduler.streams.hosted import IDLE_MS, HostedStreams
from lingua_wire.from_node import StreamPartial
from lingua_wire.shared import PipelineConfig
from lingua_wire.to_node import StreamOpen

if TYPE_CHECKING:
    from lingua_scheduler.peers.messages import PeerMessage
    from lingua_wire.to_node import StreamAudio, StreamEnd

pytestmark = pytest.mark.unit

OPENING = StreamOpen(
    stream_id="x",
    session_id="s",
    src_lang="en",
    tgt_langs=("es",),
    pipeline=PipelineConfig(use_asr=True, use_nmt=True, use_tts=True),
    audio_format="pcm16",
    sample_rate=16_000,
    trace_id="t",
)
OPEN = OpenStream("x", "s", "n", "owner", msgspec.msgpack.encode(OPENING))
PARTIAL = StreamPartial(stream_id="x", revision=1, upto_ms=10)


class Node:
    """A node's socket."""

    id = "n"

    def __init__(self) -> None:
        self.heard = b""
        self.opened: list[str] = []
        self.ends: list[tuple[str, int | None]] = []

    def open_stream(self, message: StreamOpen) -> bool:
        self.opened.append(message.stream_id)
        return True

    def feed_stream(self, message: StreamAudio) -> bool:
        self.heard += message.audio
        return True

    def end_stream(self, message: StreamEnd) -> None:
        self.ends.append((message.reason, message.audio_bytes))


class Peers:
    instance = "here"

    def __init__(self) -> None:
        self.sent: list[tuple[str, PeerMessage]] = []

    def write(self, to: str, message: PeerMessage) -> None:
        self.sent.append((to, message))


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.at_ms = 0.0

    def now_ms(self) -> float:
        return self.at_ms

    def wall_ms(self) -> int:
        return 0


class Scene:
    """One node and the streams it hears."""

    def __init__(self) -> None:
        self.node, self.peers, self.clock = Node(), Peers(), Clock()
        self.hosted = HostedStreams({"n": self.node}, self.peers, self.clock)


def test_audio_reaches_the_node_and_texts_the_owner() -> None:
    scene = Scene()
    scene.hosted.open(OPEN)
    scene.hosted.feed(FeedStream("x", "n", 0, b"ab"))
    scene.hosted.feed(FeedStream("x", "n", 2, b"cd"))
    scene.hosted.partial("n", PARTIAL)
    scene.hosted.close(CloseStream("x", "n", "cut", 4))
    assert (scene.node.opened, scene.node.heard) == (["x"], b"abcd")
    assert scene.node.ends == [("cut", 4)]
    assert scene.peers.sent == [("owner", StreamText("s", PARTIAL))]
    assert len(scene.hosted) == 0


@pytest.mark.parametrize("at_bytes", [0, 1, 4])
def test_a_stream_with_a_gap_or_a_repetition_ends(at_bytes: int) -> None:
    scene = Scene()
    scene.hosted.open(OPEN)
    scene.hosted.feed(FeedStream("x", "n", 0, b"ab"))
    scene.hosted.feed(FeedStream("x", "n", at_bytes, b"cd"))
    assert scene.node.heard == b"ab"
    assert scene.node.ends == [("dropped", None)]
    assert scene.peers.sent == [("owner", StreamGone("s", "x"))]


def test_a_node_that_is_not_here_hears_nothing() -> None:
    scene = Scene()
    scene.hosted.open(OpenStream("x", "s", "other", "owner", OPEN.opening))
    scene.hosted.feed(FeedStream("x", "other", 0, b"ab"))
    assert scene.peers.sent == [("owner", StreamGone("s", "x"))]


def test_another_node_does_not_speak_for_a_stream() -> None:
    scene = Scene()
    scene.hosted.open(OPEN)
    scene.hosted.partial("m", PARTIAL)
    scene.hosted.closed("m", "x")
    assert scene.peers.sent == []
    assert len(scene.hosted) == 1


def test_the_loss_of_a_node_is_told_to_the_owner() -> None:
    scene = Scene()
    scene.hosted.open(OPEN)
    scene.hosted.node_lost("n")
    assert scene.peers.sent == [("owner", StreamGone("s", "x"))]
    assert len(scene.hosted) == 0


def test_a_stream_whose_owner_is_silent_ends() -> None:
    scene = Scene()
    scene.hosted.open(OPEN)
    scene.clock.at_ms = IDLE_MS
    scene.hosted.forget_idle()
    assert len(scene.hosted) == 1
    scene.clock.at_ms += 1
    scene.hosted.forget_idle()
    assert scene.node.ends == [("dropped", None)]
