"""How far captions are behind the voice, and how much of what they showed was taken back. Pure.

The *lag* of a word is the time from its end, as it was spoken, to the first moment from which the
captions show it, at its place and for good. *Erasure* is the number of words that were shown and
then replaced, per word of the final text. Words are compared without capitals and punctuation.

Where no word times are known the final text is spread evenly over the voiced span, by its letters:
also the translation, whose words have no times of their own. Such a lag is right on average; that
of one word is not, and may be below 0.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

PUNCTUATION: Final = re.compile(r"\W+")


@dataclass(frozen=True, slots=True)
class ShownText:
    """What the captions showed of one utterance from a moment on."""

    at_s: float
    text: str


@dataclass(frozen=True, slots=True)
class CaptionedUtterance:
    """All that was shown of one utterance in one language; the last text is the outcome's."""

    shown: tuple[ShownText, ...]
    # When its voice began and ended.
    voice_s: tuple[float, float]
    # When each word of the final text ended; none: spread evenly.
    word_ends_s: tuple[float, ...] = ()

    def lags_s(self) -> list[float]:
        """Return the lag of each word of the final text."""
        final = words_of(self.shown[-1].text)
        ends_s = self.word_ends_s or even_word_ends_s(final, *self.voice_s)
        return [at_s - end_s for at_s, end_s in zip(shown_at_s(self.shown), ends_s, strict=True)]


def words_of(text: str) -> list[str]:
    """Return the words of a text as they are compared; signs alone are no words."""
    plain = (PUNCTUATION.sub("", word).casefold() for word in text.split())
    return [word for word in plain if word]


def even_word_ends_s(words: Sequence[str], start_s: float, end_s: float) -> list[float]:
    """Return when words ended if each letter took the same time."""
    letters = [*accumulate(map(len, words))]
    return [start_s + (end_s - start_s) * count / letters[-1] for count in letters]


def shown_at_s(shown: Sequence[ShownText]) -> list[float]:
    """Return from when on each word of the last text was shown without a change."""
    final = words_of(shown[-1].text)
    found = [shown[-1].at_s] * len(final)
    is_kept = [True] * len(final)
    for one in reversed(shown[:-1]):
        words = words_of(one.text)
        for place, word in enumerate(final):
            is_kept[place] = is_kept[place] and words[place : place + 1] == [word]
            if is_kept[place]:
                found[place] = one.at_s
    return found


def erased_words(shown: Sequence[ShownText]) -> int:
    """Return how many words were shown and then replaced or removed."""
    texts = [words_of(one.text) for one in shown]
    return sum(len(before) - _common(before, after) for before, after in pairwise(texts))


def erasure(utterances: Sequence[CaptionedUtterance]) -> float:
    """Return the words taken back per word of the final texts."""
    erased = sum(erased_words(one.shown) for one in utterances)
    return erased / max(1, sum(len(words_of(one.shown[-1].text)) for one in utterances))


def _common(before: Sequence[str], after: Sequence[str]) -> int:
    """Return with how many same words two texts begin."""
    same = [one == other for one, other in zip(before, after, strict=False)]
    return same.index(False) if False in same else len(same)
