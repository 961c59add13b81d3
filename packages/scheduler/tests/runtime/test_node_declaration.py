"""What nodes declare, in every form of the protocol, and what placement makes of it."""

from __future__ import annotations

from typing import Any

import pytest

from lingua_scheduler.nodes.capability import Capability, capability
from lingua_scheduler.runtime.node_declaration import NodeDeclaration, declared, ready_services
from lingua_wire.from_node import NodeHeartbeat, NodeRegister
from lingua_wire.shared import (
    CapabilityByType,
    FeatureFlags,
    InstalledModel,
    InstalledService,
    LanguageCapabilities,
    LanguagePair,
    NmtCapability,
    ResourceUsage,
)

pytestmark = pytest.mark.unit

SERVICES = tuple(
    InstalledService(service_id=f"{kind}-1", type=kind) for kind in ("asr", "nmt", "tts")
)


def declaration(**register: Any) -> NodeDeclaration:
    given = {"installed_services": SERVICES} | register
    return NodeDeclaration.of_registration(NodeRegister(**given))


def speaking(**languages: Any) -> NodeDeclaration:
    return declaration(language_capabilities=LanguageCapabilities(**languages))


def beat(**given: Any) -> NodeHeartbeat:
    usage = ResourceUsage(cpu_percent=1, mem_percent=1)
    return NodeHeartbeat(node_id="n", resource_usage=usage, **given)


def served(what: NodeDeclaration, tenant: str = "") -> Capability:
    return capability(declared(what, tenant=tenant))


def service(kind: Any, name: str = "", status: Any = "running") -> InstalledService:
    return InstalledService(service_id=name or f"{kind}-1", type=kind, status=status)


def entry(kind: Any, *, ready: bool = True, ids: tuple[str, ...] | None = None) -> CapabilityByType:
    return CapabilityByType(type=kind, ready=ready, ready_impl_ids=ids)


def model(source: str | None, target: str | None, **more: Any) -> InstalledModel:
    kind = more.pop("kind", "nmt")
    return InstalledModel(model_id="m", kind=kind, src_lang=source, tgt_lang=target, **more)


# Languages.


def test_a_node_that_names_no_language_serves_any() -> None:
    assert served(declaration()).serves_any
    assert served(speaking()).serves_any


def test_explicit_pairs_win_over_everything_else() -> None:
    can = served(
        speaking(
            supported_language_pairs=(LanguagePair(src="zh", tgt="en"),),
            asr_languages=("ja",),
            semantic_languages=("ko",),
            nmt_capabilities=(NmtCapability(tgt_langs=("de",)),),
        )
    )
    assert can.pairs == ("zh>en",)
    assert (can.sources, can.targets) == (None, None)


def test_pairs_of_a_translation_model_are_pairs_of_the_node() -> None:
    pairs = (LanguagePair(src="zh", tgt="en"), LanguagePair(src="en", tgt="zh"))
    can = served(
        speaking(nmt_capabilities=(NmtCapability(supported_pairs=pairs),), asr_languages=("zh",))
    )
    assert can.pairs == ("en>zh", "zh>en")


@pytest.mark.parametrize(
    "of_model",
    [
        {"tgt_langs": ("en", "de")},
        {"languages": ("en", "de")},
        {"tgt_langs": ("en",), "languages": ("de",)},
    ],
    ids=str,
)
def test_heard_languages_go_into_every_target_of_translation(of_model: dict[str, Any]) -> None:
    can = served(
        speaking(
            asr_languages=("zh", "ja"),
            nmt_capabilities=(NmtCapability(**of_model),),
            semantic_languages=("ko",),
            tts_languages=("fr",),
        )
    )
    assert (can.pairs, can.sources, can.targets) == (None, ("ja", "zh"), ("de", "en"))
    assert can.speech == ("fr",)


def test_targets_of_several_models_add_up() -> None:
    models = (NmtCapability(tgt_langs=("en",)), NmtCapability(tgt_langs=("de",)))
    assert served(speaking(asr_languages=("zh",), nmt_capabilities=models)).targets == ("de", "en")


def test_without_targets_of_translation_the_semantic_languages_count() -> None:
    can = served(speaking(asr_languages=("zh",), semantic_languages=("en",), tts_languages=("fr",)))
    assert (can.sources, can.targets) == (("zh",), ("en",))


def test_without_semantic_languages_the_spoken_ones_count() -> None:
    can = served(speaking(asr_languages=("zh",), tts_languages=("en",)))
    assert (can.sources, can.targets, can.speech) == (("zh",), ("en",), ("en",))


def test_lists_that_are_empty_say_nothing() -> None:
    empty = speaking(
        asr_languages=(),
        tts_languages=(),
        semantic_languages=(),
        nmt_capabilities=(),
        supported_language_pairs=(),
    )
    assert served(empty).serves_any


def test_models_count_where_no_language_is_named() -> None:
    can = served(declaration(installed_models=(model("zh", "en"), model("en", "zh"))))
    assert can.pairs == ("en>zh", "zh>en")


