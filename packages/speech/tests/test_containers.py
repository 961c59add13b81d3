"""Formats of audio files, and streams that continue over utterances: real Ogg Opus."""

from __future__ import annotations

import io

import numpy as np
import pytest
import soundfile

from lingua_speech import containers
from lingua_speech.containers import OggHeaders, format_of, header_of
from lingua_wire.recording import read, write_wav

pytestmark = pytest.mark.unit

RATE = 16_000
TONE = (8000 * np.sin(np.arange(RATE * 9) / 8)).astype(np.int16)


def packed(samples: np.ndarray, kind: str, coding: str) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, RATE, format=kind, subtype=coding)
    return file.getvalue()


OPUS = packed(TONE, "OGG", "OPUS")


def pages(ogg: bytes) -> list[bytes]:
    """Split a stream into its pages; there is about one for each second."""
    marks = [at for at in range(len(ogg)) if ogg.startswith(b"OggS\0", at)]
    return [ogg[at:end] for at, end in zip(marks, [*marks[1:], len(ogg)], strict=True)]


def test_what_says_what_it_is_is_told_apart_from_what_does_not() -> None:
    wav = io.BytesIO()
    write_wav(wav, TONE.tobytes(), RATE)
    flac, webm = packed(TONE, "FLAC", "PCM_16"), b"\x1a\x45\xdf\xa3" + bytes(60)
    kinds = [format_of(data) for data in (OPUS, flac, wav.getvalue(), webm)]
    assert kinds == ["ogg", "flac", "wav", "webm"]
    # A later page, only the capture pattern, another kind of RIFF, bare packets, samples.
    others = (pages(OPUS)[3], b"OggS", b"RIFFxxxxAVI ", b"\x48\x0b\xe4\xc1" * 20, TONE.tobytes())
    assert [format_of(data) for data in (*others, b"")] == [""] * 6


def test_a_later_piece_of_a_stream_is_decoded_with_the_head_of_its_first() -> None:
    headers, parts = OggHeaders(), pages(OPUS)
    first, later = b"".join(parts[:5]), b"".join(parts[5:])
    assert headers.complete("s", first) == first
    whole_ms = read(first).duration_ms + read(headers.complete("s", later)).duration_ms
    assert whole_ms == pytest.approx(9000, abs=50)
    # Cut within a page: only that page is lost.
    broken = read(headers.complete("s", parts[4][100:] + later))
    assert broken.duration_ms == pytest.approx(
        read(headers.complete("s", later)).duration_ms, abs=50
    )


def test_nothing_else_is_given_a_head() -> None:
    headers, later = OggHeaders(), pages(OPUS)[5]
    assert headers.complete("s", later) == later
    headers.complete("s", OPUS)
    assert headers.complete("other", later) == later
    # Another stream of the session, another file, bytes that only look similar.
    for data in (
        pages(packed(TONE[:RATE], "OGG", "OPUS"))[-1],
        packed(TONE, "FLAC", "PCM_16"),
        b"OggS" * 40,
        later[:20],
        TONE.tobytes(),
    ):
        assert headers.complete("s", data) == data


def test_heads_are_bounded_in_size_number_and_age() -> None:
    now = [0.0]
    headers = OggHeaders(headers_max=3, clock=lambda: now[0])
    later = pages(OPUS)[5]
    for number in range(10):
        headers.complete(f"s{number}", OPUS)
        assert len(headers) <= 3
    now[0] = containers.AGE_S - 1
    assert headers.complete("s9", later) != later
    now[0] = containers.AGE_S
    # Used meanwhile, unlike the others.
    assert headers.complete("s9", later) != later
    assert (headers.complete("s8", later), len(headers)) == (later, 1)
    head, tags = pages(OPUS)[:2]
    assert header_of(OPUS) == head + tags
    assert header_of(head + tags * (containers.HEADER_BYTES_MAX // len(tags) + 1)) == b""
    assert header_of(head + tags[:-5]) == b""
