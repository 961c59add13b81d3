"""Where slices of long speech end, and that the rest is the beginning of the next one."""

from __future__ import annotations

import math
from array import array
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingua_scheduler.session.audio import AudioFormat
from lingua_scheduler.session.segmenter import Segmenter, SegmentRules, TurnEnd, UtteranceCut
from lingua_scheduler.session.slice_point import quietest_end, slice_end

pytestmark = pytest.mark.unit

RATE = 16_000
PCM = AudioFormat("pcm16", RATE)
CHUNK_MS = 50
WINDOW = PCM.bytes_lasting(200)
RULES = SegmentRules(
    max_duration_ms=10_000, hangover_auto_ms=0, hangover_manual_ms=0, slice_search_ms=3000
)


def tone(ms: int, level: float) -> bytes:
    count = RATE * ms // 1000
    step = 2 * math.pi * 200 / RATE
    return array(
        "h", (round(level * 32_000 * math.sin(step * at)) for at in range(count))
    ).tobytes()


LOUD, LOW = tone(CHUNK_MS, 0.5), tone(CHUNK_MS, 0.05)


def speech(total_ms: int, *quiet_at_ms: int, quiet_ms: int = 200) -> list[bytes]:
    """Return loud chunks with lower ones at some places."""
    spans = [range(at, at + quiet_ms) for at in quiet_at_ms]
    places = range(0, total_ms, CHUNK_MS)
    return [LOW if any(place in span for span in spans) else LOUD for place in places]


def played(
    chunks: list[bytes], rules: SegmentRules = RULES
) -> tuple[list[UtteranceCut], Segmenter]:
    segmenter = Segmenter(rules, PCM)
    cuts: list[UtteranceCut] = []
    for number, chunk in enumerate(chunks):
        events = segmenter.chunk(
            chunk, is_final=False, now_ms=number * CHUNK_MS, seq=number, client_ts_ms=7000 + number
        )
        cuts += [event for event in events if isinstance(event, UtteranceCut)]
    return cuts, segmenter


def test_a_slice_ends_in_the_middle_of_the_quiet_place() -> None:
    cuts, segmenter = played(speech(10_000, 8000))
    assert [cut.end_ms for cut in cuts] == [8100]
    assert segmenter.buffered_bytes == PCM.bytes_lasting(1900)


def test_what_is_left_over_begins_the_next_utterance_of_the_same_turn() -> None:
    cuts, segmenter = played(speech(10_000, 8000))
    (rest,) = segmenter.flush(20_000)
    assert isinstance(rest, UtteranceCut)
    assert (rest.start_ms, rest.end_ms, rest.turn) == (8100, 10_000, cuts[0].turn)
    assert (cuts[0].first_seq, cuts[0].last_seq) == (0, 161)
    assert (rest.first_seq, rest.last_seq) == (162, 199)
    assert rest.first_client_ts_ms == 7162
    assert cuts[0].speech_end_ms == 161 * CHUNK_MS


