"""What audio says of itself, and streams that go on from utterance to utterance: real Ogg Opus."""

from __future__ import annotations

import io

import numpy as np
import pytest
import soundfile

from lingua_scheduler.recording import read, write_wav
from lingua_scheduler.speech import containers
from lingua_scheduler.speech.containers import Heads, format_of, head_of

pytestmark = pytest.mark.unit

RATE = 16_000
TONE = (8000 * np.sin(np.arange(RATE * 9) / 8)).astype(np.int16)


def packed(samples: np.ndarray, kind: str, coding: str) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, RATE, format=kind, subtype=coding)
    return file.getvalue()


OPUS = packed(TONE, "OGG", "OPUS")


def pages(ogg: bytes) -> list[bytes]:
    """Cut a stream at its pages; there is one for about each second."""
    marks = [at for at in range(len(ogg)) if ogg.startswith(b"OggS\0", at)]
    return [ogg[at:end] for at, end in zip(marks, [*marks[1:], len(ogg)], strict=True)]


def test_what_says_what_it_is_is_told_apart_from_what_does_not() -> None:
    wav = io.BytesIO()
    write_wav(wav, TONE.tobytes(), RATE)
    flac, webm = packed(TONE, "FLAC", "PCM_16"), b"\x1a\x45\xdf\xa3" + bytes(60)
    kinds = [format_of(data) for data in (OPUS, flac, wav.getvalue(), webm)]
    assert kinds == ["ogg", "flac", "wav", "webm"]
    # A later page, nothing but a mark, another kind of RIFF, bare packets, samples.
    others = (pages(OPUS)[3], b"OggS", b"RIFFxxxxAVI ", b"\x48\x0b\xe4\xc1" * 20, TONE.tobytes())
    assert [format_of(data) for data in (*others, b"")] == [""] * 6


def test_a_later_piece_of_a_stream_is_decoded_with_the_head_of_its_first() -> None:
    heads, parts = Heads(), pages(OPUS)
    first, later = b"".join(parts[:5]), b"".join(parts[5:])
    assert heads.whole("s", first) == first
    whole_ms = read(first).duration_ms + read(heads.whole("s", later)).duration_ms
    assert whole_ms == pytest.approx(9000, abs=50)
    # Cut within a page: that page is lost, nothing else.
    broken = read(heads.whole("s", parts[4][100:] + later))
    assert broken.duration_ms == pytest.approx(read(heads.whole("s", later)).duration_ms, abs=50)


def test_nothing_else_is_given_a_head() -> None:
    heads, later = Heads(), pages(OPUS)[5]
    assert heads.whole("s", later) == later
    heads.whole("s", OPUS)
    assert heads.whole("other", later) == later
    # Another stream of the session, a file of its own, bytes that only look alike.
    for data in (
        pages(packed(TONE[:RATE], "OGG", "OPUS"))[-1],
        packed(TONE, "FLAC", "PCM_16"),
        b"OggS" * 40,
        later[:20],
        TONE.tobytes(),
    ):
        assert heads.whole("s", data) == data


def test_heads_are_bounded_in_size_number_and_age() -> None:
    now = [0.0]
    heads = Heads(heads_max=3, clock=lambda: now[0])
    later = pages(OPUS)[5]
    for number in range(10):
        heads.whole(f"s{number}", OPUS)
        assert len(heads) <= 3
    now[0] = containers.AGE_S - 1
    assert heads.whole("s9", later) != later
    now[0] = containers.AGE_S
    # Used meanwhile; the others were not.
    assert heads.whole("s9", later) != later
    assert (heads.whole("s8", later), len(heads)) == (later, 1)
    head, tags = pages(OPUS)[:2]
    assert head_of(OPUS) == head + tags
    assert head_of(head + tags * (containers.HEAD_BYTES_MAX // len(tags) + 1)) == b""
    assert head_of(head + tags[:-5]) == b""
