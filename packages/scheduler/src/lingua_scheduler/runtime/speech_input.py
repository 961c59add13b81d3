"""The audio of one session: chunks in, utterances cut, silence accounted for.

Called from the frame callback: nothing here waits. Cuts go to `admission.py`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final

import msgspec

from lingua_scheduler.runtime.lifecycle import InstanceState
from lingua_scheduler.runtime.session_state import SessionState
from lingua_scheduler.session.segmenter import NEVER_BYTES, SequenceGap
from lingua_scheduler.session.utterance import UtteranceCut
from lingua_scheduler.streams.session_streams import StreamHooks
from lingua_wire.errors import InvalidMessage
from lingua_wire.to_client import AudioAck, Gap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lingua_scheduler.clock import Clock
    from lingua_scheduler.metrics import LiveMetrics
    from lingua_scheduler.runtime.admission import Admission
    from lingua_scheduler.runtime.client_notifier import ClientNotifier
    from lingua_scheduler.runtime.language_changes import LanguageChanges
    from lingua_scheduler.runtime.lifecycle import Lifecycle
    from lingua_scheduler.runtime.utterance import PendingUtterance
    from lingua_scheduler.session.segmenter import Event, Segmenter
    from lingua_scheduler.state.retry import StoreRetry
    from lingua_scheduler.streams.session_streams import SessionStreams
    from lingua_wire.from_node import StreamPartial

# Looked up once, not for every chunk.
MOVING: Final = SessionState.MOVING
DRAINING: Final = InstanceState.DRAINING
FINALIZED_AS = {"manual": "send", "timeout": "timeout", "session_close": "close"}


@dataclass(slots=True, kw_only=True, eq=False)
class SpeechDependencies:
    """What the input of a session works with."""

    admission: Admission
    segmenter: Segmenter
    languages: LanguageChanges
    notifier: ClientNotifier
    clock: Clock
    metrics: LiveMetrics
    lifecycle: Lifecycle
    retry: StoreRetry
    # How a turn without a closing part is ended.
    end_turn: Callable[[str], None]
    # What lets nodes listen to the session; None while nobody wants that.
    streams: Callable[[Callable[[], StreamHooks]], SessionStreams | None]


class SpeechInput:
    """The stream of one session, until it is cut."""

    __slots__ = (
        "_backlog",
        "_changes_wait",
        "_chunk_bytes_max",
        "_clock",
        "_cut_timer",
        "_is_pcm16",
        "_lifecycle",
        "_record",
        "_segmenter",
        "_silent_before_ms",
        "_silent_noted_ms",
        "_sliced_turn",
        "_speech_metrics",
        "_streams",
        "_timer",
        "_timer_at_ms",
        "_turn_ids",
        "_uses",
    )

    def __init__(self, uses: SpeechDependencies, opaque_bytes_max: int) -> None:
        self._uses = uses
        # What every chunk needs, without a way through others.
        self._record = uses.admission.parts.record
        self._backlog = uses.admission.parts.backlog
        self._segmenter = uses.segmenter
        self._cut_timer = uses.segmenter.timer
        # A former owner received changes of languages that count from a later chunk on.
        self._changes_wait = False
        self._lifecycle = uses.lifecycle
        self._clock = uses.clock
        self._speech_metrics = uses.metrics.speech
        self._is_pcm16 = uses.languages.profile.audio.name == "pcm16"
        # Opaque audio cannot be sliced: a chunk of it is an utterance at most.
        self._chunk_bytes_max = NEVER_BYTES if self._is_pcm16 else opaque_bytes_max
        # Runs out when the segmenter may have to cut by time, or earlier; infinite: it does not
        # run. It is not set anew for every chunk: when it runs out it is set to what is due then.
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms = inf
        self._turn_ids: dict[int, str] = {}
        self._sliced_turn = -1
        self._streams = uses.streams(self._stream_hooks)
        # Silence in the stream: under former owners, and here as far as it is in the ledger.
        self._silent_before_ms = 0
        self._silent_noted_ms = 0

    def restore(self, next_seq: int | None, audio_ms: int, silent_ms: int) -> None:
        """Go on with this chunk, at this place in the audio."""
        self._segmenter.restore(next_seq, audio_ms)
        self._silent_before_ms = silent_ms
        self._changes_wait = bool(self._uses.languages.by_chunk)

    @property
    def position(self) -> tuple[int | None, int]:
        """Return the next chunk that is expected and where in the audio it begins."""
        return self._segmenter.next_seq, self._segmenter.admitted_ms

    @property
    def newest_seq(self) -> int:
        """Return the last chunk that was received, -1 if there is none."""
        expected = self._segmenter.next_seq
        return -1 if expected is None else expected - 1

    @property
    def is_idle(self) -> bool:
        """Tell whether no utterance is being spoken."""
        return self._segmenter.is_idle

    # Audio

    def audio(
        self, data: bytes, seq: int | None, is_final: bool = False, client_ts_ms: int | None = None
    ) -> None:
        """Receive one chunk of speech."""
        size, segmenter = len(data), self._segmenter
        if size > self._chunk_bytes_max or (size & 1 and self._is_pcm16):
            raise self._unusable(size)
        is_draining = self._lifecycle.state is DRAINING
        if is_draining and self._record.state is MOVING:
            return  # its number is not used either: it must not be acknowledged as silence
        if seq is not None and seq != segmenter.next_seq and not self._in_sequence(seq):
            return
        if self._changes_wait:
            self._reach_change(seq)
        self._speech_metrics.count_chunk(size)
        if is_draining:
            self._refuse(data, seq, "shutdown")
            return
        if self._backlog.is_paused:
            data = self._unless_full(data, seq)
        now = self._clock.now_ms()
        # By position: the interpreter then calls it without a step in C.
        events = segmenter.chunk(data, is_final, now, client_ts_ms, seq)
        if events or is_final:
            self._handle_chunk(events, now)
        if self._cut_timer.due_ms < self._timer_at_ms:
            self._arm(self._cut_timer.due_ms, now)
        if self._streams is not None:
            self._streams.collected(now)

    def _handle_chunk(self, events: tuple[Event, ...], now_ms: float) -> None:
        """Handle what a chunk caused; a final one without audio ends nothing."""
        if events:
            self._handle(events, now_ms)
        elif self._segmenter.is_idle:
            self._uses.metrics.speech.empty_finalize_total.inc()

    def _reach_change(self, seq: int | None) -> None:
        languages = self._uses.languages
        languages.reach(seq, is_idle=self._segmenter.is_idle)
        self._changes_wait = bool(languages.by_chunk)

    def _unless_full(self, data: bytes, seq: int | None) -> bytes:
        """Return audio that may still wait; audio beyond that is refused."""
        if not data or self._uses.admission.has_room():
            return data
        self._refuse(data, seq, "backpressure")
        return b""

    def _unusable(self, size: int) -> InvalidMessage:
        """Return what is wrong with a chunk of so many bytes."""
        if size > self._chunk_bytes_max:
            return InvalidMessage(
                f"a chunk of opus cannot be sliced: {size} bytes, "
                f"the most of an utterance are {self._chunk_bytes_max}"
            )
        return InvalidMessage("a chunk of pcm16 has two bytes per sample, got an odd number")

    def _in_sequence(self, seq: int) -> bool:
        """Tell whether a chunk may be used that is not known to be the next one."""
        found = self._segmenter.admit_seq(seq)
        if found == "ok":
            return True
        if isinstance(found, SequenceGap):
            at = self._segmenter.admitted_ms
            self._uses.notifier.addition(
                Gap(
                    start_ms=at,
                    end_ms=at,
                    reason="lost_chunks",
                    first_seq=found.missing_from,
                    last_seq=found.missing_to,
                )
            )
            return True
        return False

    def _refuse(self, data: bytes, seq: int | None, reason: str) -> None:
        """Report audio that is not used; the number of its chunk is."""
        uses, at = self._uses, self._segmenter.admitted_ms
        if seq is not None:
            self._segmenter.admit_seq(seq)
        length = int(uses.languages.profile.audio.duration_ms(len(data)))
        uses.notifier.addition(Gap(start_ms=at, end_ms=at + length, reason=reason))
        if uses.retry.is_store_available:
            uses.admission.parts.replies.busy()
        else:
            uses.notifier.store_lost()

    def acknowledge(self) -> None:
        """Acknowledge chunks that were silence: utterances are acknowledged on acceptance."""
        if self._streams is None:
            # Others who hear this session may want words while it speaks.
            self._streams = self._uses.streams(self._stream_hooks)
        seq, admission = self._segmenter.settled_seq, self._uses.admission
        if seq is None or not self._record.is_resumable or admission.is_owed:
            return
        if self._lifecycle.is_draining:
            return  # audio is not accepted now: the client sends it again on another instance
        acceptances = admission.parts.acceptances
        if seq > acceptances.acknowledged_seq:
            acceptances.acknowledge(seq)
            at_ms = self._segmenter.settled_ms
            ack = AudioAck(session_id=self._record.id, seq=seq, audio_ms=at_ms)
            self._uses.notifier.addition(ack)

    # Cuts

    def playback(self, *, starts: bool) -> None:
        """Note that the client plays a translation, or has played it."""
        now = self._clock.now_ms()
        if starts:
            self._handle(self._segmenter.tts_started(now), now)
        else:
            self._handle(self._segmenter.tts_ended(now), now)
            self.rearm()

    def cut_here(self) -> None:
        """End the utterance here: what follows may have another audience."""
        now = self._clock.now_ms()
        self._handle(self._segmenter.flush(now), now)
        self.rearm()

    def end(self) -> None:
        """Make an utterance of what is buffered: no more audio comes."""
        now = self._clock.now_ms()
        self._handle(self._segmenter.flush(now), now)
        self.stop()
        self._note_silence()

    def stop(self) -> None:
        """Cut nothing more by time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._timer_at_ms = None, inf
        if self._streams is not None:
            self._streams.drop()

    def rearm(self) -> None:
        """Set the timer to when the segmenter may cut by time."""
        if self._cut_timer.due_ms < self._timer_at_ms:
            self._arm(self._cut_timer.due_ms, self._clock.now_ms())

    def _arm(self, due_ms: float, now_ms: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at_ms = due_ms
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(max(0.0, due_ms - now_ms) / 1000, self._tick)

    def _tick(self) -> None:
        self._timer, self._timer_at_ms = None, inf
        now = self._clock.now_ms()
        self._handle(self._segmenter.tick(now), now)
        self.rearm()

    def _handle(self, events: Iterable[Event], now_ms: float) -> None:
        languages = self._uses.languages
        for event in events:
            if isinstance(event, UtteranceCut):
                self._admit(event, now_ms)
                if event.closes_turn:
                    languages.utterance_ended()
            else:
                turn = self._turn_ids.pop(event.turn, "")
                if turn and not self._uses.admission.close_turn(turn):
                    self._uses.end_turn(turn)
                languages.utterance_ended()

    def _admit(self, cut: PendingUtterance, now_ms: float) -> None:
        uses = self._uses
        uses.metrics.speech.web_task_finalized_total.labels(
            reason=FINALIZED_AS.get(cut.trigger, cut.trigger)
        ).inc()
        self._note_silence()
        if cut.is_slice:
            self._sliced_turn = cut.turn
        utterance = msgspec.structs.replace(
            cut,
            index=uses.admission.parts.indices.take(),
            profile=uses.languages.profile,
            trace_id=self._record.trace_id,
            cut_ms=now_ms,
            turn_id=self._turn_of(cut),
            in_turn=cut.turn == self._sliced_turn,
            stream=self._streams.cut(len(cut.audio)) if self._streams is not None else None,
        )
        uses.admission.admit(utterance)

    def _turn_of(self, cut: PendingUtterance) -> str:
        turn = self._turn_ids.get(cut.turn)
        if turn is None:
            turn = self._turn_ids[cut.turn] = turn_id(self._record.id, self._record.fence, cut.turn)
        if cut.closes_turn:
            del self._turn_ids[cut.turn]
        return turn

    def _stream_hooks(self) -> StreamHooks:
        return StreamHooks(self._segmenter, self._continued_turn, self._use_hint)

    def _continued_turn(self) -> str:
        turn = self._segmenter.turn
        return self._turn_ids.get(turn.number, "") if turn.is_sliced else ""

    def _use_hint(self, partial: StreamPartial) -> None:
        now = self._clock.now_ms()
        events = self._segmenter.hint(
            now,
            upto_ms=partial.upto_ms,
            is_complete=partial.is_complete,
            sentence_end_ms=partial.sentence_end_ms,
        )
        if events:
            self._handle(events, now)
            self.rearm()

    async def until_addressed(self) -> None:
        """Wait until the audience of everything that was cut is known."""
        await self._uses.admission.until_addressed()

    async def until_taken(self) -> None:
        """Wait until the store has answered for everything that was cut."""
        await self._uses.admission.parts.acceptances.until_taken()

    # Silence

    def _note_silence(self) -> None:
        silent_ms = int(self._segmenter.silent_ms) - self._silent_noted_ms
        if silent_ms > 0:
            self.was_silent(silent_ms)

    def was_silent(self, duration_ms: int) -> None:
        """Account for a part of the stream that became no utterance."""
        self._silent_noted_ms += duration_ms
        self._uses.admission.parts.ledger.silent(duration_ms)

    @property
    def silence_ms(self) -> int:
        """Return how much of the stream became no utterance, as the ledger has it."""
        return self._silent_before_ms + self._silent_noted_ms


def turn_id(session: str, fence: int, turn: int) -> str:
    """Return the name of a turn: no two owners of a session use the same."""
    return f"{session}-t{fence}.{turn}"
