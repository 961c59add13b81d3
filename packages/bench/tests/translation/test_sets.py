"""The sentences of the benchmark: complete, without duplicates, and errors of invalid files."""

from __future__ import annotations

from pathlib import Path

import pytest

from lingua_bench.translation.sets import FILES, SetBroken, all_sets, file_text, read
from lingua_speech.models import ModelStore
from lingua_speech.routing.routes import SETS

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("file", FILES)
def test_a_file_has_a_text_for_each_language_and_no_sentence_twice(file: str) -> None:
    for one in read(file, file_text(file)):
        assert len(one.texts) == len(one.references) >= 200
        assert all(text == text.strip() for text in one.texts)
    english = next(one for one in read(file, file_text(file)) if one.direction[0] == "en")
    assert len({text.lower() for text in english.texts}) == len(english.texts)


def test_every_set_is_there_in_all_its_directions(tmp_path: Path) -> None:
    found = all_sets(ModelStore(tmp_path))
    assert {one.name for one in found} == {"everyday", "interface"}
    assert {one.name for one in found} < set(SETS)
    everyday = {one.direction for one in found if one.name == "everyday"}
    assert everyday == {("en", "es"), ("es", "en"), ("en", "fr"), ("fr", "en")}
    interface = [one.direction for one in found if one.name == "interface"]
    assert len(interface) == len(set(interface)) == 14
    assert ("zh", "en") in interface


def test_where_they_are_from_is_said() -> None:
    page = file_text("README.md")
    assert all(file in page for file in FILES)
    assert "CC-BY 2.0 FR" in page


def test_a_line_that_lacks_a_text_is_told() -> None:
    with pytest.raises(SetBroken, match="x: line 3 has not a text for each of en, es"):
        read("x", "en\tes\na\tb\nc\n")
    with pytest.raises(SetBroken, match="line 2"):
        read("x", "en\tes\na\t \n")
