"""The checks of Whisper's output: loops, missing text, stock phrases, echoes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lingua_speech.engines.whisper import guards

if TYPE_CHECKING:
    pass

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("tokens", "cut"),
    [
        ([7, 8, 9] * 3, 6),
        ([1, 2, *[7, 8, 9] * 3], 6),
        ([7, 8, 9] * 2, 0),
        (list(range(10)) * 2, 10),
        ([5] * 7, 0),
        ([5] * 8, 7),
        ([1, *[5] * 12], 11),
        ([1, 2, *[7, 8, 9] * 5], 12),
        ([5, 6] * 8, 14),
        ([1, 2, 3, 4], 0),
        ([], 0),
    ],
)
def test_circles_are_cut_but_not_what_people_repeat(tokens: list[int], cut: int) -> None:
    assert guards.repeated(tokens) == cut


def test_a_text_that_begins_for_the_third_time_was_said_once() -> None:
    assert guards.repeated_whole([1, 2, 3, 1, 2, 3, 1]) == 3
    assert guards.repeated_whole([1, 2, 3, 1, 2, 3]) == 0
    assert guards.repeated_whole([1, 2, 3, 1, 2, 4, 1]) == 0
    assert guards.repeated_whole([1, 2, 1, 2, 1]) == 0


@pytest.mark.parametrize(
    ("text", "is_loop"),
    [
        ("The last caller was. The last caller was.", True),
        ("No, no. No!", True),
        ("No, no, yes.", False),
        ("Hello.", False),
        ("", False),
    ],
)
def test_a_text_that_is_the_same_over_and_over_is_noticed(text: str, *, is_loop: bool) -> None:
    assert guards.is_loop(text) == is_loop


def test_a_text_that_can_be_squeezed_says_the_same_over_and_over() -> None:
    assert guards.is_compressible("and then we went on and " * 8)
    assert not guards.is_compressible("no no no no")
    assert not guards.is_compressible(
        "He might even have been made amiable himself, had he married a more amiable woman."
    )


def test_more_tokens_are_allowed_for_longer_sound_up_to_a_limit() -> None:
    assert guards.token_budget(0) == (guards.TOKENS_AT_LEAST, 0)
    assert guards.token_budget(2).most > guards.token_budget(1).most
    assert guards.token_budget(1000) == (guards.TOKENS_AT_MOST, guards.TOKENS_AT_MOST)
    assert guards.token_budget(10).enough < 3 * 10 < guards.token_budget(10).most


def test_a_text_much_too_short_for_its_sound_has_left_something_out() -> None:
    assert guards.has_too_few_tokens(10, 18.0)
    assert not guards.has_too_few_tokens(60, 18.0)
    assert not guards.has_too_few_tokens(1, 2.9)
    # The slowest speaker of the recordings, and a sentence said twice of which one is missing.
    assert not guards.has_too_few_tokens(13, 6.0)
    assert guards.has_too_few_tokens(16, 8.8)
    # The same with a short sentence.
    assert not guards.has_too_few_tokens(8, 3.58)
    assert guards.has_too_few_tokens(6, 3.9)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("[Music] Hello (laughs) there.", "Hello there."),
        ("(upbeat music)", ""),
        ("♪ la la ♪", "la la"),
        ("*sigh* Well.", "Well."),
        ("A plain text.", "A plain text."),
    ],
)
def test_sounds_in_brackets_are_left_out(text: str, left: str) -> None:
    assert guards.without_sounds(text) == left


@pytest.mark.parametrize(
    "text", ["Thank you.", "Thanks for watching!", "Subtítulos por la comunidad", "you", "...", ""]
)
def test_what_whisper_makes_of_noise_is_known(text: str) -> None:
    assert guards.is_stock_phrase(text)


def test_what_people_say_is_not_taken_for_noise() -> None:
    assert not guards.is_stock_phrase("Thank you for the coffee, doctor.")
    assert not guards.is_stock_phrase("You are welcome.")


def test_an_echo_of_the_text_before_is_noticed() -> None:
    before = "And then he said that it was too late."
    assert guards.is_echo("He said that it was", before)
    assert not guards.is_echo("He said that nothing", before)
    assert not guards.is_echo("He said", before)
