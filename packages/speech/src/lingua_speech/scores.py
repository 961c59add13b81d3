"""Scores of recognised and translated text: word error rate and chrF. Pure.

Used by `lingua bench speech` and by tests. The word error rate ignores spelling: case, accents,
punctuation and hyphens do not count, and `Mr.` equals `mister`. chrF is computed like sacreBLEU's
default (characters 1 to 6, beta 2, no words, spaces removed), so it can be compared with published
figures.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

CHARACTER_ORDER: Final = 6
BETA: Final = 2.0
SPOKEN_FORMS: Final = {
    "mr": "mister",
    "mrs": "missus",
    "dr": "doctor",
    "sr": "señor",
    "sra": "señora",
    "ok": "okay",
}
NOT_WORD = re.compile(r"[^\w\s]|_")


def words(text: str) -> list[str]:
    """Return normalised words: lower case, no accents, punctuation or hyphens."""
    joined = re.sub(r"(?<=\w)['\u2019](?=\w)", "", text.lower())
    plain = NOT_WORD.sub(" ", joined)
    return [_bare(SPOKEN_FORMS.get(word, word)) for word in plain.split()]


def _bare(word: str) -> str:
    apart = unicodedata.normalize("NFKD", word)
    return "".join(mark for mark in apart if not unicodedata.combining(mark))


def word_errors(reference: str, heard: str) -> tuple[int, int]:
    """Return the number of wrong, missing and extra words, and of reference words."""
    wanted, got = words(reference), words(heard)
    row = list(range(len(got) + 1))
    for line, word in enumerate(wanted, 1):
        diagonal, row[0] = row[0], line
        for column, other in enumerate(got, 1):
            substituted = diagonal + (word != other)
            diagonal = row[column]
            row[column] = min(substituted, row[column] + 1, row[column - 1] + 1)
    return row[-1], len(wanted)


def word_error_rate(pairs: Iterable[tuple[str, str]]) -> float:
    """Return errors per reference word, over all (reference, recognised); 0 is perfect."""
    errors = said = 0
    for reference, heard in pairs:
        wrong, length = word_errors(reference, heard)
        errors += wrong
        said += length
    return errors / said if said else float(errors > 0)


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Return the corpus score, 0 to 100, of translations against one reference each."""
    counts = [[0, 0, 0] for _ in range(CHARACTER_ORDER)]
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        for order, (ours, theirs, common) in enumerate(_statistics(hypothesis, reference)):
            counts[order][0] += ours
            counts[order][1] += theirs
            counts[order][2] += common
    return _f_score(counts)


def _statistics(hypothesis: str, reference: str) -> list[tuple[int, int, int]]:
    """Return, for each n-gram length, the counts of both texts and of common n-grams."""
    ours, theirs = "".join(hypothesis.split()), "".join(reference.split())
    found = []
    for size in range(1, CHARACTER_ORDER + 1):
        mine, wanted = _ngrams(ours, size), _ngrams(theirs, size)
        # Like sacreBLEU: a reference too short for a length is ignored there.
        total = mine.total() if wanted else 0
        found.append((total, wanted.total(), (mine & wanted).total()))
    return found


def _ngrams(text: str, size: int) -> Counter[str]:
    return Counter(text[at : at + size] for at in range(len(text) - size + 1))


def _f_score(counts: Sequence[Sequence[int]]) -> float:
    """Return F-beta of the mean precision and recall, over the lengths that both texts have."""
    precisions, recalls = [], []
    for ours, theirs, common in counts:
        if ours and theirs:
            precisions.append(common / ours)
            recalls.append(common / theirs)
    if not precisions:
        return 0.0
    precision = sum(precisions) / len(precisions)
    recall = sum(recalls) / len(recalls)
    weight = BETA**2
    both = weight * precision + recall
    return 100 * (1 + weight) * precision * recall / both if both else 0.0
