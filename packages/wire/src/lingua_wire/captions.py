"""Captions: spoken text with its times, as SRT, WebVTT and JSON.

    Caption(start_ms, end_ms, text, speaker) ... ──> arrange ──> to_srt, to_vtt

`arrange` makes them readable: at most two lines of 42 columns at a time (a longer caption is shown
in parts, each for its share of the time), in order, without overlaps and empty captions. JSON keeps
each caption whole. Pure: no files. Used by `lingua translate` and by the OpenAI-compatible API.
"""

from __future__ import annotations

import json
import unicodedata
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

LINE_COLUMNS: Final = 42
LINES_MAX: Final = 2
# A caption that the next one cuts short is shown at least this long, if it was that long.
SHOWN_MS_MIN: Final = 500
ARROW: Final = "-->"


@dataclass(frozen=True, slots=True)
class Caption:
    """A text and the time it belongs to, from the beginning of the audio."""

    start_ms: float
    end_ms: float
    text: str
    # The name of the speaker; empty if it is not to be shown.
    speaker: str = ""


def to_srt(captions: Iterable[Caption]) -> str:
    """Return captions as SubRip text."""
    blocks = []
    for number, caption in enumerate(arrange(captions), 1):
        text = f"{_name(caption)}{caption.text}".replace(ARROW, "->")
        times = f"{_clock(caption.start_ms, ',')} {ARROW} {_clock(caption.end_ms, ',')}"
        blocks.append(f"{number}\n{times}\n{text}\n")
    return "\n".join(blocks)


def to_vtt(captions: Iterable[Caption], note: str = "") -> str:
    """Return captions as WebVTT text; the note is a comment at its beginning."""
    blocks = ["WEBVTT\n"]
    if cleaned := clean(note).replace(ARROW, "->"):
        blocks.append(f"NOTE {cleaned}\n")
    for caption in arrange(captions):
        speaker = _escaped(clean(caption.speaker))
        voice = f"<v {speaker}>" if speaker else ""
        times = f"{_clock(caption.start_ms, '.')} {ARROW} {_clock(caption.end_ms, '.')}"
        blocks.append(f"{times}\n{voice}{_escaped(caption.text)}\n")
    return "\n".join(blocks)


def to_json(captions: Iterable[Caption], language: str = "") -> str:
    """Return captions as one JSON object, each caption whole and at its own time."""
    rows = [
        {"start_ms": start, "end_ms": end, "text": text, "speaker": clean(caption.speaker)}
        for caption in captions
        if (text := clean(caption.text))
        for start, end in [_whole_ms(caption)]
    ]
    return json.dumps({"language": language, "captions": rows}, ensure_ascii=False, indent=2) + "\n"


def arrange(captions: Iterable[Caption]) -> list[Caption]:
    """Return captions to be shown: in order, split into readable parts, without overlaps."""
    parts = [part for caption in captions for part in split(caption)]
    parts.sort(key=lambda part: part.start_ms)
    return list(_apart(parts))


def split(caption: Caption) -> list[Caption]:
    """Return the caption as parts of two lines; each has the time its share of the text needs."""
    text = clean(caption.text)
    if not text:
        return []
    start, end = _whole_ms(caption)
    lines = wrap(text, LINE_COLUMNS)
    blocks = [lines[at : at + LINES_MAX] for at in range(0, len(lines), LINES_MAX)]
    # At most one part per millisecond: a part without time would never be shown.
    while len(blocks) > max(1, end - start):
        blocks[-2:] = [blocks[-2] + blocks[-1]]
    sizes = [max(1, sum(map(columns, block))) for block in blocks]
    edges = [start]
    said = 0
    for size in sizes:
        said += size
        edge = start + round((end - start) * said / sum(sizes))
        edges.append(max(edges[-1] + 1, edge))
    return [
        replace(caption, start_ms=begin, end_ms=finish, text="\n".join(block))
        for (begin, finish), block in zip(pairwise(edges), blocks, strict=True)
    ]


def wrap(text: str, width: int) -> list[str]:
    """Return the text as lines of at most `width` columns, of similar length."""
    count = len(filled(text, width))
    longest = max((columns(word.strip()) for word in _words(text, width)), default=1)
    # The columns needed on average: a line break replaces a space.
    least = -(-(columns(text) - count + 1) // max(1, count))
    start = min(width, max(longest, least))
    narrowest = next(w for w in range(start, width + 1) if len(filled(text, w)) == count)
    return filled(text, narrowest)


def filled(text: str, width: int) -> list[str]:
    """Return lines filled as far as the next word fits; a word longer than a line is broken."""
    lines: list[str] = []
    line, used = "", 0
    for word in _words(text, width):
        size, is_joined = columns(word), not word.startswith(" ")
        bare = word if is_joined else word[1:]
        if line and used + size > width:
            lines.append(line)
            line, used = bare, columns(bare)
        else:
            line, used = (line + word, used + size) if line else (bare, columns(bare))
    return [*lines, line] if line else lines


def columns(text: str) -> int:
    """Return the width of the text in columns of a terminal or of a subtitle line."""
    return len(text) if text.isascii() else sum(map(_column_count, text))


def clean(text: str) -> str:
    """Return the text on one line, without control characters and needless space."""
    return " ".join(
        "".join(" " if unicodedata.category(c) in ("Cc", "Cs") else c for c in text).split()
    )


def _words(text: str, width: int) -> Iterator[str]:
    """Give words with the space before them; wide letters (Chinese) are words of their own."""
    for word in text.split():
        if columns(word) <= width and not any(_column_count(c) == 2 for c in word):
            yield f" {word}"
            continue
        space = " "
        for piece in _pieces(word, width):
            yield space + piece
            space = ""


def _pieces(word: str, width: int) -> Iterator[str]:
    """Break a word where it may be broken: at wide letters, else where a line is full."""
    piece, used = "", 0
    for letter in word:
        size = _column_count(letter)
        is_mark = size == 0 or unicodedata.category(letter).startswith("P")
        is_full = used + size > width
        if piece and (is_full or (not is_mark and (size > 1 or _column_count(piece[-1]) > 1))):
            yield piece
            piece, used = "", 0
        piece, used = piece + letter, used + size
    yield piece


def _column_count(letter: str) -> int:
    if letter < "\u0300":
        return 1
    if unicodedata.combining(letter) or unicodedata.category(letter) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in ("W", "F") else 1


def _apart(parts: Sequence[Caption]) -> Iterator[Caption]:
    """Give the parts so that each ends before the next begins."""
    free_from = 0.0
    for part, following in zip(parts, [*parts[1:], None], strict=False):
        start = max(part.start_ms, free_from)
        at_least = start + min(part.end_ms - part.start_ms, SHOWN_MS_MIN)
        end = max(part.end_ms, at_least)
        if following is not None:
            end = max(min(end, following.start_ms), at_least)
        free_from = end
        yield replace(part, start_ms=start, end_ms=end)


def _whole_ms(caption: Caption) -> tuple[int, int]:
    """Return its times in whole milliseconds, from 0 on, the end after the start."""
    start = max(0, round(caption.start_ms))
    end = round(caption.end_ms)
    return start, end if end > start else start + SHOWN_MS_MIN


def _clock(at_ms: float, mark: str) -> str:
    seconds, ms = divmod(int(at_ms), 1000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour:02}:{minute:02}:{second:02}{mark}{ms:03}"


def _name(caption: Caption) -> str:
    speaker = clean(caption.speaker)
    return f"{speaker}: " if speaker else ""


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
