"""Small networks of our own, for directions without a model in any registry (mt=small).

They were trained by this project (`weights/card.toml` lists the data) and come with the package as
folders for CTranslate2, each for one or more directions. Every file is pinned by its SHA-256 in the
card, so a damaged one is reported at the start. Translation is done by `ctranslate`. Small networks
are good at frequent material and invent the rest, but their score shows it: below the score of the
card a translation gets the remark `mt_unsure`, and the router tries another translator.

| option | default | what it is |
|---|---|---|
| dir | | a folder with a `card.toml`, instead of the package's own |
| pairs | | only these directions of the card: `en-es+es-en` |
| threads | 1 | threads of one translation |
| beam | 2 | width of the search, 1 to 16 |
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from lingua_speech import plugins
from lingua_speech.engine import About, ModelMissing, Rendered, Watch
from lingua_speech.engines import ctranslate
from lingua_speech.engines import options as reading
from lingua_speech.routing.guards import UNSURE
from lingua_wire.languages import base_of

if TYPE_CHECKING:
    from collections.abc import Mapping

KNOWN: Final = {"dir": "", "pairs": "", "threads": "1", "beam": "2"}
CARD: Final = "card.toml"
OWN: Final = Path(__file__).with_name("weights")


class NetworkFolder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One network: its directions, and the SHA-256 of every file."""

    pairs: tuple[str, ...]
    sha256: dict[str, str]
    # The mean log-probability below which other translators were measured to be better.
    least_score: float = -1000.0


class ModelCard(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The description of the networks."""

    name: str
    licence: str
    # The authors of the training data, as their licences require.
    credit: str
    folders: dict[str, NetworkFolder]


def make(options: Mapping[str, str]) -> Small:
    """Load the networks; raises `ModelMissing` if they are missing or damaged."""
    taken = plugins.take(options, KNOWN)
    root = reading.folder(taken, "dir") if taken["dir"] else OWN
    card = read_card(root)
    wanted = reading.pairs(taken, "pairs")
    folders: dict[str, str] = {}
    for name, folder in card.folders.items():
        _check(root / name, folder)
        named = {pair: str(root / name) for pair in folder.pairs}
        folders |= {
            f"dir.{pair}": path
            for pair, path in named.items()
            if not wanted or reading.direction(pair) in wanted
        }
    if not folders:
        raise ModelMissing(f"{card.name} has none of the directions {taken['pairs']}")
    shared = {key: taken[key] for key in ("threads", "beam")}
    least = {
        reading.direction(pair): folder.least_score
        for folder in card.folders.values()
        for pair in folder.pairs
    }
    return Small(card, ctranslate.make({**folders, **shared}), least)


def read_card(root: Path) -> ModelCard:
    """Read the card of a folder; raises `ModelMissing`."""
    try:
        return msgspec.toml.decode((root / CARD).read_bytes(), type=ModelCard)
    except OSError as error:
        raise ModelMissing(f"{root} has no networks of this project") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ModelMissing(f"{root / CARD} cannot be read: {error}") from error


def _check(path: Path, folder: NetworkFolder) -> None:
    """Raise `ModelMissing` unless every file has its pinned hash."""
    for name, wanted in folder.sha256.items():
        try:
            found = hashlib.sha256((path / name).read_bytes()).hexdigest()
        except OSError as error:
            raise ModelMissing(f"{path / name} cannot be read: {error.strerror}") from error
        if found != wanted:
            raise ModelMissing(f"{path / name} is damaged: install the package again")


class Small:
    """Translates with the project's own networks."""

    def __init__(
        self, card: ModelCard, inner: ctranslate.CTranslate, least: Mapping[tuple[str, str], float]
    ) -> None:
        self._card = card
        self._inner = inner
        # Direction -> the lowest score of a reliable translation.
        self._least = least

    def about(self) -> About:
        """Return the description of the engine."""
        about = self._inner.about()
        return About(
            engine="small",
            version=about.version,
            model=self._card.name,
            licence=self._card.licence,
            pairs=about.pairs,
        )

    def translate(self, text: str, source: str, target: str, watch: Watch) -> Rendered:
        """Translate a text, with a remark if the translation is not reliable."""
        guess = self._inner.translate_with_score(text, source, target, watch)
        is_sure = guess.score >= self._least[base_of(source), base_of(target)]
        return Rendered(guess.text, remarks=() if is_sure else (UNSURE,))

    def close(self) -> None:
        """Free the networks."""
        self._inner.close()
