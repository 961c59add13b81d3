"""Where an utterance ends that silence ended: a word that begins softly after it is not divided."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingua_scheduler.session.audio import AudioFormat
from lingua_scheduler.session.segmenter import (
    SILENCE_KEPT_MS,
    Segmenter,
    SegmentRules,
    UtteranceCut,
)

pytestmark = pytest.mark.unit

# 16 bytes are one millisecond.
PCM = AudioFormat("pcm16", 8000)
CHUNK_MS = 50
RULES = SegmentRules(silence_ms=300, preroll_ms=300, short_merge_ms=400)
# Loudest samples: a voice, the soft beginning of a word, the noise of a room.
VOICE, SOFT, ROOM, NOTHING = 9000, 100, 4, 0


def sound(loudest: int, seed: int = 1) -> bytes:
    """Return one chunk of noise."""
    chance = Random(seed)
    return array("h", (chance.randint(-loudest, loudest) for _ in range(8 * CHUNK_MS))).tobytes()


class Loud:
    """Takes a loud chunk for voice; the beginning of a word is not loud."""

    def is_voice(self, pcm: bytes) -> bool:
        return max(array("h", pcm)) > VOICE // 2


@dataclass
class Speaker:
    """Sends chunks in real time."""

    segmenter: Segmenter = field(default_factory=lambda: Segmenter(RULES, PCM, Loud()))
    cuts: list[UtteranceCut] = field(default_factory=list)
    sent: list[bytes] = field(default_factory=list)

    def make(self, loudest: int, ms: int) -> None:
        for _ in range(ms // CHUNK_MS):
            seq = len(self.sent)
            self.sent.append(sound(loudest, seq))
            events = self.segmenter.chunk(
                self.sent[-1], is_final=False, now_ms=seq * CHUNK_MS, seq=seq
            )
            self.cuts += [one for one in events if isinstance(one, UtteranceCut)]

    def close(self) -> None:
        events = self.segmenter.flush(len(self.sent) * CHUNK_MS)
        self.cuts += [one for one in events if isinstance(one, UtteranceCut)]

    @property
    def places(self) -> list[tuple[int, int]]:
        return [(cut.start_ms, cut.end_ms) for cut in self.cuts]


def test_the_soft_beginning_of_the_next_word_is_not_left_in_the_utterance_before() -> None:
    one = Speaker()
    one.make(VOICE, 1000)
    one.make(ROOM, 200)
    one.make(SOFT, 100)
    one.make(VOICE, 500)
    one.close()
    first, second = one.places
    assert first == (0, second[0])
    # All of the soft sound, and some of the silence on both sides of the border.
    assert 1000 + SILENCE_KEPT_MS <= second[0] <= 1150
    assert second[1] == 1800


def test_even_silence_stays_with_the_utterance_that_it_ended() -> None:
    one = Speaker()
    one.make(VOICE, 1000)
    one.make(NOTHING, 300)
    assert one.places == [(0, 1300)]


def test_the_soft_end_of_a_word_stays_with_it() -> None:
    one = Speaker()
    one.make(VOICE, 1000)
    one.make(SOFT, 150)
    one.make(ROOM, 150)
    ((_, end_ms),) = one.places
    assert end_ms >= 1200


def test_what_was_left_is_silence_if_nobody_goes_on() -> None:
    one = Speaker()
    one.make(VOICE, 1000)
    one.make(ROOM, 200)
    one.make(SOFT, 100)
    ((_, end_ms),) = one.places
    one.make(NOTHING, 2000)
    one.close()
    assert one.places == [(0, end_ms)]
    assert one.segmenter.silent_ms == 3300 - end_ms


def test_a_client_keeps_the_chunks_that_may_begin_the_next_utterance() -> None:
    one = Speaker()
    one.make(VOICE, 1000)
    one.make(ROOM, 200)
    one.make(SOFT, 100)
    (cut,) = one.cuts
    assert cut.last_seq == cut.end_ms // CHUNK_MS - 1
    assert one.segmenter.settled_seq == cut.last_seq
    assert one.segmenter.settled_ms == cut.end_ms
    one.make(VOICE, 100)
    one.close()
    assert cut.last_seq is not None
    assert one.cuts[1].first_seq == cut.last_seq + 1


def test_the_speech_ended_when_all_of_the_silence_was_heard() -> None:
    one = Speaker()
    one.make(VOICE, 1000)
    one.make(ROOM, 200)
    one.make(SOFT, 100)
    assert one.cuts[0].speech_end_ms == 1250


@given(
    st.lists(
        st.tuples(st.sampled_from((VOICE, SOFT, ROOM, NOTHING)), st.integers(1, 12)), max_size=25
    )
)
def test_every_byte_leaves_once_and_in_order(parts: list[tuple[int, int]]) -> None:
    one = Speaker()
    for loudest, chunks in parts:
        one.make(loudest, chunks * CHUNK_MS)
    one.close()
    audio, reached_ms = b"".join(one.sent), 0
    for cut in one.cuts:
        assert cut.start_ms >= reached_ms
        assert cut.audio == audio[16 * cut.start_ms : 16 * cut.end_ms]
        reached_ms = cut.end_ms
    spoken_ms = sum(cut.end_ms - cut.start_ms for cut in one.cuts)
    assert spoken_ms + one.segmenter.silent_ms == len(one.sent) * CHUNK_MS
    # No voice is passed over.
    voiced = [seq for seq, chunk in enumerate(one.sent) if Loud().is_voice(chunk)]
    assert all(
        any(cut.start_ms <= seq * CHUNK_MS < cut.end_ms for cut in one.cuts) for seq in voiced
    )
