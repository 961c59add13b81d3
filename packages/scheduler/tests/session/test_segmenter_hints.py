"""Hints of a node that listens: whole sentences end sooner, and speech without a pause is cut."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingua_scheduler.session.audio import AudioFormat
from lingua_scheduler.session.segmenter import Event, Segmenter, SegmentRules, UtteranceCut

pytestmark = pytest.mark.unit

# 16 bytes are one millisecond.
PCM = AudioFormat("pcm16", 8000)
CHUNK_MS = 100
RULES = SegmentRules(
    silence_ms=400,
    silence_min_ms=200,
    silence_max_ms=900,
    sentence_min_ms=1000,
    slice_search_ms=3000,
)
CHUNK_BYTES = 16 * CHUNK_MS
LOUD = Random(1).randbytes(CHUNK_BYTES)
QUIET = bytes(CHUNK_BYTES)


class Loud:
    """Takes a chunk for voice unless it is all zeros."""

    def is_voice(self, pcm: bytes) -> bool:
        return any(pcm)


@dataclass
class Speaker:
    """Speaks and is silent, a chunk every 100 ms."""

    segmenter: Segmenter
    now_ms: float = 0
    events: list[Event] = field(default_factory=list)
    seq: int = 0

    def say(self, ms: int) -> None:
        self._send(LOUD, ms)

    def be_silent(self, ms: int) -> None:
        self._send(QUIET, ms)

    def _send(self, audio: bytes, ms: int) -> None:
        for _ in range(ms // CHUNK_MS):
            self.events += self.segmenter.chunk(
                audio, is_final=False, now_ms=self.now_ms, seq=self.seq
            )
            self.now_ms += CHUNK_MS
            self.seq += 1

    def complete(self, *, is_complete: bool = True) -> None:
        self.events += self.segmenter.hint(self.now_ms, is_complete=is_complete)

    def sentence_ended(self, at_ms: int) -> None:
        self.events += self.segmenter.hint(self.now_ms, sentence_end_ms=at_ms)

    def close(self) -> None:
        self.events += self.segmenter.flush(self.now_ms)

    @property
    def cuts(self) -> list[tuple[int, int, str]]:
        """Return where each utterance lies and why it was cut."""
        return [
            (cut.start_ms, cut.end_ms, cut.trigger)
            for cut in self.events
            if isinstance(cut, UtteranceCut)
        ]


def speaker(rules: SegmentRules = RULES) -> Speaker:
    return Speaker(Segmenter(rules, PCM, Loud()))


def test_less_silence_ends_a_whole_sentence() -> None:
    one = speaker()
    one.say(1500)
    one.be_silent(100)
    one.complete()
    assert one.cuts == []
    one.be_silent(100)
    assert one.cuts == [(0, 1700, "timeout")]


def test_a_whole_sentence_ends_at_once_if_it_has_been_silent_for_long_enough() -> None:
    one = speaker()
    one.say(1500)
    one.be_silent(300)
    one.complete()
    assert one.cuts == [(0, 1800, "timeout")]


def test_more_silence_ends_a_sentence_that_plainly_is_not_whole() -> None:
    one = speaker()
    one.say(1500)
    one.be_silent(200)
    one.complete(is_complete=False)
    one.be_silent(600)
    assert one.cuts == []
    one.be_silent(100)
    assert one.cuts == [(0, 2400, "timeout")]


def test_a_voice_makes_a_hint_void() -> None:
    one = speaker()
    one.say(1500)
    one.be_silent(100)
    one.complete()
    one.say(500)
    one.be_silent(300)
    assert one.cuts == []
    one.be_silent(100)
    assert one.cuts == [(0, 2500, "timeout")]


def test_a_hint_while_one_speaks_changes_nothing() -> None:
    one = speaker()
    one.say(1500)
    one.complete()
    one.be_silent(300)
    assert one.cuts == []


def test_the_next_utterance_ends_as_configured() -> None:
    one = speaker()
    one.say(1500)
    one.be_silent(300)
    one.complete()
    one.say(1000)
    one.be_silent(300)
    assert len(one.cuts) == 1
    one.be_silent(100)
    assert len(one.cuts) == 2


def test_without_rules_for_hints_silence_ends_as_configured() -> None:
    one = speaker(SegmentRules(silence_ms=400))
    one.say(1500)
    one.be_silent(300)
    one.complete()
    one.complete(is_complete=False)
    one.be_silent(100)
    assert one.cuts == [(0, 1900, "timeout")]


def test_speech_without_a_pause_is_cut_where_a_sentence_ended() -> None:
    one = speaker()
    one.say(2000)
    one.be_silent(100)
    one.say(1000)
    one.sentence_ended(2050)
    assert one.cuts == [(0, 2000, "sentence")]


def test_what_follows_a_sentence_is_the_next_turn_and_goes_on() -> None:
    one = speaker()
    one.say(2000)
    one.be_silent(100)
    one.say(1000)
    one.sentence_ended(2050)
    one.be_silent(400)
    assert one.cuts == [(0, 2000, "sentence"), (2000, 3500, "timeout")]
    turns = [cut.turn for cut in one.events if isinstance(cut, UtteranceCut)]
    assert turns == [0, 1]


def test_silence_that_began_before_the_cut_is_still_counted() -> None:
    one = speaker()
    one.say(2000)
    one.be_silent(100)
    one.say(500)
    one.be_silent(300)
    one.sentence_ended(2050)
    one.be_silent(100)
    assert one.cuts == [(0, 2000, "sentence"), (2000, 3000, "timeout")]


def test_a_short_sentence_is_not_cut() -> None:
    one = speaker()
    one.say(900)
    one.be_silent(100)
    one.say(1000)
    one.sentence_ended(950)
    assert one.cuts == []


def test_a_sentence_at_the_end_of_what_was_said_waits_for_silence() -> None:
    one = speaker()
    one.say(2000)
    one.sentence_ended(2000)
    assert one.cuts == []


def test_a_place_that_has_not_been_spoken_is_ignored() -> None:
    one = speaker()
    one.say(2000)
    one.sentence_ended(9000)
    assert one.cuts == []


def test_no_sentence_is_cut_if_that_is_switched_off() -> None:
    one = speaker(replace(RULES, sentence_min_ms=0))
    one.say(2000)
    one.be_silent(100)
    one.say(1000)
    one.sentence_ended(2050)
    assert one.cuts == []


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("say"), st.integers(1, 12)),
            st.tuples(st.just("silent"), st.integers(1, 6)),
            st.tuples(st.just("complete"), st.integers(0, 1)),
            st.tuples(st.just("sentence"), st.integers(0, 60)),
        ),
        max_size=30,
    )
)
def test_no_byte_is_lost_or_said_twice_whatever_the_hints(steps: list[tuple[str, int]]) -> None:
    one, sent_ms = speaker(), 0
    for what, count in steps:
        if what == "say":
            one.say(count * CHUNK_MS)
        elif what == "silent":
            one.be_silent(count * CHUNK_MS)
        elif what == "complete":
            one.complete(is_complete=bool(count))
        else:
            one.sentence_ended(count * CHUNK_MS)
        sent_ms += count * CHUNK_MS if what in {"say", "silent"} else 0
    one.close()
    cut_ms = sum(end - start for start, end, _ in one.cuts)
    assert cut_ms + one.segmenter.silent_ms == sent_ms
    places = [place for start, end, _ in one.cuts for place in (start, end)]
    assert places == sorted(places)
    assert one.segmenter.is_idle
