"""Where a request carries its token: the header first, then an offered subprotocol."""

from __future__ import annotations

import pytest

from lingua_scheduler.auth.bearer import TOKEN_SUBPROTOCOL, bearer_token, offered_token

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("header", "token"),
    [
        ("Bearer abc", "abc"),
        ("bearer abc", "abc"),
        ("BEARER abc", "abc"),
        ("Bearer  abc ", "abc"),
        ("", None),
        ("Bearer", None),
        ("Bearer ", None),
        ("abc", None),
        ("Basic abc", None),
        ("Bearerabc", None),
    ],
)
def test_the_token_of_a_header(header: str, token: str | None) -> None:
    assert bearer_token(header) == token


@pytest.mark.parametrize(
    ("header", "subprotocols", "token"),
    [
        ("", (), None),
        ("", ("lingua.v1",), None),
        ("", ("lingua.v1", "lingua.token.abc"), "abc"),
        ("", ("lingua.token.abc", "lingua.token.def"), "abc"),
        ("Bearer xyz", ("lingua.token.abc",), "xyz"),
        ("Basic xyz", ("lingua.token.abc",), "abc"),
    ],
)
def test_a_header_wins_over_a_subprotocol(
    header: str, subprotocols: tuple[str, ...], token: str | None
) -> None:
    assert offered_token(header, subprotocols) == token


def test_another_protocol_has_another_prefix() -> None:
    offered = ("realtime", "openai-insecure-api-key.abc", f"{TOKEN_SUBPROTOCOL}def")
    assert offered_token("", offered, "openai-insecure-api-key.") == "abc"
    assert offered_token("", iter(offered)) == "def"
