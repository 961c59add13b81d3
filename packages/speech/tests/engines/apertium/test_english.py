"""Regular forms of English words."""

from __future__ import annotations

import pytest

from lingua_speech.engines.apertium import english

pytestmark = pytest.mark.unit


def test_english_words_have_their_forms() -> None:
    assert english.plural("pound key") == "pound keys"
    assert english.plural("city") == "cities"
    assert english.verb("log in", "ed") == "logged in"
    assert english.verb("erase", "ing") == "erasing"
    assert english.verb("verify", "ed") == "verified"
    assert english.verb_by_tags("unlock", ("pri", "p3", "sg")) == "unlocks"
