"""What a grant allows: sessions, renewals, speech, rooms, languages, labels."""

from __future__ import annotations

from typing import Any

import pytest

from lingua_scheduler.auth.policy import (
    Forbidden,
    allow_languages,
    allow_renewal,
    allow_room,
    allow_session,
    allow_speech,
    labelled,
    speech_problem,
    tenant_of,
)
from lingua_scheduler.auth.tokens import ClientGrant, NodeGrant
from lingua_wire.from_client import SessionInit
from lingua_wire.from_node import NodeRegister
from runtime.stand_ins import profile_of

pytestmark = pytest.mark.unit

TWO_WAY = {"src_lang": "auto", "mode": "two_way_auto", "lang_a": "zh", "lang_b": "en"}


def grant(*scopes: str, **given: Any) -> ClientGrant:
    plain: dict[str, Any] = {
        "id": "t",
        "tenant": "acme",
        "subject": "ann",
        "languages": None,
        "rooms": True,
        "scopes": frozenset(scopes or ("speak", "listen")),
        "expires_at": 0.0,
    }
    return ClientGrant(**(plain | given))


def node_grant(labels: tuple[str, ...] | None) -> NodeGrant:
    return NodeGrant(
        id="t", node_id="n1", tenant="acme", max_jobs=None, expires_at=0.0, labels=labels
    )


def init(**given: Any) -> SessionInit:
    return SessionInit(**({"src_lang": "zh", "tgt_lang": "en"} | given))


# Without keys.


def test_without_keys_everything_is_allowed() -> None:
    allow_session(None, init())
    allow_renewal(None, None)
    allow_renewal(grant(), None)
    allow_renewal(None, grant())
    allow_speech(None)
    allow_room(None, "fr")
    allow_languages(None, "fr")
    assert speech_problem(None, profile_of()) == ""
    assert tenant_of(None) == ""


def test_a_grant_binds_to_its_tenant() -> None:
    assert tenant_of(grant()) == tenant_of(node_grant(None)) == "acme"


# Sessions.


@pytest.mark.parametrize("scope", ["speak", "listen"])
def test_a_session_needs_speaking_or_listening(scope: str) -> None:
    allow_session(grant(scope), init())
    with pytest.raises(Forbidden, match="neither to speak nor to listen"):
        allow_session(grant("admin"), init())


@pytest.mark.parametrize(
    "given",
    [
        {"src_lang": "fr"},
        {"tgt_lang": "fr"},
        {"tgt_langs": ("en", "fr")},
        {"src_lang": "auto", "auto_langs": ("zh", "fr")},
        {**TWO_WAY, "lang_a": "fr"},
        {**TWO_WAY, "lang_b": "fr"},
    ],
    ids=str,
)
def test_every_language_of_a_session_must_be_allowed(given: dict[str, Any]) -> None:
    allow_session(grant(), init(**given))
    allow_session(grant(languages=("zh", "en", "fr")), init(**given))
    with pytest.raises(Forbidden, match="'fr'"):
        allow_session(grant(languages=("zh", "en")), init(**given))


def test_the_detection_of_languages_is_no_language() -> None:
    allow_languages(grant(languages=("zh",)), "auto", "AUTO", None, "", "zh")


def test_a_long_code_is_cut_in_the_problem() -> None:
    code = "abcdefgh-12345678-12345678"
    with pytest.raises(Forbidden, match=r"'abcdefgh-1234567'$"):
        allow_languages(grant(languages=("zh",)), code)


# Renewals.


@pytest.mark.parametrize("other", [{"tenant": "other"}, {"subject": "bob"}], ids=str)
def test_a_newer_token_must_be_of_the_same_client(other: dict[str, str]) -> None:
    allow_renewal(grant(), grant("listen"))
    with pytest.raises(Forbidden, match="tenant and subject"):
        allow_renewal(grant(), grant(**other))


def test_a_newer_token_must_allow_something() -> None:
    with pytest.raises(Forbidden, match="neither to speak nor to listen"):
        allow_renewal(grant(), grant("admin"))


# Speech.


def test_a_listener_may_not_speak() -> None:
    allow_speech(grant("speak"))
    with pytest.raises(Forbidden, match="does not allow to speak"):
        allow_speech(grant("listen"))


def test_the_problem_of_a_session_that_may_not_speak_is_a_sentence() -> None:
    assert speech_problem(grant("speak"), profile_of()) == ""
    assert speech_problem(grant("listen"), profile_of()) == "the token does not allow to speak"


@pytest.mark.parametrize(
    "given",
    [
        {"src_lang": "fr"},
        {"tgt_langs": ("en", "fr")},
        {"src_lang": "auto", "auto_langs": ("zh", "fr")},
        {**TWO_WAY, "lang_a": "fr"},
    ],
    ids=str,
)
def test_speech_in_a_language_that_a_renewed_token_lacks_is_a_problem(
    given: dict[str, Any],
) -> None:
    found = speech_problem(grant(languages=("zh", "en")), profile_of(**given))
    assert found == "the token does not allow the language 'fr'"


# Rooms.


def test_rooms_need_a_token_that_allows_them_and_the_language() -> None:
    allow_room(grant(languages=("zh",)), "zh")
    allow_room(grant(languages=("zh",)), None)
    with pytest.raises(Forbidden, match="rooms"):
        allow_room(grant(rooms=False), "zh")
    with pytest.raises(Forbidden, match="'fr'"):
        allow_room(grant(languages=("zh",)), "fr")


# Labels of nodes.


@pytest.mark.parametrize("given", [None, node_grant(None)], ids=["no keys", "no labels"])
def test_without_labels_in_its_token_a_node_names_its_own(given: NodeGrant | None) -> None:
    register = NodeRegister(labels=("gpu",))
    assert labelled(register, given) is register


def test_a_token_gives_its_labels_to_a_node_that_names_none() -> None:
    assert labelled(NodeRegister(), node_grant(("gpu", "eu"))).labels == ("gpu", "eu")


@pytest.mark.parametrize("labels", [(), ("eu",), ("gpu", "eu")], ids=str)
def test_a_node_may_name_some_of_its_tokens_labels(labels: tuple[str, ...]) -> None:
    assert labelled(NodeRegister(labels=labels), node_grant(("gpu", "eu"))).labels == labels


def test_a_label_that_the_token_lacks_is_refused() -> None:
    with pytest.raises(Forbidden, match="the label 'us'"):
        labelled(NodeRegister(labels=("gpu", "us")), node_grant(("gpu", "eu")))
