"""Cuts the chunks of a speaking session into utterances. Pure: the caller provides the clock.

Every admitted byte leaves exactly once, in order: in a cut, or counted as silence that the voice
detector passed over. Each input first acts on what was due before it, so a late timer changes
nothing. The caller numbers utterances, creates jobs, informs the client and calls `tick` at
`deadline_ms`.

    chunk ──► buffer ──► manual, after a hangover ─────────► cut, closes the turn
                    ├──► pause, silence (short: held) ─────► cut, closes the turn
                    ├──► sentence, where a node heard its end ► cut, closes the turn
                    ├──► max_duration, after a hangover ───► slice, the turn continues
                    └──► max_bytes ────────────────────────► slice, the turn continues

A slice ends at the quietest point within `slice_search_ms` before its end, or in a pause before
that; the rest begins the next one. An utterance that silence ends, ends at the quietest point of
that silence: a word begins before it is loud, and the rest may be its beginning. A long chunk of
pcm16 that would exceed the limits is processed in parts, as if the parts had arrived one by one.

A node that listens while one speaks gives hints: where a sentence ended, and whether the text so
far is a whole one. Less silence ends a whole sentence, more one that plainly is not. Without hints
nothing changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from lingua_scheduler.session.audio import PCM16
from lingua_scheduler.session.audio_account import AudioAccount
from lingua_scheduler.session.cut_timer import CutTimer
from lingua_scheduler.session.slice_point import quietest_end, slice_end
from lingua_scheduler.session.speech_buffer import SpeechBuffer
from lingua_scheduler.session.speech_turn import SpeechTurn
from lingua_scheduler.session.utterance import SLICES, UtteranceCut
from lingua_scheduler.session.voice import Preroll

if TYPE_CHECKING:
    from lingua_scheduler.session.audio import AudioFormat
    from lingua_scheduler.session.speech_buffer import SpeechChunk
    from lingua_scheduler.session.utterance import Trigger
    from lingua_scheduler.session.voice import VoiceDetector


NEVER_BYTES = 1 << 62
# The loudness of this much audio around a boundary is compared in the search for a quiet point.
QUIET_WINDOW_MS = 200
# So much silence stays after a voice that it ended: soft sounds end words, too.
SILENCE_KEPT_MS = 100
# At most one part in this many of a slice may be left for the next, and if there is a pause only
# before that.
SEARCHED_PART = 3
SEARCHED_PART_MOST = 2
# Chunks longer than this are processed in parts if they would exceed the limits.
LONG_MS = 1000
PART_MS = 100
# How far from the end of a sentence a cut is searched, before and after it.
SENTENCE_BEFORE_MS = 100
SENTENCE_AFTER_MS = 250


@dataclass(frozen=True, slots=True)
class SegmentRules:
    """When speech is cut; 0 switches off `pause_ms`, `max_duration_ms` or `silence_ms`."""

    pause_ms: int = 3000
    max_duration_ms: int = 10_000
    max_bytes: int = 512_000
    hangover_auto_ms: int = 150
    hangover_manual_ms: int = 200
    short_merge_ms: int = 400
    # Only with a detector: the unvoiced audio that ends an utterance, and that is kept before one.
    silence_ms: int = 400
    preroll_ms: int = 300
    # How far back from its end a slice of pcm16 is searched for a quiet point.
    slice_search_ms: int = 0
    # The silence that ends a whole sentence, and one that plainly is not; 0: as `silence_ms`.
    silence_min_ms: int = 0
    silence_max_ms: int = 0
    # The shortest sentence that is cut where a node heard its end; 0: none is.
    sentence_min_ms: int = 0


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """A turn of slices ended without any audio that could close it."""

    turn: int


Event = UtteranceCut[Any] | TurnEnd
NOTHING: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True)
class CutLimits:
    """The rules in bytes, so that a chunk costs no conversion."""

    max_duration_bytes: int
    # The longest slice: with a hangover in the time of the audio.
    overdue_bytes: int
    # A cut must be considered from here on.
    limit_bytes: int
    long_bytes: int
    part_bytes: int
    short_bytes: int
    silence_bytes: int
    # The silence after a whole sentence, and after one that plainly is not.
    silence_min_bytes: int
    silence_max_bytes: int
    sentence_min_bytes: int


@lru_cache(maxsize=64)
def limits_of(rules: SegmentRules, audio_format: AudioFormat) -> CutLimits:
    """Convert the rules for one audio format; sessions that have both in common share them."""
    size = audio_format.bytes_lasting
    max_duration_bytes = size(rules.max_duration_ms) if rules.max_duration_ms else NEVER_BYTES
    limit_bytes = min(max_duration_bytes, rules.max_bytes)
    # Only pcm16 can be divided; other formats are opaque.
    is_pcm16 = audio_format.name == PCM16
    silence_bytes = size(rules.silence_ms) if rules.silence_ms else NEVER_BYTES
    shortest = size(rules.silence_min_ms) if rules.silence_min_ms else silence_bytes
    longest = size(rules.silence_max_ms) if rules.silence_max_ms else silence_bytes
    return CutLimits(
        max_duration_bytes=max_duration_bytes,
        overdue_bytes=max_duration_bytes + size(rules.hangover_auto_ms),
        limit_bytes=limit_bytes,
        long_bytes=min(size(LONG_MS), limit_bytes) if is_pcm16 else NEVER_BYTES,
        part_bytes=size(PART_MS),
        short_bytes=size(rules.short_merge_ms),
        silence_bytes=silence_bytes,
        silence_min_bytes=min(shortest, silence_bytes),
        silence_max_bytes=max(longest, silence_bytes),
        sentence_min_bytes=size(rules.sentence_min_ms) if rules.sentence_min_ms else NEVER_BYTES,
    )


class SequenceGap(NamedTuple):
    """Chunks that never arrived, from the first to the last of them."""

    missing_from: int
    missing_to: int


class Segmenter:
    """Cuts one session's chunks; every input carries a server clock that never goes back.

    `account` counts the silence that was passed over: at any time it, the
    cuts and the audio that `flush` would still return make up the admitted audio. A detector is
    used for pcm16 only.
    """

    __slots__ = (
        "_account",
        "_buffer",
        "_detector",
        "_format",
        "_heard_at_ms",
        "_is_held",
        "_lead",
        "_limits",
        "_now_ms",
        "_rules",
        "_silence_bytes",
        "_turn",
        "account",
        "collected",
        "next_seq",
        "timer",
        "turn",
    )

    def __init__(
        self, rules: SegmentRules, audio_format: AudioFormat, detector: VoiceDetector | None = None
    ) -> None:
        self._rules = rules
        self._limits = limits_of(rules, audio_format)
        # The silence that ends this utterance; hints of a node change it.
        self._silence_bytes = self._limits.silence_bytes
        self._format = audio_format
        self._detector = detector if audio_format.name == PCM16 else None
        # The clock of the latest input, and of the latest chunk that is kept in `_lead`.
        self._now_ms = -inf
        self._heard_at_ms = -inf
        # What is collected of an utterance; others only read it, as the turn and the account.
        self.collected = self._buffer = SpeechBuffer()
        # Tells when `tick` must be called next.
        self.timer = CutTimer(rules.pause_ms or inf)
        # The buffer was too short to cut at the end of the pause: it waits one more pause.
        self._is_held = False
        self.turn = self._turn = SpeechTurn()
        # Only with a detector: the latest unvoiced chunks before the turn's voice.
        self._lead = Preroll(audio_format.bytes_lasting(rules.preroll_ms))
        self.account = self._account = AudioAccount(audio_format)
        # The number of the next chunk, once a chunk had a number.
        self.next_seq: int | None = None

    @property
    def deadline_ms(self) -> float | None:
        """Return when `tick` must be called next, or None."""
        return None if self.timer.due_ms == inf else self.timer.due_ms

    @property
    def admitted_ms(self) -> int:
        """Return the length of all audio that arrived: where the next chunk starts."""
        return self._format.duration_ms(self._account.settled_bytes + self.buffered_bytes)

    @property
    def silent_ms(self) -> int:
        """Return how much audio was passed over as silence."""
        return self._account.silent_ms

    @property
    def settled_seq(self) -> int | None:
        """Return the newest chunk up to which nothing is kept here; None during an utterance."""
        if self._buffer.size or self.next_seq is None:
            return None
        waiting = self._lead.first_seq
        return (self.next_seq if waiting is None else waiting) - 1

    @property
    def settled_ms(self) -> int:
        """Return where the chunk after `settled_seq` begins."""
        return self._format.duration_ms(self._account.settled_bytes - self._lead.dropped_bytes)

    def restore(self, next_seq: int | None, at_ms: int) -> None:
        """Begin in the middle of a session: at this chunk and this position in its audio."""
        self.next_seq = next_seq
        self._account.start_at(at_ms)

    @property
    def is_idle(self) -> bool:
        """Tell whether no audio is kept and no turn continues."""
        return not self._buffer.size and not self._turn.is_sliced

    @property
    def buffered_bytes(self) -> int:
        """Return how much admitted audio was neither cut nor passed over."""
        return self._buffer.size + self._lead.size

    def admit_seq(self, seq: int) -> Literal["ok", "duplicate"] | SequenceGap:
        """Use a chunk's number unless it is a duplicate, which must not be admitted.

        Only for a number that is not the next, or of a chunk that is refused: `chunk` uses the
        number that it is given. The first number may be any. A number below the newest is a
        duplicate too, even if it was reported as missing: its position in the audio has passed.
        """
        expected = self.next_seq
        if expected is not None and seq < expected:
            return "duplicate"
        self.next_seq = seq + 1
        if expected is None or seq == expected:
            return "ok"
        return SequenceGap(expected, seq - 1)

    def chunk(
        self,
        data: bytes,
        is_final: bool,
        now_ms: float,
        client_ts_ms: int | None = None,
        seq: int | None = None,
    ) -> tuple[Event, ...]:
        """Admit audio; an empty final chunk only reports that the speech is complete."""
        assert now_ms >= self._now_ms, "the clock went back"
        self._now_ms = now_ms
        events = self._act_before(now_ms) if self.timer.due_ms < now_ms else NOTHING
        if seq is not None:
            self.next_seq = seq + 1
        buffer, limits, size = self._buffer, self._limits, len(data)
        if is_final and size and self.timer.hangover == "manual":
            events += self._cut("manual")
        if size > limits.long_bytes and buffer.size + size > limits.limit_bytes:
            events += self._add_in_parts(data, client_ts_ms, seq)
        elif size:
            self._add((data, seq, client_ts_ms, seq, 0, now_ms), size)
        elif buffer.size and seq is not None:
            buffer.complete_at(seq)
        if is_final:
            return events + self._finalize()
        if self._turn.unvoiced_bytes >= self._silence_bytes or buffer.size >= limits.limit_bytes:
            return events + self._cut_at_limit()
        return events

    # Hints of a node that listens.

    def hint(
        self,
        now_ms: float,
        *,
        upto_ms: float = inf,
        is_complete: bool | None = None,
        sentence_end_ms: int | None = None,
    ) -> tuple[Event, ...]:
        """Use what a node heard up to a place in the utterance, which may end it.

        If a sentence has ended and speech goes on, it is cut there. Less silence ends a whole
        sentence, more one that plainly is not; a voice makes that void.
        """
        events = self._advance(now_ms)
        if not events and sentence_end_ms is not None:
            events = self._end_sentence(sentence_end_ms)
        if events or is_complete is None:
            return events
        return self._expect(upto_ms, is_complete=is_complete)

    def _expect(self, upto_ms: float, *, is_complete: bool) -> tuple[Event, ...]:
        limits, unvoiced_bytes = self._limits, self._turn.unvoiced_bytes
        voiced_ms = self._format.duration_ms(self._buffer.size - unvoiced_bytes)
        if not unvoiced_bytes or upto_ms < voiced_ms:
            return NOTHING
        self._silence_bytes = limits.silence_min_bytes if is_complete else limits.silence_max_bytes
        return self._cut_at_limit() if self._is_at_limit() else NOTHING

    def _end_sentence(self, at_ms: int) -> tuple[Event, ...]:
        count = 0
        if self.timer.hangover is None:
            count = self._chunks_of_sentence(self._format.bytes_lasting(at_ms))
        return self._cut("sentence", count) if count else NOTHING

    def _chunks_of_sentence(self, end_bytes: int) -> int:
        """Return how many chunks a sentence that ends there takes; 0: it cannot be cut there."""
        if end_bytes < self._limits.sentence_min_bytes or self._format.name != PCM16:
            return 0
        size, audio = self._format.bytes_lasting, self._buffer.audio
        last_bytes, at, count = end_bytes + size(SENTENCE_AFTER_MS), 0, 0
        for chunk in audio:
            if at + len(chunk) > last_bytes:
                break
            at, count = at + len(chunk), count + 1
        first_bytes = end_bytes - size(SENTENCE_BEFORE_MS)
        if count == len(audio) or at < first_bytes:
            return 0
        return quietest_end(audio[:count], at - first_bytes, size(QUIET_WINDOW_MS))

    def tick(self, now_ms: float) -> tuple[Event, ...]:
        """Do what is due; afterwards the deadline is in the future."""
        events = self._advance(now_ms)
        while self.timer.due_ms <= now_ms:
            events += self._on_due()
        return events

    def tts_started(self, now_ms: float) -> tuple[Event, ...]:
        """Suspend the pause and the count of silence: the client plays and does not listen."""
        events = self._advance(now_ms)
        self.timer.start_playback(now_ms)
        self._rearm()
        return events

    def tts_ended(self, now_ms: float) -> tuple[Event, ...]:
        """Count the pause and the silence from now."""
        events = self._advance(now_ms)
        self.timer.end_playback(now_ms)
        self._turn.forget_silence()
        self._rearm()
        return events

    def flush(self, now_ms: float) -> tuple[Event, ...]:
        """Return all remaining audio: the session closes or lost its socket."""
        events = self._advance(now_ms)
        if self._buffer.size:
            is_manual = self.timer.hangover == "manual"
            return events + self._cut("manual" if is_manual else "session_close")
        self._account.pass_over(self._lead.clear())
        return events + self._end_turn()

    # Time.

    def _advance(self, now_ms: float) -> tuple[Event, ...]:
        """Move the clock and do what was due before."""
        assert now_ms >= self._now_ms, "the clock went back"
        self._now_ms = now_ms
        return self._act_before(now_ms)

    def _act_before(self, now_ms: float) -> tuple[Event, ...]:
        events = NOTHING
        # An input exactly at a deadline is still in time.
        while self.timer.due_ms < now_ms:
            events += self._on_due()
        return events

    def _on_due(self) -> tuple[Event, ...]:
        if self.timer.hangover is not None:
            return self._cut(self.timer.hangover)
        size, is_sliced = self._buffer.size, self._turn.is_sliced
        if not size:
            return self._end_turn()
        # The piece that closes a sliced turn is not a short utterance of its own.
        if size < self._limits.short_bytes and not self._is_held and not is_sliced:
            # Counted from the deadline, not from now: a late timer must change nothing.
            self._is_held = True
            self.timer.count_from(self.timer.due_ms)
            self._rearm()
            return NOTHING
        return self._cut("timeout")

    def _rearm(self) -> None:
        """Set the deadline of the pause, unless a hangover runs."""
        self.timer.arm(is_needed=self._buffer.size > 0 or self._turn.is_sliced)

    # Collecting.

    def _add(self, chunk: SpeechChunk, size: int) -> None:
        """Add a chunk, or a part of a long one, if it belongs to speech."""
        detector, turn = self._detector, self._turn
        if detector is not None:
            if detector.is_voice(chunk[0]):
                if not turn.is_speaking or turn.unvoiced_bytes:
                    self._begin_to_speak()
            elif not turn.is_speaking:
                self._wait(chunk)
                return
            elif not self.timer.is_playing(self._now_ms):
                turn.hear_silence(size)
        self._is_held = False
        self._buffer.add(chunk, size)
        self.timer.restart(self._now_ms)

    def _add_in_parts(
        self, data: bytes, client_ts_ms: int | None, seq: int | None
    ) -> tuple[Event, ...]:
        """Add a long chunk, with cuts at the limits inside of it but not at its end."""
        events, step = NOTHING, self._limits.part_bytes
        for at in range(0, len(data), step):
            if self._is_at_limit():
                events += self._cut_at_limit()
            # The client must keep a chunk that is not complete yet.
            whole_seq = seq if at + step >= len(data) else seq - 1 if seq else None
            part = data[at : at + step]
            self._add((part, seq, client_ts_ms, whole_seq, at, self._now_ms), len(part))
        return events

    # Silence before speech (only with a detector).

    def _wait(self, chunk: SpeechChunk) -> None:
        """Keep a silent chunk: it may be the beginning of speech."""
        self._drop_old_lead()
        self._heard_at_ms = self._now_ms
        self._account.pass_over(self._lead.add(chunk))

    def _begin_to_speak(self) -> None:
        """Begin to speak, with the silence before it, or go on after silence within the turn."""
        self._turn.hear_voice()
        self._silence_bytes = self._limits.silence_bytes
        self._drop_old_lead()
        if self._lead.size:
            for audio, seq, client_ts_ms, whole_seq, before_bytes, _ in self._lead.take():
                chunk = (audio, seq, client_ts_ms, whole_seq, before_bytes, self._now_ms)
                self._buffer.add(chunk, len(audio))

    def _drop_old_lead(self) -> None:
        """Pass over silence from before a pause: it is not the beginning of speech after it."""
        lead = self._lead
        if lead.size and self._now_ms - self._heard_at_ms > (self._rules.pause_ms or inf):
            self._account.pass_over(lead.clear())

    # Cutting.

    def _finalize(self) -> tuple[Event, ...]:
        """Begin the hangover of a manual cut; without audio only the turn ends."""
        size, rules = self._buffer.size, self._rules
        if not size:
            self._account.pass_over(self._lead.clear())
            return self._end_turn()
        if self.timer.hangover == "manual":
            return NOTHING
        if not rules.hangover_manual_ms or size >= rules.max_bytes:
            return self._cut("manual")
        self.timer.start_hangover("manual", self._now_ms + rules.hangover_manual_ms)
        return NOTHING

    def _is_at_limit(self) -> bool:
        limits = self._limits
        is_full = self._buffer.size >= limits.limit_bytes
        return is_full or self._turn.unvoiced_bytes >= self._silence_bytes

    def _cut_at_limit(self) -> tuple[Event, ...]:
        size, rules, limits = self._buffer.size, self._rules, self._limits
        hangover = self.timer.hangover
        is_silent = self._turn.unvoiced_bytes >= self._silence_bytes
        if is_silent and size >= max(limits.short_bytes, 1) and hangover != "manual":
            return self._cut_silence()
        if size >= rules.max_bytes:
            return self._cut("manual" if hangover == "manual" else "max_bytes")
        if hangover == "max_duration" and size >= limits.overdue_bytes:
            # The audio arrived faster than it was spoken: in its own time the hangover has ended.
            return self._cut("max_duration")
        if hangover is not None or size < limits.max_duration_bytes:
            return NOTHING
        if not rules.hangover_auto_ms:
            return self._cut("max_duration")
        self.timer.start_hangover("max_duration", self._now_ms + rules.hangover_auto_ms)
        return NOTHING

    def _cut_silence(self) -> tuple[Event, ...]:
        """Cut at the quietest point of the silence; what follows it waits for the next voice."""
        size, buffer = self._format.bytes_lasting, self._buffer
        silent = min(self._turn.unvoiced_bytes, buffer.size) - size(SILENCE_KEPT_MS)
        # Nothing before that could begin the next utterance.
        searched = min(silent, size(self._rules.preroll_ms))
        count = quietest_end(buffer.audio, searched, size(QUIET_WINDOW_MS))
        # All of the silence had to be heard before the speech could end.
        ended_at_ms = buffer.last_at_ms
        rest = buffer.take_after(count)
        events = self._cut("timeout", speech_end_ms=ended_at_ms)
        for chunk in rest:
            self._wait(chunk)
        return events

    def _cut(
        self, trigger: Trigger, count: int = 0, speech_end_ms: float | None = None
    ) -> tuple[Event, ...]:
        """Return the buffer, or its first `count` chunks; a slice ends at a quiet point.

        The rest after a slice is the beginning of the turn's next utterance; the rest after a
        sentence is that of the next turn.
        """
        taken = self._buffer.take(count or self._chunks_for(trigger))
        start_ms, end_ms = self._account.settle(len(taken.audio))
        cut: UtteranceCut[Any] = UtteranceCut(
            audio=taken.audio,
            trigger=trigger,
            turn=self._turn.number,
            first_seq=taken.first_seq,
            last_seq=taken.last_seq,
            start_ms=start_ms,
            end_ms=end_ms,
            speech_end_ms=taken.last_at_ms if speech_end_ms is None else speech_end_ms,
            is_slice=trigger in SLICES,
            first_client_ts_ms=taken.first_client_ts_ms,
        )
        self.timer.end_hangover()
        self._is_held = False
        self._silence_bytes = self._limits.silence_bytes
        if cut.closes_turn:
            self._turn.start_next(spoken_bytes=self._buffer.size)
        else:
            self._turn.add_slice()
        self._rearm()
        return (cut,)

    def _chunks_for(self, trigger: Trigger) -> int:
        """Return how many chunks a cut takes: all of them, unless a slice may end earlier."""
        rules, buffer = self._rules, self._buffer
        is_slice = trigger in SLICES
        if not is_slice or not rules.slice_search_ms or self._format.name != PCM16:
            return len(buffer)
        search_bytes = self._format.bytes_lasting(rules.slice_search_ms)
        window_bytes = self._format.bytes_lasting(QUIET_WINDOW_MS)
        searched = min(search_bytes, buffer.size // SEARCHED_PART)
        further = min(2 * search_bytes, buffer.size // SEARCHED_PART_MOST)
        return slice_end(buffer.audio, searched, further, window_bytes)

    def _end_turn(self) -> tuple[Event, ...]:
        """End a turn of slices that has no audio left; otherwise there is no turn to end."""
        if not self._turn.is_sliced:
            return NOTHING
        ended = TurnEnd(self._turn.number)
        self._turn.start_next()
        self._rearm()
        return (ended,)
