"""Finds the best point to slice long speech: the quietest boundary of chunks near its end. Pure.

A slice that ends within a word loses that word on both sides. Even speech without pauses has tenths
of a second between phrases, so the last seconds are searched for the quietest one. Only boundaries
of chunks are considered: a client keeps or forgets whole chunks, by their numbers. The quietest
point is not always a pause: sounds within words are quiet, too. If it is none, and there is a pause
before that, the slice ends in the pause.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_scheduler.session.audio import SAMPLE_BYTES, pcm16_level

if TYPE_CHECKING:
    from collections.abc import Sequence

# Levels are estimates within a few percent: smaller differences are ignored.
CLEARLY = 0.8
# A pause is so much quieter than the whole speech. Measured in five minutes without a longer pause:
# 0.001 to 0.065 between phrases, 0.27 and 0.38 where the quietest point was within a word.
PAUSE_PART = 0.1


def slice_end(
    chunks: Sequence[bytes], search_bytes: int, further_bytes: int, window_bytes: int
) -> int:
    """Return how many of the chunks a slice should take.

    Its end is the quietest in the last `search_bytes`. If that is no pause, it is the quietest
    in the last `further_bytes`, if that is one.
    """
    end = quietest_end(chunks, search_bytes, window_bytes)
    if further_bytes <= search_bytes:
        return end
    pause_level = PAUSE_PART * pcm16_level(b"".join(chunks))
    if _level_at(chunks, end, window_bytes) < pause_level:
        return end
    earlier = quietest_end(chunks, further_bytes, window_bytes)
    return earlier if _level_at(chunks, earlier, window_bytes) < pause_level else end


def _level_at(chunks: Sequence[bytes], count: int, window_bytes: int) -> float:
    """Return the loudness around the end of the first `count` chunks."""
    half = window_bytes // 2 // SAMPLE_BYTES * SAMPLE_BYTES
    before, after = b"".join(chunks[:count]), b"".join(chunks[count:])
    return pcm16_level(before[-half:] + after[:half])


def quietest_end(chunks: Sequence[bytes], search_bytes: int, window_bytes: int) -> int:
    """Return how many of the chunks a slice should take: at least one, and those not searched.

    The loudness of `window_bytes` around each boundary in the last `search_bytes` is compared.
    Speech without a clearly quieter point is sliced at its end.
    """
    first = _first_of_tail(chunks, search_bytes + window_bytes // 2)
    audio = memoryview(b"".join(chunks[first:]))
    half = window_bytes // 2 // SAMPLE_BYTES * SAMPLE_BYTES
    end_level = pcm16_level(audio[max(0, len(audio) - 2 * half) :])
    best, best_level = len(chunks), end_level * CLEARLY
    at = len(audio)
    for taken in range(len(chunks) - 1, first, -1):
        at -= len(chunks[taken])
        if len(audio) - at > search_bytes:
            break
        level = pcm16_level(audio[max(0, at - half) : at + half])
        if level < best_level:
            best, best_level = taken, level
    return best


def _first_of_tail(chunks: Sequence[bytes], wanted_bytes: int) -> int:
    """Return the index of the first of the last chunks that together have this many bytes."""
    size, first = 0, len(chunks)
    while first and size < wanted_bytes:
        first -= 1
        size += len(chunks[first])
    return first
