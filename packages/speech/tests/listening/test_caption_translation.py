"""The translation of a text that grows: its stable part never changes."""

from __future__ import annotations

import pytest

from lingua_speech.listening.agreement import HeardText
from lingua_speech.listening.caption_translation import CaptionTranslation, sentences_of

pytestmark = pytest.mark.unit


def heard(stable: str, unstable: str = "") -> HeardText:
    return HeardText(tuple(stable.split()), tuple(unstable.split()))


def test_a_sentence_is_whole_when_it_is_stable_and_goes_on() -> None:
    assert sentences_of(heard("Good day. How", "are")) == (("Good day.",), "How are")
    assert sentences_of(heard("Good day.", "How")) == (("Good day.",), "How")
    assert sentences_of(heard("Good day.")) == ((), "Good day.")
    assert sentences_of(heard("Good", "day. How")) == ((), "Good day. How")


def test_whole_sentences_are_stable_at_once() -> None:
    shown = CaptionTranslation()
    shown.set_open("Buenos")
    shown.add_sentence("Buenos días.")
    shown.set_open("Cómo")
    assert (shown.stable, shown.unstable, shown.sentences) == ("Buenos días.", "Cómo", 1)


def test_words_are_stable_on_which_two_translations_agree_except_the_last() -> None:
    shown = CaptionTranslation()
    shown.set_open("él no era un hombre")
    assert (shown.stable, shown.unstable) == ("", "él no era un hombre")
    shown.set_open("él no era un hombre malo")
    assert (shown.stable, shown.unstable) == ("él no era", "un hombre malo")


def test_a_translation_that_differs_only_continues_what_is_stable() -> None:
    shown = CaptionTranslation()
    for _ in range(2):
        shown.set_open("uno dos tres cuatro")
    shown.set_open("primero segundo tres cuatro cinco")
    assert (shown.stable, shown.unstable) == ("uno dos", "tres cuatro cinco")
    shown.set_open("primero segundo tres cuatro cinco")
    assert shown.stable == "uno dos"
    shown.add_sentence("primero segundo tercero.")
    assert (shown.stable, shown.unstable) == ("uno dos tercero.", "")
