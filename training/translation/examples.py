"""What the network is shown: pairs, some of them joined, renamed, renumbered or uncased.

Tatoeba's sentences are short (6 words), a fifth are about Tom, and few have numbers. What people
say is longer, with other names. So in every epoch a part of the pairs is changed, both sides
alike, by chance from a fixed seed.
"""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Pair = tuple[str, str]

JOINED: Final = 0.12
MOST_JOINED: Final = 4
RENAMED: Final = 0.25
RENUMBERED: Final = 0.6
UNCASED: Final = 0.02
COPIED: Final = 0.005
# Few pairs have numbers; so many more are made of them, for one that is shown.
NUMBERED: Final = 0.06
MOST_DIGITS: Final = 7
NUMBER = re.compile(r"\d+")
NAME = re.compile(r"\b[A-Z][a-z]+\b")
# Equal in both languages, but not names of persons or places.
NOT_NAMES: Final = frozenset({"No", "Me", "Pause", "Once", "Come", "Has", "Son", "Tan", "Red"})
CONSONANTS: Final = "bcdfghjklmnprstvz"
VOWELS: Final = "aeiou"
KNOWN_NAMES: Final = (
    "Alice", "Ana", "Anna", "Ben", "Carlos", "Carmen", "Chen", "Clara", "Daniel", "David", "Diego",
    "Elena", "Elinor", "Emma", "Fatima", "Felix", "Fernando", "George", "Hassan", "Helen", "Henry",
    "Isabel", "James", "Javier", "Jane", "John", "Jorge", "José", "Juan", "Julia", "Kim", "Laura",
    "Lee", "Linda", "Lucas", "Lucía", "Luis", "Maria", "Mario", "Marianne", "Marta", "Martin",
    "Mei", "Michael", "Miguel", "Nadia", "Oliver", "Omar", "Pablo", "Patel", "Paul", "Pedro",
    "Peter", "Rosa", "Ruiz", "Sara", "Sarah", "Silva", "Smith", "Sofia", "Susan", "Teresa",
    "Thomas", "Victor", "Walter", "Willoughby", "Yuki", "Dashwood", "Brandon", "Barcelona",
    "Berlin", "Bogotá", "Cardiff", "Chicago", "Denver", "Dublin", "Lima", "Madrid", "Manchester",
    "Miami", "Oslo", "Paris", "Quito", "Seattle", "Toronto",
)  # fmt: skip


def epoch(pairs: Sequence[Pair], seed: int) -> Iterator[Pair]:
    """Yield the pairs of one pass, in random order, some of them changed."""
    chance = random.Random(seed)  # noqa: S311
    order = list(range(len(pairs)))
    chance.shuffle(order)
    numbered = [pair for pair in pairs if NUMBER.search(pair[0]) and _same_numbers(*pair)]
    at = 0
    while at < len(order):
        size = chance.randint(2, MOST_JOINED) if chance.random() < JOINED else 1
        group = [_varied(pairs[number], chance) for number in order[at : at + size]]
        at += size
        yield " ".join(one for one, _ in group), " ".join(other for _, other in group)
        if chance.random() < COPIED:
            yield _copied(chance)
        if numbered and chance.random() < NUMBERED:
            yield _renumbered(*chance.choice(numbered), chance)


def _varied(pair: Pair, chance: random.Random) -> Pair:
    source, target = pair
    if NUMBER.search(source) and chance.random() < RENUMBERED:
        source, target = _renumbered(source, target, chance)
    if chance.random() < RENAMED:
        source, target = _renamed(source, target, chance)
    if chance.random() < UNCASED:
        # As recognisers write that do not punctuate.
        source = re.sub(r"[^\w\s']", "", source).lower()
    return source, target


def _renumbered(source: str, target: str, chance: random.Random) -> Pair:
    """Put other numbers for those that both sides have."""
    if not _same_numbers(source, target):
        return source, target
    new: dict[str, str] = {}
    for number in NUMBER.findall(source):
        size = len(number) if chance.random() < 0.5 else chance.randint(1, MOST_DIGITS)
        rest = "".join(chance.choices("0123456789", k=size - 1))
        # A single 1 stays: it decides about the plural.
        new[number] = number if number == "1" else chance.choice("123456789") + rest
    replaced = (NUMBER.sub(lambda found: new[found.group()], text) for text in (source, target))
    return next(replaced), next(replaced)


def _same_numbers(source: str, target: str) -> bool:
    return sorted(NUMBER.findall(source)) == sorted(NUMBER.findall(target))


def _renamed(source: str, target: str, chance: random.Random) -> Pair:
    """Put another name for one that both sides have."""
    names = (set(NAME.findall(source)) & set(NAME.findall(target))) - NOT_NAMES
    for name in sorted(names):
        new = chance.choice(KNOWN_NAMES) if chance.random() < 0.5 else _invented(chance)
        source, target = (re.sub(rf"\b{name}\b", new, text) for text in (source, target))
    return source, target


def _invented(chance: random.Random) -> str:
    size = chance.randint(2, 3)
    syllables = (chance.choice(CONSONANTS) + chance.choice(VOWELS) for _ in range(size))
    return ("".join(syllables) + chance.choice(("", "n", "s", "r", "l", "ck", "tt"))).capitalize()


def _copied(chance: random.Random) -> Pair:
    """Return what is the same in every language."""
    name, place = _invented(chance).lower(), _invented(chance).lower()
    digits = "".join(chance.choices("0123456789", k=chance.randint(2, 9)))
    text = chance.choice((
        f"https://www.{name}.com/{place}/{digits}", f"{name}.{place}@example.org", f"{digits}",
        f"{digits}.", f"{name.capitalize()} {place.capitalize()}.", f"www.{name}.org",
        f"+{digits[:2]} {digits}", "😀", "OK.", f"{chance.randint(1, 12)}:{chance.randint(10, 59)}",
    ))  # fmt: skip
    return text, text
