"""Streams of other instances' sessions that nodes here listen to.

Their sessions renew them. Here it is only known where each goes, so that texts find their way back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from lingua_scheduler.peers.messages import StreamGone, StreamText
from lingua_wire.to_node import StreamAudio, StreamEnd, StreamOpen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lingua_scheduler.clock import Clock
    from lingua_scheduler.peers.messages import CloseStream, FeedStream, OpenStream
    from lingua_scheduler.streams.outlets import ListeningNode, StreamPeers
    from lingua_wire.from_node import StreamPartial

# A stream without audio for this long has lost its speaker's instance.
IDLE_MS: Final = 8000

decode_opening = msgspec.msgpack.Decoder(StreamOpen).decode


@dataclass(slots=True)
class HostedStream:
    """A stream to a node here, of a session elsewhere."""

    id: str
    session: str
    owner: str
    node: str
    fed_at_ms: float
    size: int = 0


class HostedStreams:
    """What nodes of this instance hear for other instances."""

    def __init__(
        self, nodes: Mapping[str, ListeningNode], peers: StreamPeers, clock: Clock
    ) -> None:
        self._nodes = nodes
        self._peers = peers
        self._clock = clock
        self._streams: dict[str, HostedStream] = {}

    def __len__(self) -> int:
        return len(self._streams)

    # From the instance of the speaker

    def open(self, message: OpenStream) -> None:
        """Let a node here listen."""
        node = self._nodes.get(message.node)
        stream = HostedStream(
            message.stream, message.session, message.owner, message.node, self._clock.now_ms()
        )
        if node is None or not node.open_stream(decode_opening(message.opening)):
            self._report_gone(stream)
            return
        self._streams[stream.id] = stream

    def feed(self, message: FeedStream) -> None:
        """Send audio to the node; a stream with a gap ends."""
        stream = self._streams.get(message.stream)
        if stream is None:
            return
        node = self._nodes.get(stream.node)
        is_next = message.at_bytes == stream.size
        audio = StreamAudio(stream_id=stream.id, audio=message.audio)
        if node is None or not is_next or not node.feed_stream(audio):
            self._end(stream, "dropped")
            self._report_gone(stream)
            return
        stream.size += len(message.audio)
        stream.fed_at_ms = self._clock.now_ms()

    def close(self, message: CloseStream) -> None:
        """Let the node listen no longer."""
        stream = self._streams.get(message.stream)
        if stream is not None:
            self._end(stream, message.reason, message.audio_bytes or None)

    # From nodes

    def partial(self, node: str, partial: StreamPartial) -> None:
        """Pass on what a node heard so far."""
        stream = self._streams.get(partial.stream_id)
        if stream is not None and stream.node == node:
            self._peers.write(stream.owner, StreamText(stream.session, partial))

    def closed(self, node: str, stream_id: str) -> None:
        """Pass on that a node listens no longer."""
        stream = self._streams.get(stream_id)
        if stream is not None and stream.node == node:
            del self._streams[stream_id]
            self._report_gone(stream)

    def node_lost(self, node: str) -> None:
        """Pass on that a node's socket is lost."""
        for stream in [one for one in self._streams.values() if one.node == node]:
            self.closed(node, stream.id)

    def forget_idle(self) -> None:
        """End streams whose speaker's instance is silent."""
        since_ms = self._clock.now_ms() - IDLE_MS
        for stream in [one for one in self._streams.values() if one.fed_at_ms < since_ms]:
            self._end(stream, "dropped")

    def _end(self, stream: HostedStream, reason: str, audio_bytes: int | None = None) -> None:
        del self._streams[stream.id]
        node = self._nodes.get(stream.node)
        if node is not None:
            node.end_stream(StreamEnd(stream_id=stream.id, reason=reason, audio_bytes=audio_bytes))

    def _report_gone(self, stream: HostedStream) -> None:
        self._peers.write(stream.owner, StreamGone(stream.session, stream.id))
