"""The requirements of a job: modules and dependencies, directions, the text of a demand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingua_scheduler.errors import InvalidDemand
from lingua_scheduler.jobs.requirement import (
    FEATURES,
    MODULES,
    SERVICES,
    Demand,
    Languages,
    PipelineStages,
    Requirement,
    demand,
    expand_modules,
    require,
)
from lingua_wire.errors import InvalidInput

pytestmark = pytest.mark.unit

CORE = PipelineStages()
NOTHING = PipelineStages(use_asr=False, use_nmt=False, use_tts=False)
LISTEN_ONLY = PipelineStages(use_nmt=False, use_tts=False)
ZH_EN = Languages("zh", "en")

words = st.text(st.characters(codec="ascii", categories=("L", "N")), min_size=1, max_size=5)
codes = st.sampled_from(("zh", "en", "ja", "ko", "pt-BR", "zh-Hant-TW"))
directions = st.one_of(
    st.builds("{}>{}".format, codes, codes), codes.map("*>{}".format), codes.map("{}>".format)
)


def word_lists(items: st.SearchStrategy[str]) -> st.SearchStrategy[tuple[str, ...]]:
    """Lists as a demand holds them: sorted, without repetition."""
    return st.sets(items, max_size=4).map(lambda found: tuple(sorted(found)))


demands = st.builds(
    Demand,
    directions=word_lists(directions),
    services=word_lists(st.sampled_from(SERVICES)),
    features=word_lists(st.sampled_from(tuple(FEATURES))),
    speech=word_lists(codes),
    tenant=st.one_of(st.just(""), words),
    labels=word_lists(words),
    paired=st.one_of(st.just(""), words),
)


# Modules.


def test_core_modules_need_nothing_else() -> None:
    assert expand_modules(frozenset({"asr", "nmt", "tts", "vad"})) == {"asr", "nmt", "tts", "vad"}


def test_no_module_expands_to_none() -> None:
    assert expand_modules(frozenset()) == frozenset()


def test_a_single_module_brings_what_it_needs() -> None:
    assert expand_modules(frozenset({"emotion_detection"})) == {"emotion_detection", "asr"}


def test_speech_rate_control_pulls_detection_recognition_and_speech() -> None:
    expanded = expand_modules(frozenset({"speech_rate_control"}))
    assert expanded == {"speech_rate_control", "speech_rate_detection", "asr", "tts"}


def test_an_unknown_module_is_named_in_the_error() -> None:
    with pytest.raises(InvalidDemand, match="telepathy"):
        expand_modules(frozenset({"asr", "telepathy"}))


@given(st.sets(st.sampled_from(sorted(MODULES))).map(frozenset))
def test_an_expanded_set_is_closed_and_holds_nothing_that_nobody_needs(
    asked: frozenset[str],
) -> None:
    expanded = expand_modules(asked)
    needed = {need for name in expanded for need in MODULES[name].needs}
    assert needed <= expanded
    assert expanded <= asked | needed
    assert asked <= expanded
    assert expand_modules(expanded) == expanded


def test_the_tables_name_only_what_exists() -> None:
    assert {need for module in MODULES.values() for need in module.needs} <= MODULES.keys()
    assert {name for module in MODULES.values() for name in module.services} <= set(SERVICES)
    assert set(FEATURES.values()) <= MODULES.keys()


# Services and features.


@pytest.mark.parametrize(
    ("pipeline", "services"),
    [
        (CORE, {"asr", "nmt", "tts"}),
        (NOTHING, set()),
        (LISTEN_ONLY, {"asr"}),
        (PipelineStages(use_asr=False, use_tts=False), {"nmt"}),
        (PipelineStages(use_asr=False, use_nmt=False), {"tts"}),
        (PipelineStages(use_semantic=True), {"asr", "nmt", "tts", "semantic"}),
        (PipelineStages(use_tone=True), {"asr", "nmt", "tts", "tone"}),
    ],
    ids=["core", "none", "asr", "nmt", "tts", "semantic", "tone"],
)
def test_each_pipeline_flag_asks_for_its_service(
    pipeline: PipelineStages, services: set[str]
) -> None:
    assert pipeline.services() == services
    assert require(pipeline, frozenset()).services == services


@pytest.mark.parametrize(
    ("feature", "services", "features", "models"),
    [
        ("emotion_detection", {"asr"}, {"emotion_detection"}, {"emotion-xlm-r"}),
        ("speaker_identification", {"tone"}, {"speaker_identification"}, {"speaker-id-ecapa"}),
        (
            "voice_style_detection",
            {"tone"},
            {"voice_style_detection", "speaker_identification"},
            {"vc-model-v1", "speaker-id-ecapa"},
        ),
        ("speech_rate_detection", {"asr"}, {"speech_rate_detection"}, {"sr-d-v1"}),
        (
            "speech_rate_control",
            {"asr", "tts"},
            {"speech_rate_control", "speech_rate_detection"},
            {"tts-vocoder-v1", "sr-d-v1"},
        ),
        ("persona_adaptation", {"asr"}, {"persona_adaptation"}, {"persona-style-transformer"}),
    ],
)
def test_a_feature_asks_for_what_its_expanded_modules_need(
    feature: str, services: set[str], features: set[str], models: set[str]
) -> None:
    needed = require(NOTHING, frozenset({feature}))
    assert needed == Requirement(frozenset(services), frozenset(features), frozenset(models))


def test_every_feature_of_the_wire_was_shown_above() -> None:
    assert len(FEATURES) == 6


def test_voice_style_detection_requires_tone_through_the_expanded_set() -> None:
    assert require(CORE, frozenset({"voice_style_detection"})).services == {
        "asr", "nmt", "tts", "tone",
    }  # fmt: skip


def test_a_feature_brings_back_a_service_the_pipeline_left_out() -> None:
    needed = require(PipelineStages(use_tts=False), frozenset({"speech_rate_control"}))
    assert "tts" in needed.services


def test_features_add_up() -> None:
    both = require(NOTHING, frozenset({"emotion_detection", "speaker_identification"}))
    assert both.services == {"asr", "tone"}
    assert both.features == {"emotion_detection", "speaker_identification"}


def test_unknown_features_are_all_named_in_the_error() -> None:
    with pytest.raises(InvalidDemand, match="mind_reading, telepathy"):
        require(CORE, frozenset({"telepathy", "emotion_detection", "mind_reading"}))


def test_a_module_that_is_no_feature_cannot_be_asked_for_as_one() -> None:
    with pytest.raises(InvalidDemand, match="voice_cloning"):
        require(CORE, frozenset({"voice_cloning"}))


# Languages.


@pytest.mark.parametrize(
    ("languages", "translated", "expected"),
    [
        (ZH_EN, True, ("zh>en",)),
        (ZH_EN, False, ("zh>",)),
        (Languages("auto", "en"), True, ("*>en",)),
        (Languages("auto", "en"), False, ("*>",)),
        (Languages("auto", "en", auto=("zh", "ja")), True, ("ja>en", "zh>en")),
        (Languages("auto", "en", auto=("zh", "ja")), False, ("ja>", "zh>")),
        (Languages("auto", "en", auto=("zh", "zh")), True, ("zh>en",)),
        (Languages("auto", "en", two_way=("zh", "en")), True, ("zh>en", "en>zh")),
        (Languages("zh", "en", two_way=("zh", "en")), True, ("zh>en", "en>zh")),
        (Languages("auto", "en", two_way=("zh", "en")), False, ("zh>", "en>")),
        (Languages("auto", "en", auto=("en",)), True, ("en>",)),
        (Languages("AUTO", "EN", auto=("ZH", "en")), True, ("en>", "zh>en")),
    ],
    ids=[
        "one direction",
        "heard but not translated",
        "any source",
        "any source, not translated",
        "every source of auto_langs",
        "every source, not translated",
        "a source given twice",
        "two ways",
        "two ways with a known source",
        "two ways, not translated",
        "only the target itself",
        "the target among others, in capitals",
    ],
)
def test_languages_become_directions(
    languages: Languages, translated: bool, expected: tuple[str, ...]
) -> None:
    assert languages.directions(translated=translated) == expected


def test_the_two_directions_of_a_pair_are_different_demands() -> None:
    there = demand(ZH_EN, CORE)
    back = demand(Languages("en", "zh"), CORE)
    assert there.text != back.text


@pytest.mark.parametrize(
    "languages",
    [
        Languages("zh>ja", "en"),
        Languages("zh", "auto"),
        Languages("zh", "en|acme"),
        Languages("auto", "en", auto=("zh", "auto")),
        Languages("auto", "en", two_way=("zh", "auto")),
        Languages("auto", "en", two_way=("", "en")),
    ],
    ids=["source", "target", "separator", "one of auto_langs", "one way", "the other way"],
)
def test_a_translation_between_what_are_no_languages_is_refused(languages: Languages) -> None:
    for pipeline in (CORE, PipelineStages(use_nmt=False)):
        with pytest.raises(InvalidInput):
            demand(languages, pipeline)


@pytest.mark.parametrize("part", ["acme|x", "a,b", "a b", "x" * 129])
def test_no_part_of_a_demand_can_be_read_as_the_next(part: str) -> None:
    """A target `en|acme` once asked in the name of a tenant."""
    for field in ("tenant", "paired"):
        with pytest.raises(InvalidDemand):
            demand(ZH_EN, CORE, **{field: part})
    with pytest.raises(InvalidDemand):
        demand(ZH_EN, CORE, labels=(part,))


def test_results_are_spoken_in_the_target_or_in_both_languages() -> None:
    assert ZH_EN.spoken() == ("en",)
    assert Languages("auto", "en", two_way=("zh", "en")).spoken() == ("zh", "en")


# Demands.


def test_a_demand_says_everything_a_node_must_have() -> None:
    asked = demand(
        ZH_EN,
        CORE,
        frozenset({"voice_style_detection"}),
        tenant="acme",
        labels=("p2", "p1"),
        paired="node-1",
    )
    assert asked.text == (
        "zh>en|asr,nmt,tone,tts|speaker_identification,voice_style_detection|en|acme|p1,p2|node-1"
    )


def test_languages_to_speak_are_asked_for_only_with_speech() -> None:
    assert demand(ZH_EN, CORE).speech == ("en",)
    assert demand(ZH_EN, PipelineStages(use_tts=False)).speech == ()
    assert demand(Languages("auto", "en", two_way=("zh", "en")), CORE).speech == ("en", "zh")


def test_speech_that_only_a_feature_needs_still_names_its_language() -> None:
    asked = demand(ZH_EN, PipelineStages(use_tts=False), frozenset({"speech_rate_control"}))
    assert asked.speech == ("en",)


def test_recognition_alone_asks_for_no_target() -> None:
    assert demand(ZH_EN, LISTEN_ONLY).text == "zh>|asr|||||"


def test_the_text_does_not_depend_on_the_order_of_lists() -> None:
    one = Demand(("b>c", "a>c"), ("tts", "asr"), speech=("zh", "en"), labels=("q", "p"))
    other = Demand(("a>c", "b>c"), ("asr", "tts"), speech=("en", "zh"), labels=("p", "q"))
    assert one.text == other.text == "a>c,b>c|asr,tts||en,zh||p,q|"


def test_auto_langs_in_any_order_are_one_demand() -> None:
    one = demand(Languages("auto", "en", auto=("zh", "ja")), CORE)
    other = demand(Languages("auto", "en", auto=("ja", "zh")), CORE)
    assert one == other


def test_the_empty_demand_is_read_back() -> None:
    assert Demand.parse("||||||") == Demand(())


@pytest.mark.parametrize("text", ["", "zh>en", "a>b|||||||x"])
def test_a_text_with_another_number_of_parts_is_not_read(text: str) -> None:
    with pytest.raises(ValueError, match="values to unpack"):
        Demand.parse(text)


@given(demands)
def test_a_demand_is_read_back_from_its_text(asked: Demand) -> None:
    read = Demand.parse(asked.text)
    assert read == asked
    assert read.text == asked.text
