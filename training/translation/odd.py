"""Odd inputs, and what can go wrong with them: repetitions, lost numbers, text out of nothing."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

SEED: Final = 7
LONG: Final = 200
NUMBER = re.compile(r"\d+")
OTHER_LANGUAGES: Final = (
    "Das ist ein sehr schöner Tag heute.", "Je ne sais pas ce que tu veux dire.",
    "今日はいい天気です。",
    "Это очень хорошая книга.", "Questa è la mia casa.", "هذا كتاب جيد", "Eu não sei o que fazer.",
    "To jest mój dom.", "Bu benim evim.", "안녕하세요", "Det här är mitt hus.", "नमस्ते दुनिया",
)  # fmt: skip
CODE: Final = (
    "for (int i = 0; i < 10; i++) { x += i; }", "SELECT * FROM users WHERE id = 42;",
    "<p class=\"a\">&nbsp;</p>", "def f(x): return x**2", "{\"key\": [1, 2, 3]}", "C:\\temp\\a.txt",
)  # fmt: skip
SIGNS: Final = (
    "", " ", ".", "...", "?!", "😀", "😀😀 👍🏽", "—", "¿?", "\"\"", "a", "I", "O", "y", "&", "%",
)  # fmt: skip
NUMBERED: Final = {
    "en": ("I have {} books.", "The train leaves at {}:{}.", "Call me at {} tomorrow.",
           "It costs {} dollars, not {}.", "Room {} is on floor {}.", "In {} we moved to house {}.",
           "The answer is {}.", "We sold {} tickets on May {}."),
    "es": ("Tengo {} libros.", "El tren sale a las {}:{}.", "Llámame al {} mañana.",
           "Cuesta {} dólares, no {}.", "La sala {} está en el piso {}.", "La respuesta es {}.",
           "En {} nos mudamos a la casa {}.", "Vendimos {} entradas el {} de mayo."),
}  # fmt: skip


def inputs(sentences: Sequence[str], size: int = 500) -> list[str]:
    """Return so many odd inputs; long ones are built from the sentences."""
    chance = random.Random(SEED)  # noqa: S311
    makers = (
        lambda: chance.choice(SIGNS),
        lambda: chance.choice(OTHER_LANGUAGES),
        lambda: chance.choice(CODE),
        lambda: f"https://{_word(chance)}.example/{_word(chance)}?q={chance.randint(0, 9999)}",
        lambda: " ".join(_long(sentences, chance)[:LONG]),
        lambda: " ".join(word.strip(".,?!¿¡") for word in _long(sentences, chance)[:60]).lower(),
        lambda: " ".join([chance.choice(sentences).split()[0]] * chance.randint(2, 30)),
        lambda: " ".join([chance.choice(sentences)] * chance.randint(2, 5)),
        lambda: " ".join(_word(chance) for _ in range(chance.randint(1, 12))),
        lambda: chance.choice(sentences).upper(),
    )
    return [makers[number % len(makers)]() for number in range(size)]


def numbered(language: str, size: int = 300) -> list[str]:
    """Return sentences with numbers."""
    chance = random.Random(SEED)  # noqa: S311
    return [_numbered(NUMBERED[language], chance) for _ in range(size)]


def kept_numbers(source: str, target: str) -> bool:
    """Whether all numbers of the source, and no others, are in the target."""
    return sorted(NUMBER.findall(source)) == sorted(NUMBER.findall(target))


def repeats(source: str, target: str) -> bool:
    """Whether a word or phrase comes more often in a row than the source explains."""
    return _longest_run(target) > max(3, _longest_run(source) + 1)


def is_too_long(source: str, target: str) -> bool:
    """Whether text came out of nothing."""
    return len(target) > 2.5 * len(source) + 30


def _numbered(templates: Sequence[str], chance: random.Random) -> str:
    text = chance.choice(templates)
    while "{}" in text:
        text = text.replace("{}", str(chance.randint(1, 10 ** chance.randint(1, 6))), 1)
    return text


def _word(chance: random.Random) -> str:
    return "".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(2, 9)))


def _long(sentences: Sequence[str], chance: random.Random) -> list[str]:
    return " ".join(chance.choices(sentences, k=LONG // 3)).split()


def _longest_run(text: str) -> int:
    """Return how often, at most, a phrase of up to 12 words is said without anything between."""
    words = [word.strip(".,;:?!¿¡\"'").lower() for word in text.split()]
    starts = ((at, size) for size in range(1, 13) for at in range(len(words)))
    return max((_run(words, at, size) for at, size in starts), default=1)


def _run(words: Sequence[str], at: int, size: int) -> int:
    phrase, times = words[at : at + size], 1
    while words[at + times * size : at + (times + 1) * size] == phrase:
        times += 1
    return times
