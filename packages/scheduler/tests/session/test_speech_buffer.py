"""The buffer of an utterance: chunks leave in order, with what is known of the outer ones."""

from __future__ import annotations

import pytest

from lingua_scheduler.session.speech_buffer import SpeechBuffer

pytestmark = pytest.mark.unit


def filled(*chunks: bytes) -> SpeechBuffer:
    buffer = SpeechBuffer()
    for number, chunk in enumerate(chunks):
        at_ms = 100.0 * number
        buffer.add((chunk, number, 7000 + number, number, 0, at_ms), len(chunk))
    return buffer


def test_all_chunks_leave_with_what_is_known_of_the_first_and_the_last() -> None:
    buffer = filled(b"ab", b"cd", b"ef")
    taken = buffer.take(3)
    assert taken.audio == b"abcdef"
    assert (taken.first_seq, taken.last_at_ms, taken.last_seq) == (0, 200.0, 2)
    assert (buffer.size, buffer.audio) == (0, [])


def test_a_part_leaves_the_rest_in_the_buffer() -> None:
    buffer = filled(b"ab", b"cd", b"ef")
    taken = buffer.take(2)
    assert (taken.audio, taken.last_seq) == (b"abcd", 1)
    assert (buffer.size, buffer.audio) == (2, [b"ef"])
    assert buffer.take(1).first_client_ts_ms == 7002


def test_a_chunk_without_audio_counts_only_for_the_whole_buffer() -> None:
    whole, part = filled(b"ab", b"cd"), filled(b"ab", b"cd")
    for buffer in (whole, part):
        buffer.complete_at(9)
    assert whole.take(2).last_seq == 9
    assert part.take(1).last_seq == 0


def test_the_end_leaves_without_what_came_before_it() -> None:
    buffer = filled(b"ab", b"cd", b"ef")
    buffer.complete_at(9)
    assert [chunk[0] for chunk in buffer.take_after(1)] == [b"cd", b"ef"]
    assert (buffer.size, buffer.audio, buffer.last_at_ms) == (2, [b"ab"], 0.0)
    # The chunk without audio followed one that has left.
    assert buffer.take(1).last_seq == 0


def test_after_all_chunks_there_is_no_end_that_could_leave() -> None:
    buffer = filled(b"ab", b"cd")
    buffer.complete_at(9)
    assert buffer.take_after(2) == []
    assert buffer.take(2).last_seq == 9
