"""A room's captions as a file: SRT, WebVTT or text. Pure."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from lingua_wire.captions import Caption, clean, to_srt, to_vtt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lingua_scheduler.state.caption_scripts import StoredCaption

# How long a caption is shown: by its length, as people read, within these bounds.
READ_MS_PER_CHAR = 70
SHOWN_MS_MIN, SHOWN_MS_MAX = 1_500, 7_000


def transcript(captions: Sequence[StoredCaption], form: str) -> str:
    """Return captions in the order of the room, with times from the first of them."""
    named = with_names(captions)
    if form == "txt":
        return "".join(f"{line}\n" for line in lines_of(named))
    timed = timed_captions(named)
    return to_srt(timed) if form == "srt" else to_vtt(timed)


def with_names(captions: Sequence[StoredCaption]) -> list[tuple[StoredCaption, str]]:
    """Return captions with the names of their speakers.

    Who had left when its last words were translated has the name of its other captions.
    """
    names = {caption.speaker: caption.name for caption in captions if caption.name}
    return [(caption, caption.name or names.get(caption.speaker, "")) for caption in captions]


def timed_captions(named: Sequence[tuple[StoredCaption, str]]) -> list[Caption]:
    """Return captions with the times at which they are shown."""
    if not named:
        return []
    first = named[0][0].at_ms
    starts = [max(0, caption.at_ms - first) for caption, _ in named]
    ends = [following for _, following in pairwise(starts)]
    found = []
    for number, (caption, name) in enumerate(named):
        wanted_ms = READ_MS_PER_CHAR * len(caption.text)
        end = starts[number] + min(SHOWN_MS_MAX, max(SHOWN_MS_MIN, wanted_ms))
        if number < len(ends):
            end = max(starts[number], min(end, ends[number]))
        found.append(Caption(starts[number], end, caption.text, name))
    return found


def lines_of(named: Sequence[tuple[StoredCaption, str]]) -> list[str]:
    """Return a line for each caption: time, name, text."""
    lines = []
    for shown in timed_captions(named):
        minutes, second = divmod(int(shown.start_ms) // 1000, 60)
        hour, minute = divmod(minutes, 60)
        speaker = f"{clean(shown.speaker)}: " if clean(shown.speaker) else ""
        lines.append(f"[{hour:02}:{minute:02}:{second:02}] {speaker}{clean(shown.text)}")
    return lines
