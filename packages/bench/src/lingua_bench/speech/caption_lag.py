"""How late captions are, how often they change, and how soon a result follows the voice. Pure.

Nobody knows when each word of a recording ends. It is estimated: the letters of the final text are
spread evenly over the parts with voice. That is wrong by some 200 ms for a single word, and right
on average. Silence before the voice and longer pauses in it hold no words.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Final, NamedTuple

from lingua_speech.listening.agreement import plain
from lingua_speech.listening.ear import Ear

if TYPE_CHECKING:
    from collections.abc import Sequence

# A pause between two words; shorter ones occur within words.
PAUSE_MS: Final = 200


class SeenCaption(NamedTuple):
    """A caption, and when it was shown, in milliseconds of the audio's clock."""

    at_ms: float
    stable: str
    unstable: str
    # The translation into one language.
    stable_translation: str = ""
    unstable_translation: str = ""


@dataclass(frozen=True, slots=True)
class CaptionLag:
    """The figures of one utterance."""

    words: int
    # Of each word: from its end until it was shown as stable, and shown at all; and of each word of
    # the translation, as if it were spoken at the same pace.
    stable_ms: tuple[float, ...]
    shown_ms: tuple[float, ...]
    translated_ms: tuple[float, ...]
    # Words that were shown and taken back, for each word of the final text.
    erasure: float
    translation_erasure: float
    # Stable words that the final text does not have, for each of its words.
    stable_errors: float


def voiced_parts(pcm: bytes, sample_rate: int) -> tuple[tuple[float, float], ...]:
    """Return the parts of an utterance with voice, in milliseconds; all of it if none is found."""
    ear = Ear(sample_rate)
    ear.add(pcm)
    quiet = ear.quiet_places(0, ear.heard_ms, PAUSE_MS)
    ends = [0.0, *(float(edge) for place in quiet for edge in place), float(ear.heard_ms)]
    parts = zip(ends[::2], ends[1::2], strict=True)
    return tuple((start, end) for start, end in parts if end > start) or ((0.0, ends[-1]),)


def word_ends_ms(words: Sequence[str], voiced: Sequence[tuple[float, float]]) -> list[float]:
    """Return where each word ends, spread over the parts with voice."""
    total = sum(end - start for start, end in voiced)
    letters = sum(len(word) + 1 for word in words)
    ends, said = [], 0
    for word in words:
        said += len(word) + 1
        ends.append(_place(said / max(1, letters) * total, voiced))
    return ends


def _place(spoken_ms: float, voiced: Sequence[tuple[float, float]]) -> float:
    for start, end in voiced:
        if spoken_ms <= end - start + 1e-6:
            return start + spoken_ms
        spoken_ms -= end - start
    return voiced[-1][1] if voiced else spoken_ms


def lag_of(
    final: str,
    translated: str,
    captions: Sequence[SeenCaption],
    voiced: Sequence[tuple[float, float]],
    result_ms: float,
) -> CaptionLag:
    """Return the figures of an utterance whose result came at a time."""
    words = final.split()
    ends = word_ends_ms(words, voiced)
    stable = [(one.at_ms, one.stable) for one in captions]
    shown = [(one.at_ms, f"{one.stable} {one.unstable}") for one in captions]
    translations = [
        (one.at_ms, f"{one.stable_translation} {one.unstable_translation}") for one in captions
    ]
    into = translated.split()
    last = captions[-1].stable.split() if captions else []
    return CaptionLag(
        words=len(words),
        stable_ms=_lags(words, ends, stable, result_ms),
        shown_ms=_lags(words, ends, shown, result_ms),
        translated_ms=_lags(into, word_ends_ms(into, voiced), translations, result_ms),
        erasure=erasure([text for _, text in shown] + [final]),
        translation_erasure=erasure([text for _, text in translations] + [translated]),
        stable_errors=(len(last) - len(_found(words, last))) / max(1, len(words)),
    )


def _lags(
    words: Sequence[str],
    ends_ms: Sequence[float],
    texts: Sequence[tuple[float, str]],
    result_ms: float,
) -> tuple[float, ...]:
    """Return how long after its end each word was first in a text; else in the result."""
    first = [result_ms] * len(words)
    for at_ms, text in reversed(texts):
        for at in _found(words, text.split()):
            first[at] = min(first[at], at_ms)
    return tuple(max(0.0, at - end) for at, end in zip(first, ends_ms, strict=True))


def _found(words: Sequence[str], others: Sequence[str]) -> list[int]:
    """Return which of the words the others have, in order."""
    one, other = [plain(word) for word in words], [plain(word) for word in others]
    blocks = SequenceMatcher(None, one, other, autojunk=False).get_matching_blocks()
    return [block.a + at for block in blocks for at in range(block.size)]


def erasure(texts: Sequence[str]) -> float:
    """Return how many words were taken back from one text to the next, for each final word."""
    erased = 0
    before: list[str] = []
    for text in texts:
        words = text.split()
        erased += len(before) - len(_found(before, words))
        before = words
    return erased / max(1, len(before))
