"""The two ways to a node that listens: over its socket here, or by way of its instance.

To a node elsewhere the audio goes through the store, in larger pieces. Messages between instances
may be lost or overtake each other, so that each says where its audio begins: the other side ends a
stream with a gap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from lingua_scheduler.peers.messages import CloseStream, FeedStream, OpenStream

if TYPE_CHECKING:
    from lingua_scheduler.peers.messages import PeerMessage
    from lingua_scheduler.state.stream_scripts import OpenedStream
    from lingua_wire.to_node import StreamAudio, StreamEnd, StreamOpen

encode_opening = msgspec.msgpack.Encoder().encode


class ListeningNode(Protocol):
    """A node whose socket is here."""

    @property
    def id(self) -> str:
        """Return the node's id."""

    def open_stream(self, message: StreamOpen) -> bool:
        """Let it listen; tells whether the socket was open."""

    def feed_stream(self, message: StreamAudio) -> bool:
        """Send audio; tells whether the socket was open and takes more."""

    def end_stream(self, message: StreamEnd) -> None:
        """Let it listen no longer."""


class StreamPeers(Protocol):
    """The way to other instances."""

    @property
    def instance(self) -> str:
        """Return the id of this instance."""

    def write(self, to: str, message: PeerMessage) -> None:
        """Send a message that may be lost."""


class LocalOutlet:
    """To a node whose socket is here."""

    __slots__ = ("_node", "chunk_ms")

    def __init__(self, node: ListeningNode, chunk_ms: int) -> None:
        self._node = node
        self.chunk_ms = chunk_ms

    def open(self, message: StreamOpen) -> bool:
        """Let the node listen."""
        return self._node.open_stream(message)

    def feed(self, message: StreamAudio, at_bytes: int) -> bool:  # noqa: ARG002 is in order
        """Send audio."""
        return self._node.feed_stream(message)

    def end(self, message: StreamEnd) -> None:
        """Let the node listen no longer."""
        self._node.end_stream(message)


class RemoteOutlet:
    """To a node whose socket is on another instance."""

    __slots__ = ("_peers", "_session", "_stream", "chunk_ms")

    def __init__(
        self, peers: StreamPeers, stream: OpenedStream, session: str, chunk_ms: int
    ) -> None:
        self._peers = peers
        self._stream = stream
        self._session = session
        self.chunk_ms = chunk_ms

    def open(self, message: StreamOpen) -> bool:
        """Let the node listen."""
        self._write(
            OpenStream(
                stream=message.stream_id,
                session=self._session,
                node=self._stream.node,
                owner=self._peers.instance,
                opening=encode_opening(message),
            )
        )
        return True

    def feed(self, message: StreamAudio, at_bytes: int) -> bool:
        """Send audio."""
        self._write(FeedStream(message.stream_id, self._stream.node, at_bytes, message.audio))
        return True

    def end(self, message: StreamEnd) -> None:
        """Let the node listen no longer."""
        self._write(
            CloseStream(
                message.stream_id, self._stream.node, message.reason, message.audio_bytes or 0
            )
        )

    def _write(self, message: PeerMessage) -> None:
        self._peers.write(self._stream.instance, message)
