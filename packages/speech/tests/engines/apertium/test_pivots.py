"""Directions that two direct ones make."""

from __future__ import annotations

import pytest

from lingua_speech.engines.apertium.pivots import routes

pytestmark = pytest.mark.unit


def test_two_directions_make_a_third_over_spanish() -> None:
    found = routes({("en", "es"), ("es", "en"), ("es", "fr"), ("en", "ca")})
    assert found[("en", "fr")] == (("en", "es"), ("es", "fr"))
    assert ("fr", "en") not in found
    assert ("en", "en") not in found
    assert found[("es", "ca")] == (("es", "en"), ("en", "ca"))
