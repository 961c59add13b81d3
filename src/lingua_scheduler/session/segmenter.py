"""Chunks of a speaking session -> the utterances cut from them. Pure: the caller brings the clock.

Every admitted byte leaves exactly once, in order: in a cut, or counted as silence that a voice
detector let pass. Each input first acts on what was due before it, so a late timer changes nothing.
The caller numbers utterances, creates jobs, tells the client and calls `tick` at `deadline_ms`.

    chunk ──► buffer ──► manual, after a hangover ─────────► cut, closes the turn
                    ├──► pause, silence (short: held) ─────► cut, closes the turn
                    ├──► max_duration, after a hangover ───► slice, the turn goes on
                    └──► max_bytes ────────────────────────► slice, the turn goes on

A slice ends where it is quietest, up to `slice_search_ms` before its end; the rest begins the next.
A long chunk of pcm16 that would go beyond the limits is heard part by part, as if it had come so.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Literal, NamedTuple

from lingua_scheduler.session.audio import PCM16
from lingua_scheduler.session.quiet import quietest_end
from lingua_scheduler.session.voice import Preroll, Waiting

if TYPE_CHECKING:
    from lingua_scheduler.session.audio import AudioFormat
    from lingua_scheduler.session.voice import VoiceDetector

Trigger = Literal["manual", "timeout", "max_duration", "max_bytes", "session_close"]

# A client that never says that its playback ended is believed for so long.
TTS_MAX_MS = 60_000
NEVER_BYTES = 1 << 62
# How much around a boundary is listened to when a quiet place is looked for.
QUIET_WINDOW_MS = 200
# At most this part of a slice may be left to the next.
SEARCHED_PART = 3
# Chunks longer than this are heard in parts where they would go beyond the limits.
LONG_MS = 1000
PART_MS = 100


@dataclass(frozen=True, slots=True)
class SegmentRules:
    """When speech is cut; 0 switches off `pause_ms`, `max_duration_ms` or `silence_ms`."""

    pause_ms: int = 3000
    max_duration_ms: int = 10_000
    max_bytes: int = 512_000
    hangover_auto_ms: int = 150
    hangover_manual_ms: int = 200
    short_merge_ms: int = 400
    # Only with a detector: unvoiced audio that ends an utterance, and that is kept before one.
    silence_ms: int = 400
    preroll_ms: int = 300
    # How far back a slice of pcm16 looks for a quiet place to end.
    slice_search_ms: int = 0


@dataclass(frozen=True, slots=True)
class Cut:
    """One utterance, never empty; positions count the session's admitted audio."""

    audio: bytes
    trigger: Trigger
    # Turns of a session count from 0.
    turn: int
    first_seq: int | None
    last_seq: int | None
    start_ms: int
    end_ms: int
    # Server clock of the last chunk in it.
    speech_end_at_ms: float
    # What the client said of this utterance's first chunk.
    first_client_ts_ms: int | None

    @property
    def is_slice(self) -> bool:
        """Tell whether it was cut by length: the turn goes on."""
        return self.trigger in {"max_duration", "max_bytes"}

    @property
    def closes_turn(self) -> bool:
        """Tell whether it is the last piece of its turn."""
        return not self.is_slice


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """A turn of slices ended and no audio was left to close it with."""

    turn: int


Event = Cut | TurnEnd
NOTHING: tuple[Event, ...] = ()


class SequenceGap(NamedTuple):
    """Chunks that never came, first and last of them."""

    missing_from: int
    missing_to: int


# What is told of a chunk besides its audio: when it came, its number, the client's clock, and up to
# which number chunks are whole when speech is cut after it.
Stamp = tuple[float, int | None, int | None, int | None]


