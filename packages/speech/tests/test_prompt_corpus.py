"""The corpus of prompts in two languages: its selection, and the half that is held out."""

from __future__ import annotations

from pathlib import Path

import pytest

from lingua_speech.prompt_corpus import Prompt, parallel_prompts, transcripts

pytestmark = pytest.mark.unit


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
