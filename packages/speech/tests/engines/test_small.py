"""The project's own networks: their card, their hashes, and the score of an unsure translation."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from engines import tiny_models
from lingua_speech.engine import ModelMissing, Rendered, Unwatched
from lingua_speech.engines import ctranslate
from lingua_speech.engines.small import CARD, OWN, make, read_card
from lingua_speech.routing.guards import UNSURE
from lingua_wire.errors import ConfigError

pytestmark = pytest.mark.unit

TEXT = "good morning where is the station"


@pytest.fixture(name="folder")
def two_networks(tmp_path: Path) -> Path:
    """Return two networks with their card, in the layout of the package."""
    tiny_models.opus(tmp_path / "into-english")
    tiny_models.opus(tmp_path / "many", seed=6, targets=(">>es<<", ">>pt<<"))
    sections = [
        section(tmp_path / "into-english", ["es-en"]),
        section(tmp_path / "many", ["en-es", "en-pt"]),
    ]
    head = 'name = "tiny-1"\nlicence = "CC0-1.0"\ncredit = "nobody"\n'
    (tmp_path / CARD).write_text(head + "".join(sections), "utf-8")
    return tmp_path


def section(path: Path, pairs: list[str]) -> str:
    hashes = "".join(
        f'"{file.name}" = "{hashlib.sha256(file.read_bytes()).hexdigest()}"\n'
        for file in sorted(path.iterdir())
    )
    return f"[folders.{path.name}]\npairs = {pairs}\n[folders.{path.name}.sha256]\n{hashes}"


def test_it_is_ctranslate_with_the_directions_of_its_card(folder: Path) -> None:
    engine = make({"dir": str(folder)})
    about = engine.about()
    assert (about.engine, about.model, about.licence) == ("small", "tiny-1", "CC0-1.0")
    assert about.pairs == (("en", "es"), ("en", "pt"), ("es", "en"))
    plain = ctranslate.make({"dir.en-pt": str(folder / "many")})
    wanted = plain.translate(TEXT, "en", "pt", Unwatched())
    assert engine.translate(TEXT, "en", "pt", Unwatched()) == Rendered(wanted)
    engine.close()


def test_what_it_is_not_sure_of_it_says(folder: Path) -> None:
    card = folder / CARD
    text = card.read_text("utf-8")
    card.write_text(text.replace("pairs = ['en-es'", "least_score = -0.001\npairs = ['en-es'"))
    engine = make({"dir": str(folder)})
    assert engine.translate(TEXT, "en", "es", Unwatched()).remarks == (UNSURE,)
    assert engine.translate(TEXT, "es", "en", Unwatched()).remarks == ()


def test_directions_can_be_chosen(folder: Path) -> None:
    assert make({"dir": str(folder), "pairs": "en-es"}).about().pairs == (("en", "es"),)
    with pytest.raises(ModelMissing, match="none of the directions de-en"):
        make({"dir": str(folder), "pairs": "de-en"})


def test_a_changed_file_is_told(folder: Path) -> None:
    file = folder / "many" / "source.spm"
    file.write_bytes(file.read_bytes() + b"x")
    with pytest.raises(ModelMissing, match=r"source\.spm is damaged"):
        make({"dir": str(folder)})
    file.unlink()
    with pytest.raises(ModelMissing, match=r"source\.spm cannot be read"):
        make({"dir": str(folder)})


def test_without_a_card_or_with_a_bad_one_there_is_nothing(tmp_path: Path) -> None:
    with pytest.raises(ModelMissing, match="no networks of this project"):
        make({"dir": str(tmp_path)})
    (tmp_path / CARD).write_text("name = 3", "utf-8")
    with pytest.raises(ModelMissing, match="cannot be read"):
        make({"dir": str(tmp_path)})
    with pytest.raises(ConfigError, match="beam"):
        make({"dir": str(tmp_path), "beams": "1"})


def test_what_comes_with_the_package_is_whole() -> None:
    if not (OWN / CARD).is_file():
        # Without networks the engine reports it, and the router works without the engine.
        with pytest.raises(ModelMissing, match="no networks of this project"):
            make({})
        return
    card = read_card(OWN)
    pairs = {pair for folder in card.folders.values() for pair in folder.pairs}
    assert {"-".join(pair) for pair in make({}).about().pairs} == pairs
    assert card.credit