def test_the_quietest_of_several_places_is_taken() -> None:
    chunks = speech(10_000, 7500, 9000)
    for place in range(9000 // CHUNK_MS, 9200 // CHUNK_MS):
        chunks[place] = tone(CHUNK_MS, 0.01)
    cuts, _ = played(chunks)
    assert [cut.end_ms for cut in cuts] == [9100]


def test_a_quiet_place_before_the_search_is_not_looked_at() -> None:
    cuts, _ = played(speech(10_000, 3000))
    assert [cut.end_ms for cut in cuts] == [10_000]


PAUSE = tone(CHUNK_MS, 0.005)


def with_pause(chunks: list[bytes], at_ms: int) -> list[bytes]:
    """Return speech with a pause of 200 ms, which is much quieter than a sound within a word."""
    count, first = 200 // CHUNK_MS, at_ms // CHUNK_MS
    return [*chunks[:first], *[PAUSE] * count, *chunks[first + count :]]


def test_a_slice_ends_in_a_pause_before_the_search_rather_than_within_a_word() -> None:
    cuts, _ = played(with_pause(speech(10_000, 8000, quiet_ms=100), 6000))
    assert [cut.end_ms for cut in cuts] == [6100]


def test_a_pause_within_the_search_is_taken_though_there_is_one_before() -> None:
    cuts, _ = played(with_pause(with_pause(speech(10_000), 6000), 8000))
    assert [cut.end_ms for cut in cuts] == [8100]


def test_without_any_pause_the_quietest_point_of_the_search_is_taken() -> None:
    cuts, _ = played(speech(10_000, 6000, 8000, quiet_ms=100))
    assert [cut.end_ms for cut in cuts] == [8100]


def test_at_most_half_of_a_slice_is_left_for_the_next() -> None:
    cuts, _ = played(with_pause(speech(10_000, 8000, quiet_ms=100), 4500))
    assert [cut.end_ms for cut in cuts] == [8100]


def test_evenly_loud_speech_is_sliced_where_it_ends() -> None:
    cuts, segmenter = played(speech(20_000))
    assert [cut.end_ms for cut in cuts] == [10_000, 20_000]
    assert segmenter.is_idle is False
    assert isinstance(segmenter.flush(30_000)[0], TurnEnd)


def test_without_a_search_a_slice_takes_all() -> None:
    rules = SegmentRules(max_duration_ms=10_000, hangover_auto_ms=0)
    cuts, _ = played(speech(10_000, 8000), rules)
    assert [cut.end_ms for cut in cuts] == [10_000]


def test_an_utterance_that_ends_by_hand_is_not_sliced() -> None:
    segmenter = Segmenter(RULES, PCM)
    for number, chunk in enumerate(speech(5000, 4000)):
        segmenter.chunk(chunk, is_final=False, now_ms=number)
    (cut,) = segmenter.chunk(LOUD, is_final=True, now_ms=200)
    assert isinstance(cut, UtteranceCut)
    assert (cut.start_ms, cut.end_ms) == (0, 5050)


def test_opus_is_sliced_where_it_ends() -> None:
    opus = AudioFormat("opus", RATE)
    segmenter = Segmenter(RULES, opus)
    cuts: list[UtteranceCut] = []
    for number in range(500):
        events = segmenter.chunk(b"\x00\xff" * 30, is_final=False, now_ms=number * 20)
        cuts += [event for event in events if isinstance(event, UtteranceCut)]
    assert [cut.end_ms for cut in cuts] == [10_000]


@given(st.lists(st.binary(max_size=900), min_size=1, max_size=40), st.integers(0, 9000))
def test_a_slice_takes_at_least_one_chunk_and_leaves_no_more_than_was_searched(
    chunks: list[bytes], search_bytes: int
) -> None:
    taken = quietest_end(chunks, search_bytes, 640)
    assert 1 <= taken <= len(chunks)
    assert sum(map(len, chunks[taken:])) <= search_bytes


@given(
    st.lists(st.binary(max_size=900), min_size=1, max_size=40),
    st.integers(0, 9000),
    st.integers(0, 9000),
)
def test_a_slice_that_ends_in_an_earlier_pause_is_bounded_too(
    chunks: list[bytes], search_bytes: int, more_bytes: int
) -> None:
    taken = slice_end(chunks, search_bytes, search_bytes + more_bytes, 640)
    assert 1 <= taken <= len(chunks)
    assert sum(map(len, chunks[taken:])) <= search_bytes + more_bytes


@given(st.lists(st.sampled_from([0, 200, 8000, 16_000]), min_size=60, max_size=200))
def test_no_byte_is_lost_doubled_or_moved(levels: list[int]) -> None:
    chunks = [array("h", [level, -level] * 400).tobytes() for level in levels]
    rules = SegmentRules(max_duration_ms=1000, hangover_auto_ms=0, slice_search_ms=300)
    cuts, segmenter = played(chunks, rules)
    cuts += [event for event in segmenter.flush(1 << 30) if isinstance(event, UtteranceCut)]
    assert b"".join(cut.audio for cut in cuts) == b"".join(chunks)
    numbers = [(cut.first_seq, cut.last_seq) for cut in cuts]
    assert numbers[0][0] == 0
    for (_, last), (first, _) in pairwise(numbers):
        assert last is not None
        assert first == last + 1
    assert numbers[-1][1] == len(chunks) - 1


def test_speech_that_comes_faster_than_spoken_is_sliced_by_its_own_time() -> None:
    rules = SegmentRules(max_duration_ms=10_000, hangover_auto_ms=150)
    segmenter = Segmenter(rules, PCM)
    cuts: list[UtteranceCut] = []
    for chunk in speech(60_000):
        events = segmenter.chunk(chunk, is_final=False, now_ms=0)
        cuts += [event for event in events if isinstance(event, UtteranceCut)]
    assert [cut.end_ms - cut.start_ms for cut in cuts] == [10_150] * 5
