"""The text of speech that goes on, for people: firm words, and words that may still change.

A line consists of spans, each with a tone; `Screen` draws them. Widths are columns of a terminal:
wide letters take two. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from lingua_wire.captions import clean, columns
from lingua_wire.text_joints import joined_text

if TYPE_CHECKING:
    from collections.abc import Sequence

ELLIPSIS: Final = "…"
# The tones of words that stay, and of those that may still change.
FIRM, LOOSE = "plain", "note"


class ToneSpan(NamedTuple):
    """A piece of a line that is drawn in one tone."""

    text: str
    tone: str


def split_text(stable: str, unstable: str) -> tuple[str, str]:
    """Return the firm and the loose words without control characters and needless space."""
    whole, firm = clean(joined_text(stable, unstable)), clean(stable)
    return (firm, whole[len(firm) :]) if whole.startswith(firm) else ("", whole)


def growing_line(label: str, margin: int, texts: tuple[str, str], width: int) -> list[ToneSpan]:
    """Return one line: a label, the firm words, the loose words; the end if all is too long."""
    firm, loose = texts
    gap = " " * max(1, margin - columns(label))
    room = max(1, width - columns(label) - len(gap))
    end = f"{loose} {ELLIPSIS}" if firm or loose else ELLIPSIS
    return [
        ToneSpan(label + gap, LOOSE),
        *cut_left([ToneSpan(firm, FIRM), ToneSpan(end, LOOSE)], room),
    ]


def cut_left(spans: Sequence[ToneSpan], width: int) -> list[ToneSpan]:
    """Return the end of a line that fits into so many columns."""
    if sum(columns(span.text) for span in spans) <= width:
        return list(spans)
    kept: list[ToneSpan] = []
    room = width - columns(ELLIPSIS)
    for span in reversed(spans):
        text = fitting_end(span.text, room)
        kept.insert(0, ToneSpan(text, span.tone))
        room -= columns(text)
        if len(text) < len(span.text):
            break
    return [ToneSpan(ELLIPSIS, LOOSE), *kept]


def fitting_end(text: str, width: int) -> str:
    """Return the last letters of a text that fit into so many columns."""
    used, start = 0, len(text)
    while start and used + columns(text[start - 1]) <= width:
        start -= 1
        used += columns(text[start])
    return text[start:]


def tail(text: str, width: int) -> str:
    """Return the end of a text that fits into so many columns, marked if it is not all."""
    return "".join(span.text for span in cut_left([ToneSpan(text, LOOSE)], width))


def growing_words(stable: str, unstable: str) -> str:
    """Return the text without tones: words that may still change are in brackets."""
    firm, loose = split_text(stable, unstable)
    space = " " if loose.startswith(" ") else ""
    return f"{firm}{space}[{loose.strip()}]" if loose else firm
