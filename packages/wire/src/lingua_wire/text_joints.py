"""How the parts of a text are joined: with a space, where their script has spaces. Pure."""

from __future__ import annotations

import unicodedata
from typing import Final

# The names of letters of scripts that have no spaces between words begin so.
UNSPACED: Final = (
    "CJK",
    "HIRAGANA",
    "KATAKANA",
    "THAI",
    "LAO",
    "KHMER",
    "MYANMAR",
    "FULLWIDTH",
    "IDEOGRAPHIC",
)


def joined_text(stable: str, unstable: str) -> str:
    """Return a text from its stable words and those that may still change."""
    is_apart = not stable or not unstable or stable[-1].isspace() or unstable[0].isspace()
    if is_apart or (is_unspaced(stable[-1]) and is_unspaced(unstable[0])):
        return stable + unstable
    return f"{stable} {unstable}"


def is_unspaced(character: str) -> bool:
    """Tell whether a letter belongs to a script that has no spaces between words."""
    return unicodedata.name(character, "").startswith(UNSPACED)
