"""The streams of one instance: opened by the store, renewed while one speaks, ended at the cut.

A stream has a lease on one of its node's streams, which expires a few seconds after its last
renewal. It is renewed for as long as its speaker's audio comes, so that it never outlives the
speaker for long, whatever dies.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from lingua_scheduler.errors import StoreUnavailable
from lingua_scheduler.session.audio import AudioFormat
from lingua_scheduler.streams.outlets import LocalOutlet, RemoteOutlet
from lingua_scheduler.streams.speech_stream import StreamState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lingua_scheduler.clock import Clock
    from lingua_scheduler.config import StreamSettings
    from lingua_scheduler.jobs.dispatcher import Dispatcher
    from lingua_scheduler.metrics import StreamMetrics
    from lingua_scheduler.state.keys import Cell
    from lingua_scheduler.state.stream_scripts import OpenedStream, StreamSpec
    from lingua_scheduler.streams.hosted import HostedStreams
    from lingua_scheduler.streams.outlets import ListeningNode, StreamPeers
    from lingua_scheduler.streams.speech_stream import SpeechStream, StreamOutlet
    from lingua_scheduler.tasks import Tasks
    from lingua_wire.from_node import StreamClosed, StreamPartial
    from lingua_wire.to_node import StreamOpen

# How often leases are renewed; a lease lasts longer than three times this.
RENEW_EVERY_S: Final = 1.5
# A speaker whose audio has not come for this long is not heard any more.
IDLE_MS: Final = 4000
# How long nothing is asked after nobody could listen: to one demand, and to one session.
REFUSED_MS: Final = 2000
# How many demands are remembered as refused.
REFUSED_MAX: Final = 1024


@dataclass(slots=True, kw_only=True, eq=False)
class StreamHub:
    """Opens, renews and ends the streams of this instance's sessions."""

    settings: StreamSettings
    dispatcher: Dispatcher
    nodes: Mapping[str, ListeningNode]
    peers: StreamPeers
    hosted: HostedStreams
    metrics: StreamMetrics
    clock: Clock
    tasks: Tasks
    # Open streams by id.
    streams: dict[str, SpeechStream] = field(default_factory=dict)
    # Demand -> until when nobody is asked to listen for it.
    refused_until_ms: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.metrics.streams.follow(self.__len__)

    def __len__(self) -> int:
        return len(self.streams)

    # Sessions

    def open(
        self,
        stream: SpeechStream,
        home: Cell,
        spec: StreamSpec,
        message: StreamOpen,
    ) -> None:
        """Look for a node that listens; the session is told when there is one, or none."""
        now = self.clock.now_ms()
        until_ms = self.refused_until_ms.get(spec.demand, 0.0)
        if now < until_ms:
            self._refuse(stream, until_ms)
        else:
            self.tasks.start(self._open(stream, home, spec, message))

    async def _open(
        self, stream: SpeechStream, home: Cell, spec: StreamSpec, message: StreamOpen
    ) -> None:
        try:
            answer, lease = await self.dispatcher.open_stream(home, stream.id, spec)
        except StoreUnavailable:
            self._refuse(stream, self.clock.now_ms() + REFUSED_MS)
            return
        if lease is None:
            self.metrics.stream_refusals_total.labels(reason=answer.label).inc()
            self._note_refused(spec.demand)
            self._refuse(stream, self.refused_until_ms[spec.demand])
        elif stream.is_over:
            await self.dispatcher.close_stream(lease)
        else:
            self._opened(stream, lease, spec.session, message)

    def _opened(
        self, stream: SpeechStream, lease: OpenedStream, session: str, message: StreamOpen
    ) -> None:
        outlet = self._outlet_to(lease, session)
        if outlet is None or not outlet.open(message):
            # The store knows a socket that is closing: another node may listen in a moment.
            self.tasks.start(self.dispatcher.close_stream(lease))
            self._refuse(stream, self.clock.now_ms() + REFUSED_MS)
            return
        self.metrics.streams_opened_total.inc()
        self.streams[stream.id] = stream
        audio = AudioFormat(message.audio_format, message.sample_rate)
        stream.opened(lease, outlet, audio.bytes_lasting(outlet.chunk_ms))
        stream.listener.opened(stream)

    def _outlet_to(self, lease: OpenedStream, session: str) -> StreamOutlet | None:
        if lease.instance != self.peers.instance:
            chunk_ms = self.settings.remote_chunk_ms
            return RemoteOutlet(self.peers, lease, session, chunk_ms) if lease.instance else None
        node = self.nodes.get(lease.node)
        return LocalOutlet(node, self.settings.chunk_ms) if node is not None else None

    def _note_refused(self, demand: str) -> None:
        if len(self.refused_until_ms) >= REFUSED_MAX:
            self.refused_until_ms.clear()
        self.refused_until_ms[demand] = self.clock.now_ms() + REFUSED_MS

    def _refuse(self, stream: SpeechStream, retry_at_ms: float) -> None:
        if not stream.is_over:
            stream.move(StreamState.OVER)
            stream.listener.refused(stream, retry_at_ms)

    def cut(self, stream: SpeechStream, audio_bytes: int) -> OpenedStream | None:
        """End a stream whose utterance was cut; returns who heard it, for the job that follows."""
        lease = stream.lease if stream.is_open else None
        if not stream.is_over:
            stream.end("cut", audio_bytes)
        if self.streams.pop(stream.id, None) is not None:
            self.metrics.streams_ended_total.labels(reason="cut").inc()
        return lease

    def drop(self, stream: SpeechStream) -> None:
        """End a stream that nobody needs."""
        if not stream.is_over:
            stream.end("dropped")
        self._forget(stream, "dropped")

    def _forget(self, stream: SpeechStream, reason: str) -> None:
        if self.streams.pop(stream.id, None) is None:
            return
        self.metrics.streams_ended_total.labels(reason=reason).inc()
        if stream.lease is not None:
            self.tasks.start(self.dispatcher.close_stream(stream.lease))

    # Nodes

    def partial(self, node: ListeningNode, partial: StreamPartial) -> None:
        """Use what a node heard so far, here or on the instance of the speaker."""
        stream = self.streams.get(partial.stream_id)
        if stream is None:
            self.hosted.partial(node.id, partial)
        elif stream.lease is not None and stream.lease.node == node.id:
            self.heard(partial)

    def heard(self, partial: StreamPartial) -> None:
        """Give a partial to the session that speaks, unless a newer one came before."""
        stream = self.streams.get(partial.stream_id)
        if stream is not None and stream.is_newer(partial):
            stream.listener.heard(stream, partial)

    def closed(self, node: ListeningNode, closed: StreamClosed) -> None:
        """Handle a node that listens no longer to a stream."""
        stream = self.streams.get(closed.stream_id)
        if stream is None:
            self.hosted.closed(node.id, closed.stream_id)
        elif stream.lease is not None and stream.lease.node == node.id:
            self.lost(closed.stream_id)

    def node_lost(self, node: ListeningNode) -> None:
        """Handle the loss of a node's socket."""
        lost = [
            stream.id
            for stream in self.streams.values()
            if stream.lease is not None
            and stream.lease.node == node.id
            and stream.lease.instance == self.peers.instance
        ]
        for stream_id in lost:
            self.lost(stream_id)
        self.hosted.node_lost(node.id)

    def lost(self, stream_id: str) -> None:
        """Note that nobody listens to a stream any more."""
        stream = self.streams.get(stream_id)
        if stream is not None:
            stream.lost()
            self._forget(stream, "lost")
            stream.listener.lost(stream)

    # Periodically

    async def renew(self) -> None:
        """Renew the leases of streams whose speakers still speak; the others end."""
        since_ms = self.clock.now_ms() - IDLE_MS
        for stream in [one for one in self.streams.values() if one.fed_at_ms < since_ms]:
            self.lost_speaker(stream)
        leases = [one.lease for one in self.streams.values() if one.lease is not None]
        if leases:
            for stream_id in await self.dispatcher.renew_streams(leases):
                self._gone(stream_id)
        self.hosted.forget_idle()

    def lost_speaker(self, stream: SpeechStream) -> None:
        """End a stream whose speaker is silent for long, or away."""
        stream.end("dropped")
        self._forget(stream, "dropped")
        stream.listener.lost(stream)

    def _gone(self, stream_id: str) -> None:
        """Handle a lease that the store does not have any more: it expired, or the node left."""
        stream = self.streams.get(stream_id)
        if stream is not None:
            self.lost_speaker(stream)
