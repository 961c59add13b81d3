"""The supplementary lexicon: its table, and its words in the stream."""

from __future__ import annotations

import pytest

from lingua_speech.engines.apertium import lexicon, stream

pytestmark = pytest.mark.unit


def test_every_row_of_the_lexicon_is_whole() -> None:
    assert len(lexicon.rows()) > 300
    for row in lexicon.rows():
        assert row.kind in {"n", "vblex", "adj", "adv"}, row
        assert row.english, row
        assert row.spanish, row
        assert (row.gender in {"m", "f", "mf"}) is (row.kind == "n"), row
        assert set(row.flags) <= set("<>sei"), row


def test_an_unknown_word_of_the_lexicon_is_recognised_translated_and_said() -> None:
    words = lexicon.lexicon("es")
    units = words.recognise(stream.read("^pound/pound<n><sg>$ ^keys/key<n><pl>$[]"))
    assert units[0].parts == ("pound keys", "pound key<n><pl>")
    unit = words.translate(stream.LexicalUnit("", ("pound key<n><pl>", "@pound key<n><pl>")))
    assert unit.parts[1] == "tecla de número<n><f><pl>"
    said = words.generate(stream.LexicalUnit("", ("tecla de número<n><f><pl>",)))
    assert [piece.parts for piece in said] == [("*teclas de número",)]


def test_on_the_way_to_a_third_language_apertiums_own_word_is_kept() -> None:
    unit = stream.LexicalUnit("", ("press<vblex><inf>", "pulsar<vblex><inf>"))
    words = lexicon.lexicon("es")
    assert words.translate(unit).parts[1] == "presionar<vblex><inf>"
    assert words.translate(unit, only_known=True).parts[1] == "pulsar<vblex><inf>"
