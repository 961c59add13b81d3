"""What a session keeps: chunks until they are acknowledged, positions, events until read."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingua_scheduler.client import Reset, SessionLost
from lingua_scheduler.client.heard import OPEN_MAX, Heard
from lingua_scheduler.client.mailbox import Mailbox
from lingua_scheduler.client.options import Wish
from lingua_scheduler.client.pace import AUDIO_AHEAD_MS, BURST_MS, ENDS_AHEAD, Pace
from lingua_scheduler.client.replay import Replay
from lingua_scheduler.messages.to_client import MissingResult

pytestmark = pytest.mark.unit


def outcome(
    epoch: str | None, seq: int | None, index: int, lane: str = "es", *, speaker: str = "s"
) -> MissingResult:
    return MissingResult(
        session_id=speaker, utterance_index=index, reason="failed", created_at_ms=0,
        tgt_lang=lane, epoch=epoch, seq=seq,
    )  # fmt: skip


def sent_by(replay: Replay) -> list[int]:
    numbers = []
    while (chunk := replay.take_unsent()) is not None:
        numbers.append(chunk.seq)
    return numbers


STEPS = ["add", "send", "accept", "answer", "back"]


@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 12))))
def test_chunks_are_kept_until_answered_and_sent_in_order(steps: list[tuple[str, int]]) -> None:
    replay = Replay(1 << 20)
    # Accepted chunks, each an utterance of its own, and which of them are answered.
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
            replay.answered(number)
            answered.add(number)
        elif step == "back":
            replay.go_back(number)
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
    replay = Replay(1 << 20)
    for _ in range(6):
        replay.add(b"xy", is_final=False, timestamp_ms=0)
    sent_by(replay)
    replay.accept(1, 200, 0, is_answered=False)
    replay.accept(3, 400, 1, is_answered=False)
    assert (replay.first_seq, replay.audio_ms, replay.open_seq) == (0, 0, 4)
    replay.answered(1)
    assert (replay.first_seq, replay.audio_ms) == (0, 0)
    replay.answered(0)
    assert (replay.first_seq, replay.audio_ms) == (4, 400)


def test_what_a_server_has_is_given_up_before_speech_must_wait() -> None:
    replay = Replay(6)
    for _ in range(2):
        replay.add(b"xy", is_final=False, timestamp_ms=0)
    sent_by(replay)
    replay.accept(0, 100, 0, is_answered=False)
    replay.add(b"xy", is_final=False, timestamp_ms=0)
    assert (replay.first_seq, replay.size, replay.is_full) == (1, 4, False)


def test_a_lossy_memory_gives_up_what_was_sent_but_nothing_that_was_not() -> None:
    replay = Replay(6)
    replay.is_lossy = True
    for _ in range(4):
        replay.add(b"xy", is_final=False, timestamp_ms=0)
    assert replay.is_full
    assert sent_by(replay) == [0, 1, 2, 3]
    assert not replay.is_full
    replay.add(b"xy", is_final=False, timestamp_ms=0)
    assert (replay.first_seq, replay.size) == (2, 6)


def test_ends_count_from_their_sending_to_their_acknowledgement() -> None:
    replay = Replay(1 << 20)
    for number in range(6):
        replay.add(b"xy", is_final=number % 2 == 1, timestamp_ms=0)
    assert replay.sent_ends == 0
    sent_by(replay)
    assert replay.sent_ends == 3
    replay.accept(3, 400, None, is_answered=True)
    assert replay.sent_ends == 1
    replay.go_back(None)
    assert (replay.sent_ends, replay.sent_size) == (0, 0)
    assert sent_by(replay) == [4, 5]
    assert replay.sent_ends == 1


def test_live_speech_is_never_held_however_little_is_acknowledged() -> None:
    pace = Pace()
    for number in range(1000):
        pace.sent(100, number * 100.0)
        assert pace.wait_ms(number, number * 100, number * 100.0) == 0


def test_what_runs_ahead_waits_for_acknowledgements_or_for_real_time() -> None:
    pace = Pace()
    pace.sent(10_000, 0)
    assert pace.wait_ms(0, 10_000, 0) == 0
    assert pace.wait_ms(ENDS_AHEAD - 1, 10_000, 0) == 0
    held_ms = 10_000 - BURST_MS
    assert pace.wait_ms(ENDS_AHEAD, 10_000, 0) == held_ms
    assert pace.wait_ms(0, AUDIO_AHEAD_MS, 0) == held_ms
    assert pace.wait_ms(0, AUDIO_AHEAD_MS, 4000) == held_ms - 4000
    assert pace.wait_ms(0, AUDIO_AHEAD_MS, 20_000) == 0


def test_utterances_are_open_until_each_language_has_its_outcome() -> None:
    heard = Heard(2)
    heard.begin("e1")
    heard.accepted(0, 100)
    heard.answered(0)
    heard.answered(1)
    heard.answered(1)
    # The acceptance may come after the outcomes.
    heard.accepted(1, 50)
    assert heard.open_ms == 100
    heard.answered(0)
    assert heard.open_ms == 0
    for index in range(3 * OPEN_MAX):
        heard.accepted(index, 1)
    assert heard.open_ms == OPEN_MAX
    heard.begin("e2")
    assert heard.open_ms == 0


def test_an_own_outcome_under_another_epoch_starts_positions_over() -> None:
    heard = Heard(1)
    heard.begin("e1")
    assert heard.is_new(outcome("e1", 5, 3))
    assert not heard.is_new(outcome("e1", 5, 3))
    assert heard.is_new(outcome("e2", 1, 4))
    assert (heard.epoch, heard.seq, heard.duplicates) == ("e2", 1, 1)
    assert heard.is_new(outcome(None, None, 0))
    assert heard.seq == 1


def test_what_comes_again_under_a_new_epoch_is_known_by_its_number_and_language() -> None:
    heard = Heard(1)
    heard.begin("e1")
    assert heard.is_new(outcome("e1", 1, 0, "es"))
    assert heard.is_new(outcome("e1", 2, 0, "fr"))
    assert heard.is_new(outcome("e1", 3, 1, "es"))
    assert not heard.is_new(outcome("e2", 1, 0, "es"))
    assert not heard.is_new(outcome("e2", 2, 1, "es"))
    assert heard.is_new(outcome("e2", 3, 1, "fr"))
    assert heard.is_new(outcome("e2", 4, 0, "es", speaker="another"))
    assert heard.duplicates == 2
    assert heard.seq == 4


def test_a_mailbox_says_when_it_is_full_and_when_half_of_it_is_free() -> None:
    async def scenario() -> None:
        told: list[str] = []
        mailbox = Mailbox(4, 1000, lambda: told.append("full"), lambda: told.append("room"))
        event = Reset("", 0, "", "")
        for _ in range(5):
            mailbox.put(event)
        assert told == ["full"]
        for _ in range(4):
            await mailbox.get()
        assert told == ["full", "room"]
        mailbox.put(event, 1000)
        assert told == ["full", "room", "full"]
        mailbox.last_call()
        mailbox.put(event, 1000)
        assert told == ["full", "room", "full", "room"]
        mailbox.end(SessionLost("over"))
        for _ in range(3):
            await mailbox.get()
        with pytest.raises(SessionLost):
            await mailbox.get()

    asyncio.run(scenario())


def test_the_length_of_audio_and_the_number_of_outcomes_follow_from_the_wish() -> None:
    assert Wish("en", ("es",)).duration_ms(3200) == 100
    assert Wish("en", ("es",), sample_rate=48_000).duration_ms(96_000) == 1000
    assert Wish("en", ("es",), audio_format="opus").duration_ms(120) == 40
    assert Wish("en", ("es", "fr")).outcomes_per_utterance == 2
    assert Wish("auto", (), more={"mode": "two_way_auto"}).outcomes_per_utterance == 1
