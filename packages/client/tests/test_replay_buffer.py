"""Chunks are kept until their utterance is answered, and sent again where the server needs them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingua_client.replay_buffer import ReplayBuffer

pytestmark = pytest.mark.unit


def sent_by(replay: ReplayBuffer) -> list[int]:
    numbers = []
    while (chunk := replay.next_unsent()) is not None:
        numbers.append(chunk.seq)
    return numbers


STEPS = ["add", "send", "accept", "answer", "back"]


@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 12))))
def test_chunks_are_kept_until_answered_and_sent_in_order(steps: list[tuple[str, int]]) -> None:
    replay = ReplayBuffer(1 << 20)
    # Accepted chunks, each an utterance of its own, and those that are answered.
    accepted: list[int] = []
    answered: set[int] = set()
    sent = gone = -1
    for step, number in steps:
        if step == "add":
            replay.add(b"xy", is_final=False, timestamp_ms=0)
        elif step == "send":
            numbers = sent_by(replay)
            assert numbers == list(range(replay.next_seq - len(numbers), replay.next_seq))
            sent = max([sent, *numbers])
        elif step == "accept" and number <= sent:
            replay.accept(number, number * 100, number, is_answered=False)
            if not accepted or number > accepted[-1]:
                accepted += [number] if number > gone else []
        elif step == "answer" and number in accepted:
            replay.mark_answered(number)
            answered.add(number)
        elif step == "back":
            replay.rewind(number)
            first = max(gone + 1, min(number, sent + 1))
            accepted = [place for place in accepted if place < first]
            answered &= set(accepted)
            expected = list(range(first, replay.next_seq))
            assert sent_by(replay) == expected
            sent = max([sent, *expected])
        while accepted and accepted[0] in answered:
            gone = accepted.pop(0)
        assert replay.first_seq == gone + 1
        assert replay.size == 2 * (replay.next_seq - replay.first_seq)
        assert replay.sent_size == 2 * (replay._unsent_seq - replay.open_seq)


def test_the_position_of_the_audio_is_that_of_the_first_chunk_kept() -> None:
    replay = ReplayBuffer(1 << 20)
    for _ in range(6):
        replay.add(b"xy", is_final=False, timestamp_ms=0)
    sent_by(replay)
    replay.accept(1, 200, 0, is_answered=False)
    replay.accept(3, 400, 1, is_answered=False)
    assert (replay.first_seq, replay.audio_ms, replay.open_seq) == (0, 0, 4)
    replay.mark_answered(1)
    assert (replay.first_seq, replay.audio_ms) == (0, 0)
    replay.mark_answered(0)
    assert (replay.first_seq, replay.audio_ms) == (4, 400)


def test_what_a_server_has_is_given_up_before_speech_must_wait() -> None:
    replay = ReplayBuffer(6)
    for _ in range(2):
        replay.add(b"xy", is_final=False, timestamp_ms=0)
    sent_by(replay)
    replay.accept(0, 100, 0, is_answered=False)
    replay.add(b"xy", is_final=False, timestamp_ms=0)
    assert (replay.first_seq, replay.size, replay.is_full) == (1, 4, False)


def test_a_lossy_memory_gives_up_what_was_sent_but_nothing_that_was_not() -> None:
    replay = ReplayBuffer(6)
    replay.is_lossy = True
    for _ in range(4):
        replay.add(b"xy", is_final=False, timestamp_ms=0)
    assert replay.is_full
    assert sent_by(replay) == [0, 1, 2, 3]
    assert not replay.is_full
    replay.add(b"xy", is_final=False, timestamp_ms=0)
    assert (replay.first_seq, replay.size) == (2, 6)


def test_ends_count_from_their_sending_to_their_acknowledgement() -> None:
    replay = ReplayBuffer(1 << 20)
    for number in range(6):
        replay.add(b"xy", is_final=number % 2 == 1, timestamp_ms=0)
    assert replay.sent_ends == 0
    sent_by(replay)
    assert replay.sent_ends == 3
    replay.accept(3, 400, None, is_answered=True)
    assert replay.sent_ends == 1
    replay.rewind(None)
    assert (replay.sent_ends, replay.sent_size) == (0, 0)
    assert sent_by(replay) == [4, 5]
    assert replay.sent_ends == 1
