"""The URLs of a session: how long to wait before the next attempt."""

from __future__ import annotations

import pytest

from lingua_client.endpoints import BACKOFF_MAX_S, Endpoints
from lingua_client.options import Options

pytestmark = pytest.mark.unit


def test_the_wait_before_reconnecting_is_none_at_first_then_grows_to_its_bound() -> None:
    endpoints = Endpoints(["ws://127.0.0.1:1/"], Options())
    waits = [endpoints.backoff_s() for _ in range(100)]
    assert waits[0] == 0
    assert 0.025 <= waits[1] <= 0.05
    assert 0.05 <= waits[2] <= 0.1
    assert all(BACKOFF_MAX_S / 2 <= wait <= BACKOFF_MAX_S for wait in waits[10:])
    assert len(set(waits[10:])) > 50
    endpoints.reset_backoff()
    assert endpoints.backoff_s() == 0
