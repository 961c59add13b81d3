"""A chunk that is longer than the longest utterance is cut like other speech.

Nothing is lost or duplicated, every position is exact, and a chunk is reported as taken only after
all of it was taken.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from lingua_scheduler.session.audio import AudioFormat
from lingua_scheduler.session.segmenter import Segmenter, SegmentRules, TurnEnd, UtteranceCut

pytestmark = pytest.mark.unit

PCM = AudioFormat("pcm16", 16_000)
RULES = SegmentRules()
# What a cut may be longer than the limit: its hangover, and the part that reached it.
OVER_MS = RULES.hangover_auto_ms + 100


class Marked:
    """Takes a chunk for voice when its bytes are capital letters."""

    def is_voice(self, pcm: bytes) -> bool:
        return pcm[:1].isupper()


def noise(size: int) -> bytes:
    """Return bytes that can be told from each other."""
    return random.Random(size).randbytes(size)


def heard(segmenter: Segmenter, *chunks: bytes, **more: Any) -> list[UtteranceCut]:
    """Send numbered chunks at once, then end; return what was cut of them."""
    events: list[object] = []
    for seq, data in enumerate(chunks):
        assert segmenter.admit_seq(seq) == "ok"
        events += segmenter.chunk(data, is_final=False, now_ms=0, seq=seq, **more)
    events += segmenter.flush(0)
    return [event for event in events if isinstance(event, UtteranceCut)]


def assert_exact(segmenter: Segmenter, cuts: list[UtteranceCut], audio: bytes) -> None:
    """Every byte is in one cut, in order; each begins where the one before it ended."""
    assert b"".join(cut.audio for cut in cuts) == audio
    assert [cut.start_ms for cut in cuts] == [0, *(cut.end_ms for cut in cuts[:-1])]
    assert cuts[-1].end_ms == PCM.duration_ms(len(audio)) == segmenter.admitted_ms
    assert all(len(cut.audio) % 2 == 0 for cut in cuts[:-1])
    assert segmenter.buffered_bytes == 0


@pytest.mark.parametrize("search_ms", [0, 3000])
@pytest.mark.parametrize("size", [1 << 20, 320_002, 1_000_000, 512_000, 8_000_000])
def test_a_chunk_longer_than_an_utterance_may_be_becomes_several(size: int, search_ms: int) -> None:
    segmenter = Segmenter(SegmentRules(slice_search_ms=search_ms), PCM)
    audio = noise(size)
    cuts = heard(segmenter, audio)

    assert_exact(segmenter, cuts, audio)
    lengths = [cut.end_ms - cut.start_ms for cut in cuts]
    assert max(lengths) <= RULES.max_duration_ms + OVER_MS
    assert {cut.trigger for cut in cuts[:-1]} <= {"max_duration"}
    assert [cut.turn for cut in cuts] == [0] * len(cuts)


def test_the_most_bytes_of_an_utterance_bind_long_chunks_too() -> None:
    rules = SegmentRules(max_duration_ms=0, max_bytes=100_000)
    segmenter = Segmenter(rules, PCM)
    cuts = heard(segmenter, audio := noise(1_000_000))

    assert_exact(segmenter, cuts, audio)
    assert max(len(cut.audio) for cut in cuts) < 100_000 + PCM.bytes_lasting(100)
    assert {cut.trigger for cut in cuts[:-1]} == {"max_bytes"}


def test_a_long_chunk_on_top_of_what_waits_does_not_make_an_utterance_twice_as_long() -> None:
    segmenter = Segmenter(RULES, PCM)
    nine_s = PCM.bytes_lasting(9000)
    audio = [noise(nine_s), noise(nine_s + 2)]
    cuts = heard(segmenter, *audio)

    assert_exact(segmenter, cuts, b"".join(audio))
    assert cuts[0].end_ms <= RULES.max_duration_ms + OVER_MS


def test_a_chunk_counts_as_taken_with_its_last_part() -> None:
    """A client forgets what is taken: it must keep a chunk of which a part was not cut yet."""
    segmenter = Segmenter(RULES, PCM)
    second, minute = PCM.bytes_lasting(1000), PCM.bytes_lasting(31_000)
    cuts = heard(segmenter, noise(second), noise(minute), noise(second))

    assert [(cut.first_seq, cut.last_seq) for cut in cuts] == [(0, 0), (1, 0), (1, 0), (1, 2)]


def test_the_first_chunk_of_all_is_not_taken_either_before_it_is_cut_to_its_end() -> None:
    cuts = heard(Segmenter(RULES, PCM), noise(PCM.bytes_lasting(25_000)))
    assert [(cut.first_seq, cut.last_seq) for cut in cuts] == [(0, None), (0, None), (0, 0)]


def test_a_final_long_chunk_closes_its_turn_with_what_is_left() -> None:
    segmenter = Segmenter(RULES, PCM)
    events = segmenter.chunk(noise(800_000), is_final=True, now_ms=5)
    events += segmenter.tick(1000)

    cuts = [event for event in events if isinstance(event, UtteranceCut)]
    assert_exact(segmenter, cuts, noise(800_000))
    assert [cut.trigger for cut in cuts] == ["max_duration", "max_duration", "manual"]
    assert cuts[-1].closes_turn
    assert segmenter.is_idle


def test_silence_within_a_long_chunk_is_heard() -> None:
    """As if it had come in pieces: a pause ends an utterance, and silence is let pass."""
    second = PCM.bytes_lasting(1000)
    audio = b"A" * 3 * second + b"s" * 4 * second + b"B" * 5 * second
    segmenter = Segmenter(RULES, PCM, Marked())
    cuts = heard(segmenter, audio)

    assert [(cut.audio[-1:], cut.trigger) for cut in cuts] == [
        (b"s", "timeout"),
        (b"B", "session_close"),
    ]
    assert sum(len(cut.audio) for cut in cuts) + segmenter.account.silent_bytes == len(audio)
    assert cuts[1].start_ms == 7000 - RULES.preroll_ms
    assert cuts[1].end_ms == 12_000


def test_where_a_long_silence_begins_is_known_while_its_end_may_be_a_beginning() -> None:
    """What is acknowledged as silence ends before the chunk of which a part is still kept."""
    segmenter = Segmenter(RULES, PCM, Marked())
    events: tuple[object, ...] = ()
    for seq, ms in enumerate((2000, 15_000)):
        segmenter.admit_seq(seq)
        data = b"s" * PCM.bytes_lasting(ms)
        events += segmenter.chunk(data, is_final=False, now_ms=0, seq=seq)

    assert events == ()
    assert (segmenter.settled_seq, segmenter.settled_ms) == (0, 2000)
    assert not any(isinstance(event, TurnEnd) for event in segmenter.flush(0))
    assert (segmenter.settled_seq, segmenter.settled_ms) == (1, 17_000)


def test_opaque_audio_is_never_parted() -> None:
    segmenter = Segmenter(RULES, AudioFormat("opus", 48_000))
    cuts = heard(segmenter, noise(400_000))
    assert [len(cut.audio) for cut in cuts] == [400_000]
