"""What a terminal shows after some output, with the attributes of its letters."""

from __future__ import annotations

import re

# Colours, clearing to the end of the line, one line up, a letter.
TOKEN = re.compile(r"\x1b\[(\d*)m|\x1b\[(K)|\x1b\[(A)|(.)", re.DOTALL)


def picture(written: str) -> list[str]:
    """Return the rows; dim letters are between < and >."""
    rows: list[list[tuple[str, bool]]] = [[]]
    row, column, is_dim = 0, 0, False
    for colour, clear, up, letter in TOKEN.findall(written):
        if clear:
            del rows[row][column:]
        elif up:
            row = max(0, row - 1)
        elif letter == "\r":
            column = 0
        elif letter == "\n":
            row += 1
            rows += [[]] * (row == len(rows))
        elif letter:
            rows[row][column:] = [(letter, is_dim)]
            column += 1
        else:
            is_dim = colour == "2"
    return [_marked(letters) for letters in rows]


def _marked(letters: list[tuple[str, bool]]) -> str:
    text, was_dim = "", False
    for letter, is_dim in letters:
        text += ("<" if is_dim else ">") if is_dim != was_dim else ""
        text += letter
        was_dim = is_dim
    return text + (">" if was_dim else "")
