"""Where a sentence has ended within speech that goes on: after its last word, at a quiet place.

The recogniser gives no times. But every hearing tells up to where it heard: a word that the hearing
up to 2 s had not, and the one up to 3 s has, ends between them. Within that, the quiet place that
is nearest to the word's share of the text is taken. Without a quiet place there is no end. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from lingua_speech.listening.completeness import SENTENCE_ENDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lingua_speech.listening.ear import Ear

# A quiet place after a sentence; shorter ones occur within words.
QUIET_MS: Final = 120
# A word may have been spoken, but not yet recognised, so long before the end of a hearing.
UNHEARD_MS: Final = 600
# How far from its share of the text a word may be, as a part of the speech.
SHARE_ERROR: Final = 0.25
ABBREVIATIONS: Final = frozenset(
    {"mr.", "mrs.", "ms.", "dr.", "st.", "sr.", "sra.", "no.", "etc.", "e.g.", "i.e.", "vs.", "jr."}
)


class SentenceEnd(NamedTuple):
    """After how many words of the utterance a sentence ended, and where."""

    words: int
    at_ms: int


class SentenceEnds:
    """The sentence ends of one utterance."""

    def __init__(self) -> None:
        # For each word: up to where the last hearing without it heard, and the first with it.
        self._missing_ms: list[int] = []
        self._heard_ms: list[int] = []
        self._last_ms = 0

    def hear(self, count: int, upto_ms: int) -> None:
        """Take note of a hearing with so many words, up to a place."""
        while len(self._heard_ms) < count:
            self._missing_ms.append(self._last_ms)
            self._heard_ms.append(upto_ms)
        self._last_ms = upto_ms

    def latest(self, words: Sequence[str], stable: int, ear: Ear) -> SentenceEnd | None:
        """Return the last sentence end among the stable words; something must follow it."""
        for at in range(min(stable, len(words) - 1, len(self._heard_ms) - 1) - 1, -1, -1):
            if is_sentence_end(words[at]):
                place = self._place(words, at, ear)
                return None if place is None else SentenceEnd(at + 1, place)
        return None

    def _place(self, words: Sequence[str], at: int, ear: Ear) -> int | None:
        first_ms = self._missing_ms[at] - UNHEARD_MS
        last_ms = self._heard_ms[at + 1]
        places = ear.quiet_places(max(0, first_ms), last_ms, QUIET_MS)
        share = len(" ".join(words[: at + 1])) / max(1, len(" ".join(words)))
        likely_ms = share * self._last_ms
        near_ms = SHARE_ERROR * self._last_ms + QUIET_MS
        near = [one for one in places if abs(one.middle_ms - likely_ms) <= near_ms]
        if not near:
            return None
        return min(near, key=lambda one: abs(one.middle_ms - likely_ms)).middle_ms


def is_sentence_end(word: str) -> bool:
    """Tell whether a word ends a sentence."""
    bare = word.rstrip("\"'”»)")
    return (
        bare.endswith(SENTENCE_ENDS)
        and not bare.endswith("...")
        and bare.casefold() not in ABBREVIATIONS
    )
