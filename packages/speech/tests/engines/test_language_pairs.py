"""The pairs under which an engine may know a direction."""

from __future__ import annotations

import pytest

from lingua_speech.engines.language_pairs import matching_pairs

pytestmark = pytest.mark.unit


def test_a_direction_with_regions_is_tried_before_the_ones_without() -> None:
    assert matching_pairs("en-us", "pt-br") == (
        ("en-us", "pt-br"),
        ("en", "pt-br"),
        ("en-us", "pt"),
        ("en", "pt"),
    )
