"""Small networks of our own, for directions that no registry has a model for (mt=small).

They were trained by this project (`weights/card.toml` says on what) and come with the package:
folders that CTranslate2 reads, one for each direction or for several. Every file is pinned by its
SHA-256 in the card, so that a damaged one is told at the start. The work is `ctranslate`'s.

| option | default | what it is |
|---|---|---|
| dir | | a folder with a `card.toml`, instead of the package's own |
| pairs | | only these of what the card has: `en-es+es-en` |
| threads | 1 | threads of one translation |
| beam | 1 | width of the search, 1 to 16 |
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from lingua_scheduler.speech import plugins
from lingua_scheduler.speech.engine import About, ModelMissing, Watch
from lingua_scheduler.speech.engines import ctranslate
from lingua_scheduler.speech.engines import options as reading

if TYPE_CHECKING:
    from collections.abc import Mapping

KNOWN: Final = {"dir": "", "pairs": "", "threads": "1", "beam": "1"}
CARD: Final = "card.toml"
OWN: Final = Path(__file__).with_name("weights")


class Folder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One network: its directions, and the SHA-256 of every file."""

    pairs: tuple[str, ...]
    sha256: dict[str, str]


class Card(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the networks are."""

    name: str
    licence: str
    # Whose data it was trained on, as their licences ask for.
    credit: str
    folders: dict[str, Folder]


def make(options: Mapping[str, str]) -> Small:
    """Load the networks; raises `ModelMissing` if they are not there, or damaged."""
    taken = plugins.take(options, KNOWN)
    root = reading.folder(taken, "dir") if taken["dir"] else OWN
    card = read_card(root)
    wanted = reading.pairs(taken, "pairs")
    folders: dict[str, str] = {}
    for name, folder in card.folders.items():
        _check(root / name, folder)
        named = {pair: str(root / name) for pair in folder.pairs}
        folders |= {f"dir.{pair}": path for pair, path in named.items()
                    if not wanted or reading.direction(pair) in wanted}  # fmt: skip
    if not folders:
        raise ModelMissing(f"{card.name} has none of the directions {taken['pairs']}")
    shared = {key: taken[key] for key in ("threads", "beam")}
    return Small(card, ctranslate.make({**folders, **shared}))


def read_card(root: Path) -> Card:
    """Read what a folder holds; raises `ModelMissing`."""
    try:
        return msgspec.toml.decode((root / CARD).read_bytes(), type=Card)
    except OSError as error:
        raise ModelMissing(f"there are no networks of our own in {root}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ModelMissing(f"{root / CARD} cannot be read: {error}") from error


def _check(path: Path, folder: Folder) -> None:
    """Raise `ModelMissing` unless every file is the one that was trained."""
    for name, wanted in folder.sha256.items():
        try:
            found = hashlib.sha256((path / name).read_bytes()).hexdigest()
        except OSError as error:
            raise ModelMissing(f"{path / name} cannot be read: {error.strerror}") from error
        if found != wanted:
            raise ModelMissing(f"{path / name} is damaged: install the package again")


class Small:
    """Translates with the project's own networks."""

    def __init__(self, card: Card, inner: ctranslate.CTranslate) -> None:
        self._card = card
        self._inner = inner

    def about(self) -> About:
        """Tell what it is and can do."""
        about = self._inner.about()
        return About(
            engine="small",
            version=about.version,
            model=self._card.name,
            licence=self._card.licence,
            pairs=about.pairs,
        )

    def translate(self, text: str, source: str, target: str, watch: Watch) -> str:
        """Say it in another language."""
        return self._inner.translate(text, source, target, watch)

    def close(self) -> None:
        """Free the networks."""
        self._inner.close()
