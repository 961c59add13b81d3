"""Which words of growing speech are stable: they will not be changed any more. Pure.

The recogniser hears the same speech again and again, each time with more of it. A word becomes
stable when two hearings in a row agree on it and on all words before it, or when one hearing is
sure of it and of all before it and has heard enough after it. Stable words are never taken back:
where a later hearing differs, it only continues them.
"""

from __future__ import annotations

from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Final, NamedTuple

from lingua_speech.engine import HeardWord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lingua_speech.engine import Transcript

PUNCTUATION: Final = ".,;:!?…\"'“”«»()[]¿¡-\u2013\u2014"
# A sure word, and how many words must have been heard after it. Measured on 11 recordings: with a
# lower bound or agreement alone the same words were wrong, and agreement alone is slower.
SURE: Final = 0.65
WORDS_AFTER_SURE: Final = 2
# A less probable word is not shown, nor what follows it: without this, twice as many words were
# taken back.
SHOWN: Final = 0.3
# The last word may be half of one: it must be more probable.
SHOWN_LAST: Final = 0.6
# For engines that do not know how probable a word is: shown, but not sure.
UNKNOWN: Final = 0.5
# How many stable words are compared with a hearing that differs from them.
ALIGNED_WORDS: Final = 8


class HeardText(NamedTuple):
    """The words so far: those that are stable, and the rest."""

    stable: tuple[str, ...]
    unstable: tuple[str, ...]

    @property
    def text(self) -> str:
        """Return all words as a text."""
        return " ".join((*self.stable, *self.unstable))


def plain(word: str) -> str:
    """Return a word as it is compared: without punctuation, in lower case."""
    return word.strip(PUNCTUATION).casefold()


class Agreement:
    """The hearings of one utterance, compared."""

    def __init__(self) -> None:
        self._stable: list[str] = []
        # What the last hearing had after the stable words of then, and how many these were.
        self._rest: list[str] = []
        self._rest_at = 0

    @property
    def stable(self) -> tuple[str, ...]:
        """Return the stable words."""
        return tuple(self._stable)

    def hear(self, words: Sequence[HeardWord], *, is_quiet: bool) -> HeardText:
        """Add a hearing of everything so far; `is_quiet`: its last word has surely ended."""
        rest = list(words[self._continues_at([word.text for word in words]) :])
        agreed = self._agreed(rest)
        count = max(agreed, _sure(rest))
        if not is_quiet:
            # The last word may be the beginning of a longer one.
            count = min(count, max(0, len(rest) - 1))
        before = self._rest[len(self._stable) - self._rest_at :]
        for at, word in enumerate(rest[:count]):
            is_last = at + 1 == len(rest)
            is_same = at < len(before) and before[at] == word.text
            # The full stop after the last word is a guess, until it is heard twice.
            self._stable.append(
                word.text.rstrip(".,;:!?…") if is_last and not is_same else word.text
            )
        self._rest = [word.text for word in rest]
        self._rest_at = len(self._stable) - count
        return HeardText(self.stable, _shown(rest[count:], is_quiet=is_quiet))

    def _continues_at(self, heard: Sequence[str]) -> int:
        """Return where in a hearing the stable words end."""
        count = len(self._stable)
        known = [plain(word) for word in self._stable]
        now = [plain(word) for word in heard]
        if now[:count] == known:
            return count
        tail = known[-ALIGNED_WORDS:]
        first = max(0, count - len(tail) - ALIGNED_WORDS)
        near = now[first : count + ALIGNED_WORDS]
        matches = SequenceMatcher(None, tail, near, autojunk=False).get_matching_blocks()
        last = max((one for one in matches if one.size), key=lambda one: one.a, default=None)
        if last is None:
            return min(count, len(now))
        # The stable words after the last common one stand for as many of the hearing.
        missing = len(tail) - (last.a + last.size)
        return min(len(now), first + last.b + last.size + missing)

    def _agreed(self, rest: Sequence[HeardWord]) -> int:
        """Return how many words begin both this and the last hearing."""
        before = self._rest[len(self._stable) - self._rest_at :]
        count = 0
        for word, other in zip(rest, before, strict=False):
            if plain(word.text) != plain(other):
                break
            count += 1
        return count


def words_of(heard: Transcript) -> tuple[HeardWord, ...]:
    """Return the words of a hearing; the last is doubtful if the engine does not know better."""
    if heard.words:
        return heard.words
    *words, last = heard.text.split() or [""]
    return tuple(HeardWord(word, UNKNOWN) for word in words) + (
        (HeardWord(last, 0.0),) if last else ()
    )


def as_heard(said: Sequence[str], heard: Sequence[HeardWord]) -> tuple[str, ...]:
    """Return words with the marks that a hearing gives them, as far as it has the same words."""
    same = (
        other.text if plain(other.text) == plain(word) else word
        for word, other in zip(said, heard, strict=False)
    )
    return (*same, *said[len(heard) :])


def _shown(rest: Sequence[HeardWord], *, is_quiet: bool) -> tuple[str, ...]:
    """Return the words to show: in a pause all; else the last one, perhaps half, only if sure."""
    count = len(rest)
    if not is_quiet:
        unsure = (at for at, word in enumerate(rest) if word.probability < SHOWN)
        count = next(unsure, count)
        if count == len(rest) and rest and rest[-1].probability < SHOWN_LAST:
            count -= 1
    return tuple(word.text for word in rest[:count])


def _sure(rest: Sequence[HeardWord]) -> int:
    """Return how many words the hearing is sure of."""
    count = 0
    for word in rest[: max(0, len(rest) - WORDS_AFTER_SURE)]:
        if word.probability < SURE:
            break
        count += 1
    return count
