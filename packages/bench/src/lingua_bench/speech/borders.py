"""Counts the words that are lost where long speech was sliced. Pure: compares two texts.

The one pass is the reference: a word of it that the slices lack is counted, near a border if the
place where it is missing is within `NEAR` words of one. A misheard word is missing only if there is
no other word in its place.
"""

from __future__ import annotations

from difflib import SequenceMatcher
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple

from lingua_speech.scores import words

if TYPE_CHECKING:
    from collections.abc import Sequence

NEAR: Final = 2


class MissingWords(NamedTuple):
    """Words of the one pass that no slice has."""

    at_borders: int
    elsewhere: int


def missing_words(one_pass: str, slices: Sequence[str]) -> MissingWords:
    """Return how many words are missing, and where."""
    wanted = words(one_pass)
    pieces = [words(piece) for piece in slices]
    got = [word for piece in pieces for word in piece]
    borders = list(accumulate(len(piece) for piece in pieces))[:-1]
    near = far = 0
    for kind, i1, i2, j1, j2 in SequenceMatcher(None, wanted, got, autojunk=False).get_opcodes():
        lost = (i2 - i1) - (j2 - j1)
        if kind == "equal" or lost <= 0:
            continue
        if any(j1 - NEAR <= border <= j2 + NEAR for border in borders):
            near += lost
        else:
            far += lost
    return MissingWords(near, far)
