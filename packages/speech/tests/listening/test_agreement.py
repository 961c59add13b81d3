"""Which words of growing speech are stable; they never change afterwards."""

from __future__ import annotations

import pytest

from lingua_speech.engine import HeardWord, Transcript
from lingua_speech.listening.agreement import (
    SHOWN_LAST,
    SURE,
    UNKNOWN,
    Agreement,
    HeardText,
    as_heard,
    words_of,
)

pytestmark = pytest.mark.unit


def words(text: str, probability: float = UNKNOWN) -> list[HeardWord]:
    return [HeardWord(word, probability) for word in text.split()]


# Probable enough to be shown at the end, and not sure.
LIKELY = (SHOWN_LAST + SURE) / 2


def heard(
    agreement: Agreement, text: str, *, quiet: bool = False, sure: float = LIKELY
) -> HeardText:
    return agreement.hear(words(text, sure), is_quiet=quiet)


def test_words_are_stable_when_two_hearings_agree() -> None:
    agreement = Agreement()
    assert heard(agreement, "he was not") == ((), ("he", "was", "not"))
    assert heard(agreement, "he was not an ill") == (("he", "was", "not"), ("an", "ill"))
    assert heard(agreement, "he was not an angry man").text == "he was not an angry man"
    assert agreement.stable == ("he", "was", "not", "an")


def test_the_last_word_may_be_the_beginning_of_a_longer_one() -> None:
    agreement = Agreement()
    heard(agreement, "it is un")
    assert heard(agreement, "it is un") == (("it", "is"), ("un",))
    assert heard(agreement, "it is un", quiet=True) == (("it", "is", "un"), ())


def test_punctuation_and_capitals_do_not_matter_and_the_later_form_is_taken() -> None:
    agreement = Agreement()
    heard(agreement, "Well. I see")
    assert heard(agreement, "Well, I see it").stable == ("Well,", "I", "see")


def test_a_full_stop_after_the_last_word_is_stable_only_when_heard_twice() -> None:
    agreement = Agreement()
    heard(agreement, "come in", quiet=True)
    assert heard(agreement, "come in.", quiet=True).stable == ("come", "in")
    twice = Agreement()
    heard(twice, "come in.", quiet=True)
    assert heard(twice, "come in.", quiet=True).stable == ("come", "in.")


def test_sure_words_are_stable_at_once_if_enough_was_heard_after_them() -> None:
    agreement = Agreement()
    assert heard(agreement, "one two three four", sure=0.95).stable == ("one", "two")
    doubted = [*words("one", 0.95), *words("two", 0.2), *words("three four five", 0.95)]
    assert Agreement().hear(doubted, is_quiet=False).stable == ("one",)


def test_improbable_words_are_not_shown_before_a_pause() -> None:
    heard_now = [*words("he was", 0.5), *words("alive", 0.2), *words("man", 0.9)]
    assert Agreement().hear(heard_now, is_quiet=False).unstable == ("he", "was")
    assert Agreement().hear(heard_now, is_quiet=True).unstable == ("he", "was", "alive", "man")


def test_an_engine_that_does_not_know_how_probable_words_are_is_doubted_at_the_end() -> None:
    assert Agreement().hear(words_of(Transcript(text="he was")), is_quiet=False).unstable == ("he",)
    assert words_of(Transcript(text="")) == ()
    known = (HeardWord("he", 0.9),)
    assert words_of(Transcript(text="he", words=known)) == known


def test_the_last_word_is_shown_only_if_it_is_probable() -> None:
    likely = [HeardWord("to", 0.9), HeardWord("con", SHOWN_LAST - 0.01)]
    assert Agreement().hear(likely, is_quiet=False).unstable == ("to",)
    assert Agreement().hear(likely, is_quiet=True).unstable == ("to", "con")


def test_stable_words_are_never_taken_back() -> None:
    agreement = Agreement()
    for _ in range(2):
        heard(agreement, "he had them leisure to")
    before = agreement.stable
    assert before == ("he", "had", "them", "leisure")
    assert heard(agreement, "he had then leisure to consider").stable[:4] == before
    # The rest continues after the word for which the stable one stands.
    assert heard(agreement, "he had then leisure to consider it").text == (
        "he had them leisure to consider it"
    )


def test_a_hearing_that_shares_nothing_or_is_shorter_is_survived() -> None:
    agreement = Agreement()
    for _ in range(2):
        heard(agreement, "one two three four")
    assert heard(agreement, "").text == "one two three"
    assert heard(agreement, "alpha beta").text == "one two three"
    assert heard(agreement, "alpha beta gamma delta").text == "one two three delta"


def test_no_words_are_lost_or_doubled_over_a_long_speech() -> None:
    said = " ".join(f"w{number}" for number in range(60)).split()
    agreement = Agreement()
    for count in range(1, 61, 3):
        so_far = heard(agreement, " ".join(said[:count]))
        assert so_far.text.split() == said[:count]


def test_stable_words_have_the_marks_of_the_last_hearing() -> None:
    said = ("the", "line", "is", "busy", "please")
    assert as_heard(said, words("The line is busy. Please")) == (
        "The",
        "line",
        "is",
        "busy.",
        "Please",
    )


def test_where_a_hearing_has_other_words_they_have_the_marks_that_they_had() -> None:
    said = ("the", "line.", "is", "busy")
    assert as_heard(said, words("the lime, is")) == ("the", "line.", "is", "busy")
    assert as_heard(said, words("the line, is busy? now")) == ("the", "line,", "is", "busy?")
