"""The tables of phrases and corrections, and the final layout of a text."""

from __future__ import annotations

import re

import pytest

from lingua_speech.engines.apertium.sentence_rules import capitalised, patterns, phrases, tidy

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("table", ["en-es", "es-en", "es-fr", "fr-es"])
def test_every_row_of_the_tables_of_phrases_can_be_used(table: str) -> None:
    assert phrases(table)
    for pattern, said in phrases(table):
        groups = pattern.groups
        assert all(int(number) <= groups for number in re.findall(r"\\(\d)", said)), pattern
        assert said.strip(), pattern


@pytest.mark.parametrize("name", ["before-en-es", "after-en-es", "before-es-en", "after-es-en"])
def test_every_row_of_the_tables_of_corrections_can_be_used(name: str) -> None:
    assert patterns(f"{name}.tsv")
    for pattern, said in patterns(f"{name}.tsv"):
        assert all(int(n) <= pattern.groups for n in re.findall(r"\\(\d)", said)), pattern


def test_text_is_tidied() -> None:
    assert tidy("a  b , c .") == "a b, c."
    assert capitalised("...¿qué?") == "...¿Qué?"
