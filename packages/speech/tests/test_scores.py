"""The scores: word error rate of normalised words, and chrF like sacreBLEU."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingua_speech.scores import chrf, word_error_rate, word_errors, words

pytestmark = pytest.mark.unit

# sacreBLEU 2.6.0, sentence_chrf with its defaults.
SACREBLEU = [
    ("The cat sat.", "The cat is sitting.", 30.434424),
    ("Necesito un doctor", "Necesito un médico", 57.948926),
    ("El tren sale a las cinco.", "El tren parte a las 5.", 39.53428),
    ("hello there", "hello", 73.292843),
    ("Good morning, how are you?", "Good morning! How are you today?", 59.469547),
    ("a", "abc", 38.461538),
    ("¿Dónde está?", "Dónde está el hotel", 51.108881),
    ("x", "yy", 0.0),
]
SACREBLEU_ALL = 49.31139353826053


@pytest.mark.parametrize(("hypothesis", "reference", "score"), SACREBLEU)
def test_chrf_of_a_sentence_is_what_sacrebleu_says(
    hypothesis: str, reference: str, score: float
) -> None:
    assert chrf([hypothesis], [reference]) == pytest.approx(score, abs=1e-5)


def test_chrf_of_a_text_is_what_sacrebleu_says() -> None:
    ours = chrf([row[0] for row in SACREBLEU], [row[1] for row in SACREBLEU])
    assert ours == pytest.approx(SACREBLEU_ALL, abs=1e-9)


def test_chrf_needs_as_many_references_as_translations() -> None:
    with pytest.raises(ValueError, match="zip"):
        chrf(["a", "b"], ["a"])


@given(st.text(), st.text())
def test_chrf_is_between_0_and_100_and_full_for_the_same_text(first: str, second: str) -> None:
    assert 0 <= chrf([first], [second]) <= 100 + 1e-9
    if "".join(first.split()):
        assert chrf([first], [first]) == pytest.approx(100)


def test_words_do_not_count_case_accents_punctuation_or_hyphens() -> None:
    assert words("Mr. Dashwood's well-known, número «uno»!") == [
        "mister",
        "dashwoods",
        "well",
        "known",
        "numero",
        "uno",
    ]
    assert word_errors("mister John", "Mr. John") == (0, 2)


@pytest.mark.parametrize(
    ("reference", "heard", "errors"),
    [
        ("one two three", "one two three", 0),
        ("one two three", "one three", 1),
        ("one two three", "one two two three", 1),
        ("one two three", "one four three", 1),
        ("one two three", "", 3),
        ("", "one two", 2),
    ],
)
def test_wrong_missing_and_extra_words_count_one_each(
    reference: str, heard: str, errors: int
) -> None:
    assert word_errors(reference, heard)[0] == errors


def test_the_rate_is_over_all_words_not_the_mean_of_sentences() -> None:
    pairs = [("one", "two"), ("a b c d e f g h i", "a b c d e f g h i")]
    assert word_error_rate(pairs) == pytest.approx(0.1)
    assert word_error_rate([]) == 0
