"""The test server, and engines that are closed after each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engines.openai_api import KEY, Api, api_server
from engines.openai_server.server_engines import OPEN_ENGINES


@pytest.fixture(name="api", scope="module")
def one_server() -> Iterator[Api]:
    with api_server() as api:
        yield api


@pytest.fixture(autouse=True)
def fresh(api: Api, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TEST_SPEECH_KEY", KEY)
    api.requests.clear()
    api.peers.clear()
    api.answers.clear()
    api.has_verbose, api.language, api.wav_size = True, "spanish", None
    yield
    while OPEN_ENGINES:
        OPEN_ENGINES.pop().close()
