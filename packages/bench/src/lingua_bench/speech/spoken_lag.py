"""How far spoken translations are behind the speaker, word by word. Pure.

The words of a piece are spread evenly over its parts with voice, those of its translation evenly
over the translated speech, and each is compared with the one at the same share of the piece. The
translated speech of a piece arrives as a whole, and is played when that of the piece before has
ended. So a translation that is longer than what was said adds to all that follows; `arrived_s`
leaves that out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from lingua_bench.speech.caption_lag import word_ends_ms

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class TranslatedPiece:
    """One utterance and its spoken translation; times by one clock, in seconds."""

    voiced: tuple[tuple[float, float], ...]
    # The translation, when its speech arrived, and how long that lasts.
    text: str
    arrived_s: float
    speech_s: float


class SpokenLag(NamedTuple):
    """The delay of each translated word behind the word of the speaker."""

    # Until the speech with it arrived.
    arrived_s: tuple[float, ...]
    # Until it was heard, if everything is played to its end and at its own speed.
    heard_s: tuple[float, ...]


def spoken_lag(pieces: Sequence[TranslatedPiece]) -> SpokenLag:
    """Return the delays of all words, in order."""
    arrived: list[float] = []
    heard: list[float] = []
    free_s = 0.0
    for piece in pieces:
        begins_s = max(piece.arrived_s, free_s)
        free_s = begins_s + piece.speech_s
        words = piece.text.split()
        ends_s = word_ends_ms(words, piece.voiced)
        for at, said_s in enumerate(ends_s, 1):
            arrived.append(piece.arrived_s - said_s)
            heard.append(begins_s + piece.speech_s * at / len(words) - said_s)
    return SpokenLag(tuple(arrived), tuple(heard))
