"""Kokoro's alphabet, with the real phonemes of espeak-ng."""

from __future__ import annotations

import pytest

from engines.kokoro.spelling import SENTENCES, written
from engines.tiny_models import KOKORO_LETTERS
from lingua_speech.engines.kokoro.phonemes import numbers, pieces, spelling_of

# ruff: noqa: RUF001 the alphabet of sounds has many letters that look like others

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("ipa", "language", "letters"),
    [
        ("d^ʒˈʌd^ʒ t^ʃˈo^ʊz", "en", "ʤˈʌʤ ʧˈOz"),
        ("wˈɔːɾɚ nˈɜːs bˈɑːɾə^l", "en-us", "wˈɔTəɹ nˈɜɹs bˈɑTᵊl"),
        ("ðe^ə ɡˌə^ʊ", "en-gb", "ðɛː ɡˌQ"),
        ("nˌɐ̃^ʊ̃ d^ʒˈiæ te^ɪŋ", "pt", "nˌɐ̃ʊ̃ ʤˈiæ tAŋ"),
        ("raɡˈat^sːɪ", "it", "raɡˈaʦːɪ"),
        ("ʊ (en)wˈiːkɛnd(pt) bˈoŋ", "pt", "ʊ wˈiːkɛnd bˈoŋ"),
    ],
)
def test_sounds_are_written_as_kokoro_was_taught_them(
    ipa: str, language: str, letters: str
) -> None:
    assert spelling_of(language).spell(ipa) == letters


@pytest.mark.parametrize("language", sorted(SENTENCES))
def test_a_sentence_has_only_letters_that_kokoro_knows(language: str) -> None:
    letters = written(SENTENCES[language], language)
    assert set(letters) - set(KOKORO_LETTERS) == set()
    assert len(letters) > 15


def test_punctuation_stays_where_it_was() -> None:
    marks = "".join(sign for sign in written(SENTENCES["es"], "es") if sign in ",.?!;")
    assert marks == ",?"
    assert written("Well... yes: no!", "en").endswith("!")
    assert "…" in written("Well... yes", "en")


def test_a_mark_within_a_number_is_part_of_it() -> None:
    assert "pYnt" in written("3.5", "en")


def test_letters_that_kokoro_does_not_know_are_left_out() -> None:
    assert numbers("a?x", {"a": 43, "?": 6}) == [43, 6]


@pytest.mark.parametrize("text", ["", "a, b, c", "word " * 300, "x" * 2000, ", ; :", "a,b " * 400])
def test_pieces_are_short_enough_and_lose_nothing(text: str) -> None:
    cut = list(pieces(text, 50, len))
    assert all(len(piece) <= 50 for piece in cut)
    assert "".join("".join(cut).split()) == "".join(text.split())


def test_a_text_is_cut_at_a_mark_rather_than_at_a_space() -> None:
    assert list(pieces("one two three, four five six", 20, len)) == [
        "one two three,",
        "four five six",
    ]
