"""The account of cut and silent audio: durations add up, for any sizes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingua_scheduler.session.audio import AudioFormat
from lingua_scheduler.session.audio_account import AudioAccount

pytestmark = pytest.mark.unit

PCM = AudioFormat("pcm16", 16_000)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 100_000))))
def test_pieces_are_contiguous_and_silence_is_their_exact_part(
    pieces: list[tuple[bool, int]],
) -> None:
    account, at_ms, silent_ms = AudioAccount(PCM), 0, 0
    for is_silent, size in pieces:
        if is_silent:
            before_ms = PCM.duration_ms(account.settled_bytes)
            account.pass_over(size)
            at_ms = PCM.duration_ms(account.settled_bytes)
            silent_ms += at_ms - before_ms
        else:
            start_ms, end_ms = account.settle(size)
            assert start_ms == at_ms
            at_ms = end_ms
    assert account.settled_bytes == sum(size for _, size in pieces)
    assert account.silent_bytes == sum(size for is_silent, size in pieces if is_silent)
    assert account.silent_ms == silent_ms


def test_it_can_begin_in_the_middle_of_a_session() -> None:
    account = AudioAccount(PCM)
    account.start_at(1500)
    assert account.settle(PCM.bytes_lasting(500)) == (1500, 2000)
    assert account.silent_ms == 0
