"""Sentences that exist in two languages: the corpus on which translation is measured. Pure.

The Asterisk prompts have the same keys in every language, so two transcripts make a parallel text.
The selection is English of 30 to 300 characters, without stage directions in brackets and without
duplicate pairs. It is the one closest to the first measurement of plain Apertium (chrF 47.7 and
46.5, an untranslated copy 22.8 and 24.6, on 157 prompts; here 45.9 and 46.6, copy 22.8 and 24.6, on
156, one of them without Spanish). Half of it is held out: authors of rules use the other half only.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

CHARACTERS: Final = range(30, 301)
BRACKETS: Final = frozenset("[](){}<>")


class Prompt(NamedTuple):
    """One sentence or a few, in two languages."""

    key: str
    first: str
    second: str

    @property
    def is_held_out(self) -> bool:
        """Tell whether it is held out: authors of rules must not use it."""
        return bool(hashlib.sha256(self.key.encode()).digest()[0] & 1)


def parallel_prompts(first_tsv: Path, second_tsv: Path) -> list[Prompt]:
    """Return the prompts of two `transcripts.tsv` on which translation is measured, by key.

    The length of the first text decides; in all published figures that is English.
    """
    first, second = transcripts(first_tsv), transcripts(second_tsv)
    found: dict[tuple[str, str], Prompt] = {}
    for key in sorted(first.keys() & second.keys()):
        pair = first[key], second[key]
        if len(pair[0]) in CHARACTERS and not BRACKETS & set("".join(pair)):
            found.setdefault(pair, Prompt(key, *pair))
    return list(found.values())


def transcripts(path: Path) -> dict[str, str]:
    """Return key -> text of a `transcripts.tsv`; of duplicate keys the first counts."""
    found: dict[str, str] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        key, tab, text = line.partition("\t")
        if tab and key.strip() and text.strip():
            found.setdefault(key.strip(), text.strip())
    return found
