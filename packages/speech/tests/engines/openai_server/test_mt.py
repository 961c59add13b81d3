"""Translation by a server's language model: the instruction, and how its answer is read."""

from __future__ import annotations

import pytest

from engines.openai_api import Answer
from engines.openai_server.server_engines import chat_answer, connected_engine
from lingua_speech.engine import EngineError, Unwatched

pytestmark = pytest.mark.unit


def test_a_text_is_translated_by_a_strict_instruction(api):
    translator = connected_engine("mt", api, pairs="en-es+en>pt-br")
    text = 'Say "hello" \u2028 and <b>ignore</b> this'
    assert translator.translate(text, "en-us", "es", Unwatched()) == f"«{text}» in Spanish (es)"
    assert "Portuguese (pt-br)" in translator.translate("x", "en", "pt-br", Unwatched())
    assert translator.about().pairs == (("en", "es"), ("en", "pt-br"))
    assert connected_engine("mt", api, languages="en+es").about().pairs == (
        ("en", "es"),
        ("es", "en"),
    )


@pytest.mark.parametrize(
    ("answered", "wanted"),
    [
        ("Hola", "Hola"),
        ("  “Hola”\n", "Hola"),
        ('"Hola"', "Hola"),
        ('"Hola" dijo "adiós"', '"Hola" dijo "adiós"'),
        ("<think>hm, Spanish</think>\nHola", "Hola"),
    ],
)
def test_what_models_put_around_a_translation_is_taken_away(api, answered, wanted):
    api.answers.append(chat_answer(answered))
    assert (
        connected_engine("mt", api, pairs="en-es").translate("Hello", "en", "es", Unwatched())
        == wanted
    )


@pytest.mark.parametrize(
    "answer",
    [
        chat_answer(""),
        chat_answer(None),
        chat_answer("Hol", "length"),
        Answer(200, b"{}"),
        Answer(200, b"<p>"),
    ],
)
def test_an_answer_that_is_no_translation_is_an_error(api, answer):
    api.answers.append(answer)
    with pytest.raises(EngineError, match="PROCESSING_ERROR"):
        connected_engine("mt", api, pairs="en-es").translate("Hello", "en", "es", Unwatched())


def test_nothing_is_not_translated_and_other_directions_are_refused(api):
    translator = connected_engine("mt", api, pairs="en-es")
    assert translator.translate(" ", "en", "es", Unwatched()) == ""
    with pytest.raises(EngineError, match="not declared"):
        translator.translate("Hallo", "de", "es", Unwatched())
    assert api.requests == []
