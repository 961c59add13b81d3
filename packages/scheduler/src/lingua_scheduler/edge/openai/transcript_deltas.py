"""A transcript that grows by deltas while somebody still speaks. Pure.

    stable text of a partial ──> grow ──┐
                                        ├──> the next delta; nothing can be taken back
    final text of an outcome ──> finish ┘

Only whole words of the stable text are sent early. What the outcome adds is sent with it. If the
outcome differs from what was sent, the API has no event to correct it: the words of the outcome
after the last one that both have in common follow, so that none of them is missing.
"""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Final

from lingua_scheduler.edge.openai.answers import spaced
from lingua_wire.text_joints import is_unspaced

if TYPE_CHECKING:
    from collections.abc import Iterator

WORD: Final = re.compile(r"\S+")
PUNCTUATION: Final = re.compile(r"\W+")


class TranscriptDeltas:
    """The text of one transcript that was sent so far, one utterance after another."""

    def __init__(self) -> None:
        # What was sent of the utterances before this one, as far as it decides about a space.
        self._before = ""
        # The utterance that is being sent, and what was sent of it.
        self._index = -1
        self._sent = ""

    def grow(self, index: int, stable: str) -> str:
        """Return what a stable text adds to an utterance that is still spoken; often nothing."""
        if index < self._index:
            return ""
        self._begin(index)
        text = whole_words(stable)
        # A text that begins otherwise comes from another node: the outcome decides.
        return self._add(text[len(self._sent) :]) if text.startswith(self._sent) else ""

    def finish(self, index: int, final: str) -> str:
        """Return what the final text adds; nothing more is sent of this utterance."""
        if index < self._index:
            return spaced(self._sent or self._before, final.strip())
        self._begin(index)
        delta = self._add(rest_of(final.strip(), self._sent))
        self.drop(index)
        return delta

    def drop(self, index: int) -> None:
        """Send nothing more of an utterance: its outcome has no text."""
        self._begin(index)
        self._begin(index + 1)

    def _begin(self, index: int) -> None:
        if index > self._index:
            self._before = self._sent or self._before
            self._index, self._sent = index, ""

    def _add(self, text: str) -> str:
        if not text:
            return ""
        delta = text if self._sent else spaced(self._before, text)
        self._sent += text
        return delta


def whole_words(text: str) -> str:
    """Return a text without its last word, which may still get an ending or a comma."""
    text = text.lstrip()
    bounds = [end for _, end in word_spans(text)]
    complete = [end for end in bounds if end < len(text)]
    return text[: complete[-1]] if complete else ""


def rest_of(final: str, sent: str) -> str:
    """Return the part of a final text that follows what was sent."""
    if final.startswith(sent):
        return final[len(sent) :]
    spans = list(word_spans(final))
    before = [_plain(sent[start:end]) for start, end in word_spans(sent)]
    after = [_plain(final[start:end]) for start, end in spans]
    known = _known_words(before, after)
    if known == len(spans):
        return ""
    return spaced(sent, final[spans[known][0] :])


def word_spans(text: str) -> Iterator[tuple[int, int]]:
    """Give where words begin and end; letters of scripts without spaces are words of their own."""
    for match in WORD.finditer(text):
        start, end = match.span()
        for at in range(start, end):
            if is_unspaced(text[at]) and at + 1 < end:
                yield start, at + 1
                start = at + 1
        yield start, end


def _known_words(before: list[str], after: list[str]) -> int:
    """Return after how many words of the final text the rest begins."""
    blocks = SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks()
    # The last block is an empty one at the end.
    return max((block.b + block.size for block in blocks[:-1]), default=0)


def _plain(word: str) -> str:
    """Return a word without its punctuation and capitals; punctuation alone stays."""
    return PUNCTUATION.sub("", word).casefold() or word
