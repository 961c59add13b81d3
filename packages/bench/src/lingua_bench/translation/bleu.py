"""BLEU as sacreBLEU computes it by default (tokeniser 13a, exponential smoothing). Pure.

Of our own, as chrF is (`speech/scores.py`), so that measuring needs no further package; the tests
compare both with sacreBLEU itself.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

ORDER: Final = 4
# What the figures are, in sacreBLEU's own words.
SIGNATURES: Final = {
    "chrF2": "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no",
    "BLEU": "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp",
}
SYMBOLS = re.compile(r"([\{-\~\[-\` -\&\(-\+\:-\@\/])")
POINT_AFTER = re.compile(r"([^0-9])([\.,])")
POINT_BEFORE = re.compile(r"([\.,])([^0-9])")
DASH = re.compile(r"([0-9])(-)")
ENTITIES: Final = {"&quot;": '"', "&amp;": "&", "&lt;": "<", "&gt;": ">"}


def tokens(text: str) -> list[str]:
    """Cut a text as mteval-v13a did: signs are words of their own, except within numbers."""
    text = text.replace("<skipped>", "").replace("-\n", "").replace("\n", " ")
    for entity, sign in ENTITIES.items():
        text = text.replace(entity, sign)
    text = SYMBOLS.sub(r" \1 ", f" {text} ")
    text = POINT_AFTER.sub(r"\1 \2 ", text)
    text = POINT_BEFORE.sub(r" \1 \2", text)
    return DASH.sub(r"\1 \2 ", text).split()


def bleu(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Return the corpus score, 0 to 100, of translations against one reference each."""
    common, total = [0] * ORDER, [0] * ORDER
    length = wanted_length = 0
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        ours, theirs = tokens(hypothesis.rstrip()), tokens(reference.rstrip())
        length += len(ours)
        wanted_length += len(theirs)
        for order in range(1, ORDER + 1):
            pieces = _pieces(ours, order)
            common[order - 1] += (pieces & _pieces(theirs, order)).total()
            total[order - 1] += pieces.total()
    return _score(common, total) * _brevity(length, wanted_length)


def _pieces(words: Sequence[str], order: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[at : at + order]) for at in range(len(words) - order + 1))


def _score(common: Sequence[int], total: Sequence[int]) -> float:
    """Return the geometric mean of the precisions, with those of 0 smoothed."""
    if not any(common) or not all(total):
        return 0.0
    logs, smoothing = 0.0, 1
    for found, out_of in zip(common, total, strict=True):
        if found == 0:
            smoothing *= 2
        precision = 100 * found / out_of if found else 100 / (smoothing * out_of)
        logs += math.log(precision) / ORDER
    return math.exp(logs)


def _brevity(length: int, wanted: int) -> float:
    """Return the penalty for a translation that is too short."""
    if length >= wanted:
        return 1.0
    return math.exp(1 - wanted / length) if length else 0.0