class Segmenter:
    """Cuts one session's chunks; every input carries a server clock that never goes back.

    `silent_ms` and `silent_bytes` count what was let pass: at any time they, the cuts and what
    `flush` would still give make up the admitted audio. A detector is used for pcm16 only.
    """

    __slots__ = (
        "_detector",
        "_due_ms",
        "_format",
        "_heard_at_ms",
        "_is_held",
        "_is_sliced",
        "_is_speaking",
        "_last_seq",
        "_lead",
        "_limit_bytes",
        "_long_bytes",
        "_max_duration_bytes",
        "_newest_seq",
        "_now_ms",
        "_overdue_bytes",
        "_part_bytes",
        "_parts",
        "_pause_from_ms",
        "_pause_ms",
        "_pending",
        "_rules",
        "_settled_bytes",
        "_short_bytes",
        "_silence_bytes",
        "_size",
        "_stamps",
        "_tts_until_ms",
        "_turn",
        "_unvoiced_bytes",
        "silent_bytes",
        "silent_ms",
    )

    def __init__(
        self, rules: SegmentRules, audio_format: AudioFormat, detector: VoiceDetector | None = None
    ) -> None:
        self._rules = rules
        self._format = audio_format
        self._detector = detector if audio_format.name == PCM16 else None
        # The rules in bytes, so that a chunk costs no conversion.
        self._pause_ms: float = rules.pause_ms or inf
        self._max_duration_bytes = self._limit(rules.max_duration_ms)
        self._overdue_bytes = self._max_duration_bytes + audio_format.bytes_lasting(
            rules.hangover_auto_ms
        )
        self._limit_bytes = min(self._max_duration_bytes, rules.max_bytes)
        # What is opaque cannot be parted.
        is_pcm16 = audio_format.name == PCM16
        long_bytes = min(audio_format.bytes_lasting(LONG_MS), self._limit_bytes)
        self._long_bytes = long_bytes if is_pcm16 else NEVER_BYTES
        self._part_bytes = audio_format.bytes_lasting(PART_MS)
        self._short_bytes = audio_format.bytes_lasting(rules.short_merge_ms)
        self._silence_bytes = self._limit(rules.silence_ms)
        # The clock of the latest input.
        self._now_ms = -inf
        # The utterance being collected: its chunks, what is told of each, and their size.
        self._parts: list[bytes] = []
        self._stamps: list[Stamp] = []
        self._size = 0
        self._last_seq: int | None = None
        self._heard_at_ms = -inf
        # Why a hangover runs; None when none does.
        self._pending: Literal["manual", "max_duration"] | None = None
        # The pause found it too short to cut: it waits one pause more.
        self._is_held = False
        # The current turn, and whether slices of it were cut, so that it must still be closed.
        self._turn = 0
        self._is_sliced = False
        # When `tick` has something to do: the end of the hangover or of the pause.
        self._due_ms = inf
        # What the pause counts from, and until when playback suspends it.
        self._pause_from_ms = -inf
        self._tts_until_ms = -inf
        # Only with a detector: has this turn a voice, how much silence followed it, and the latest
        # unvoiced chunks before it.
        self._is_speaking = False
        self._unvoiced_bytes = 0
        self._lead = Preroll(audio_format.bytes_lasting(rules.preroll_ms))
        # The ledger: what was cut or let pass, and how much of it was let pass as silence.
        self._settled_bytes = 0
        self.silent_bytes = 0
        self.silent_ms = 0
        self._newest_seq: int | None = None

    @property
    def deadline_ms(self) -> float | None:
        """Return when `tick` must be called next, or None."""
        return None if self._due_ms == inf else self._due_ms

    @property
    def admitted_ms(self) -> int:
        """Return the length of all audio that came: where the next chunk starts."""
        return self._format.duration_ms(self._settled_bytes + self.buffered_bytes)

    @property
    def newest_seq(self) -> int | None:
        """Return the newest chunk's number, if chunks have numbers."""
        return self._newest_seq

    @property
    def settled_seq(self) -> int | None:
        """Return up to which chunk nothing is kept here; None while an utterance is collected."""
        if self._size or self._newest_seq is None:
            return None
        waiting = self._lead.first_seq
        return self._newest_seq if waiting is None else waiting - 1

    @property
    def settled_ms(self) -> int:
        """Return where the chunk after `settled_seq` begins."""
        return self._format.duration_ms(self._settled_bytes - self._lead.dropped_bytes)

    def go_on(self, next_seq: int | None, at_ms: int) -> None:
        """Begin in the middle of a session: at this chunk and this place in its audio."""
        self._newest_seq = None if next_seq is None else next_seq - 1
        self._settled_bytes = self._format.bytes_lasting(at_ms)

    @property
    def is_idle(self) -> bool:
        """Tell whether nothing is being said: no audio is kept and no turn goes on."""
        return not self._parts and not self._is_sliced

    @property
    def buffered_bytes(self) -> int:
        """Return how much audio has come and has neither been cut nor let pass."""
        return self._size + self._lead.size

    def take_seq(self, seq: int) -> Literal["ok", "duplicate"] | SequenceGap:
        """Compare a chunk's number with the newest; only a duplicate is not to be admitted.

        The first number may be any. A number below the newest is a duplicate too, even one that was
        told missing: its place in the audio has passed.
        """
        newest = self._newest_seq
        if newest is not None and seq <= newest:
            return "duplicate"
        self._newest_seq = seq
        if newest is None or seq == newest + 1:
            return "ok"
        return SequenceGap(newest + 1, seq - 1)

    def chunk(
        self,
        data: bytes,
        *,
        is_final: bool,
        now_ms: float,
        client_ts_ms: int | None = None,
        seq: int | None = None,
    ) -> tuple[Event, ...]:
        """Admit audio; an empty final chunk only says that what came before is complete."""
        events = self._advance(now_ms)
        if data:
            if is_final and self._pending == "manual":
                events += self._cut("manual")
            size = len(data)
            if size > self._long_bytes and self._size + size > self._limit_bytes:
                events += self._hear_in_parts(data, client_ts_ms, seq)
            elif self._detector is None or self._joins_speech(data, client_ts_ms, seq):
                self._join(data, client_ts_ms, seq)
        elif self._size and seq is not None:
            self._last_seq = seq
        if is_final:
            return events + self._finalize()
        if self._size >= self._limit_bytes or self._unvoiced_bytes >= self._silence_bytes:
            return events + self._cut_at_limit()
        return events

    def _hear_in_parts(
        self, data: bytes, client_ts_ms: int | None, seq: int | None
    ) -> tuple[Event, ...]:
        """Collect a long chunk, cutting where the limits ask for it, but for its end."""
        events, step = NOTHING, self._part_bytes
        for at in range(0, len(data), step):
            if self._size >= self._limit_bytes or self._unvoiced_bytes >= self._silence_bytes:
                events += self._cut_at_limit()
            part = Waiting(data[at : at + step], client_ts_ms, seq, at, at + step >= len(data))
            if self._detector is None or self._joins_speech(*part):
                self._join(*part)
        return events

    def tick(self, now_ms: float) -> tuple[Event, ...]:
        """Do what is due; afterwards the deadline lies ahead."""
        events = self._advance(now_ms)
        while self._due_ms <= now_ms:
            events += self._on_due()
        return events

    def tts_started(self, now_ms: float) -> tuple[Event, ...]:
        """Suspend the pause and the count of silence: the client plays and does not listen."""
        events = self._advance(now_ms)
        self._tts_until_ms = now_ms + TTS_MAX_MS
        self._rearm()
        return events

    def tts_ended(self, now_ms: float) -> tuple[Event, ...]:
        """Let the pause and the count of silence start again from now."""
        events = self._advance(now_ms)
        self._tts_until_ms = -inf
        self._pause_from_ms = now_ms
        self._unvoiced_bytes = 0
        self._rearm()
        return events

    def flush(self, now_ms: float) -> tuple[Event, ...]:
        """Give out all that is left: the session closes or lost its socket."""
        events = self._advance(now_ms)
        if self._size:
            return events + self._cut("manual" if self._pending == "manual" else "session_close")
        self._let_pass(self._lead.clear())
        return events + self._end_turn()

    # Time.

    def _advance(self, now_ms: float) -> tuple[Event, ...]:
        """Move the clock and do what should have been done before."""
        assert now_ms >= self._now_ms, "the clock went back"
        self._now_ms = now_ms
        events = NOTHING
        # What arrives exactly at a deadline is still in time.
        while self._due_ms < now_ms:
            events += self._on_due()
        return events

    def _on_due(self) -> tuple[Event, ...]:
        if self._pending is not None:
            return self._cut(self._pending)
        if not self._size:
            return self._end_turn()
        # The piece that closes a sliced speech is no short speech of its own.
        if self._size < self._short_bytes and not self._is_held and not self._is_sliced:
            # Counted from the deadline, not from now: a late timer must change nothing.
            self._is_held = True
            self._pause_from_ms = self._due_ms
            self._rearm()
            return NOTHING
        return self._cut("timeout")

    def _rearm(self) -> None:
        """Set the deadline of the pause, unless a hangover runs."""
        if self._pending is not None:
            return
        if self._size or self._is_sliced:
            self._due_ms = max(self._pause_from_ms, self._tts_until_ms) + self._pause_ms
        else:
            self._due_ms = inf

    # Collecting.

    def _join(
        self,
        data: bytes,
        client_ts_ms: int | None,
        seq: int | None,
        _before_bytes: int = 0,
        is_end: bool = True,
    ) -> None:
        now_ms, whole_seq = self._now_ms, seq
        if not is_end:
            # Of a chunk that is not all there yet, the client must keep everything.
            whole_seq = seq - 1 if seq else None
        self._parts.append(data)
        self._stamps.append((now_ms, seq, client_ts_ms, whole_seq))
        self._size += len(data)
        self._last_seq = whole_seq
        self._heard_at_ms = self._pause_from_ms = now_ms
        self._is_held = False
        if self._pending is None:
            self._due_ms = max(now_ms, self._tts_until_ms) + self._pause_ms

    # Cutting.

    def _finalize(self) -> tuple[Event, ...]:
        """Begin the hangover of a manual cut; without audio there is only a turn to end."""
        if not self._size:
            self._let_pass(self._lead.clear())
            return self._end_turn()
        if self._pending == "manual":
            return NOTHING
        if not self._rules.hangover_manual_ms or self._size >= self._rules.max_bytes:
            return self._cut("manual")
        self._pending = "manual"
        self._due_ms = self._now_ms + self._rules.hangover_manual_ms
        return NOTHING

    def _cut_at_limit(self) -> tuple[Event, ...]:
        is_manual = self._pending == "manual"
        if (
            self._unvoiced_bytes >= self._silence_bytes
            and self._size >= max(self._short_bytes, 1)
            and not is_manual
        ):
            return self._cut("timeout")
        if self._size >= self._rules.max_bytes:
            return self._cut("manual" if is_manual else "max_bytes")
        if self._pending == "max_duration" and self._size >= self._overdue_bytes:
            # Faster than it was spoken: the hangover is long over in the time of the audio.
            return self._cut("max_duration")
        if self._pending is not None or self._size < self._max_duration_bytes:
            return NOTHING
        if not self._rules.hangover_auto_ms:
            return self._cut("max_duration")
        self._pending = "max_duration"
        self._due_ms = self._now_ms + self._rules.hangover_auto_ms
        return NOTHING

    def _cut(self, trigger: Trigger) -> tuple[Event, ...]:
        """Give out the buffer, or of a slice what comes before a quiet place; make ready for more.

        What a slice leaves over is the beginning of the next utterance of the turn.
        """
        stamps, taken = self._stamps, self._taken_by(trigger)
        is_whole = taken == len(stamps)
        _, first_seq, first_client_ts_ms, _ = stamps[0]
        heard_at_ms, _, _, last_seq = stamps[taken - 1]
        audio = b"".join(self._parts if is_whole else self._parts[:taken])
        start_bytes = self._settled_bytes
        self._settled_bytes += len(audio)
        cut = Cut(
            audio=audio,
            trigger=trigger,
            turn=self._turn,
            first_seq=first_seq,
            last_seq=self._last_seq if is_whole else last_seq,
            start_ms=self._format.duration_ms(start_bytes),
            end_ms=self._format.duration_ms(self._settled_bytes),
            speech_end_at_ms=heard_at_ms,
            first_client_ts_ms=first_client_ts_ms,
        )
        del self._parts[:taken]
        del stamps[:taken]
        self._size -= len(audio)
        self._pending = None
        self._is_held = False
        self._is_sliced = True
        if cut.closes_turn:
            self._start_next_turn()
        self._rearm()
        return (cut,)

    def _taken_by(self, trigger: Trigger) -> int:
        """Return how many of the chunks a cut takes: all of them, unless it may end earlier."""
        rules, count = self._rules, len(self._stamps)
        is_slice = trigger in {"max_duration", "max_bytes"}
        if not is_slice or not rules.slice_search_ms or self._format.name != PCM16:
            return count
        search_bytes = self._format.bytes_lasting(rules.slice_search_ms)
        window_bytes = self._format.bytes_lasting(QUIET_WINDOW_MS)
        return quietest_end(
            self._parts, min(search_bytes, self._size // SEARCHED_PART), window_bytes
        )

    def _end_turn(self) -> tuple[Event, ...]:
        """End a turn of slices that has no audio left; else there is no turn to end."""
        if not self._is_sliced:
            return NOTHING
        ended = TurnEnd(self._turn)
        self._start_next_turn()
        self._rearm()
        return (ended,)

    def _start_next_turn(self) -> None:
        self._turn += 1
        self._is_sliced = False
        self._is_speaking = False
        self._unvoiced_bytes = 0

    # Listening (only with a detector).

    def _joins_speech(
        self,
        data: bytes,
        client_ts_ms: int | None,
        seq: int | None,
        before_bytes: int = 0,
        is_end: bool = True,
    ) -> bool:
        """Tell whether a chunk is of a speech; else it waits as the possible beginning of one."""
        assert self._detector is not None
        if self._lead.size and self._now_ms - self._heard_at_ms > self._pause_ms:
            # Silence from before a pause is no beginning of what comes after it.
            self._let_pass(self._lead.clear())
        if self._detector.is_voice(data):
            self._unvoiced_bytes = 0
            self._is_speaking = True
            if self._lead.size:
                for waiting in self._lead.take():
                    self._join(*waiting)
            return True
        if not self._is_speaking:
            self._heard_at_ms = self._now_ms
            waiting = Waiting(data, client_ts_ms, seq, before_bytes, is_end)
            self._let_pass(self._lead.add(waiting))
        elif self._now_ms >= self._tts_until_ms:
            self._unvoiced_bytes += len(data)
        return self._is_speaking

    def _let_pass(self, count: int) -> None:
        """Count as silence what left the lead."""
        before_ms = self._format.duration_ms(self._settled_bytes)
        self._settled_bytes += count
        self.silent_bytes += count
        self.silent_ms += self._format.duration_ms(self._settled_bytes) - before_ms

    def _limit(self, duration_ms: int) -> int:
        return self._format.bytes_lasting(duration_ms) if duration_ms else NEVER_BYTES
