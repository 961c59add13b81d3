"""Kokoro's input: espeak-ng's phonemes in the alphabet that Kokoro was trained on. Pure.

Kokoro writes some diphthongs and affricates as one letter (`A` is the vowel of "day"), and English
without some of the length marks and variants of espeak-ng. espeak-ng drops punctuation, which
Kokoro needs for pauses and intonation. So a text is split at its marks, and these are inserted
again.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

# espeak-ng writes this between the letters of one sound; it is removed from every text before.
TIE: Final = "^"
# Marks that Kokoro knows. espeak-ng reads those within a number or a word.
MARK = re.compile(r"([;!?—…\"()“”]|[.,:](?!\w))")
# Marks that Kokoro's alphabet writes differently, and marks that it lacks.
OTHERWISE: Final = str.maketrans(
    {"«": "“", "»": "”", "„": "“", "–": "—", "。": ".", "！": "!", "？": "?", "，": ",",
     "’": "'", "¿": " ", "¡": " ", TIE: " "}
)  # fmt: skip
# espeak-ng marks a word that it reads by the rules of another language: `(en)`.
FOREIGN = re.compile(r"\([a-z-]+\)")
SPACED_MARK = re.compile(r" +(?=[;:,.!?…)”])")

# ruff: noqa: RUF001 the phonetic alphabet has many letters that look like others
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
    """Converts espeak-ng's phonemes of one language to Kokoro's alphabet."""

    def __init__(self, *tables: Mapping[str, str]) -> None:
        joined: dict[str, str] = {}
        for table in tables:
            joined |= table
        self._letters = joined
        longest_first = sorted(joined, key=len, reverse=True)
        self._sounds = re.compile("|".join(map(re.escape, longest_first)))

    def spell(self, ipa: str) -> str:
        """Return phonemes in Kokoro's alphabet."""
        own = FOREIGN.sub("", ipa)
        return self._sounds.sub(lambda sound: self._letters[sound.group()], own).replace(TIE, "")


def spelling_of(language: str) -> Spelling:
    """Return the spelling of a language; English has tables of its own."""
    if language == "en-gb":
        return Spelling(EVERYWHERE, ENGLISH, BRITISH)
    if language.startswith("en"):
        return Spelling(EVERYWHERE, ENGLISH, AMERICAN)
    return Spelling(EVERYWHERE)


def spelt(text: str, phonemes: Callable[[str], str], spelling: Spelling) -> str:
    """Return a text as Kokoro reads it; `phonemes` returns those of a part without marks."""
    parts = [
        part if MARK.fullmatch(part) else _words(part, phonemes, spelling)
        for part in MARK.split(text.translate(OTHERWISE).replace("...", "…"))
    ]
    return SPACED_MARK.sub("", " ".join("".join(parts).split()))


def _words(part: str, phonemes: Callable[[str], str], spelling: Spelling) -> str:
    if not any(sign.isalnum() for sign in part):
        return " "
    before = " " if part[0].isspace() else ""
    after = " " if part[-1].isspace() else ""
    return f"{before}{spelling.spell(phonemes(part))}{after}"


def numbers(spelt_text: str, vocabulary: Mapping[str, int]) -> list[int]:
    """Return the number of each letter; letters that Kokoro does not know are dropped."""
    return [vocabulary[letter] for letter in spelt_text if letter in vocabulary]


def pieces(text: str, most: int, measure: Callable[[str], int]) -> Iterator[str]:
    """Halve a text, at a mark or else at a space, until no piece has more than `most` letters.

    A piece that cannot be cut is returned as it is.
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
