"""Deltas of a transcript: words that stay while somebody speaks, and the rest with the outcome."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingua_scheduler.edge.openai.transcript_deltas import TranscriptDeltas, rest_of, whole_words

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("stable", "whole"),
    [
        ("", ""),
        ("Good", ""),
        ("Good ", "Good"),
        ("Good morning", "Good"),
        (" Good morning, every", "Good morning,"),
        ("早上好", "早上"),
        ("早", ""),
        ("Hello 早上好", "Hello 早上"),
    ],
)
def test_the_last_word_waits_because_it_may_still_get_an_ending(stable: str, whole: str) -> None:
    assert whole_words(stable) == whole


def test_deltas_continue_each_other_and_the_outcome_has_the_rest() -> None:
    deltas = TranscriptDeltas()
    told = [
        deltas.grow(0, "Good"),
        deltas.grow(0, "Good morning every"),
        deltas.grow(0, "Good morning every"),
        deltas.grow(0, "Good morning everyone and"),
        deltas.finish(0, "Good morning everyone and welcome."),
    ]
    assert told == ["", "Good morning", "", " everyone", " and welcome."]
    assert deltas.finish(1, " Thanks. ") == " Thanks."


def test_utterances_without_partials_are_spaced_as_their_script_is() -> None:
    deltas = TranscriptDeltas()
    assert [deltas.finish(index, text) for index, text in enumerate(["早上", "好", "ok", ""])] == [
        "早上",
        "好",
        " ok",
        "",
    ]
    assert deltas.grow(4, "and so") == " and"


def test_nothing_follows_the_outcome_of_an_utterance() -> None:
    deltas = TranscriptDeltas()
    deltas.finish(3, "Good.")
    assert deltas.grow(3, "Good morning every") == ""
    assert deltas.grow(4, "Well then every") == " Well then"
    deltas.drop(4)
    assert deltas.grow(4, "Well then everyone else") == ""
    assert deltas.finish(5, "Next.") == " Next."


def test_a_text_that_began_again_elsewhere_waits_for_the_outcome() -> None:
    deltas = TranscriptDeltas()
    assert deltas.grow(0, "Good morning everyone") == "Good morning"
    assert deltas.grow(0, "God mourning everyone there") == ""
    assert deltas.finish(0, "Good morning everyone there.") == " everyone there."


@pytest.mark.parametrize(
    ("sent", "final", "rest"),
    [
        ("", "Good morning.", "Good morning."),
        ("Good", "Good morning.", " morning."),
        # Only signs and capitals differ: they cannot be corrected, and no word is doubled.
        ("good morning", "Good morning, everyone.", " everyone."),
        ("Good morning.", "Good morning", ""),
        # A wrong word stays; what follows the last common word comes.
        ("Good mourning", "Good morning everyone.", " morning everyone."),
        ("I scream a lot", "Ice cream, a lot of it.", " of it."),
        # Nothing in common: all of the final text follows.
        ("Hello there", "Buenos días.", " Buenos días."),
        ("早上", "早安", "安"),
        ("Good morning everyone", "Good", ""),
    ],
)
def test_a_final_text_that_differs_loses_no_word_and_doubles_none_that_fit(
    sent: str, final: str, rest: str
) -> None:
    assert rest_of(final, sent) == rest


WORDS = st.lists(st.sampled_from(["one", "two", "three,", "four.", "早上"]), min_size=1, max_size=9)


@given(WORDS, st.data())
def test_deltas_of_a_stable_text_sum_up_to_the_final_text(
    words: list[str], data: st.DataObject
) -> None:
    final = " ".join(words)
    ends = data.draw(st.lists(st.integers(0, len(final)), max_size=6))
    deltas = TranscriptDeltas()
    told = [deltas.grow(0, final[:end]) for end in sorted(ends)]
    assert "".join([*told, deltas.finish(0, final)]) == final
