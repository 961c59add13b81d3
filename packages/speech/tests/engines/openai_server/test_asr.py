"""Recognition by a server: the form that is sent, and how its answer is read."""

from __future__ import annotations

import pytest

from engines.openai_server.server_engines import ONE_SECOND, connected_engine, recognise
from lingua_speech.engine import Hint, Sound, Unwatched

pytestmark = pytest.mark.unit


def test_a_recording_is_sent_as_a_form_and_its_text_comes_back(api):
    recogniser = connected_engine("asr", api, languages="en+es")
    heard = recognise(recogniser, language="es-mx", context="we were talking")
    assert (heard.text, heard.language) == ("Buenos días.", "es-mx")
    assert heard.confidence == pytest.approx(0.7788, abs=1e-3)
    (path, fields), *more = api.requests
    assert not more
    assert path == "/audio/transcriptions"
    assert fields.pop("file")[44:] == ONE_SECOND.pcm
    assert fields == {
        "model": "whisper-1",
        "language": "es",
        "prompt": "we were talking",
        "response_format": "verbose_json",
        "temperature": "0",
    }


@pytest.mark.parametrize("spoken", ["spanish", "es", "Spanish", "es-ES"])
def test_the_language_is_what_the_server_says_in_whatever_way(api, spoken):
    api.language = spoken
    assert (
        recognise(connected_engine("asr", api, languages="en+es"), allowed=("en", "es-mx")).language
        == "es-mx"
    )
    assert "language" not in api.requests[0][1]


def test_a_language_that_nobody_knows_is_left_open(api):
    api.language = "elvish tongue"
    assert (
        recognise(connected_engine("asr", api, languages="en+es"), allowed=("en", "es")).language
        == ""
    )


def test_a_server_without_the_full_form_of_answer_is_asked_for_the_short_one(api):
    api.has_verbose = False
    recogniser = connected_engine("asr", api, languages="es")
    assert recognise(recogniser, language="es").text == "Buenos días."
    assert recognise(recogniser).language == ""
    forms = [fields["response_format"] for _, fields in api.requests]
    assert forms == ["verbose_json", "json", "json"]


def test_a_translation_is_asked_for_where_the_operator_declared_it(api):
    recogniser = connected_engine("asr", api, languages="en+es", pairs="es-en")
    assert recogniser.about().pairs == (("es", "en"),)
    assert recognise(recogniser, language="es", translate_to="en").translation == "Good day."
    assert [path for path, _ in api.requests] == ["/audio/transcriptions", "/audio/translations"]
    assert (
        recognise(
            connected_engine("asr", api, languages="es"), language="es", translate_to="en"
        ).translation
        == ""
    )


def test_no_sound_is_not_sent(api):
    recogniser = connected_engine("asr", api, languages="es")
    assert recogniser.recognise(Sound(b"", 16_000), Hint(), Unwatched()).text == ""
    assert api.requests == []


def test_a_region_is_translated_where_its_language_was_declared(api):
    recogniser = connected_engine("asr", api, languages="es-mx", pairs="es-en")
    assert recognise(recogniser, language="es-mx", translate_to="en").translation == "Good day."
