"""Finds the best point to slice long speech: the quietest boundary of chunks near its end. Pure.

A slice that ends within a word loses that word on both sides. Even speech without pauses has tenths
of a second between phrases, so the last seconds are searched for the quietest one. Only boundaries
of chunks are considered: a client keeps or forgets whole chunks, by their numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_scheduler.session.audio import SAMPLE_BYTES, pcm16_level

if TYPE_CHECKING:
    from collections.abc import Sequence

# Levels are estimates within a few percent: smaller differences are ignored.
CLEARLY = 0.8


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
