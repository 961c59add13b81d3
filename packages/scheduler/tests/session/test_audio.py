"""Durations of bytes and the loudness of pcm16, for any bytes."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lingua_scheduler.session.audio import AudioFormat, pcm16_level
from lingua_wire.errors import InvalidInput

pytestmark = pytest.mark.unit

PCM = AudioFormat("pcm16", 16_000)
OPUS = AudioFormat("opus", 16_000)


def little_endian(samples: list[int]) -> bytes:
    return b"".join(sample.to_bytes(2, "little", signed=True) for sample in samples)


def tone(
    level: float,
    hz: float = 440.0,
    count: int = 1600,
    offset: float = 0.0,
    turned: float = 0.0,
) -> bytes:
    """Give a sine whose RMS is `level` of full scale, raised by a constant offset."""
    peak = level * math.sqrt(2)
    return little_endian(
        [
            round(32_767 * (peak * math.sin(2 * math.pi * hz * i / 16_000 + turned) + offset))
            for i in range(count)
        ]
    )


# Durations.


def test_a_second_of_pcm16_is_32000_bytes() -> None:
    assert PCM.duration_ms(32_000) == 1000
    assert AudioFormat("pcm16", 48_000).duration_ms(9600) == 100


def test_opus_is_estimated_as_60_bytes_for_20_ms() -> None:
    assert OPUS.duration_ms(3000) == 1000
    assert OPUS.duration_ms(59) == 0
    assert OPUS.duration_ms(119) == 20


@given(
    st.sampled_from(["pcm16", "opus"]),
    st.sampled_from([8000, 11_025, 16_000, 44_100, 48_000]),
    st.integers(0, 60_000),
)
def test_bytes_lasting_is_the_least_that_lasts_so_long(name: str, rate: int, ms: int) -> None:
    audio_format = AudioFormat(name, rate)
    least = audio_format.bytes_lasting(ms)
    unit = 2 if name == "pcm16" else 60
    assert least % unit == 0
    assert audio_format.duration_ms(least) >= ms
    assert least == 0 or audio_format.duration_ms(least - unit) < ms


@pytest.mark.parametrize("name", ["", "PCM16", "wav", "x" * 500])
def test_an_unknown_format_is_refused_and_named_shortly(name: str) -> None:
    with pytest.raises(InvalidInput, match="audio_format must be pcm16 or opus") as refused:
        AudioFormat(name, 16_000)
    assert len(str(refused.value)) < 120


@pytest.mark.parametrize("rate", [-16_000, 0, 7999, 192_001])
def test_an_impossible_sample_rate_is_refused(rate: int) -> None:
    with pytest.raises(InvalidInput, match="sample_rate must be 8000 to 192000"):
        AudioFormat("pcm16", rate)


# Loudness.


@pytest.mark.parametrize("level", [0.001, 0.01, 0.1, 0.5])
@pytest.mark.parametrize("hz", [120.0, 440.0, 1000.0, 2000.0, 3100.0])
def test_the_level_of_a_tone_is_its_rms(level: float, hz: float) -> None:
    assert pcm16_level(tone(level, hz)) == pytest.approx(level, rel=0.1)


@given(st.floats(60.0, 7800.0), st.floats(0.0, 2 * math.pi))
@example(16_000 / 13, 0.0)
@example(3 * 16_000 / 13, 1.0)
# In step with every 11th sample, and the second half in step with the first.
@example(16_000 / 11, math.pi / 2 - 8 * math.pi / 11)
def test_no_tone_hides_between_the_samples_looked_at(hz: float, turned: float) -> None:
    assert 0.05 <= pcm16_level(tone(0.1, hz, turned=turned)) <= 0.16


@pytest.mark.parametrize("count", [160, 320, 480, 1600, 4800])
def test_the_level_does_not_depend_on_the_length(count: int) -> None:
    assert pcm16_level(tone(0.1, count=count)) == pytest.approx(0.1, rel=0.1)


def test_a_constant_offset_is_not_sound() -> None:
    assert pcm16_level(tone(0.0, offset=0.2)) == 0.0
    assert pcm16_level(tone(0.01, offset=0.2)) == pytest.approx(0.01, rel=0.1)


def test_full_scale_and_no_sound_are_the_ends_of_the_scale() -> None:
    assert pcm16_level(bytes(3200)) == 0.0
    assert pcm16_level(little_endian([-32_768, 32_767] * 800)) == pytest.approx(1.0, abs=0.001)


@pytest.mark.parametrize("count", [0, 1])
def test_less_than_a_sample_has_no_level(count: int) -> None:
    assert pcm16_level(b"\x7f" * count) == 0.0


def test_an_odd_last_byte_is_left_out() -> None:
    assert pcm16_level(tone(0.1) + b"\x7f") == pcm16_level(tone(0.1))


@given(st.binary(max_size=5000))
def test_any_bytes_have_a_level_between_0_and_1(data: bytes) -> None:
    assert 0.0 <= pcm16_level(data) <= 1.0
    assert pcm16_level(memoryview(data)) == pcm16_level(data)
