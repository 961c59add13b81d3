"""The combined abilities of engines, from what each reports about itself."""

from __future__ import annotations

import pytest

from lingua_speech.abilities import Abilities, LoadedEngine
from lingua_speech.engine import About, Role

pytestmark = pytest.mark.unit


def abilities(**roles: list[About]) -> Abilities:
    named: dict[Role, list[LoadedEngine]] = {}
    for role, abouts in roles.items():
        kind: Role = role  # type: ignore[assignment]
        named[kind] = [LoadedEngine(number, about, kind) for number, about in enumerate(abouts)]
    return Abilities(dict(named))


WHISPER = About(
    engine="whisper",
    version="1",
    model="base",
    languages=("en", "es", "fr", "zh"),
    pairs=(("es", "en"), ("fr", "en"), ("zh", "en")),
)
APERTIUM = About(engine="apertium", pairs=(("en", "es"), ("es", "en"), ("fr", "es"), ("ca", "es")))
PICO = About(engine="pico", languages=("en", "es"))
ESPEAK = About(engine="espeak", languages=("es", "fr"))
WHOLE = abilities(asr=[WHISPER], mt=[APERTIUM], tts=[PICO, ESPEAK])


def test_pairs_are_what_can_be_heard_and_translated_and_each_language_into_itself() -> None:
    assert set(WHOLE.pairs()) == {
        "en>en",
        "es>es",
        "fr>fr",
        "zh>zh",
        "en>es",
        "es>en",
        "fr>es",
        "fr>en",
        "zh>en",
    }


def test_the_first_engine_that_has_a_language_does_it() -> None:
    voices = {code: WHOLE.voice(code) for code in ("en", "es", "es-mx", "fr", "de")}
    names = {code: found and (found[0].about.engine, found[1]) for code, found in voices.items()}
    assert names == {
        "en": ("pico", "en"),
        "es": ("pico", "es"),
        "es-mx": ("pico", "es"),
        "fr": ("espeak", "fr"),
        "de": None,
    }
    assert WHOLE.spoken_languages() == ("en", "es", "fr")


def test_a_region_is_served_by_who_serves_the_language_and_not_the_other_way_round() -> None:
    route = WHOLE.route("en-us", "es-mx")
    assert route is not None
    assert (route.source, route.target) == ("en", "es")
    brazilian = abilities(asr=[WHISPER], mt=[About(engine="x", pairs=(("en", "pt-br"),))])
    assert brazilian.route("en", "pt-br") is not None
    assert brazilian.route("en", "pt") is None


def test_the_recogniser_that_knows_most_of_the_languages_is_chosen() -> None:
    light = About(engine="light", languages=("en",))
    both = abilities(asr=[light, WHISPER])
    chosen = [both.recogniser(codes) for codes in (("en",), ("en", "es"), ("fr",), (), ("xx",))]
    assert [one and one.about.engine for one in chosen] == [
        "light",
        "whisper",
        "whisper",
        "light",
        None,
    ]


def test_a_recogniser_that_translates_alone_is_a_translation_service_too() -> None:
    alone = abilities(asr=[WHISPER])
    assert [(one.type, one.service_id) for one in alone.services()] == [
        ("asr", "whisper-base"),
        ("nmt", "whisper-base"),
    ]
    assert "es>en" in alone.pairs()
    assert alone.translates
    deaf_to_others = abilities(asr=[About(engine="light", languages=("en",))])
    assert not deaf_to_others.translates
    assert [one.type for one in deaf_to_others.services()] == ["asr"]


def test_engines_for_any_language_declare_what_the_others_bound() -> None:
    server = About(engine="server")
    heard_any = abilities(asr=[server], mt=[APERTIUM])
    assert "ca>es" in heard_any.pairs()
    assert abilities(asr=[server], mt=[server]).pairs() == ()
    translated_any = abilities(asr=[WHISPER], mt=[server], tts=[PICO])
    assert {"en>zh", "zh>fr", "en>en"} <= set(translated_any.pairs())
    assert translated_any.serves("zh", "fr")


def test_all_who_speak_a_language_are_known_the_preferred_one_first() -> None:
    names = [engine.about.engine for engine, _ in WHOLE.voices("es-mx")]
    assert names == ["pico", "espeak"]
    assert WHOLE.voices("xx") == ()


def test_services_and_models_name_engines_and_versions() -> None:
    services = {one.service_id: one for one in WHOLE.services()}
    assert set(services) == {"whisper-base", "apertium", "pico", "espeak"}
    whisper = services["whisper-base"]
    assert (whisper.type, whisper.engine, whisper.model_id, whisper.version) == (
        "asr",
        "whisper",
        "base",
        "1",
    )
    kinds = {model.model_id: model.kind for model in WHOLE.models()}
    assert kinds["apertium"] == "nmt"


def test_the_languages_from_which_a_target_is_reached_are_known() -> None:
    assert set(WHOLE.sources("es")) == {"en", "es", "fr"}
    assert set(WHOLE.sources("en")) == {"en", "es", "fr", "zh"}
    assert WHOLE.sources("de") == ()
