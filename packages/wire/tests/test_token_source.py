"""The token of a connection: a text, a function or an async function, and its retries."""

from __future__ import annotations

import asyncio

import pytest

from lingua_wire import token_source
from lingua_wire.token_source import TokenSource, fetch_token, retry_token

pytestmark = pytest.mark.unit


def plain() -> str:
    return "from a function"


async def awaited() -> str:
    return "from an async function"


@pytest.mark.parametrize(
    ("source", "token"),
    [
        (None, None),
        ("fixed", "fixed"),
        (plain, "from a function"),
        (awaited, "from an async function"),
    ],
)
def test_a_token_is_a_text_or_what_a_function_returns(
    source: TokenSource, token: str | None
) -> None:
    assert asyncio.run(fetch_token(source)) == token


def test_a_function_that_takes_too_long_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never() -> str:
        await asyncio.Event().wait()
        return ""

    monkeypatch.setattr(token_source, "TOKEN_S", 0.01)
    with pytest.raises(TimeoutError):
        asyncio.run(fetch_token(never))


def test_a_function_is_called_again_while_its_server_is_unavailable(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(token_source, "TOKEN_RETRY_S", 0.0)
    answers = iter([ConnectionRefusedError("refused"), TimeoutError(), "third"])

    def source() -> str:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert asyncio.run(retry_token(source)) == "third"
    assert caplog.messages == ["no token now: refused", "no token now: TimeoutError"]


def test_any_other_error_of_a_function_is_raised() -> None:
    def broken() -> str:
        raise KeyError("token")

    with pytest.raises(KeyError):
        asyncio.run(retry_token(broken))
