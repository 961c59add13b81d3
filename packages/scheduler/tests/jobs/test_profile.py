"""The profile of a session: bounds, one form of codes, changes, and its demand on nodes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lingua_scheduler.errors import InvalidDemand
from lingua_scheduler.jobs.profile import (
    FULL_PIPELINE,
    LANE_CHARS_MAX,
    TARGETS_MAX,
    Profile,
    Target,
    source_of,
    targets_of,
)
from lingua_scheduler.jobs.requirement import Demand
from lingua_scheduler.session.audio import AudioFormat
from lingua_scheduler.state.records import JobSpec
from lingua_wire.errors import InvalidInput, InvalidLanguage, InvalidMessage
from lingua_wire.from_client import SessionInit, SessionUpdate, Utterance
from lingua_wire.shared import FeatureFlags, PipelineConfig, Term
from runtime.stand_ins import profile_of

pytestmark = pytest.mark.unit

TWO_WAY = {"src_lang": "auto", "mode": "two_way_auto", "lang_a": "zh", "lang_b": "en"}
# The longest code there may be, twice with another beginning.
LONG_A, LONG_B = ("abcdefgh-12345678-12345678-12345678", "hgfedcba-12345678-12345678-12345678")
TRANSCRIPT_ONLY = PipelineConfig(use_asr=True, use_nmt=False, use_tts=False)
SIXTEEN = tuple(f"a{letter}" for letter in "abcdefghijklmnop")


def utterance(**given: Any) -> Utterance:
    plain: dict[str, Any] = {
        "src_lang": "zh",
        "tgt_lang": "en",
        "audio_format": "opus",
        "sample_rate": 16_000,
    }
    return Utterance(session_id="s1", utterance_index=0, audio=b"x", **(plain | given))


def update(**given: Any) -> SessionUpdate:
    return SessionUpdate(session_id="s1", **given)


def demanded(profile: Profile, target: str) -> Demand:
    return Demand.parse(profile.demand_of(target))


# session_init.


def test_an_old_clients_init_means_opus_at_16000_and_the_full_pipeline() -> None:
    profile = profile_of()
    assert profile.audio == AudioFormat("opus", 16_000)
    assert profile.pipeline == FULL_PIPELINE
    assert (profile.streaming, profile.partial_ms) == (True, 1000)
    assert (profile.source, profile.targets) == ("zh", ("en",))


def test_what_the_init_says_is_kept() -> None:
    features = FeatureFlags(emotion_detection=True)
    profile = profile_of(
        audio_format="pcm16",
        sample_rate=8000,
        dialect="wu",
        features=features,
        pipeline=TRANSCRIPT_ONLY,
        enable_streaming_asr=False,
        partial_update_interval_ms=250,
    )
    assert profile.audio == AudioFormat("pcm16", 8000)
    assert (profile.dialect, profile.features) == ("wu", features)
    assert (profile.streaming, profile.partial_ms) == (False, 250)
    assert profile.pipeline is TRANSCRIPT_ONLY


def test_codes_are_kept_in_one_form() -> None:
    profile = profile_of(src_lang="ZH_cn", tgt_langs=("EN_us", "en-US", "De"))
    assert profile.source == "zh-cn"
    assert profile.targets == ("en-us", "de")


def test_several_targets_win_over_one_and_keep_their_order() -> None:
    assert profile_of(tgt_lang="fr", tgt_langs=("de", "en", "de")).targets == ("de", "en")


def test_an_empty_list_of_targets_is_none() -> None:
    assert profile_of(tgt_lang="fr", tgt_langs=()).targets == ("fr",)


def test_sixteen_targets_are_taken_and_seventeen_are_not() -> None:
    assert len(SIXTEEN) == TARGETS_MAX
    assert profile_of(tgt_langs=SIXTEEN).targets == SIXTEEN
    with pytest.raises(InvalidMessage, match="at most 16 target languages, got 17"):
        profile_of(tgt_langs=(*SIXTEEN, "zz"))


def test_the_same_target_many_times_counts_once() -> None:
    assert profile_of(tgt_langs=("en",) * 100).targets == ("en",)


@pytest.mark.parametrize(
    "given",
    [
        {"tgt_lang": ""},
        {"tgt_lang": "auto"},
        {"tgt_langs": ("en", "")},
        {"tgt_lang": "english!"},
        {"src_lang": ""},
        {"src_lang": "auto", "auto_langs": ("zh", "?")},
        {"mode": "two_way_auto", "lang_a": "zh"},
        {"mode": "two_way_auto", "lang_b": "zh"},
        {"mode": "two_way_auto", "lang_a": "zh", "lang_b": "auto"},
    ],
    ids=str,
)
def test_a_code_that_is_none_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidLanguage):
        profile_of(**given)


@pytest.mark.parametrize("given", [{"audio_format": "mp3"}, {"sample_rate": 7999}], ids=str)
def test_audio_that_cannot_be_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        profile_of(**given)


def test_the_spoken_language_may_be_left_open() -> None:
    assert source_of("AUTO") == "auto"
    assert demanded(profile_of(src_lang="Auto"), "en").directions == ("*>en",)
    several = profile_of(src_lang="auto", auto_langs=("zh", "JA"))
    assert several.auto_langs == ("zh", "ja")
    assert demanded(several, "en").directions == ("ja>en", "zh>en")


# Both ways.


def test_a_two_way_session_has_one_job_that_carries_both_languages() -> None:
    profile = profile_of(**TWO_WAY)
    assert profile.source == "auto"
    assert profile.two_way == ("zh", "en")
    assert profile.own_targets() == (Target("en~zh", "en"),)
    assert set(demanded(profile, "en").directions) == {"zh>en", "en>zh"}
    assert set(demanded(profile, "en").speech) == {"zh", "en"}


def test_a_two_way_lane_does_not_depend_on_the_order_of_its_languages() -> None:
    swapped = profile_of(**(TWO_WAY | {"lang_a": "en", "lang_b": "zh"}))
    assert swapped.own_targets()[0].lane == profile_of(**TWO_WAY).own_targets()[0].lane


def test_without_a_target_a_two_way_session_goes_into_its_second_language() -> None:
    assert profile_of(**TWO_WAY, tgt_lang="").targets == ("en",)
    assert profile_of(**TWO_WAY, tgt_lang="zh").targets == ("zh",)


def test_two_codes_too_long_for_one_lane_are_refused() -> None:
    with pytest.raises(InvalidMessage, match="too long for one lane"):
        profile_of(**(TWO_WAY | {"lang_a": LONG_A, "lang_b": LONG_B}))


def test_a_two_way_lane_is_always_one_the_store_takes() -> None:
    fitting = LONG_B[: LANE_CHARS_MAX - 1 - len(LONG_A)].rstrip("-")
    profile = profile_of(**(TWO_WAY | {"lang_a": LONG_A, "lang_b": fitting}))
    lane = profile.own_targets()[0].lane
    assert len(lane) == LANE_CHARS_MAX
    assert JobSpec(session="s1", index=0, lane=lane, demand="").lane == lane


# One whole utterance.


@pytest.mark.parametrize("init", [{}, {"tgt_langs": ("en", "de")}], ids=["one", "several"])
def test_an_utterance_that_says_nothing_new_has_the_sessions_own_profile(
    init: dict[str, Any],
) -> None:
    profile = profile_of(**init)
    assert profile.for_utterance(utterance()) is profile


def test_the_same_languages_written_otherwise_keep_all_targets() -> None:
    profile = profile_of(tgt_langs=("en", "de"))
    assert profile.for_utterance(utterance(src_lang="ZH", tgt_lang="EN")) == profile


def test_the_languages_of_an_utterance_win() -> None:
    profile = profile_of(tgt_langs=("en", "de"))
    own = profile.for_utterance(utterance(src_lang="ja", tgt_lang="de"))
    assert (own.source, own.targets) == ("ja", ("de",))
    assert (profile.source, profile.targets) == ("zh", ("en", "de"))


def test_stages_and_audio_of_an_utterance_hold_for_it_alone() -> None:
    profile = profile_of(dialect="wu", tgt_langs=("en", "de"))
    features = FeatureFlags(speaker_identification=True)
    own = profile.for_utterance(
        utterance(
            audio_format="pcm16", sample_rate=48_000, pipeline=TRANSCRIPT_ONLY, features=features
        )
    )
    assert own.audio == AudioFormat("pcm16", 48_000)
    assert (own.pipeline, own.features, own.dialect) == (TRANSCRIPT_ONLY, features, "wu")
    assert own.targets == ("en", "de")
    assert profile.for_utterance(utterance(dialect="min")).dialect == "min"
    assert (profile.pipeline, profile.features, profile.dialect) == (FULL_PIPELINE, None, "wu")


def test_an_utterance_does_not_change_the_languages_of_a_two_way_session() -> None:
    profile = profile_of(**TWO_WAY)
    assert profile.for_utterance(utterance(src_lang="en", tgt_lang="en")) is profile
    own = profile.for_utterance(utterance(src_lang="en", tgt_lang="fr"))
    assert (own.source, own.targets, own.two_way) == ("auto", ("en",), ("zh", "en"))


def test_an_utterance_in_no_language_is_refused() -> None:
    with pytest.raises(InvalidLanguage):
        profile_of().for_utterance(utterance(tgt_lang="auto"))


# Changes.


def test_a_change_is_a_new_profile() -> None:
    profile = profile_of(dialect="wu")
    changed = profile.changed(update(src_lang="JA", tgt_langs=("de", "fr")))
    assert (changed.source, changed.targets, changed.dialect) == ("ja", ("de", "fr"), "wu")
    assert (profile.source, profile.targets) == ("zh", ("en",))


@pytest.mark.parametrize(
    ("given", "source", "targets"),
    [
        ({"src_lang": "auto"}, "auto", ("en",)),
        ({"tgt_lang": "de"}, "zh", ("de",)),
        ({"tgt_lang": "de", "tgt_langs": ("fr", "it")}, "zh", ("fr", "it")),
        ({"preferred_lang": "de"}, "zh", ("en",)),
    ],
    ids=str,
)
def test_what_a_change_leaves_out_stays(
    given: dict[str, Any], source: str, targets: tuple[str, ...]
) -> None:
    changed = profile_of().changed(update(**given))
    assert (changed.source, changed.targets) == (source, targets)


@pytest.mark.parametrize("given", [{"src_lang": "?"}, {"tgt_langs": ("en", "auto")}], ids=str)
def test_a_change_into_no_language_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidLanguage):
        profile_of().changed(update(**given))


def test_a_change_has_no_more_targets_than_an_init() -> None:
    with pytest.raises(InvalidMessage, match="at most 16"):
        profile_of().changed(update(tgt_langs=(*SIXTEEN, "zz")))


def test_the_languages_of_a_two_way_session_do_not_change() -> None:
    with pytest.raises(InvalidMessage, match="two_way_auto"):
        profile_of(**TWO_WAY).changed(update(tgt_lang="zh"))


# What it asks of nodes.


def test_a_demand_carries_languages_stages_features_and_who_asks() -> None:
    init = SessionInit(
        src_lang="zh", tgt_lang="en", features=FeatureFlags(speaker_identification=True)
    )
    profile = Profile.of(init, tenant="acme", labels=("p1",), paired="node-a")
    assert demanded(profile, "en") == Demand(
        directions=("zh>en",),
        services=("asr", "nmt", "tone", "tts"),
        features=("speaker_identification",),
        speech=("en",),
        tenant="acme",
        labels=("p1",),
        paired="node-a",
    )


def test_a_name_that_would_forge_a_demand_is_refused() -> None:
    init = SessionInit(src_lang="zh", tgt_lang="en")
    with pytest.raises(InvalidDemand):
        Profile.of(init, tenant="acme|p2", labels=(), paired="")


def test_a_demand_is_worked_out_once() -> None:
    profile = profile_of(tgt_langs=("en", "de"))
    assert set(profile.demands) == {"en", "de"}
    assert profile.demand_of("fr") is profile.demand_of("fr")
    assert set(profile.demands) == {"en", "de", "fr"}


def test_profiles_do_not_share_their_demands() -> None:
    profile = profile_of()
    other = profile.for_utterance(utterance(src_lang="ja"))
    assert demanded(other, "en").directions == ("ja>en",)
    assert demanded(profile, "en").directions == ("zh>en",)
    profile.demand_of("fr")
    assert "fr" not in other.demands
    assert "fr" not in profile_of().demands
    assert "fr" not in profile.changed(update(src_lang="ko")).demands


def test_a_profile_cannot_be_changed_in_place() -> None:
    with pytest.raises(AttributeError):
        profile_of().source = "en"  # type: ignore[misc]
    assert isinstance(profile_of(), msgspec.Struct)


def test_a_speaker_alone_has_one_job_for_each_target() -> None:
    profile = profile_of(tgt_langs=("en", "de"))
    assert profile.own_targets() == (Target("en", "en"), Target("de", "de"))
    assert all(target.audience == "" for target in profile.own_targets())
    assert targets_of("en", None, None) == ("en",)


# Its glossary.


def test_a_glossary_is_cut_to_each_language_once_and_survives_changes() -> None:
    bus = Term(term="bus", translations={"en": "coach", "es": "autobús"})
    init = SessionInit(src_lang="zh", tgt_lang="en")
    profile = Profile.of(init, tenant="", labels=(), paired="", glossary=(bus,))
    told = profile.terms_of("en")
    assert told == (Term(term="bus", translations={"en": "coach"}),)
    assert profile.terms_of("en") is told
    changed = profile.changed(update(tgt_lang="es"))
    assert changed.terms_of("es") == (Term(term="bus", translations={"es": "autobús"}),)


def test_with_two_ways_a_glossary_is_for_both_until_it_is_a_room() -> None:
    bus = Term(term="bus", translations={"en": "coach", "zh": "巴士"})
    init = SessionInit(**TWO_WAY)
    profile = Profile.of(init, tenant="", labels=(), paired="", glossary=(bus,))
    assert profile.terms_of("en") == (bus,)
    assert profile.in_room().terms_of("en") == (Term(term="bus", translations={"en": "coach"}),)


def test_without_a_glossary_there_is_nothing_to_tell() -> None:
    assert profile_of().glossary == ()
