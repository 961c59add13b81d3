"""Regular Spanish: forms of nouns, adjectives and verbs that Apertium's dictionary lacks. Pure.

Covers only what the supplementary lexicon needs: regular words, with the spelling changes that keep
the sound (`marcar`, `marque`). Of several words (`correo de voz`) the first one changes. Tags are
those of Apertium's dictionary. Used to recognise such words and to generate them.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PERSONS: Final = (
    ("p1", "sg"),
    ("p2", "sg"),
    ("p3", "sg"),
    ("p1", "pl"),
    ("p2", "pl"),
    ("p3", "pl"),
)
# Endings by class of verb and tense, in the order of `PERSONS`.
ENDINGS: Final = {
    "pri": {"a": "o as a amos áis an", "e": "o es e emos éis en", "i": "o es e imos ís en"},
    "prs": {"a": "e es e emos éis en", "e": "a as a amos áis an", "i": "a as a amos áis an"},
    "imp": {"a": "- a e emos ad en", "e": "- e a amos ed an", "i": "- e a amos id an"},
    "ifi": {
        "a": "é aste ó amos asteis aron",
        "e": "í iste ió imos isteis ieron",
        "i": "í iste ió imos isteis ieron",
    },
    "pii": {
        "a": "aba abas aba ábamos abais aban",
        "e": "ía ías ía íamos íais ían",
        "i": "ía ías ía íamos íais ían",
    },
    "pis": {
        "a": "ara aras ara áramos arais aran",
        "e": "iera ieras iera iéramos ierais ieran",
        "i": "iera ieras iera iéramos ierais ieran",
    },
}
# Endings that follow the whole infinitive.
LATE_ENDINGS: Final = {"fti": "é ás á emos éis án", "cni": "ía ías ía íamos íais ían"}
# Pronouns that are written together with a verb, by their tags.
ENCLITICS: Final = {
    ("p1", "mf", "sg"): "me", ("p2", "mf", "sg"): "te", ("p1", "mf", "pl"): "nos",
    ("p3", "m", "sg"): "lo", ("p3", "f", "sg"): "la", ("p3", "m", "pl"): "los",
    ("p3", "f", "pl"): "las", ("p3", "mf", "sg"): "le", ("p3", "mf", "pl"): "les",
    ("p3", "nt", "sg"): "lo", ("p3", "mf", "sp"): "se",
}  # fmt: skip
ACCENTS: Final = str.maketrans("aeiou", "áéíóú")


def noun(lemma: str, number: str) -> str:
    """Return a form of a noun, `sg` or `pl`."""
    head, tail = _split(lemma)
    return (plural(head) if number == "pl" else head) + tail


def plural(word: str) -> str:
    """Return a regular plural."""
    if word.endswith(("a", "e", "i", "o", "u", "á", "é", "ó")):
        return word + "s"
    if word.endswith("z"):
        return word[:-1] + "ces"
    if word.endswith(("s", "x")) and not _accented(word[-2:-1]):
        return word
    if len(word) > 2 and word[-1] in "ns" and _accented(word[-2]):
        return word[:-2] + bare(word[-2]) + word[-1] + "es"
    return word + "es"


def adjective(lemma: str, gender: str, number: str) -> str:
    """Return a form of an adjective; `mf`, or one not ending in -o, has one form per number."""
    head, tail = _split(lemma)
    if gender == "f" and head.endswith("o"):
        head = head[:-1] + "a"
    elif gender == "f" and head.endswith("or"):
        head += "a"
    return (plural(head) if number == "pl" else head) + tail


def verb(lemma: str, tags: Sequence[str]) -> str:
    """Return the form of a regular verb with these tags, e.g. `imp p3 sg` or `pp f pl`."""
    head, tail = _split(lemma)
    tense = tags[0] if tags else "inf"
    stem, kind = head[:-2], bare(head[-2])
    if tense == "ger":
        return stem + ("ando" if kind == "a" else "iendo") + tail
    if tense == "pp":
        gender, number = (*tags[1:], "m", "sg")[:2] if len(tags) > 2 else ("m", "sg")
        return adjective(stem + ("ado" if kind == "a" else "ido"), gender, number) + tail
    person = tuple(tags[1:3])
    if person not in PERSONS:
        return head + tail
    at = PERSONS.index((person[0], person[1]))
    if tense in LATE_ENDINGS:
        return bare_tail(head) + LATE_ENDINGS[tense].split()[at] + tail
    if tense not in ENDINGS:
        return head + tail
    ending = ENDINGS[tense][kind].split()[at]
    return (_spelt(stem, kind, ending) + ending + tail) if ending != "-" else head + tail


def with_enclitic(form: str, pronoun: str) -> str:
    """Return a form with a pronoun attached, and with the accent that it then needs."""
    head, tail = _split(form)
    vowels = [at for at, letter in enumerate(head) if bare(letter) in "aeiou"]
    ends_open = bool(vowels) and vowels[-1] == len(head) - 1
    if ends_open and len(vowels) > 1 and not any(_accented(letter) for letter in head):
        at = vowels[-2]
        head = head[:at] + head[at].translate(ACCENTS) + head[at + 1 :]
    return head + pronoun + tail


def reflexive(lemma: str, tags: Sequence[str]) -> str:
    """Return a form of a regular verb with its reflexive pronoun (`se une`, `únase`)."""
    pronouns = {("p1", "sg"): "me", ("p2", "sg"): "te", ("p1", "pl"): "nos", ("p2", "pl"): "os"}
    form = verb(lemma, tags)
    if tags[0] == "pp":
        return form
    if tags[0] in {"inf", "ger", "imp"}:
        return with_enclitic(form, "se")
    return f"{pronouns.get((tags[1], tags[2]), 'se') if len(tags) > 2 else 'se'} {form}"


def verb_forms(lemma: str) -> Iterator[tuple[str, str]]:
    """Return every form of a regular verb with its tags; commands also with pronouns."""
    yield verb(lemma, ["inf"]), "<inf>"
    yield verb(lemma, ["ger"]), "<ger>"
    for gender in ("m", "f"):
        for number in ("sg", "pl"):
            yield verb(lemma, ["pp", gender, number]), f"<pp><{gender}><{number}>"
    for tense in (*ENDINGS, *LATE_ENDINGS):
        for person, number in PERSONS:
            if (tense, person, number) != ("imp", "p1", "sg"):
                yield verb(lemma, [tense, person, number]), f"<{tense}><{person}><{number}>"
    for tags in (("inf",), ("imp", "p3", "sg")):
        for (person, gender, number), pronoun in ENCLITICS.items():
            joined = f"+prpers<prn><enc><{person}><{gender}><{number}>"
            form = with_enclitic(verb(lemma, tags), pronoun)
            yield form, "".join(f"<{tag}>" for tag in tags) + joined


def bare(text: str) -> str:
    """Return letters without accents; ñ is kept."""
    return "".join(
        letter if letter in "ñÑ" else unicodedata.normalize("NFD", letter)[:1] for letter in text
    )


def bare_tail(infinitive: str) -> str:
    """Return an infinitive as the stem of a late ending (`reír`, `reiré`)."""
    return infinitive[:-2] + bare(infinitive[-2]) + infinitive[-1]


def _spelt(stem: str, kind: str, ending: str) -> str:
    """Return the stem spelt so that it keeps its sound before a vowel: c-qu, g-gu, z-c, g-j."""
    soft = bare(ending[:1]) in "ei"
    if kind == "a" and soft:
        for old, new in (("c", "qu"), ("g", "gu"), ("z", "c")):
            if stem.endswith(old):
                return stem[:-1] + new
    if kind != "a" and not soft and stem.endswith("g"):
        return stem[:-1] + "j"
    return stem


def _split(lemma: str) -> tuple[str, str]:
    head, space, tail = lemma.partition(" ")
    return head, space + tail


def _accented(letter: str) -> bool:
    return letter != "" and letter in "áéíóú"
