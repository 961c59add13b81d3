"""The streams of one session: a node listens from the first words of an utterance to its cut.

Called from the frame callback, for sessions that want it: nothing here waits. Each utterance has at
most one stream at a time. One that is lost is opened anew with everything that was said so far.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from lingua_scheduler.state.stream_scripts import StreamSpec
from lingua_scheduler.streams.speech_stream import SpeechStream
from lingua_wire.to_node import StreamOpen

if TYPE_CHECKING:
    from collections.abc import Callable

    from lingua_scheduler.clock import Clock
    from lingua_scheduler.jobs.profile import Profile
    from lingua_scheduler.session.segmenter import Segmenter
    from lingua_scheduler.session.utterance import Target
    from lingua_scheduler.state.stream_scripts import OpenedStream
    from lingua_scheduler.streams.hub import StreamHub
    from lingua_scheduler.streams.partial_router import PartialRouter
    from lingua_scheduler.streams.speech_stream import StreamingRecord
    from lingua_wire.from_node import StreamPartial

# How long after a loss the rest of the utterance is given to another node.
AGAIN_MS: Final = 300
# How often a session without any need of a node looks again.
LOOK_AGAIN_MS: Final = 1000


class StreamHooks(NamedTuple):
    """What the streams of a session need of its input."""

    segmenter: Segmenter
    # The turn that the utterance continues, '' if it begins one.
    turn: Callable[[], str]
    # What the segmenter does with hints.
    on_hint: Callable[[StreamPartial], None]


@dataclass(slots=True, kw_only=True, eq=False)
class SessionStreams:
    """What nodes hear of one session before its utterances are cut."""

    record: StreamingRecord
    hooks: StreamHooks
    hub: StreamHub
    router: PartialRouter
    clock: Clock
    # Whether the speaker, or a room, wants words while one speaks.
    is_wanted: Callable[[], bool]
    # The languages of the utterance that is being spoken.
    profile: Callable[[], Profile]
    # The number that the utterance will probably get, and the conversation so far.
    next_index: Callable[[], int]
    context: Callable[[], str]
    # An utterance of this size is worth a stream.
    open_bytes: int
    current: SpeechStream | None = None
    retry_at_ms: float = 0.0
    number: int = 0
    # When a partial of the current stream was last passed on.
    published_at_ms: float = 0.0

    def collected(self, now_ms: float) -> None:
        """Send what was collected since the last call, or look for a node that listens."""
        stream, size = self.current, self.hooks.segmenter.collected.size
        if stream is None:
            if size >= self.open_bytes and now_ms >= self.retry_at_ms:
                self._open(now_ms)
        elif size - stream.sent_bytes >= stream.step_bytes:
            self._feed(stream, now_ms)

    def cut(self, audio_bytes: int) -> OpenedStream | None:
        """End the stream of an utterance that was cut; returns who heard it."""
        stream, self.current = self.current, None
        return self.hub.cut(stream, audio_bytes) if stream is not None else None

    def drop(self) -> None:
        """End the stream: nothing more is cut here."""
        stream, self.current = self.current, None
        if stream is not None:
            self.hub.drop(stream)

    def _open(self, now_ms: float) -> None:
        profile = self.profile()
        targets = self.router.targets_of(self.record.id, profile) if self.is_wanted() else ()
        if not targets:
            self.retry_at_ms = now_ms + LOOK_AGAIN_MS
            return
        record, self.number = self.record, self.number + 1
        stream = SpeechStream(
            f"{record.id}-h{record.fence}.{self.number}", self, self._start_ms(profile)
        )
        self.current = stream
        spec = StreamSpec(
            demand=profile.demand_for(targets[0]),
            lane=targets[0].lane,
            session=record.id,
            fence=record.fence,
            turn=self.hooks.turn(),
            preferred=profile.paired,
        )
        self.hub.open(stream, record.home, spec, self._opening(stream, profile, targets))

    def _start_ms(self, profile: Profile) -> int:
        """Return where the utterance begins in the session's audio."""
        segmenter = self.hooks.segmenter
        return profile.audio.duration_ms(segmenter.account.settled_bytes)

    def _opening(
        self, stream: SpeechStream, profile: Profile, targets: tuple[Target, ...]
    ) -> StreamOpen:
        two_way = profile.two_way
        languages = two_way or tuple(dict.fromkeys(target.language for target in targets))
        return StreamOpen(
            stream_id=stream.id,
            session_id=self.record.id,
            src_lang=profile.source,
            tgt_langs=languages,
            dialect=profile.dialect,
            features=profile.features,
            pipeline=profile.pipeline,
            audio_format=profile.audio.name,
            sample_rate=profile.audio.sample_rate,
            mode="two_way_auto" if two_way else None,
            lang_a=two_way[0] if two_way else None,
            lang_b=two_way[1] if two_way else None,
            auto_langs=profile.auto_langs or None,
            partial_update_interval_ms=profile.partial_ms,
            trace_id=self.record.trace_id,
            context_text=self.context() or None,
            glossary=profile.terms_of(targets[0].language) if profile.glossary else (),
            turn_id=self.hooks.turn() or None,
        )

    def _feed(self, stream: SpeechStream, now_ms: float) -> None:
        collected = self.hooks.segmenter.collected
        if not stream.feed(collected.after(stream.sent_chunks), len(collected), now_ms):
            # Its node does not read, or its socket is closing.
            self.hub.drop(stream)
            self.lost(stream)

    # What becomes of a stream

    def opened(self, stream: SpeechStream) -> None:
        """Send what was spoken so far."""
        self.published_at_ms = 0.0
        self._feed(stream, self.clock.now_ms())

    def refused(self, stream: SpeechStream, retry_at_ms: float) -> None:
        """Note that no node listens, and when to ask again."""
        if stream is self.current:
            self.current, self.retry_at_ms = None, retry_at_ms

    def lost(self, stream: SpeechStream) -> None:
        """Note that the node listens no longer."""
        if stream is self.current:
            self.current, self.retry_at_ms = None, self.clock.now_ms() + AGAIN_MS

    def heard(self, stream: SpeechStream, partial: StreamPartial) -> None:
        """Pass on the text so far, then use its hints, which may cut the utterance."""
        if stream is not self.current:
            return
        now = self.clock.now_ms()
        if now - self.published_at_ms >= self.hub.settings.partial_every_ms:
            self.published_at_ms = now
            self.router.publish(self.record, self.profile(), self._place(stream), partial)
        self.hooks.on_hint(partial)

    def _place(self, stream: SpeechStream) -> tuple[int, int]:
        return self.next_index(), stream.start_ms
