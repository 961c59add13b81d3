"""The scores: word error rate as people count words, chrF as sacreBLEU does, and what is scored."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingua_scheduler.speech.prompts import Prompt, parallel_prompts, transcripts
from lingua_scheduler.speech.scores import chrf, word_error_rate, word_errors, words

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
        "mister", "dashwoods", "well", "known", "numero", "uno",
    ]  # fmt: skip
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


def _tsv(path: Path, rows: dict[str, str]) -> Path:
    path.write_text("".join(f"{key}\t{text}\n" for key, text in rows.items()), encoding="utf-8")
    return path


def test_prompts_are_those_in_both_languages_that_are_long_enough(tmp_path: Path) -> None:
    english = {
        "long": "This is a sentence of more than thirty letters.",
        "again": "This is a sentence of more than thirty letters.",
        "short": "Too short.",
        "only-here": "This one is not said in the other language at all.",
        "direction": "This one is [spoken slowly] and long enough to count.",
        "too-long": "very " * 80,
    }
    spanish = {key: f"En español: {text}" for key, text in english.items() if key != "only-here"}
    found = parallel_prompts(_tsv(tmp_path / "a", english), _tsv(tmp_path / "b", spanish))
    assert [prompt.key for prompt in found] == ["again"]


def test_the_first_line_of_a_key_counts_and_broken_lines_do_not(tmp_path: Path) -> None:
    path = tmp_path / "transcripts.tsv"
    path.write_text("a\tone\na\ttwo\nno tab\nb\t\n\tc\n", encoding="utf-8")
    assert transcripts(path) == {"a": "one"}


def test_about_half_is_held_out_and_always_the_same_half() -> None:
    prompts = [Prompt(f"key-{number}", "a", "b") for number in range(400)]
    held_out = [prompt.key for prompt in prompts if prompt.is_held_out]
    assert 150 < len(held_out) < 250
    assert (
        Prompt("conf-extended", "x", "y").is_held_out is Prompt("conf-extended", "", "").is_held_out
    )
