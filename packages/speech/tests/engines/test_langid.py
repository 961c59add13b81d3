"""Identification of the language of a text."""

from __future__ import annotations

import pytest

from engines.watches import StopAfter
from lingua_speech import plugins
from lingua_speech.engine import Stopped, Unwatched
from lingua_speech.engines.langid import LangId, make
from lingua_speech.plugins import Spec
from lingua_wire.errors import ConfigError

pytestmark = pytest.mark.speech

PHRASES = [
    ("en", "Good morning, how can I help you?"),
    ("es", "Buenos días, ¿en qué puedo ayudarle?"),
    ("en", "Where is the nearest hospital?"),
    ("es", "¿Dónde está el hospital más cercano?"),
    ("en", "I do not understand"),
    ("es", "No entiendo nada"),
]


@pytest.fixture(name="langid", scope="module")
def one_for_all() -> LangId:
    return make({})


def best(scores: dict[str, float]) -> str:
    return max(scores, key=scores.__getitem__)


@pytest.mark.parametrize(("language", "text"), PHRASES)
def test_short_phrases_of_a_pair_are_told_apart(langid, language, text):
    scores = langid.identify(text, ("en", "es"), Unwatched())
    assert best(scores) == language
    assert sum(scores.values()) == pytest.approx(1)


def test_the_answer_has_the_codes_that_were_asked_for(langid):
    scores = langid.identify("Bom dia, tudo bem com você?", ("en-us", "pt-br"), Unwatched())
    assert set(scores) == {"en-us", "pt-br"}
    assert best(scores) == "pt-br"


def test_without_a_restriction_all_languages_are_candidates_again(langid):
    langid.identify("hello", ("en", "es"), Unwatched())
    assert best(langid.identify("Het is vandaag mooi weer in de stad", (), Unwatched())) == "nl"


def test_what_cannot_be_told_is_not_made_up(langid):
    assert langid.identify("", ("en", "es"), Unwatched()) == {}
    assert langid.identify("?!", ("en", "es"), Unwatched()) == {}
    assert langid.identify("hello", ("xx",), Unwatched()) == {}
    assert set(langid.identify("hello", ("en", "xx"), Unwatched())) == {"en"}


def test_it_is_found_by_its_name_and_can_be_restricted_for_good():
    engine = plugins.make(Spec.parse("lid=langid:languages=en+fr"))
    assert engine.about().languages == ("en", "fr")
    assert best(engine.identify("¿Dónde está la estación?", (), Unwatched())) in {"en", "fr"}
    with pytest.raises(ConfigError, match="'zz'"):
        make({"languages": "en+zz"})


def test_it_stops_when_nobody_wants_the_answer(langid):
    with pytest.raises(Stopped):
        langid.identify("hello", (), StopAfter(0))
