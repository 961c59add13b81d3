"""Results that follow each other closely form a group: its id, its parts, its text. Pure.

A group continues while the next result comes within a window after the last playback or result. Its
recent text is the context for nodes, bounded in parts and characters. Times are arguments. They
must not repeat within a session, also on another instance, because ids contain them; therefore
groups are named by a wall clock.
"""

from __future__ import annotations

import unicodedata

WINDOW_MS = 2000
PARTS_MAX = 8
CONTEXT_CHARS_MAX = 800
# A client that never reports the end of a playback must not keep its group open forever.
PLAYBACK_MS_MAX = 60_000

USER = "User: "
TARGET = "Target: "
LABELS_CHARS = len(USER) + len("\n") + len(TARGET)
ZERO_WIDTH_JOINER = "\u200d"


class GroupTracker:
    """The current group of one session."""

    __slots__ = (
        "_anchor_ms",
        "_chars",
        "_chars_max",
        "_chars_of_texts_max",
        "_group_id",
        "_next_part",
        "_parts",
        "_parts_max",
        "_playing_since_ms",
        "_session",
        "_window_ms",
    )

    def __init__(
        self,
        session: str,
        window_ms: int = WINDOW_MS,
        parts_max: int = PARTS_MAX,
        context_chars_max: int = CONTEXT_CHARS_MAX,
    ) -> None:
        self._session = session
        self._window_ms = window_ms
        self._parts_max = parts_max
        self._chars_max = context_chars_max
        # What the labels of a part leave for its texts.
        self._chars_of_texts_max = max(context_chars_max - LABELS_CHARS, 0)
        # Empty before the first result.
        self._group_id = ""
        # Counts all parts of the group, also those whose text was dropped.
        self._next_part = 0
        # The end of the last playback or the last result, whichever came later: the window's start.
        self._anchor_ms = 0.0
        # When the current playback began, or None.
        self._playing_since_ms: float | None = None
        # The lines of the most recent parts, ready to be joined.
        self._parts: list[str] = []
        # The characters of the parts and of the line ends between them.
        self._chars = 0

    def result(
        self, text_asr: str, text_translated: str, now_ms: float, wall_ms: float | None = None
    ) -> tuple[str, int] | None:
        """Return the group and part of a result, or None without recognised words.

        `wall_ms` only names a new group; the window is measured by `now_ms`.
        """
        if not text_asr or text_asr.isspace():
            return None
        # A group goes on within its window, and while the client plays one of its parts.
        is_in_window = now_ms - self._anchor_ms <= self._window_ms or self._is_playing(now_ms)
        if not (self._group_id and is_in_window):
            self._begin(now_ms if wall_ms is None else wall_ms)
        part_index, parts = self._next_part, self._parts
        self._next_part = part_index + 1
        self._anchor_ms = now_ms
        lines = self._lines(text_asr, text_translated)
        chars = self._chars + len(lines) + (1 if parts else 0)
        parts.append(lines)
        # The newest part alone always fits, see `_lines`.
        while len(parts) > self._parts_max or chars > self._chars_max:
            chars -= len(parts.pop(0)) + (1 if parts else 0)
        self._chars = chars
        return self._group_id, part_index

    def _is_playing(self, now_ms: float) -> bool:
        started_ms = self._playing_since_ms
        return started_ms is not None and now_ms - started_ms <= PLAYBACK_MS_MAX

    def tts_started(self, now_ms: float) -> None:
        """Record that the client plays, which keeps the group open."""
        self._playing_since_ms = now_ms

    def tts_ended(self, now_ms: float) -> None:
        """Record that the client stopped playing: the window starts now."""
        self._playing_since_ms = None
        self._anchor_ms = now_ms

    def context_text(self) -> str:
        """Return the recent parts of the current group, oldest first."""
        return "\n".join(self._parts)

    def _begin(self, named_ms: float) -> None:
        self._group_id = f"group_{self._session}_{int(named_ms)}"
        self._next_part = 0
        self._parts.clear()
        self._chars = 0

    def _lines(self, text_asr: str, text_translated: str) -> str:
        """Return the lines of one part within the limit, cut at the beginning.

        Two long texts share the space; the space that one does not need is for the other.
        """
        room = self._chars_of_texts_max
        if len(text_asr) + len(text_translated) <= room:
            # Without line ends, so that it cannot imitate another part.
            user, target = " ".join(text_asr.split()), " ".join(text_translated.split())
        else:
            user, target = _one_line(text_asr, room), _one_line(text_translated, room)
            if len(user) + len(target) > room:
                user = _tail(user, max(room - len(target), room - room // 2))
                target = _tail(target, room - len(user))
        return f"{USER}{user}\n{TARGET}{target}" if target else f"{USER}{user}"


def _one_line(text: str, chars_max: int) -> str:
    """Return the end of a text without line ends, so that it cannot imitate another part."""
    if len(text) > chars_max:
        text = _tail(text.rstrip(), chars_max)
    return " ".join(text.split())


def _tail(text: str, chars_max: int) -> str:
    """Return at most this many characters from the end, starting with a whole character."""
    if len(text) <= chars_max:
        return text
    start = len(text) - chars_max
    while start < len(text) and _continues(text, start):
        start += 1
    return text[start:].lstrip()


def _continues(text: str, at: int) -> bool:
    """Tell whether a code point belongs to the character before it."""
    mark = unicodedata.category(text[at]).startswith("M")
    return mark or ZERO_WIDTH_JOINER in text[at - 1 : at + 1]
