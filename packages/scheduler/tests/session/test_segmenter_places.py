"""The position of a segmenter: the audio it no longer keeps, and a start within a session."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingua_scheduler.session.audio import AudioFormat
from lingua_scheduler.session.segmenter import Segmenter, SegmentRules, SequenceGap, UtteranceCut

pytestmark = pytest.mark.unit

PCM = AudioFormat("pcm16", 8000)
CHUNK_MS = 100
CHUNK = 16 * CHUNK_MS


class Marked:
    """Takes a chunk for voice when its bytes are capital letters."""

    def is_voice(self, pcm: bytes) -> bool:
        return pcm[:1].isupper()


class Numbered:
    """Sends chunks of 100 ms with numbers from 0 on; keeps what was cut."""

    def __init__(self, *, listens: bool = False, first: int = 0, **rules: int) -> None:
        self.segmenter = Segmenter(SegmentRules(**rules), PCM, Marked() if listens else None)
        self.next = first
        self.now_ms = 0.0
        self.cuts: list[UtteranceCut] = []

    def say(self, letters: str, *, is_final: bool = False) -> None:
        """Send one chunk for each letter; the last one may be final."""
        for place, letter in enumerate(letters, 1):
            self.send(letter.encode() * CHUNK, is_final=is_final and place == len(letters))

    def send(self, data: bytes, *, is_final: bool = False) -> None:
        assert self.segmenter.admit_seq(self.next) == "ok"
        events = self.segmenter.chunk(
            data, is_final=is_final, now_ms=self.now_ms, seq=self.next, client_ts_ms=None
        )
        self.cuts += [event for event in events if isinstance(event, UtteranceCut)]
        self.next += 1
        self.now_ms += CHUNK_MS

    def wait(self, ms: float) -> None:
        self.now_ms += ms
        events = self.segmenter.tick(self.now_ms)
        self.cuts += [event for event in events if isinstance(event, UtteranceCut)]

    @property
    def settled(self) -> tuple[int | None, int]:
        return self.segmenter.settled_seq, self.segmenter.settled_ms


# Numbers.


def test_a_chunk_uses_its_number() -> None:
    segmenter = Numbered().segmenter
    segmenter.chunk(bytes(3200), is_final=False, now_ms=0.0, seq=41)
    assert segmenter.next_seq == 42
    assert segmenter.admit_seq(41) == "duplicate"


def test_a_chunk_without_a_number_uses_none() -> None:
    segmenter = Numbered().segmenter
    segmenter.chunk(bytes(3200), is_final=False, now_ms=0.0, seq=41)
    segmenter.chunk(bytes(3200), is_final=False, now_ms=1.0)
    assert segmenter.next_seq == 42


# What is kept no more.


def test_nothing_is_settled_before_the_first_chunk() -> None:
    client = Numbered()
    assert client.segmenter.next_seq is None
    assert client.settled == (None, 0)


def test_nothing_is_settled_while_an_utterance_is_collected() -> None:
    client = Numbered()
    client.say("aaa")
    assert client.segmenter.next_seq == 3
    assert client.settled == (None, 0)


def test_a_cut_settles_all_its_chunks() -> None:
    client = Numbered(hangover_manual_ms=0)
    client.say("aaa", is_final=True)
    assert client.settled == (2, 300)
    client.say("b")
    assert client.settled == (None, 300)


def test_an_empty_final_chunk_is_settled_with_what_it_completes() -> None:
    client = Numbered(hangover_manual_ms=0)
    client.say("aa")
    client.send(b"", is_final=True)
    assert client.settled == (2, 200)
    assert client.cuts[0].last_seq == 2


def test_a_hangover_settles_nothing_before_its_end() -> None:
    client = Numbered(hangover_manual_ms=200)
    client.say("aa", is_final=True)
    assert client.settled == (None, 0)
    client.wait(200)
    assert client.settled == (1, 200)


def test_silence_is_settled_up_to_what_may_be_the_beginning_of_a_word() -> None:
    client = Numbered(listens=True, preroll_ms=300)
    client.say("sss")
    # All three may still be that beginning.
    assert client.settled == (-1, 0)
    client.say("ss")
    assert client.settled == (1, 200)
    assert client.segmenter.admitted_ms == 500


def test_a_chunk_of_which_a_part_is_kept_is_not_settled() -> None:
    client = Numbered(listens=True, preroll_ms=250)
    client.say("ssss")
    assert client.segmenter.settled_seq == 0
    assert client.segmenter.buffered_bytes == 250 * 16


def test_a_word_takes_the_silence_before_it_along() -> None:
    client = Numbered(listens=True, preroll_ms=200, hangover_manual_ms=0)
    client.say("ssss")
    assert client.settled == (1, 200)
    client.say("W")
    assert client.settled == (None, 200)
    client.say("W", is_final=True)
    assert client.settled == (5, 600)
    assert (client.cuts[0].first_seq, client.cuts[0].last_seq) == (2, 5)


def test_chunks_without_numbers_are_never_settled_by_number() -> None:
    segmenter = Segmenter(SegmentRules(hangover_manual_ms=0), PCM)
    segmenter.chunk(b"a" * CHUNK, is_final=True, now_ms=0)
    assert (segmenter.next_seq, segmenter.settled_seq) == (None, None)
    assert segmenter.settled_ms == 100


@given(st.lists(st.sampled_from("sWWsf."), max_size=40), st.integers(0, 400), st.booleans())
def test_what_is_still_kept_is_never_of_a_settled_chunk(
    steps: list[str], preroll_ms: int, listens: bool
) -> None:
    client = Numbered(listens=listens, preroll_ms=preroll_ms, pause_ms=350, short_merge_ms=0)
    sizes: list[int] = []
    for step in steps:
        if step == ".":
            client.wait(200)
            continue
        data = b"" if step == "f" else step.encode() * CHUNK
        client.send(data, is_final=step == "f")
        sizes.append(len(data))
        seq = client.segmenter.settled_seq
        if seq is not None:
            assert seq < client.next
            # What is kept is the end of the audio: the client still has at least that.
            assert client.segmenter.buffered_bytes <= sum(sizes[seq + 1 :])
            # The chunk after it begins where those up to it end.
            assert abs(client.segmenter.settled_ms * 16 - sum(sizes[: seq + 1])) < 16


# Going on.


def test_a_session_goes_on_at_its_next_chunk_and_place() -> None:
    client = Numbered(first=40, hangover_manual_ms=0)
    client.segmenter.restore(40, 4000)
    assert client.segmenter.next_seq == 40
    assert client.segmenter.admitted_ms == 4000
    assert client.settled == (39, 4000)
    client.say("aa", is_final=True)
    (cut,) = client.cuts
    assert (cut.start_ms, cut.end_ms, cut.first_seq, cut.last_seq) == (4000, 4200, 40, 41)
    assert client.segmenter.admitted_ms == 4200


def test_chunks_from_before_the_place_are_repetitions() -> None:
    segmenter = Segmenter(SegmentRules(), PCM)
    segmenter.restore(40, 4000)
    assert [segmenter.admit_seq(seq) for seq in (0, 38, 39)] == ["duplicate"] * 3
    assert segmenter.admit_seq(40) == "ok"


def test_chunks_that_did_not_come_along_are_a_gap() -> None:
    segmenter = Segmenter(SegmentRules(), PCM)
    segmenter.restore(40, 4000)
    assert segmenter.admit_seq(43) == SequenceGap(40, 42)


def test_a_session_whose_chunks_have_no_numbers_goes_on_with_any() -> None:
    segmenter = Segmenter(SegmentRules(), PCM)
    segmenter.restore(None, 700)
    assert (segmenter.next_seq, segmenter.admitted_ms) == (None, 700)
    assert segmenter.admit_seq(12) == "ok"


def test_what_was_before_is_no_silence_of_this_segmenter() -> None:
    client = Numbered(first=40, listens=True, preroll_ms=0)
    client.segmenter.restore(40, 4000)
    assert (client.segmenter.silent_ms, client.segmenter.account.silent_bytes) == (0, 0)
    client.say("ss")
    assert client.segmenter.silent_ms == 200
    assert client.settled == (41, 4200)


@given(st.integers(0, 10**7), st.sampled_from([8000, 11025, 16000, 22050, 44100, 48000]))
def test_the_place_is_kept_to_the_millisecond_at_any_rate(at_ms: int, rate: int) -> None:
    segmenter = Segmenter(SegmentRules(), AudioFormat("pcm16", rate))
    segmenter.restore(1, at_ms)
    assert segmenter.admitted_ms == segmenter.settled_ms == at_ms
