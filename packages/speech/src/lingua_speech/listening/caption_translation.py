"""The translation of a text that grows, into one language: what is stable, and the rest.

A sentence whose words are all stable is translated once, and that is stable. The open sentence is
translated anew each time; of it, the words are stable on which two translations in a row agree,
except the last ones. Where a later translation differs from stable words, it only continues them.
Pure: the caller translates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from lingua_speech.listening.agreement import plain
from lingua_speech.listening.sentence_ends import is_sentence_end

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lingua_speech.listening.agreement import HeardText

# Words at the end of two agreeing translations that may still change.
HELD_BACK: Final = 2


class CaptionSentences(NamedTuple):
    """A text so far: its whole sentences, which are stable, and the rest."""

    whole: tuple[str, ...]
    open: str


def sentences_of(heard: HeardText) -> CaptionSentences:
    """Return the sentences of a text; one is whole if it is stable and another word follows."""
    whole: list[str] = []
    began = 0
    words = (*heard.stable, *heard.unstable)
    for at, word in enumerate(heard.stable):
        if is_sentence_end(word) and at + 1 < len(words):
            whole.append(" ".join(heard.stable[began : at + 1]))
            began = at + 1
    return CaptionSentences(tuple(whole), " ".join(words[began:]))


class CaptionTranslation:
    """The translation of one utterance so far."""

    def __init__(self) -> None:
        # How many whole sentences it contains.
        self.sentences = 0
        self._stable: list[str] = []
        # How many of the stable words belong to the open sentence.
        self._open_stable = 0
        # The last translation of the open sentence.
        self._before: list[str] = []
        self._unstable: list[str] = []

    @property
    def stable(self) -> str:
        """Return what will not change any more."""
        return " ".join(self._stable)

    @property
    def unstable(self) -> str:
        """Return the rest."""
        return " ".join(self._unstable)

    def add_sentence(self, translated: str) -> None:
        """Add the translation of the next whole sentence."""
        self._stable += translated.split()[self._open_stable :]
        self.sentences += 1
        self._open_stable = 0
        self._before, self._unstable = [], []

    def set_open(self, translated: str) -> None:
        """Replace the translation of the open sentence."""
        words = translated.split()
        known = self._open_stable
        agreed = _common(words, self._before) - HELD_BACK
        if agreed > known and _common(words, self._stable[len(self._stable) - known :]) == known:
            self._stable += words[known:agreed]
            self._open_stable = agreed
        self._before = words
        self._unstable = words[self._open_stable :]


def _common(words: Sequence[str], others: Sequence[str]) -> int:
    count = 0
    for word, other in zip(words, others, strict=False):
        if plain(word) != plain(other):
            break
        count += 1
    return count