def test_only_models_that_translate_and_are_not_switched_off_count() -> None:
    models = (
        model("zh", "en", enabled=True),
        model("zh", "de"),
        model("zh", "fr", enabled=False),
        model("ko", None, kind="asr"),
        model(None, "it", kind="tts"),
    )
    assert served(declaration(installed_models=models)).pairs == ("zh>de", "zh>en")


def test_a_model_that_leaves_a_side_open_serves_any_there() -> None:
    can = served(declaration(installed_models=(model(None, "en"),)))
    assert (can.sources, can.targets) == (None, ("en",))


def test_named_languages_win_over_models() -> None:
    what = declaration(
        installed_models=(model("ko", "ja"),),
        language_capabilities=LanguageCapabilities(asr_languages=("zh",), tts_languages=("en",)),
    )
    assert (served(what).sources, served(what).targets) == (("zh",), ("en",))


# Services.


def test_without_states_by_type_what_runs_is_ready() -> None:
    services = (
        service("asr", "a1"),
        service("asr", "a2"),
        service("nmt", status="stopped"),
        service("tts", status="error"),
    )
    assert ready_services(services, ()) == {"asr": ("a1", "a2")}


def test_states_by_type_decide_where_there_are_any() -> None:
    services = (service("asr"), service("nmt"), service("tts"))
    states = (entry("asr"), entry("nmt", ready=False))
    assert ready_services(services, states) == {"asr": ("asr-1",)}


def test_ids_by_type_win_over_what_runs() -> None:
    states = (entry("asr", ids=("a9",)), entry("nmt", ids=()), entry("tts"))
    services = (service("asr"), service("nmt"))
    assert ready_services(services, states) == {"asr": ("a9",), "nmt": ("nmt-1",), "tts": ()}


def test_a_node_without_any_service_has_none() -> None:
    assert ready_services((), ()) == {}
    assert NodeDeclaration.of_registration(NodeRegister()).services == ()


@pytest.mark.parametrize(
    ("kind", "is_fit"),
    [("asr", True), ("nmt", True), ("tts", True), ("semantic", False), ("tone", False)],
)
def test_a_heartbeat_is_good_if_a_core_service_works(kind: str, is_fit: bool) -> None:
    assert declaration(installed_services=(service(kind),)).is_fit is is_fit
    assert not declaration(installed_services=(service(kind, status="stopped"),)).is_fit
    unready = (entry(kind, ready=False),)
    assert not declaration(installed_services=(service(kind),), capability_by_type=unready).is_fit


# Heartbeats.


def test_a_heartbeat_that_says_nothing_of_abilities_changes_nothing() -> None:
    before = speaking(asr_languages=("zh",))
    assert before.after(beat()) is before


def test_a_heartbeat_that_repeats_itself_is_nothing_new() -> None:
    languages = LanguageCapabilities(asr_languages=("zh",))
    states = (entry("asr"),)
    before = declaration(capability_by_type=states, language_capabilities=languages)
    same = beat(
        installed_services=SERVICES,
        capability_by_type=(entry("asr"),),
        language_capabilities=LanguageCapabilities(asr_languages=("zh",)),
    )
    assert before.after(same) is before


def test_each_part_changes_by_itself() -> None:
    before = declaration(capability_by_type=(entry("asr"),))
    fewer = before.after(beat(installed_services=()))
    assert (fewer.services, fewer.by_type) == ((), before.by_type)
    worse = fewer.after(beat(capability_by_type=(entry("asr", ready=False),)))
    assert worse.services == ()
    assert not worse.is_fit
    languages = LanguageCapabilities(asr_languages=("ko",))
    other = worse.after(beat(language_capabilities=languages))
    assert (other.languages, other.by_type) == (languages, worse.by_type)
    assert other.register is before.register


def test_states_that_are_taken_back_leave_what_runs() -> None:
    before = declaration(capability_by_type=(entry("asr", ready=False),))
    assert not before.is_fit
    assert before.after(beat(capability_by_type=())).is_fit


# The rest.


def test_features_that_are_set_are_declared() -> None:
    features = FeatureFlags(emotion_detection=True, persona_adaptation=False)
    assert declared(declaration(features_supported=features), tenant="").features == {
        "emotion_detection"
    }
    assert declared(declaration(), tenant="").features == frozenset()


@pytest.mark.parametrize(
    ("accepts_public", "tenant", "private_to"),
    [(True, "", None), (False, "", ""), (True, "acme", "acme"), (False, "acme", "acme")],
)
def test_a_tenants_node_is_its_own_whatever_it_says(
    accepts_public: bool, tenant: str, private_to: str | None
) -> None:
    what = declared(declaration(accept_public_jobs=accepts_public), tenant=tenant)
    assert what.private_to == private_to


@pytest.mark.parametrize(
    ("declared_streams", "slots_max", "streams"),
    [(None, None, 0), (None, 4, 0), (0, None, 0), (6, None, 6), (6, 4, 4), (2, 4, 2)],
)
def test_a_node_takes_as_many_streams_as_it_declares_and_its_token_allows(
    declared_streams: int | None, slots_max: int | None, streams: int
) -> None:
    assert declaration(max_streams=declared_streams).streams_within(slots_max) == streams
