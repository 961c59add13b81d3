"""The sentences that translation is measured on, by direction: files of the package, and prompts.

`sets/README.md` describes them and their choice. The prompts are texts of recordings in the model
store (`lingua models install bench`).
"""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING, Final, NamedTuple

from lingua_speech.prompt_corpus import parallel_prompts
from lingua_wire.errors import LinguaError

if TYPE_CHECKING:
    from pathlib import Path

    from lingua_speech.models import ModelStore

FILES: Final = (
    "everyday-en-es.tsv",
    "everyday-en-fr.tsv",
    "interface.tsv",
    "interface-en-zh.tsv",
)
PROMPTS: Final = "recordings-prompts-{language}"
PROMPT_LANGUAGES: Final = ("es", "fr")

Direction = tuple[str, str]


class Sentences(NamedTuple):
    """One set in one direction."""

    name: str
    direction: Direction
    texts: tuple[str, ...]
    references: tuple[str, ...]


class SetBroken(LinguaError):
    """A file of sentences is not valid."""


def all_sets(store: ModelStore) -> list[Sentences]:
    """Return every set in every direction that it has; prompts as far as they are installed."""
    found = [one for file in FILES for one in read(file.partition("-")[0], file_text(file))]
    return [*found, *_prompts(store)]


def read(name: str, text: str) -> list[Sentences]:
    """Return the directions of one file; its first line names the languages of the columns."""
    head, *lines = (line.split("\t") for line in text.splitlines())
    for number, line in enumerate(lines, 2):
        if len(line) != len(head) or not all(part.strip() for part in line):
            raise SetBroken(f"{name}: line {number} has not a text for each of {', '.join(head)}")
    columns = {code: tuple(line[at] for line in lines) for at, code in enumerate(head)}
    name = name.removesuffix(".tsv")
    return [
        Sentences(name, (one, other), columns[one], columns[other])
        for one in columns
        for other in columns
        if one != other
    ]


def file_text(file: str) -> str:
    """Return a file of the package."""
    return resources.files(__package__).joinpath("sets", file).read_text("utf-8")


def _prompts(store: ModelStore) -> list[Sentences]:
    english = PROMPTS.format(language="en")
    found = []
    for code in PROMPT_LANGUAGES:
        other = PROMPTS.format(language=code)
        if store.has(english) and store.has(other):
            found += _both("prompts", code, store.path(english), store.path(other))
    return found


def _both(name: str, code: str, english: Path, other: Path) -> list[Sentences]:
    pairs = parallel_prompts(english / "transcripts.tsv", other / "transcripts.tsv")
    first, second = tuple(one.first for one in pairs), tuple(one.second for one in pairs)
    return [
        Sentences(name, ("en", code), first, second),
        Sentences(name, (code, "en"), second, first),
    ]
