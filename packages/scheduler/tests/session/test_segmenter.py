"""When speech is cut, what a cut contains, and that no byte is lost, duplicated or moved."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lingua_scheduler.session.audio import AudioFormat
from lingua_scheduler.session.cut_timer import TTS_MAX_MS
from lingua_scheduler.session.segmenter import (
    NOTHING,
    Event,
    Segmenter,
    SegmentRules,
    SequenceGap,
    TurnEnd,
    UtteranceCut,
)

pytestmark = pytest.mark.unit

# 16 bytes are one millisecond.
PCM = AudioFormat("pcm16", 8000)
BYTES_PER_MS = 16
RULES = SegmentRules(silence_ms=800)


class Marked:
    """Takes a chunk for voice when its bytes are capital letters, so that a test decides."""

    def is_voice(self, pcm: bytes) -> bool:
        return pcm[:1].isupper()


def ring(segmenter: Segmenter, now_ms: float) -> tuple[Event, ...]:
    """Call `tick`, after which the deadline lies ahead: else a timer would ring for ever."""
    events = segmenter.tick(now_ms)
    assert segmenter.deadline_ms is None or segmenter.deadline_ms > now_ms
    return events


@dataclass
class Client:
    """Sends chunks to a segmenter at a clock of its own and collects what is cut."""

    segmenter: Segmenter
    now_ms: float = 0
    events: list[Event] = field(default_factory=list)

    def say(self, letter: str, ms: int = 100, **more: Any) -> None:
        """Send `ms` of audio made of one letter; capital letters are voice to `Marked`."""
        self.send(letter.encode() * (BYTES_PER_MS * ms), **more)

    def send(self, data: bytes, *, is_final: bool = False, **more: Any) -> None:
        self.events += self.segmenter.chunk(data, is_final=is_final, now_ms=self.now_ms, **more)

    def stream(self, letter: str, total_ms: int, **more: Any) -> None:
        """Send audio in real time, 100 ms per chunk, with a timer that is punctual."""
        for _ in range(total_ms // 100):
            self.say(letter, **more)
            self.wait(100)

    def final(self, **more: Any) -> None:
        self.send(b"", is_final=True, **more)

    def wait(self, ms: float) -> None:
        """Let time pass; the timer rings at every deadline."""
        until_ms = self.now_ms + ms
        while (due_ms := self.segmenter.deadline_ms) is not None and due_ms <= until_ms:
            self.now_ms = due_ms
            self.events += ring(self.segmenter, due_ms)
        self.now_ms = until_ms

    def wait_without_timer(self, ms: float) -> None:
        self.now_ms += ms

    def tts_started(self) -> None:
        self.events += self.segmenter.tts_started(self.now_ms)

    def tts_ended(self) -> None:
        self.events += self.segmenter.tts_ended(self.now_ms)

    def close(self) -> None:
        self.events += self.segmenter.flush(self.now_ms)

    @property
    def told(self) -> list[tuple[str, str, int]]:
        """What came out: (letters with their milliseconds, trigger, turn)."""
        return [
            (spelled(event.audio), event.trigger, event.turn)
            if isinstance(event, UtteranceCut)
            else ("", "turn_end", event.turn)
            for event in self.events
        ]

    @property
    def cuts(self) -> list[UtteranceCut]:
        return [event for event in self.events if isinstance(event, UtteranceCut)]


def spelled(audio: bytes) -> str:
    """Write audio as its letters and how many milliseconds of each: 'A300 s800'."""
    runs: list[tuple[str, int]] = []
    for letter in audio.decode():
        if runs and runs[-1][0] == letter:
            runs[-1] = (letter, runs[-1][1] + 1)
        else:
            runs.append((letter, 1))
    return " ".join(f"{letter}{count // BYTES_PER_MS}" for letter, count in runs)


def client(rules: SegmentRules = RULES, **more: Any) -> Client:
    return Client(Segmenter(replace(rules, **more), PCM))


def listening_client(**more: Any) -> Client:
    return Client(Segmenter(replace(RULES, **more), PCM, Marked()))


# The defaults.


def test_the_defaults_are_those_of_the_specification() -> None:
    assert SegmentRules() == SegmentRules(
        pause_ms=3000,
        max_duration_ms=10_000,
        max_bytes=500 * 1024,
        hangover_auto_ms=150,
        hangover_manual_ms=200,
        short_merge_ms=400,
        silence_ms=400,
        preroll_ms=300,
    )


# Pause.


def test_a_pause_cuts_what_came_before_it_and_only_once() -> None:
    c = client()
    c.stream("A", 1000)
    c.wait(2899)
    assert c.told == []
    c.wait(1)
    assert c.told == [("A1000", "timeout", 0)]
    c.wait(60_000)
    c.close()
    assert len(c.events) == 1


def test_each_chunk_starts_the_pause_anew() -> None:
    c = client()
    for _ in range(4):
        c.say("A", 200)
        c.wait(2999)
    assert c.told == []


def test_the_chunk_that_ends_a_pause_belongs_to_the_next_utterance() -> None:
    c = client()
    c.say("A", 500)
    c.wait_without_timer(3001)
    c.say("B", 500)
    assert c.told == [("A500", "timeout", 0)]
    c.wait(3000)
    assert c.told[1:] == [("B500", "timeout", 1)]


def test_after_a_timeout_the_first_chunk_of_the_next_speech_is_not_cut_alone() -> None:
    c = client()
    c.say("A", 500)
    c.wait(20_000)
    c.stream("B", 700)
    assert c.told == [("A500", "timeout", 0)]
    c.wait(3000)
    assert c.told[1:] == [("B700", "timeout", 1)]


def test_a_chunk_exactly_at_the_end_of_the_pause_is_still_in_time() -> None:
    c = client()
    c.say("A", 500)
    c.wait_without_timer(3000)
    c.say("A", 500)
    assert c.told == []


def test_a_pause_of_0_never_cuts() -> None:
    c = client(pause_ms=0)
    c.say("A", 500)
    assert c.segmenter.deadline_ms is None
    c.wait_without_timer(1e9)
    c.say("A", 500)
    c.close()
    assert c.told == [("A1000", "session_close", 0)]


def test_silence_of_any_length_ends_nothing_when_nothing_was_said() -> None:
    c = client()
    assert c.segmenter.deadline_ms is None
    c.wait_without_timer(10 * 3_600_000)
    assert c.segmenter.tick(c.now_ms) is NOTHING
    c.say("A", 500)
    c.wait(3000)
    assert c.told == [("A500", "timeout", 0)]


def test_a_tick_before_the_deadline_does_nothing() -> None:
    c = client()
    c.say("A", 500)
    assert c.segmenter.tick(2999) is NOTHING
    assert c.segmenter.deadline_ms == 3000


# Manual.


def test_a_final_chunk_is_cut_after_the_hangover() -> None:
    c = client()
    c.say("A", 50)
    c.say("B", 50, is_final=True)
    c.wait(199)
    assert c.told == []
    c.wait(1)
    assert c.told == [("A50 B50", "manual", 0)]


def test_audio_during_the_hangover_joins_and_does_not_prolong_it() -> None:
    c = client()
    c.say("A", 100, is_final=True)
    c.wait(150)
    c.say("B", 50)
    assert c.segmenter.deadline_ms == 200
    c.wait(50)
    assert c.told == [("A100 B50", "manual", 0)]


def test_audio_after_the_hangover_starts_the_next_turn() -> None:
    c = client()
    c.say("A", is_final=True)
    c.wait_without_timer(201)
    c.say("B", is_final=True)
    assert c.told == [("A100", "manual", 0)]
    c.wait(200)
    assert c.told[1:] == [("B100", "manual", 1)]


def test_three_final_chunks_in_a_burst_are_three_cuts() -> None:
    c = client()
    for letter in "ABC":
        c.say(letter, is_final=True)
    assert [told[0] for told in c.told] == ["A100", "B100"]
    c.wait(200)
    expected = [("A100", "manual", 0), ("B100", "manual", 1), ("C100", "manual", 2)]
    assert c.told == expected


def test_an_empty_final_chunk_cuts_what_came_before() -> None:
    c = client()
    c.say("A")
    c.wait(50)
    c.final()
    c.wait(200)
    assert c.told == [("A100", "manual", 0)]


def test_an_empty_final_chunk_without_audio_cuts_nothing() -> None:
    c = client()
    c.final()
    c.wait(10_000)
    c.say("A", is_final=True)
    c.wait(200)
    assert c.told == [("A100", "manual", 0)]


def test_an_empty_final_chunk_during_the_hangover_changes_nothing() -> None:
    c = client()
    c.say("A", is_final=True)
    c.wait(100)
    c.final()
    assert c.segmenter.deadline_ms == 200
    c.wait(5000)
    assert c.told == [("A100", "manual", 0)]


def test_an_empty_chunk_that_is_not_final_does_nothing() -> None:
    c = client()
    c.say("A", 500)
    c.wait(2999)
    c.send(b"")
    c.wait(1)
    assert c.told == [("A500", "timeout", 0)]


def test_a_hangover_of_0_cuts_at_once() -> None:
    c = client(hangover_manual_ms=0, hangover_auto_ms=0, max_duration_ms=1000)
    c.say("A", is_final=True)
    assert c.told == [("A100", "manual", 0)]
    c.say("B", 1000)
    assert c.told[1:] == [("B1000", "max_duration", 1)]


# Longest duration.


def test_long_speech_is_sliced_and_the_pause_closes_its_turn() -> None:
    c = client()
    c.stream("A", 23_000)
    c.wait(3000)
    # The chunk that falls into the 150 ms after the limit still joins.
    expected = [
        ("A10100", "max_duration", 0),
        ("A10100", "max_duration", 0),
        ("A2800", "timeout", 0),
    ]
    assert c.told == expected
    assert [(cut.is_slice, cut.closes_turn) for cut in c.cuts] == [
        (True, False),
        (True, False),
        (False, True),
    ]
    c.stream("B", 500)
    c.wait(3000)
    assert c.told[3:] == [("B500", "timeout", 1)]


def test_a_slice_is_cut_when_its_hangover_ends_even_if_audio_stops() -> None:
    c = client()
    c.say("A", 10_000)
    c.wait(149)
    assert c.told == []
    c.wait(1)
    assert c.told == [("A10000", "max_duration", 0)]


def test_a_final_chunk_during_the_hangover_of_a_slice_makes_it_the_closing_piece() -> None:
    c = client()
    c.say("A", 10_000)
    c.wait(100)
    c.say("B", is_final=True)
    c.wait(200)
    assert c.told == [("A10000 B100", "manual", 0)]


def test_a_final_chunk_that_reaches_the_longest_duration_is_manual() -> None:
    c = client()
    c.say("A", 10_000, is_final=True)
    c.wait(200)
    assert c.told == [("A10000", "manual", 0)]


def test_a_manual_piece_after_slices_closes_their_turn() -> None:
    c = client()
    c.stream("A", 10_500)
    c.say("B", is_final=True)
    c.wait(200)
    assert c.told == [("A10100", "max_duration", 0), ("A400 B100", "manual", 0)]


def test_a_longest_duration_of_0_never_slices() -> None:
    c = client(max_duration_ms=0, max_bytes=10_000_000)
    c.stream("A", 60_000)
    assert c.told == []


def test_opus_is_sliced_by_its_estimated_duration_however_small_its_packets_are() -> None:
    segmenter = Segmenter(RULES, AudioFormat("opus", 16_000))
    cuts: list[Event] = []
    for count in range(1001):
        cuts += segmenter.chunk(bytes(40), is_final=False, now_ms=count * 20)
    assert [(cut.trigger, len(cut.audio)) for cut in cuts if isinstance(cut, UtteranceCut)] == [
        # 750 packets are 10 s; 7 more come during the hangover.
        ("max_duration", 30_280)
    ]


# A turn of slices without a closing piece.


def test_a_pause_after_slices_ends_their_turn_though_no_audio_is_left() -> None:
    c = client()
    c.say("A", 10_000)
    c.wait(2999)
    assert c.told == [("A10000", "max_duration", 0)]
    c.wait(1)
    assert c.told[1:] == [("", "turn_end", 0)]
    c.say("B", 500)
    c.wait(60_000)
    assert c.told[2:] == [("B500", "timeout", 1)]


def test_an_empty_final_chunk_after_slices_ends_their_turn_at_once() -> None:
    c = client()
    c.say("A", 10_000)
    c.wait(150)
    c.final()
    assert c.events[1:] == [TurnEnd(0)]
    c.final()
    c.close()
    assert len(c.events) == 2


def test_closing_after_slices_ends_their_turn() -> None:
    c = client()
    c.say("A", 10_000)
    c.wait(150)
    c.close()
    assert c.events[1:] == [TurnEnd(0)]


def test_the_chunk_that_ends_a_pause_after_slices_is_of_the_next_turn() -> None:
    c = client()
    c.say("A", 10_000)
    c.wait_without_timer(3001)
    c.say("B", 500)
    assert c.told == [("A10000", "max_duration", 0), ("", "turn_end", 0)]
    c.close()
    assert c.told[2:] == [("B500", "session_close", 1)]


# Most bytes.


def test_the_most_bytes_are_sliced_at_once_and_the_turn_goes_on() -> None:
    c = client(max_duration_ms=0, max_bytes=16_000)
    c.say("A", 999)
    assert c.told == []
    c.say("A", 1)
    assert c.told == [("A1000", "max_bytes", 0)]
    c.say("B", 500)
    c.wait(3000)
    assert c.told[1:] == [("B500", "timeout", 0)]


def test_the_most_bytes_do_not_wait_for_the_hangover_of_a_slice() -> None:
    c = client(max_duration_ms=500, max_bytes=16_000)
    c.say("A", 600)
    c.say("A", 400)
    assert c.told == [("A1000", "max_bytes", 0)]


def test_the_most_bytes_during_the_hangover_of_a_final_chunk_cut_it_at_once() -> None:
    c = client(max_duration_ms=0, max_bytes=16_000)
    c.say("A", 600, is_final=True)
    c.say("B", 400)
    assert c.told == [("A600 B400", "manual", 0)]


def test_a_final_chunk_that_reaches_the_most_bytes_closes_the_turn_at_once() -> None:
    c = client(max_duration_ms=0, max_bytes=16_000)
    c.say("A", 600)
    c.say("A", 600, is_final=True)
    assert c.told == [("A1200", "manual", 0)]


# Short merge.


def test_a_short_utterance_waits_for_more_audio_of_its_turn() -> None:
    c = client()
    c.say("A", 260)
    c.wait(3500)
    assert c.told == []
    c.say("B", 260)
    c.wait(3000)
    assert c.told == [("A260 B260", "timeout", 0)]


def test_a_short_utterance_alone_is_cut_at_its_flush_deadline_and_never_dropped() -> None:
    c = client()
    c.say("A", 260)
    c.wait(5999)
    assert c.told == []
    c.wait(1)
    assert c.told == [("A260", "timeout", 0)]


def test_a_chunk_after_the_flush_deadline_does_not_join_the_short_utterance() -> None:
    c = client()
    c.say("A", 260)
    c.wait_without_timer(6001)
    c.say("B", 500)
    assert c.told == [("A260", "timeout", 0)]


def test_a_short_utterance_that_stays_short_is_held_again() -> None:
    c = client()
    c.say("A", 100)
    c.wait(4000)
    c.say("B", 100)
    c.wait(5999)
    assert c.told == []
    c.wait(1)
    assert c.told == [("A100 B100", "timeout", 0)]


def test_an_utterance_of_exactly_the_threshold_is_not_short() -> None:
    c = client()
    c.say("A", 400)
    c.wait(3000)
    assert c.told == [("A400", "timeout", 0)]


def test_a_final_chunk_ends_the_wait_of_a_short_utterance() -> None:
    c = client()
    c.say("A", 100)
    c.wait(3500)
    c.final()
    c.wait(200)
    assert c.told == [("A100", "manual", 0)]


def test_closing_ends_the_wait_of_a_short_utterance() -> None:
    c = client()
    c.say("A", 100)
    c.wait(3500)
    c.close()
    assert c.told == [("A100", "session_close", 0)]


# Playback.


def test_playback_suspends_the_pause_and_its_end_starts_it_anew() -> None:
    c = client()
    c.say("A", 500)
    c.wait(1000)
    c.tts_started()
    c.wait(20_000)
    c.tts_ended()
    c.wait(2999)
    assert c.told == []
    c.wait(1)
    assert c.told == [("A500", "timeout", 0)]


def test_the_first_chunk_after_playback_joins_what_was_said_before_it() -> None:
    c = client()
    c.say("A", 500)
    c.tts_started()
    c.wait(20_000)
    c.tts_ended()
    c.wait(500)
    c.say("B", 500)
    c.wait(3000)
    assert c.told == [("A500 B500", "timeout", 0)]


def test_audio_during_playback_is_kept_and_the_pause_stays_suspended() -> None:
    c = client()
    c.tts_started()
    c.wait(1000)
    c.say("A", 500)
    c.wait(10_000)
    c.say("B", 500)
    c.wait(10_000)
    assert c.told == []
    c.tts_ended()
    c.wait(3000)
    assert c.told == [("A500 B500", "timeout", 0)]


def test_playback_does_not_hold_back_a_final_chunk() -> None:
    c = client()
    c.tts_started()
    c.say("A", is_final=True)
    c.tts_started()
    c.tts_ended()
    c.wait(200)
    assert c.told == [("A100", "manual", 0)]


def test_playback_that_never_ends_suspends_for_a_minute_at_most() -> None:
    c = client()
    c.say("A", 500)
    c.tts_started()
    c.wait(TTS_MAX_MS + 2999)
    assert c.told == []
    c.wait(1)
    assert c.told == [("A500", "timeout", 0)]


def test_a_pause_that_was_over_before_playback_has_ended_the_utterance() -> None:
    c = client()
    c.say("A", 500)
    c.wait_without_timer(3500)
    c.tts_started()
    assert c.told == [("A500", "timeout", 0)]


def test_playback_suspends_the_wait_of_a_short_utterance_too() -> None:
    c = client()
    c.say("A", 100)
    c.wait(4000)
    c.tts_started()
    c.wait(30_000)
    c.tts_ended()
    c.wait(2999)
    assert c.told == []
    c.wait(1)
    assert c.told == [("A100", "timeout", 0)]


# Close.


def test_closing_cuts_what_is_left_and_nothing_twice() -> None:
    c = client()
    c.say("A", 50)
    c.close()
    c.close()
    c.wait(10_000)
    assert c.told == [("A50", "session_close", 0)]
    assert (c.segmenter.deadline_ms, c.segmenter.buffered_bytes) == (None, 0)


def test_closing_during_a_manual_hangover_gives_the_manual_cut() -> None:
    c = client()
    c.say("A", is_final=True)
    c.close()
    assert c.told == [("A100", "manual", 0)]


def test_closing_during_the_hangover_of_a_slice_closes_the_turn() -> None:
    c = client()
    c.say("A", 10_000)
    c.close()
    assert c.told == [("A10000", "session_close", 0)]


def test_closing_without_audio_gives_nothing() -> None:
    assert Segmenter(RULES, PCM).flush(0) is NOTHING


# What a cut tells.


def test_a_cut_tells_its_numbers_times_and_place() -> None:
    c = client()
    c.now_ms = 1000
    c.say("A", 300, seq=7, client_ts_ms=50_000)
    c.wait(300)
    c.say("A", 200, seq=8, client_ts_ms=50_300, is_final=True)
    c.wait(5000)
    c.say("B", 100, seq=9, client_ts_ms=55_500)
    c.close()
    first, second = c.cuts
    assert (first.first_seq, first.last_seq) == (7, 8)
    assert (first.start_ms, first.end_ms, first.speech_end_ms) == (0, 500, 1300)
    assert first.first_client_ts_ms == 50_000
    assert (second.first_seq, second.last_seq) == (9, 9)
    assert (second.start_ms, second.end_ms, second.speech_end_ms) == (500, 600, 6300)
    assert second.first_client_ts_ms == 55_500


def test_the_client_time_of_an_utterance_is_never_that_of_an_earlier_one() -> None:
    c = client()
    c.say("A", client_ts_ms=1, seq=1, is_final=True)
    c.wait(200)
    c.say("B", is_final=True)
    c.wait(200)
    assert (c.cuts[1].first_client_ts_ms, c.cuts[1].first_seq) == (None, None)


def test_an_empty_final_chunk_counts_as_the_last_of_its_utterance() -> None:
    c = client()
    c.say("A", seq=1)
    c.final(seq=2)
    c.wait(200)
    assert (c.cuts[0].first_seq, c.cuts[0].last_seq) == (1, 2)


def test_a_chunk_that_cuts_nothing_gives_the_shared_nothing() -> None:
    assert Segmenter(RULES, PCM).chunk(b"ab", is_final=False, now_ms=0) is NOTHING


def test_a_clock_that_goes_back_is_our_own_bug_and_one_that_stands_is_none() -> None:
    c = client()
    c.now_ms = 100
    c.say("A")
    c.say("A")
    with pytest.raises(AssertionError, match="the clock went back"):
        c.segmenter.tick(99)


# Sequence numbers.


def test_numbers_in_a_row_are_taken_whatever_the_first_is() -> None:
    segmenter = Segmenter(RULES, PCM)
    assert [segmenter.admit_seq(seq) for seq in (41, 42, 43)] == ["ok"] * 3


def test_a_number_that_came_before_is_a_duplicate() -> None:
    segmenter = Segmenter(RULES, PCM)
    answers = [segmenter.admit_seq(seq) for seq in (0, 1, 1, 0, 2)]
    assert answers == ["ok", "ok", "duplicate", "duplicate", "ok"]


def test_a_gap_is_told_once_and_with_its_ends() -> None:
    segmenter = Segmenter(RULES, PCM)
    segmenter.admit_seq(5)
    assert segmenter.admit_seq(9) == SequenceGap(missing_from=6, missing_to=8)
    assert segmenter.admit_seq(10) == "ok"
    assert segmenter.admit_seq(7) == "duplicate"


# A stream that never stops sending (voice detection).


def test_silence_after_a_voice_ends_the_utterance_and_belongs_to_it() -> None:
    c = listening_client()
    c.stream("A", 1000)
    c.stream("s", 700)
    assert c.told == []
    c.stream("s", 100)
    assert c.told == [("A1000 s800", "timeout", 0)]


def test_an_endless_silence_is_never_an_utterance_and_is_counted() -> None:
    c = listening_client()
    c.stream("s", 30_000)
    assert c.told == []
    assert c.segmenter.deadline_ms is None
    assert (c.segmenter.silent_ms, c.segmenter.admitted_ms) == (29_700, 30_000)
    c.close()
    assert (c.told, c.segmenter.silent_ms, c.segmenter.buffered_bytes) == ([], 30_000, 0)


def test_an_utterance_begins_with_the_preroll_before_its_voice() -> None:
    c = listening_client()
    for seq in range(10):
        c.say("s", 100, seq=seq, client_ts_ms=seq * 100)
        c.wait(100)
    c.say("A", 100, seq=10, client_ts_ms=1000)
    c.close()
    assert c.told == [("s300 A100", "session_close", 0)]
    (cut,) = c.cuts
    assert (cut.start_ms, cut.end_ms, c.segmenter.silent_ms) == (700, 1100, 700)
    assert (cut.first_seq, cut.last_seq, cut.first_client_ts_ms) == (7, 10, 700)


def test_the_preroll_is_the_end_of_a_chunk_that_is_longer() -> None:
    c = listening_client()
    c.say("s", 1000)
    c.say("A", 1000)
    c.close()
    assert c.told == [("s300 A1000", "session_close", 0)]


def test_silence_from_before_a_pause_is_no_preroll() -> None:
    c = listening_client()
    c.say("s", 200, seq=1, client_ts_ms=1)
    c.wait(3001)
    c.say("A", 500, seq=2, client_ts_ms=2)
    c.close()
    assert c.told == [("A500", "session_close", 0)]
    assert (c.cuts[0].first_client_ts_ms, c.segmenter.silent_ms) == (2, 200)


def test_a_short_break_between_words_does_not_end_the_utterance() -> None:
    c = listening_client()
    for _ in range(5):
        c.stream("A", 500)
        c.stream("s", 700)
    assert c.told == []


def test_a_short_word_with_its_silence_is_not_held() -> None:
    c = listening_client()
    c.stream("A", 100)
    c.stream("s", 800)
    assert c.told == [("A100 s800", "timeout", 0)]


def test_a_stream_that_stops_during_speech_is_cut_by_the_pause() -> None:
    c = listening_client()
    c.stream("A", 500)
    c.wait(2900)
    assert c.told == [("A500", "timeout", 0)]


def test_the_silence_after_slices_closes_their_turn_with_what_came_of_it() -> None:
    c = listening_client()
    c.stream("A", 10_000)
    c.stream("s", 1000)
    expected = [("A10000 s100", "max_duration", 0), ("s700", "timeout", 0)]
    assert c.told == expected
    c.stream("s", 5000)
    assert c.told == expected


def test_silence_right_after_a_slice_closes_the_turn_once_it_is_not_too_short() -> None:
    c = listening_client()
    c.stream("A", 9500)
    c.stream("s", 1000)
    expected = [("A9500 s600", "max_duration", 0), ("s400", "timeout", 0)]
    assert c.told == expected


def test_silence_during_playback_does_not_end_the_utterance() -> None:
    c = listening_client()
    c.stream("A", 500)
    c.stream("s", 300)
    c.tts_started()
    c.stream("s", 5000)
    assert c.told == []
    c.tts_ended()
    c.stream("s", 700)
    assert c.told == []
    c.stream("s", 100)
    assert c.told == [("A500 s6100", "timeout", 0)]


def test_a_final_chunk_without_any_voice_is_no_utterance() -> None:
    c = listening_client()
    c.stream("s", 200)
    c.say("s", is_final=True)
    c.wait(10_000)
    assert c.told == []
    assert (c.segmenter.silent_ms, c.segmenter.buffered_bytes) == (300, 0)


def test_silence_during_a_manual_hangover_joins_the_manual_cut() -> None:
    c = listening_client(hangover_manual_ms=2000)
    c.stream("A", 500)
    c.final()
    c.stream("s", 1500)
    assert c.told == []
    c.wait(500)
    assert c.told == [("A500 s1500", "manual", 0)]


def test_a_silence_of_0_ends_nothing() -> None:
    c = listening_client(silence_ms=0)
    c.stream("A", 500)
    c.stream("s", 5000)
    assert c.told == []


def test_a_detector_is_not_asked_about_opus() -> None:
    segmenter = Segmenter(RULES, AudioFormat("opus", 16_000), Marked())
    segmenter.chunk(b"silence", is_final=False, now_ms=0)
    assert [cut.audio for cut in segmenter.flush(1) if isinstance(cut, UtteranceCut)] == [
        b"silence"
    ]


# Whatever happens, in whatever order.


@dataclass
class Step:
    """One input, some time after the one before it."""

    kind: str
    after_ms: int
    size_ms: int = 0
    is_voiced: bool = True
    is_final: bool = False


def steps(*, after_ms: st.SearchStrategy[int]) -> st.SearchStrategy[list[Step]]:
    chunk = st.builds(
        Step,
        st.just("chunk"),
        after_ms,
        st.integers(0, 60),
        st.booleans(),
        st.sampled_from([False, False, False, True]),
    )
    other = st.builds(
        Step, st.sampled_from(["tick", "tts_started", "tts_ended", "flush"]), after_ms
    )
    return st.lists(st.one_of(chunk, chunk, chunk, other), max_size=60)


# Small enough that a few steps reach every rule, and that some coincide.
AFTER_MS = st.sampled_from([0, 1, 5, 10, 15, 20, 49, 50, 51, 99, 100, 101, 130, 300])
ANY_RULES = st.builds(
    SegmentRules,
    pause_ms=st.sampled_from([0, 10, 50, 100]),
    max_duration_ms=st.sampled_from([0, 60, 100]),
    max_bytes=st.sampled_from([16, 1600, 2400, 100_000]),
    hangover_auto_ms=st.sampled_from([0, 15, 200]),
    hangover_manual_ms=st.sampled_from([0, 20, 200]),
    short_merge_ms=st.sampled_from([0, 20, 40]),
    silence_ms=st.sampled_from([0, 30, 80]),
    preroll_ms=st.sampled_from([0, 10, 30]),
    slice_search_ms=st.sampled_from([0, 20, 60]),
)


@dataclass
class Run:
    """Plays steps into a segmenter and keeps its own record of what went in."""

    segmenter: Segmenter
    now_ms: int = 0
    admitted: bytes = b""
    voiced_spans: list[tuple[int, int]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def play(self, script: list[Step], *, is_punctual: bool = False) -> None:
        for step in script:
            due_at_ms = self.now_ms + step.after_ms
            if is_punctual:
                self._ring_before(due_at_ms)
            self.now_ms = due_at_ms
            self.events += self._do(step)
            self._check(step)

    def _ring_before(self, until_ms: float) -> None:
        while (due_ms := self.segmenter.deadline_ms) is not None and due_ms < until_ms:
            self.events += ring(self.segmenter, due_ms)

    def _do(self, step: Step) -> tuple[Event, ...]:
        if step.kind != "chunk":
            act = getattr(self.segmenter, step.kind)
            told: tuple[Event, ...] = act(self.now_ms)
            return told
        data = self._fresh_audio(step)
        return self.segmenter.chunk(
            data, is_final=step.is_final, now_ms=self.now_ms, seq=len(self.admitted)
        )

    def _fresh_audio(self, step: Step) -> bytes:
        """Give audio in which no two pieces of the stream look the same."""
        letter = b"V" if step.is_voiced else b"s"
        start = len(self.admitted)
        body = b"".join(
            letter + f"{start + at:015d}".encode() for at in range(0, step.size_ms * 16, 16)
        )
        self.admitted += body
        if step.is_voiced and body:
            self.voiced_spans.append((start, len(self.admitted)))
        return body

    def _check(self, step: Step) -> None:
        due_ms = self.segmenter.deadline_ms
        if step.kind == "tick":
            assert due_ms is None or due_ms > self.now_ms
        if step.kind == "flush":
            assert due_ms is None
            assert self.segmenter.buffered_bytes == 0
        if due_ms is not None:
            assert due_ms >= self.now_ms

    @property
    def cuts(self) -> list[UtteranceCut]:
        return [event for event in self.events if isinstance(event, UtteranceCut)]


def assert_turns_are_in_order_and_close_once(events: list[Event]) -> None:
    """Every turn is some slices and then exactly one end; turns follow each other."""
    turn, is_sliced = 0, False
    for event in events:
        assert event.turn == turn
        if isinstance(event, UtteranceCut):
            assert event.audio
            assert event.is_slice == (event.trigger in {"max_duration", "max_bytes"})
            assert event.closes_turn != event.is_slice
            is_sliced |= event.is_slice
            if event.is_slice:
                continue
        else:
            assert is_sliced, "a turn ended that had nothing"
        turn, is_sliced = turn + 1, False
    assert not is_sliced, "a turn of slices was never ended"


@given(ANY_RULES, steps(after_ms=AFTER_MS))
@settings(max_examples=400)
def test_without_a_detector_the_cuts_are_the_admitted_audio(
    rules: SegmentRules, script: list[Step]
) -> None:
    run = Run(Segmenter(rules, PCM))
    run.play([*script, Step("flush", 0)])
    assert b"".join(cut.audio for cut in run.cuts) == run.admitted
    assert run.segmenter.account.silent_bytes == run.segmenter.silent_ms == 0
    assert run.segmenter.admitted_ms * 16 == len(run.admitted)
    place_ms = 0
    for cut in run.cuts:
        assert (cut.start_ms, cut.end_ms - cut.start_ms) == (place_ms, len(cut.audio) // 16)
        place_ms = cut.end_ms
    assert_turns_are_in_order_and_close_once(run.events)


@given(ANY_RULES, steps(after_ms=AFTER_MS))
@settings(max_examples=400)
def test_with_a_detector_only_unvoiced_audio_is_let_pass_and_all_is_counted(
    rules: SegmentRules, script: list[Step]
) -> None:
    run = Run(Segmenter(rules, PCM, Marked()))
    run.play([*script, Step("flush", 0)])
    place, silent = 0, 0
    for cut in run.cuts:
        start, end = cut.start_ms * 16, cut.end_ms * 16
        assert start >= place
        assert cut.audio == run.admitted[start:end]
        silent += start - place
        place = end
    silent += len(run.admitted) - place
    assert (run.segmenter.account.silent_bytes, run.segmenter.silent_ms * 16) == (silent, silent)
    spans = [(cut.start_ms * 16, cut.end_ms * 16) for cut in run.cuts]
    for start, end in run.voiced_spans:
        assert sum(min(end, e) - max(start, s) for s, e in spans if s < end and start < e) == (
            end - start
        )
    assert_turns_are_in_order_and_close_once(run.events)


@given(ANY_RULES, steps(after_ms=AFTER_MS), st.booleans())
@settings(max_examples=400)
def test_a_late_timer_changes_nothing(
    rules: SegmentRules, script: list[Step], has_detector: bool
) -> None:
    late, punctual = (
        Run(Segmenter(rules, PCM, Marked() if has_detector else None)) for _ in range(2)
    )
    late.play([*script, Step("flush", 0)])
    punctual.play([*script, Step("flush", 0)], is_punctual=True)
    assert late.events == punctual.events


@given(st.lists(st.binary(max_size=200), max_size=30), st.sampled_from([8000, 11_025, 44_100]))
def test_at_any_rate_and_chunk_length_the_places_stay_contiguous(
    chunks: list[bytes], rate: int
) -> None:
    rules = SegmentRules(max_bytes=150, preroll_ms=2, silence_ms=5)
    segmenter = Segmenter(rules, AudioFormat("pcm16", rate), Marked())
    events: list[Event] = []
    for place, data in enumerate(chunks):
        events += segmenter.chunk(data, is_final=place % 7 == 6, now_ms=place * 100)
    events += segmenter.flush(100_000)
    cuts = [event for event in events if isinstance(event, UtteranceCut)]
    assert all(a.end_ms <= b.start_ms for a, b in pairwise(cuts))
    cut_ms = sum(cut.end_ms - cut.start_ms for cut in cuts)
    assert cut_ms + segmenter.silent_ms == segmenter.admitted_ms
    cut_bytes = sum(len(cut.audio) for cut in cuts)
    assert cut_bytes + segmenter.account.silent_bytes == sum(map(len, chunks))
