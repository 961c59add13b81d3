"""How Kokoro is told what to say: espeak-ng's phonemes in the alphabet it was trained on. Pure.

Kokoro writes some diphthongs and affricates as one letter (`A` is the vowel of "day"), and English
without some of the length marks and variants that espeak-ng gives. espeak-ng drops punctuation,
which Kokoro needs for its pauses and its tone: a text is cut at its marks, and they are put back.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

# What espeak-ng puts between the letters of one sound; no text has it when it is asked.
TIE: Final = "^"
# Marks that Kokoro knows. Those within a number or a word are espeak-ng's to read.
MARK = re.compile(r"([;!?—…\"()“”]|[.,:](?!\w))")
# Written otherwise than in Kokoro's alphabet; what has no place there at all.
OTHERWISE: Final = str.maketrans(
    {"«": "“", "»": "”", "„": "“", "–": "—", "。": ".", "！": "!", "？": "?", "，": ",",
     "’": "'", "¿": " ", "¡": " ", TIE: " "}
)  # fmt: skip
# espeak-ng tells when it reads a word by the rules of another language: `(en)`.
FOREIGN = re.compile(r"\([a-z-]+\)")
SPACED_MARK = re.compile(r" +(?=[;:,.!?…)”])")

# ruff: noqa: RUF001 the alphabet of sounds has many letters that look like others
EVERYWHERE: Final = {
    "a^ɪ": "I", "a^ʊ": "W", "e^ɪ": "A", "o^ʊ": "O", "ə^ʊ": "Q", "ɔ^ɪ": "Y",
    "d^z": "ʣ", "d^ʒ": "ʤ", "t^s": "ʦ", "t^ʃ": "ʧ",
}  # fmt: skip
ENGLISH: Final = {
    "ʔn\u0329": "tᵊn", "ʔˌn\u0329": "tᵊn", "ʔ": "t", "n\u0329": "ᵊn", "l\u0329": "ᵊl", "ə^l": "ᵊl",
    "ɚ": "əɹ", "r": "ɹ", "x": "k", "ɬ": "l", "ɐ": "ə", "ʲ": "",
}  # fmt: skip
AMERICAN: Final = {"ɜːɹ": "ɜɹ", "ɜː": "ɜɹ", "ɪə": "iə", "ɾ": "T", "ː": ""}
BRITISH: Final = {"e^ə": "ɛː", "i^ə": "ɪə", "iə": "ɪə"}


class Spelling:
    """espeak-ng's phonemes of one language -> Kokoro's."""

    def __init__(self, *tables: Mapping[str, str]) -> None:
        joined: dict[str, str] = {}
        for table in tables:
            joined |= table
        self._letters = joined
        longest_first = sorted(joined, key=len, reverse=True)
        self._sounds = re.compile("|".join(map(re.escape, longest_first)))

    def spell(self, ipa: str) -> str:
        """Return it in Kokoro's alphabet."""
        own = FOREIGN.sub("", ipa)
        return self._sounds.sub(lambda sound: self._letters[sound.group()], own).replace(TIE, "")


def spelling_of(language: str) -> Spelling:
    """Return how a language is spelt; English was written down otherwise than the rest."""
    if language == "en-gb":
        return Spelling(EVERYWHERE, ENGLISH, BRITISH)
    if language.startswith("en"):
        return Spelling(EVERYWHERE, ENGLISH, AMERICAN)
    return Spelling(EVERYWHERE)


def spelt(text: str, say: Callable[[str], str], spelling: Spelling) -> str:
    """Return a text as Kokoro reads it; `say` gives espeak-ng's phonemes of what has no marks."""
    parts = [
        part if MARK.fullmatch(part) else _words(part, say, spelling)
        for part in MARK.split(text.translate(OTHERWISE).replace("...", "…"))
    ]
    return SPACED_MARK.sub("", " ".join("".join(parts).split()))


def _words(part: str, say: Callable[[str], str], spelling: Spelling) -> str:
    if not any(sign.isalnum() for sign in part):
        return " "
    before = " " if part[0].isspace() else ""
    after = " " if part[-1].isspace() else ""
    return f"{before}{spelling.spell(say(part))}{after}"


def numbers(spelt_text: str, vocabulary: Mapping[str, int]) -> list[int]:
    """Return the number of each letter; those that Kokoro does not know are left out."""
    return [vocabulary[letter] for letter in spelt_text if letter in vocabulary]


def pieces(text: str, most: int, measure: Callable[[str], int]) -> Iterator[str]:
    """Cut a text until no piece has more letters than that: at a mark, else at a space, in halves.

    A piece that cannot be cut is given as it is.
    """
    if measure(text) <= most or len(halves := _halves(text)) == 1:
        yield text
        return
    for half in halves:
        yield from pieces(half, most, measure)


def _halves(text: str) -> Sequence[str]:
    for cut in (re.compile(r"(?<=[;:,—])\s+"), re.compile(r"\s+"), re.compile(r"(?<=.)(?=.)")):
        places = [place for place in cut.finditer(text) if text[: place.start()].strip()]
        if places:
            middle = min(places, key=lambda place: abs(place.start() - len(text) // 2))
            return text[: middle.start()], text[middle.end() :]
    return (text,)
