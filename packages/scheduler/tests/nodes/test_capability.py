"""The abilities of a node from its declaration, and their forms in the store."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingua_scheduler.nodes.capability import (
    ANY_BREADTH,
    PAIRED_ONLY,
    Capability,
    Declared,
    capability,
    read_descriptor,
)
from lingua_wire.errors import InvalidInput

pytestmark = pytest.mark.unit


def declared(**parts: Any) -> Capability:
    """What these declarations amount to, services left out unless they matter."""
    return capability(Declared(**{"services": {}} | parts))


def languages(can: Capability) -> tuple[Any, ...]:
    return can.pairs, can.sources, can.targets


# Which declaration wins.


def test_explicit_pairs_win_over_everything() -> None:
    can = declared(
        pairs=(("zh", "en"), ("en", "zh"), ("zh", "en")),
        asr_languages=("ja",),
        nmt_targets=("ko",),
        model_pairs=(("fr", "de"),),
    )
    assert languages(can) == (("en>zh", "zh>en"), None, None)


def test_heard_languages_are_combined_with_the_targets_of_translation() -> None:
    can = declared(
        asr_languages=("zh", "en", "zh"),
        nmt_targets=("ko", "ja"),
        semantic_languages=("fr",),
        tts_languages=("de",),
        model_pairs=(("fr", "de"),),
    )
    assert languages(can) == (None, ("en", "zh"), ("ja", "ko"))


def test_semantic_languages_are_the_targets_when_translation_names_none() -> None:
    can = declared(asr_languages=("zh",), semantic_languages=("en", "ja"), tts_languages=("de",))
    assert languages(can) == (None, ("zh",), ("en", "ja"))


def test_spoken_languages_are_the_targets_when_nothing_else_names_any() -> None:
    can = declared(asr_languages=("zh",), tts_languages=("ja", "en"))
    assert languages(can) == (None, ("zh",), ("en", "ja"))


@pytest.mark.parametrize("name", ["nmt_targets", "semantic_languages"])
def test_targets_without_heard_languages_are_served_from_any_source(name: str) -> None:
    assert languages(declared(**{name: ("en",)})) == (None, None, ("en",))


def test_installed_models_speak_for_a_node_that_lists_no_languages() -> None:
    can = declared(model_pairs=(("zh", "en"), ("en", "zh"), ("zh", "en")))
    assert languages(can) == (("en>zh", "zh>en"), None, None)


def test_a_model_that_leaves_a_side_open_serves_any_language_there() -> None:
    assert languages(declared(model_pairs=(("zh", "en"), ("ja", "")))) == (None, ("ja", "zh"), None)
    assert languages(declared(model_pairs=(("zh", "en"), ("", "ko")))) == (None, None, ("en", "ko"))


def test_a_node_whose_models_name_no_language_serves_any() -> None:
    assert declared(model_pairs=(("", ""),)).serves_any


def test_heard_languages_without_targets_leave_the_pairs_to_the_models() -> None:
    can = declared(asr_languages=("zh", "en"), model_pairs=(("zh", "en"),))
    assert languages(can) == (("zh>en",), None, None)


def test_a_private_node_without_a_tenant_is_nobodys() -> None:
    assert declared(private_to="").owner == PAIRED_ONLY
    assert declared(private_to=None).owner == ""


@pytest.mark.parametrize(
    "said",
    [
        {"pairs": (("a>b", "c"),)},
        {"asr_languages": ("en|x",)},
        {"tts_languages": ("",)},
        {"model_pairs": (("en", "e s"),)},
        {"features": frozenset({"a,b"})},
        {"private_to": "acme|x"},
    ],
    ids=str,
)
def test_declarations_that_cannot_be_are_refused(said: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        declared(**said)


def test_a_voice_is_no_language_pair() -> None:
    can = declared(tts_languages=("en",), model_pairs=(("zh", "en"),))
    assert languages(can) == (("zh>en",), None, None)
    assert can.speech == ("en",)


def test_a_node_that_declares_no_language_serves_any() -> None:
    can = declared()
    assert languages(can) == (None, None, None)
    assert can.serves_any
    assert can.speech is None


def test_a_node_that_declares_only_voices_serves_any_pair_in_those_voices() -> None:
    can = declared(tts_languages=("zh", "en"))
    assert can.serves_any
    assert can.speech == ("en", "zh")


@pytest.mark.parametrize(
    "parts",
    [
        {"pairs": (("zh", "en"),)},
        {"asr_languages": ("zh",)},
        {"nmt_targets": ("en",)},
        {"semantic_languages": ("en",)},
        {"model_pairs": (("zh", "en"),)},
    ],
)
def test_who_declares_a_language_does_not_serve_any(parts: dict[str, Any]) -> None:
    assert not declared(**parts).serves_any


def test_services_features_and_owner_are_kept_in_canonical_order() -> None:
    can = capability(
        Declared(
            services={"tts": ("b", "a"), "asr": ()},
            features=frozenset({"y", "x"}),
            private_to="acme",
        )
    )
    assert can.services == {"asr": (), "tts": ("a", "b")}
    assert can.features == ("x", "y")
    assert can.owner == "acme"


# Breadth.


@pytest.mark.parametrize(
    ("can", "breadth"),
    [
        (Capability({}), ANY_BREADTH),
        (Capability({}, pairs=()), 0),
        (Capability({}, pairs=("en>zh", "zh>en")), 2),
        (Capability({}, sources=("zh",), targets=("en",)), 1),
        (Capability({}, sources=("de", "en", "zh"), targets=("en", "zh")), 6),
        (Capability({}, sources=None, targets=("en", "zh")), 200),
        (Capability({}, sources=("de", "en", "zh"), targets=None), 300),
    ],
    ids=["any", "none", "pairs", "one", "three times two", "any source", "any target"],
)
def test_breadth_counts_the_directions_a_node_serves(can: Capability, breadth: int) -> None:
    assert can.breadth == breadth


def test_no_list_is_broader_than_any_language() -> None:
    many = tuple(f"l{i}" for i in range(1100))
    assert Capability({}, sources=many, targets=many).breadth == ANY_BREADTH


# Equal abilities.

names = st.sampled_from(("asr", "nmt", "tts", "tone"))
codes = st.sampled_from(("de", "en", "ja", "zh"))
code_lists = st.lists(codes, max_size=4).map(tuple)
pair_lists = st.lists(st.tuples(codes, codes), max_size=4).map(tuple)
declarations = st.builds(
    Declared,
    services=st.dictionaries(names, st.lists(st.sampled_from("ab"), max_size=2).map(tuple)),
    features=st.frozensets(st.sampled_from(("x", "y"))),
    pairs=pair_lists,
    asr_languages=code_lists,
    nmt_targets=code_lists,
    semantic_languages=code_lists,
    tts_languages=code_lists,
    model_pairs=pair_lists,
    private_to=st.sampled_from(("", "acme")),
)


@given(declarations)
def test_the_order_of_declarations_makes_no_difference(one: Declared) -> None:
    other = Declared(
        services={name: one.services[name][::-1] for name in reversed(list(one.services))},
        features=one.features,
        pairs=one.pairs[::-1],
        asr_languages=one.asr_languages[::-1],
        nmt_targets=one.nmt_targets[::-1],
        semantic_languages=one.semantic_languages[::-1],
        tts_languages=one.tts_languages[::-1],
        model_pairs=one.model_pairs[::-1],
        private_to=one.private_to,
    )
    assert capability(other) == capability(one)
    assert capability(other).packed() == capability(one).packed()


# The store's forms.


def test_the_packed_form_is_what_the_scripts_read() -> None:
    can = capability(
        Declared(
            services={"tts": ("t2", "t1"), "asr": ()},
            features=frozenset({"y", "x"}),
            asr_languages=("zh", "en"),
            tts_languages=("en",),
            private_to="acme",
        )
    )
    assert msgspec.msgpack.decode(can.packed()) == {
        "langs": '{"any":false,"src":["en","zh"],"tgt":["en"],"tts":["en"]}',
        "breadth": 2,
        "services": {"asr": [], "tts": ["t1", "t2"]},
        "features": ["x", "y"],
        "owner": "acme",
        "labels": [],
    }


@pytest.mark.parametrize(
    ("can", "langs"),
    [
        (Capability({}), '{"any":true}'),
        (Capability({}, pairs=("zh>en",)), '{"any":false,"pairs":["zh>en"]}'),
        (Capability({}, speech=("en",)), '{"any":true,"tts":["en"]}'),
    ],
    ids=["any", "pairs", "voices"],
)
def test_a_language_list_that_means_any_is_left_out(can: Capability, langs: str) -> None:
    assert msgspec.msgpack.decode(can.packed())["langs"] == langs


def descriptor(can: Capability, services: list[str]) -> bytes:
    """A pool's descriptor as the store writes it, from the packed form."""
    packed = msgspec.msgpack.decode(can.packed())
    breadth = packed["breadth"] * 1000 + len(services) * 20 + len(packed["features"])
    rest = {"services": services, "features": packed["features"], "owner": packed["owner"]}
    return msgspec.json.encode({"breadth": breadth, **msgspec.json.decode(packed["langs"]), **rest})


@given(declarations, st.data())
def test_a_pool_is_read_back_with_the_services_that_work_now(
    one: Declared, data: st.DataObject
) -> None:
    can = capability(one)
    left = sorted(data.draw(st.sets(st.sampled_from(sorted(can.services)))) if can.services else ())
    read, services = read_descriptor(descriptor(can, left))
    assert services == frozenset(left)
    assert languages(read) == languages(can)
    assert (read.features, read.speech, read.owner) == (can.features, can.speech, can.owner)
    assert (read.breadth, read.serves_any) == (can.breadth, can.serves_any)
