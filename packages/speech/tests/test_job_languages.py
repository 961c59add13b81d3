"""The languages of a job, before recognition."""

from __future__ import annotations

import pytest

from engine_node import JobSource
from lingua_node import JobFailed
from lingua_scheduler.session.group import GroupTracker
from lingua_speech.abilities import Abilities, LoadedEngine
from lingua_speech.engine import About
from lingua_speech.job_languages import languages_of, previous_speech
from lingua_wire.codes import RETRYABLE_NODE_ERRORS
from lingua_wire.shared import PipelineConfig

pytestmark = pytest.mark.unit

RECOGNISER = About(engine="scribe", languages=("en", "es", "fr"), pairs=(("fr", "en"),))
TRANSLATOR = About(engine="marker", pairs=(("en", "es"), ("es", "en")))
CAN = Abilities(
    {"asr": [LoadedEngine(0, RECOGNISER, "asr")], "mt": [LoadedEngine(0, TRANSLATOR, "mt")]}
)
HEARD_ONLY = PipelineConfig(use_asr=True, use_nmt=False, use_tts=False)


def test_a_known_language_is_what_it_is() -> None:
    languages = languages_of(JobSource().job(), CAN)
    assert (languages.language, languages.candidates, languages.target_of("en")) == (
        "en",
        ("en",),
        "es",
    )


def test_two_ways_may_be_either_and_go_into_the_other() -> None:
    job = JobSource().job(src_lang="auto", mode="two_way_auto", lang_a="en-us", lang_b="es")
    languages = languages_of(job, CAN)
    assert (languages.language, languages.allowed) == ("", ("en-us", "es"))
    assert (languages.target_of("en"), languages.target_of("es")) == ("es", "en-us")
    assert [languages.allows(code) for code in ("en", "en-us", "es-mx", "fr")] == [True] * 3 + [
        False
    ]


def test_an_unknown_language_is_looked_for_among_those_that_help() -> None:
    into_english = languages_of(JobSource().job(src_lang="auto", tgt_lang="en"), CAN)
    assert set(into_english.allowed) == {"en", "es", "fr"}
    into_spanish = languages_of(JobSource().job(src_lang="auto", tgt_lang="es"), CAN)
    assert set(into_spanish.allowed) == {"en", "es"}
    only = languages_of(JobSource().job(src_lang="auto", auto_langs=("en", "de")), CAN)
    assert (only.language, only.allowed) == ("en", ())
    unread = languages_of(JobSource().job(src_lang="auto", tgt_lang="ja", pipeline=HEARD_ONLY), CAN)
    assert set(unread.allowed) == {"en", "es", "fr"}


@pytest.mark.parametrize(
    "fields",
    [
        {"src_lang": "de"},
        {"src_lang": "fr", "tgt_lang": "es"},
        {"src_lang": "auto", "auto_langs": ("de", "ja")},
        {"src_lang": "auto", "tgt_lang": "ja"},
        {"mode": "two_way_auto", "lang_a": "en", "lang_b": "fr"},
    ],
)
def test_what_is_not_served_is_for_another_node(fields: dict[str, object]) -> None:
    with pytest.raises(JobFailed) as failed:
        languages_of(JobSource().job(**fields), CAN)
    assert failed.value.code == "MODEL_NOT_AVAILABLE"
    assert failed.value.details is None


def test_a_job_without_recognition_is_for_nobody() -> None:
    flags = PipelineConfig(use_asr=False, use_nmt=True, use_tts=True)
    with pytest.raises(JobFailed) as failed:
        languages_of(JobSource().job(pipeline=flags), CAN)
    assert failed.value.code not in RETRYABLE_NODE_ERRORS


def test_of_a_sessions_context_only_what_was_said_is_taken() -> None:
    groups = GroupTracker("s")
    groups.result("hello there", "hola", 0)
    groups.result("good bye", "", 1)
    assert previous_speech(groups.context_text()) == "hello there\ngood bye"
    assert previous_speech(None) == ""


def test_a_hint_that_a_client_gave_is_context_as_it_is() -> None:
    assert previous_speech("Names: Ana,\nBenito") == "Names: Ana,\nBenito"
