"""Small networks of our own, for directions that no registry has a model for (mt=small).

They were trained by this project (`weights/card.toml` says on what) and come with the package:
folders that CTranslate2 reads, one for each direction or for several. Every file is pinned by its
SHA-256 in the card, so that a damaged one is told at the start. The work is `ctranslate`'s. Small
networks are good at what they have seen much of, and invent the rest, but know it: below the score
that the card says a translation is remarked `mt_unsure`, and the router asks somebody else.

| option | default | what it is |
|---|---|---|
| dir | | a folder with a `card.toml`, instead of the package's own |
| pairs | | only these of what the card has: `en-es+es-en` |
| threads | 1 | threads of one translation |
| beam | 2 | width of the search, 1 to 16 |
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from lingua_scheduler.languages import base_of
from lingua_scheduler.speech import plugins
from lingua_scheduler.speech.engine import About, ModelMissing, Rendered, Watch
from lingua_scheduler.speech.engines import ctranslate
from lingua_scheduler.speech.engines import options as reading
from lingua_scheduler.speech.routing.guards import UNSURE

if TYPE_CHECKING:
    from collections.abc import Mapping

KNOWN: Final = {"dir": "", "pairs": "", "threads": "1", "beam": "2"}
CARD: Final = "card.toml"
OWN: Final = Path(__file__).with_name("weights")


class Folder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One network: its directions, and the SHA-256 of every file."""

    pairs: tuple[str, ...]
    sha256: dict[str, str]
    # The mean log-probability below which others translate better; measured, not guessed.
    least_score: float = -1000.0


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
    least = {reading.direction(pair): folder.least_score
             for folder in card.folders.values() for pair in folder.pairs}  # fmt: skip
    return Small(card, ctranslate.make({**folders, **shared}), least)


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

    def __init__(
        self, card: Card, inner: ctranslate.CTranslate, least: Mapping[tuple[str, str], float]
    ) -> None:
        self._card = card
        self._inner = inner
        # Direction -> the score that a translation must have to be sure.
        self._least = least

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

    def translate(self, text: str, source: str, target: str, watch: Watch) -> Rendered:
        """Say it in another language, and say if that is hardly more than a guess."""
        guess = self._inner.translate_surely(text, source, target, watch)
        is_sure = guess.score >= self._least[base_of(source), base_of(target)]
        return Rendered(guess.text, remarks=() if is_sure else (UNSURE,))

    def close(self) -> None:
        """Free the networks."""
        self._inner.close()
