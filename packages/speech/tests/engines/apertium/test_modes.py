"""Mode files: their programs, paths and directions."""

from __future__ import annotations

from pathlib import Path

import pytest

from engines.apertium.trees import apertium_tree
from lingua_speech.engine import ModelMissing
from lingua_speech.engines.apertium import modes

pytestmark = pytest.mark.unit


def test_a_mode_is_read_with_its_paths_in_the_tree(tmp_path: Path) -> None:
    found = modes.find_modes([apertium_tree(tmp_path)])
    assert list(found) == [("en", "es")]
    steps = found[("en", "es")].steps
    assert steps[0] == (f"{tmp_path}/usr/bin/lt-proc", f"{tmp_path}/usr/share/apertium/p/a.bin")
    assert f"{tmp_path}/usr/lib" in found[("en", "es")].environment["LD_LIBRARY_PATH"]


def test_a_mode_whose_data_or_program_is_missing_is_none(tmp_path: Path) -> None:
    tree = apertium_tree(tmp_path)
    (tmp_path / "usr/share/apertium/p/d").unlink()
    assert modes.find_modes([tree]) == {}
    (tmp_path / "usr/share/apertium/p/d").touch()
    (tmp_path / "usr/bin/lrx-proc").unlink()
    assert modes.find_modes([tree]) == {}


@pytest.mark.parametrize(
    ("name", "direction"),
    [
        ("eng-spa", ("en", "es")),
        ("es-pt_BR", ("es", "pt-br")),
        ("fr-es", ("fr", "es")),
        ("eco-es-fr", None),
        ("spa-eng_US", None),
        ("nno-nob", None),
    ],
)
def test_directions_are_told_by_the_modes_name(
    name: str, direction: tuple[str, str] | None
) -> None:
    assert modes.direction_of(name) == direction


def test_pairs_are_listed_with_plus_and_nonsense_is_refused() -> None:
    assert modes.requested_directions("en-es+es>en", {}) == (("en", "es"), ("es", "en"))
    with pytest.raises(ModelMissing, match="not a direction"):
        modes.requested_directions("english", {})
