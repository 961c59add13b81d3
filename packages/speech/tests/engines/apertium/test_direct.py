"""One direction without its programs: unknown words, and where programs are cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from engines.apertium.trees import apertium_tree
from lingua_speech.engines.apertium import modes, stream
from lingua_speech.engines.apertium.direct import segments, without_marks

pytestmark = pytest.mark.unit


def test_words_without_translation_are_said_without_a_mark() -> None:
    units = without_marks(stream.read("^@foo<n><sg>$ ^bar<n><sg>$"))
    assert stream.write(units) == "^*foo$ ^bar<n><sg>$"


def test_programs_are_cut_where_rules_look_at_the_stream(tmp_path: Path) -> None:
    mode = modes.find_modes([apertium_tree(tmp_path)])[("en", "es")]
    cut = segments(mode)
    assert [stage for _, stage in cut] == ["analysed", "tagged", "bilingual", "target", ""]
    assert all(step[1] == "-z" for steps, _ in cut for step in steps)
    assert cut[-1][0][0][2] == "-n"
