"""The settings of a node: invalid ones are reported where they are written."""

from __future__ import annotations

import pytest

from lingua_node import Node
from lingua_wire.errors import ConfigError

pytestmark = pytest.mark.unit


def test_a_token_is_not_shown() -> None:
    assert "secret" not in repr(Node(token="secret"))


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"pairs": ["enes"]}, "pairs"),
        ({"pairs": ["en>"]}, "pairs"),
        ({"asr_languages": ["?"]}, "asr_languages"),
        ({"services": ["cooking"]}, "services"),
        ({"features": ["cooking"]}, "features"),
        ({"max_jobs": 0}, "max_jobs"),
        ({"max_jobs": 1025}, "max_jobs"),
        ({"max_streams": -1}, "max_streams"),
        ({"max_streams": 1025}, "max_streams"),
        ({"heartbeat_ms": 0}, "heartbeat_ms"),
        ({"url": "http://127.0.0.1"}, "url"),
        ({"url": ["ws://127.0.0.1", "http://127.0.0.1"]}, "url"),
        ({"url": []}, "url"),
    ],
)
def test_an_invalid_setting_is_reported_where_it_is_written(
    settings: dict[str, object], problem: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        Node(**settings)  # type: ignore[arg-type]
    assert raised.value.path == problem
