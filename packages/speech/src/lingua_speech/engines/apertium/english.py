"""Regular English: forms of nouns and verbs that Apertium's dictionary lacks. Pure.

Covers only what the supplementary lexicon needs. A noun of several words changes its last word
(`pound keys`), a verb its first (`logged on`). Used to recognise such words and to generate them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

VOWELS = "aeiou"
# One syllable, one vowel, one consonant: the consonant doubles (`log`, `logged`).
DOUBLING = re.compile(r"[^aeiou]*[aeiou][bdglmnprt]")


def plural(noun: str) -> str:
    """Return a regular plural."""
    if noun.endswith(("s", "x", "z", "ch", "sh")):
        return noun + "es"
    if noun.endswith("y") and noun[-2:-1] not in VOWELS:
        return noun[:-1] + "ies"
    return noun + "s"


def verb(lemma: str, form: str) -> str:
    """Return a form of a regular verb: `inf`, `s`, `ed` or `ing`."""
    head, space, tail = lemma.partition(" ")
    if form == "s":
        head = plural(head)
    elif form == "ed":
        head = _stem(head, keeps_e=True) + ("d" if head.endswith("e") else "ed")
    elif form == "ing":
        head = (head if head.endswith("y") else _stem(head, keeps_e=False)) + "ing"
    return head + space + tail


def _stem(head: str, keeps_e: bool) -> str:
    if head.endswith("e") and not head.endswith("ee"):
        return head if keeps_e else head[:-1]
    if head.endswith("y") and head[-2:-1] not in VOWELS:
        return head[:-1] + "i"
    return head + head[-1] if DOUBLING.fullmatch(head) else head


def verb_forms(lemma: str) -> Iterator[tuple[str, str]]:
    """Return every form of a verb with the tags of its reading."""
    for tags in ("<inf>", "<pres>"):
        yield lemma, tags
    yield verb(lemma, "s"), "<pri><p3><sg>"
    for tags in ("<past>", "<pp>"):
        yield verb(lemma, "ed"), tags
    for tags in ("<ger>", "<pprs>", "<subs>"):
        yield verb(lemma, "ing"), tags


def verb_by_tags(lemma: str, tags: tuple[str, ...]) -> str:
    """Return the form of a regular verb that has these tags of Apertium."""
    first = tags[0] if tags else "inf"
    if first in {"past", "pp"}:
        return verb(lemma, "ed")
    if first in {"ger", "pprs", "subs"}:
        return verb(lemma, "ing")
    return verb(lemma, "s" if tags[:3] == ("pri", "p3", "sg") else "inf")
