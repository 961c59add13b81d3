"""Apertium's stream: reading, writing, escaping."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingua_speech.engines.apertium import stream

pytestmark = pytest.mark.unit


@given(st.text())
def test_escaped_text_comes_back(text: str) -> None:
    assert stream.unescape(stream.escape(text)) == text


@given(st.text(st.characters(exclude_characters="^$\\[]"), max_size=20), st.text(max_size=20))
def test_reading_and_writing_a_stream_changes_nothing(blank: str, word: str) -> None:
    text = f"{blank}^{stream.escape(word)}/lemma<n><sg>$ ^x/*x$[]"
    pieces = stream.read(text)
    assert stream.write(pieces) == text
    assert pieces[0].blank == blank
    assert pieces[-1].parts == ()


def test_readings_are_told_apart_by_lemma_and_tags() -> None:
    assert stream.tags("guiar<vblex><inf>+prpers<prn><enc>") == ("vblex", "inf")
    assert stream.lemma("take<vblex><inf># care") == "take# care"
    assert stream.tags("plain") == ()
