import base64
import hashlib
import hmac
import json
import traceback
from typing import Any

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingua_scheduler.auth.tokens import (
    IDENTIFIER,
    LEEWAY_S,
    REASONS,
    TOKEN_CHARS_MAX,
    TTL_S_MAX,
    InvalidToken,
    TokenKeys,
    key_id,
    new_key,
    unverified_claims,
)
from lingua_scheduler.errors import InvalidIdentifier
from lingua_scheduler.secret import Secret
from lingua_scheduler.state import keys as state_keys
from lingua_wire.errors import ConfigError, InvalidInput, InvalidLanguage

pytestmark = pytest.mark.unit

NOW = 1_800_000_000.0
CLIENT_KEY = "client-key-" + "c" * 32
NODE_KEY = "node-key-" + "n" * 32
OTHER_KEY = "other-key-" + "o" * 32


class Clock:
    """A wall clock that moves when told to."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


def keys(
    client: tuple[str, ...] = (CLIENT_KEY,),
    node: tuple[str, ...] = (NODE_KEY,),
    clock: Clock | None = None,
) -> TokenKeys:
    return TokenKeys(map(Secret, client), map(Secret, node), clock or Clock())


def part(value: object) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def signed(payload: object, header: dict[str, Any] | None = None, key: str = CLIENT_KEY) -> str:
    """Make a token by hand, so that nothing of the code under test takes part."""
    body = f"{part({'alg': 'HS256', 'typ': 'JWT'} if header is None else header)}.{part(payload)}"
    return f"{body}.{part(hmac.new(key.encode(), body.encode(), hashlib.sha256).digest())}"


def claims(**changes: object) -> dict[str, object]:
    """Return good claims of a client with these changes; None takes a claim away."""
    good: dict[str, object] = {
        "aud": "lingua:client",
        "typ": "client",
        "exp": NOW + 60,
        "iat": NOW,
        "jti": "token-1",
    }
    return {name: value for name, value in {**good, **changes}.items() if value is not None}


def node_claims(**changes: object) -> dict[str, object]:
    return claims(**{"aud": "lingua:node", "typ": "node", "sub": "node-1", **changes})


def refusal(token: str, of: TokenKeys | None = None) -> str:
    with pytest.raises(InvalidToken) as caught:
        (of or keys()).read_client(token)
    return caught.value.reason


def node_refusal(token: str, node_id: str = "node-1") -> str:
    with pytest.raises(InvalidToken) as caught:
        keys().read_node(token, node_id)
    return caught.value.reason


# What a good token grants


def test_a_client_token_grants_what_it_was_made_with() -> None:
    token = keys().issue_client(
        tenant="acme", languages=("EN", "pt_BR"), rooms=False, scopes={"speak"}, ttl_s=60
    )
    grant = keys().read_client(token.reveal())
    assert (grant.tenant, grant.languages, grant.rooms) == ("acme", ("en", "pt-br"), False)
    assert grant.scopes == {"speak"}
    assert grant.expires_at == NOW + 60
    assert grant.allows("speak")
    assert not grant.allows("listen")
    assert grant.allows_language("en-us")
    assert not grant.allows_language("de")


def test_a_client_token_made_without_wishes_may_speak_and_listen_in_any_language() -> None:
    grant = keys().read_client(keys().issue_client().reveal())
    assert (grant.tenant, grant.languages, grant.rooms) == ("", None, True)
    assert grant.scopes == {"speak", "listen"}
    assert grant.allows_language("xx")


def test_an_empty_list_of_languages_grants_none() -> None:
    grant = keys().read_client(keys().issue_client(languages=()).reveal())
    assert grant.languages == ()
    assert not grant.allows_language("en")


def test_a_token_made_elsewhere_needs_neither_key_id_nor_grants() -> None:
    grant = keys().read_client(signed(claims(iat=None, unknown={"a": [1]})))
    assert (grant.id, grant.tenant, grant.rooms, grant.scopes) == ("token-1", "", False, set())
    assert grant.languages is None


def test_a_token_made_by_the_library_is_read_and_ours_is_read_by_the_library() -> None:
    theirs = jwt.encode(claims(tenant="acme"), CLIENT_KEY, "HS256")
    assert keys().read_client(theirs).tenant == "acme"
    ours = keys().issue_client(tenant="acme").reveal()
    read = jwt.decode(
        ours,
        CLIENT_KEY,
        ["HS256"],
        audience="lingua:client",
        options={"verify_exp": False, "verify_iat": False},
    )
    assert read["tenant"] == "acme"


def test_one_of_several_audiences_is_enough() -> None:
    assert keys().read_client(signed(claims(aud=["other", "lingua:client"]))).id == "token-1"


def test_a_node_token_grants_what_it_was_made_with() -> None:
    token = keys().issue_node("node-1", tenant="acme", max_jobs=3, ttl_s=60)
    grant = keys().read_node(token.reveal(), "node-1")
    assert (grant.node_id, grant.tenant, grant.max_jobs) == ("node-1", "acme", 3)
    assert grant.expires_at == NOW + 60


def test_a_node_token_made_without_wishes_is_for_everybody_and_unlimited() -> None:
    grant = keys().read_node(keys().issue_node("node-1").reveal(), "node-1")
    assert (grant.tenant, grant.max_jobs) == ("", None)


def test_every_token_has_an_id_of_its_own() -> None:
    ids = {keys().read_client(keys().issue_client().reveal()).id for _ in range(50)}
    assert len(ids) == 50
    assert min(map(len, ids)) >= 22


# What is refused


@pytest.mark.parametrize(
    "token",
    [
        "",
        ".",
        "..",
        "a.b",
        "a.b.c.d",
        " " + signed(claims()),
        signed(claims()) + "\n",
        signed(claims()) + "==",
        signed(claims()).replace(".", "!.", 1),
        "é.é.é",
        "\ud800.\ud800.\ud800",
        "e30.e30.\u0661",
        "\0" * 30,
        f"{part(b'[' * 2000)}.e30.e30",
        f"{part([1])}.e30.e30",
        f"{part({'alg': 'HS256', 'kid': 7})}.e30.e30",
        signed(claims(), {"alg": "HS256", "crit": ["made-up"], "made-up": 1}),
        signed(b"[" * 2500),
        signed(b"not json"),
        signed(b'{"jti": "\xff"}'),
        signed([1]),
        signed(claims(exp=None)),
        signed(claims(exp="soon")),
        signed(claims(exp=True)),
        signed(claims(exp=-1)),
        signed(claims(exp=1e300)),
        signed(b'{"exp":NaN,"jti":"x","aud":"lingua:client","typ":"client"}'),
        signed(b'{"exp":1e999,"jti":"x","aud":"lingua:client","typ":"client"}'),
        signed(claims(jti=None)),
        signed(claims(jti="")),
        signed(claims(jti=5)),
        signed(claims(tenant="a b")),
        signed(claims(tenant="a\n")),
        signed(claims(tenant="ä")),
        signed(claims(languages=["auto"])),
        signed(claims(languages="en")),
        signed(claims(rooms="yes")),
        signed(claims(scopes="speak")),
    ],
)
def test_what_is_no_token_of_ours_is_malformed(token: str) -> None:
    assert refusal(token) == "malformed"


def test_a_token_as_long_as_the_bound_is_read_and_a_longer_one_is_not() -> None:
    spare = 0
    while len(signed(claims(pad="x" * (spare + 1)))) <= TOKEN_CHARS_MAX:
        spare += 1
    assert keys().read_client(signed(claims(pad="x" * spare))).id == "token-1"
    assert refusal(signed(claims(pad="x" * (spare + 4)))) == "malformed"
    assert refusal("a" * 10_000_000) == "malformed"


@pytest.mark.parametrize(
    "token",
    [
        signed(claims(), key=OTHER_KEY),
        signed(claims(), {"alg": "HS256", "kid": key_id(CLIENT_KEY.encode())}, OTHER_KEY),
        jwt.encode(claims(), CLIENT_KEY + "c" * 64, "HS512"),
        jwt.encode(claims(), CLIENT_KEY, "HS256")[:-43] + "A" * 43,
    ],
    ids=["another-key", "another-key-that-claims-to-be-ours", "another-algorithm", "zeros"],
)
def test_a_forged_token_has_a_bad_signature(token: str) -> None:
    assert refusal(token) == "bad_signature"


@pytest.mark.parametrize("name", ["none", "None", "NONE", "", None, "HS384", "RS256", ["HS256"]])
@pytest.mark.parametrize("has_signature", [True, False])
def test_no_header_can_choose_the_algorithm(name: object, has_signature: bool) -> None:
    token = signed(claims(), {"alg": name})
    assert refusal(token if has_signature else token[: token.rindex(".") + 1]) == "bad_signature"


def test_a_header_without_an_algorithm_is_refused() -> None:
    assert refusal(signed(claims(), {"typ": "JWT"})) == "bad_signature"


def test_changing_any_character_of_a_token_ends_it() -> None:
    token = keys().issue_client(tenant="acme").reveal()
    for at, character in enumerate(token):
        changed = f"{token[:at]}{'B' if character != 'B' else 'C'}{token[at + 1 :]}"
        assert refusal(changed) in {"malformed", "bad_signature", "unknown_key"}


def test_a_truncated_token_is_refused_wherever_it_was_cut() -> None:
    token = keys().issue_client(tenant="acme").reveal()
    for length in range(len(token)):
        assert refusal(token[:length]) in {"malformed", "bad_signature"}


@given(st.text(max_size=200))
def test_no_text_raises_anything_else(text: str) -> None:
    assert refusal(text) in REASONS


@given(st.binary(max_size=60), st.binary(max_size=200))
def test_no_signed_bytes_raise_anything_else(header: bytes, payload: bytes) -> None:
    assert refusal(f"{part(header)}.{part(payload)}.e30") == "malformed"
    assert refusal(signed(payload)) in {"malformed", "wrong_audience"}


def test_a_token_lives_from_its_making_to_its_end_with_a_little_leeway() -> None:
    clock = Clock()
    mine = keys(clock=clock)
    token = mine.issue_client(ttl_s=60).reveal()
    for now in (NOW - LEEWAY_S, NOW + 59, NOW + 60 + LEEWAY_S - 1):
        clock.now = now
        assert mine.read_client(token).expires_at == NOW + 60
    clock.now = NOW + 60 + LEEWAY_S
    assert refusal(token, mine) == "expired"
    clock.now = NOW - LEEWAY_S - 1
    assert refusal(token, mine) == "not_yet"


def test_a_token_may_say_when_it_begins() -> None:
    clock = Clock()
    token = signed(claims(nbf=NOW + 30))
    assert refusal(token, keys(clock=clock)) == "not_yet"
    clock.now = NOW + 30 - LEEWAY_S
    assert keys(clock=clock).read_client(token).id == "token-1"


@pytest.mark.parametrize("audience", [None, "", "lingua", "lingua:node", "lingua:client ", []])
def test_a_token_for_somebody_else_has_the_wrong_audience(audience: object) -> None:
    assert refusal(signed(claims(aud=audience))) == "wrong_audience"


@pytest.mark.parametrize("kind", [None, "", "node", "Client"])
def test_a_token_of_another_kind_has_the_wrong_type(kind: object) -> None:
    assert refusal(signed(claims(typ=kind))) == "wrong_type"


def test_client_and_node_tokens_are_not_read_as_each_other() -> None:
    same = keys(client=(CLIENT_KEY,), node=(CLIENT_KEY,))
    with pytest.raises(InvalidToken) as caught:
        same.read_node(signed(claims(sub="node-1")), "node-1")
    assert caught.value.reason == "wrong_audience"
    assert refusal(same.issue_node("node-1").reveal(), same) == "wrong_audience"
    assert refusal(keys().issue_node("node-1").reveal()) == "unknown_key"
    assert node_refusal(keys().issue_client().reveal()) == "unknown_key"


@pytest.mark.parametrize("node_id", ["node-2", "", "NODE-1", "node-1 ", "node-1\n"])
def test_a_node_token_is_refused_to_every_other_node(node_id: str) -> None:
    token = keys().issue_node("node-1").reveal()
    assert node_refusal(token, node_id) == "wrong_node"
    grant = keys().read_node(token, None)
    grant.check_node("node-1")
    with pytest.raises(InvalidToken, match="wrong_node"):
        grant.check_node(node_id)


@pytest.mark.parametrize(
    "changes", [{"sub": None}, {"sub": ""}, {"sub": "a b"}, {"max_jobs": 0}, {"max_jobs": "4"}]
)
def test_a_node_token_with_impossible_claims_is_malformed(changes: dict[str, object]) -> None:
    assert node_refusal(signed(node_claims(**changes), key=NODE_KEY)) == "malformed"


# Keys


def test_a_key_is_replaced_without_refusing_a_token_of_the_old_one() -> None:
    before = keys(client=(CLIENT_KEY,))
    during = keys(client=(OTHER_KEY, CLIENT_KEY))
    after = keys(client=(OTHER_KEY,))
    old, new = before.issue_client().reveal(), during.issue_client().reveal()
    assert during.read_client(old)
    assert during.read_client(new)
    assert after.read_client(new)
    assert refusal(old, after) == "unknown_key"
    assert refusal(new, before) == "unknown_key"


def test_a_token_that_names_no_key_is_tried_with_each() -> None:
    both = keys(client=(OTHER_KEY, CLIENT_KEY))
    assert both.read_client(signed(claims())).id == "token-1"
    assert refusal(signed(claims(), key=NODE_KEY), both) == "bad_signature"


def test_without_keys_no_token_is_read_or_made() -> None:
    none = keys(client=(), node=())
    assert not none.asks_clients
    assert not none.asks_nodes
    assert refusal(signed(claims()), none) == "unknown_key"
    with pytest.raises(ConfigError, match=r"auth\.client_keys: .*lingua token key"):
        none.issue_client()
    with pytest.raises(ConfigError, match=r"auth\.node_keys: .*lingua token key"):
        none.issue_node("node-1")


def test_each_kind_is_asked_for_a_token_only_if_it_has_keys() -> None:
    assert (keys(node=()).asks_clients, keys(node=()).asks_nodes) == (True, False)
    assert (keys(client=()).asks_clients, keys(client=()).asks_nodes) == (False, True)


def test_a_key_shorter_than_32_bytes_is_refused() -> None:
    keys(client=("é" * 16,))
    with pytest.raises(ConfigError, match=r"auth\.client_keys\[1\]: .*32 bytes"):
        keys(client=(CLIENT_KEY, "x" * 31))
    with pytest.raises(ConfigError, match=r"auth\.node_keys\[0\]"):
        keys(node=("",))


@pytest.mark.parametrize(
    "key",
    [
        "-----BEGIN PUBLIC KEY-----\nMIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8A\n-----END PUBLIC KEY-----\n",
        "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABgQDJ someone@somewhere",
    ],
)
def test_a_public_key_is_refused_as_a_shared_key(key: str) -> None:
    with pytest.raises(ConfigError, match=r"auth\.client_keys\[0\]: .*not a shared key"):
        keys(client=(key,))


def test_a_new_key_is_random_and_can_be_used() -> None:
    made = {new_key() for _ in range(20)}
    assert len(made) == 20
    mine = TokenKeys(made, ())
    assert mine.read_client(mine.issue_client().reveal())


# Making


@pytest.mark.parametrize("ttl_s", [0, -1, 0.5, TTL_S_MAX + 1, float("nan"), float("inf")])
def test_a_token_lives_neither_too_short_nor_too_long(ttl_s: float) -> None:
    with pytest.raises(InvalidInput, match="must live"):
        keys().issue_client(ttl_s=ttl_s)
    with pytest.raises(InvalidInput, match="must live"):
        keys().issue_node("node-1", ttl_s=ttl_s)


def test_what_could_not_be_read_is_not_made() -> None:
    with pytest.raises(InvalidIdentifier):
        keys().issue_client(tenant="a b")
    with pytest.raises(InvalidLanguage):
        keys().issue_client(languages=["english!"])
    with pytest.raises(InvalidInput, match="not a scope: 'root'"):
        keys().issue_client(scopes=["root"])
    with pytest.raises(InvalidInput, match="grant less"):
        keys().issue_client(languages=["abcdefgh-abcdefgh"] * 400)
    with pytest.raises(InvalidIdentifier):
        keys().issue_node("")
    for max_jobs in (0, 1025):
        with pytest.raises(InvalidInput, match="max_jobs"):
            keys().issue_node("node-1", max_jobs=max_jobs)


def test_a_token_carries_the_ids_that_keys_of_the_store_may() -> None:
    assert IDENTIFIER.pattern == state_keys.IDENTIFIER.pattern


# Nothing leaks


def test_neither_keys_nor_tokens_are_shown() -> None:
    mine = keys()
    token = mine.issue_client()
    shown = f"{mine!r} {mine} {token!r} {token} {mine.read_client(token.reveal())!r}"
    for secret in (CLIENT_KEY, NODE_KEY, token.reveal(), token.reveal().rpartition(".")[2]):
        assert secret not in shown
    assert key_id(CLIENT_KEY.encode()) in shown


def test_a_refusal_holds_no_part_of_the_token() -> None:
    seeded = signed(claims(tenant="SEEDED TENANT"))
    for token in (seeded, signed(b"SEEDED"), f"{part(b'SEEDED')}.e30.e30", "SEEDED.SEEDED"):
        with pytest.raises(InvalidToken) as caught:
            keys().read_client(token)
        shown = "".join(traceback.format_exception(caught.value))
        assert "SEEDED" not in shown.partition("InvalidToken")[2]
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_claims_can_be_shown_unchecked() -> None:
    token = signed(claims(tenant="acme"), key=OTHER_KEY)
    assert unverified_claims(token)["tenant"] == "acme"
    for broken in ("", "a.b.c", signed([1]), signed(b"\xff"), signed(b"[" * 2000)):
        with pytest.raises(InvalidToken, match="malformed"):
            unverified_claims(broken)
