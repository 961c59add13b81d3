"""Glossaries: terms that translations keep, or translate as given. Checked, read and merged here.

A client sends a glossary with its session, a tenant has one in a file, and a job carries what it
needs of both. `lingua_speech.terms` finds the terms in a text.
"""

from __future__ import annotations

import tomllib
import unicodedata
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lingua_wire.errors import ConfigError, InvalidGlossary, InvalidLanguage
from lingua_wire.languages import base_of, language
from lingua_wire.shared import TERMS_MAX, Term

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping
    from pathlib import Path

BYTES_MAX: Final = 16 * 1024
# Not printable, but needed for spelling: the joiners of Indic and Persian scripts.
JOINERS: Final = str.maketrans("", "", "\u200c\u200d")


def checked(terms: Iterable[Term]) -> tuple[Term, ...]:
    """Return a glossary in its canonical form; raises `InvalidGlossary` or `InvalidLanguage`."""
    found = tuple(_plain(one) for one in terms)
    if len(found) > TERMS_MAX:
        raise InvalidGlossary(f"at most {TERMS_MAX} terms, got {len(found)}")
    size = sum(_size(one) for one in found)
    if size > BYTES_MAX:
        raise InvalidGlossary(f"at most {BYTES_MAX} bytes of text, got {size}")
    seen: set[str] = set()
    for one in found:
        if one.term in seen:
            raise InvalidGlossary(f"given twice: {one.term!r}")
        seen.add(one.term)
    return found


def of_table(table: Mapping[str, Any]) -> tuple[Term, ...]:
    """Return the glossary of a table: term -> language -> translation (or None)."""
    return checked(_read(term, translations) for term, translations in table.items())


def read(file: Path, setting: str) -> tuple[Term, ...]:
    """Read a glossary (TOML: `term = { es = "..." }`); raises `ConfigError` for the setting."""
    try:
        return of_table(tomllib.loads(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigError(setting, f"cannot read {file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(setting, f"{file} is not TOML: {error}") from error
    except (InvalidGlossary, InvalidLanguage) as error:
        raise ConfigError(setting, f"{file}: {error}") from error


def merged(general: tuple[Term, ...], own: tuple[Term, ...]) -> tuple[Term, ...]:
    """Return both glossaries merged; for a term in both, the second one counts."""
    if not general or not own:
        return general or own
    return tuple({one.term: one for one in (*general, *own)}.values())


def needed(terms: tuple[Term, ...], targets: Iterable[str]) -> tuple[Term, ...]:
    """Return the terms with their translations into these languages only."""
    wanted = {code for target in targets for code in (target, base_of(target))}
    return tuple(_only(one, wanted) for one in terms)


def _only(one: Term, wanted: Container[str]) -> Term:
    known = one.translations or {}
    called = {code: said for code, said in known.items() if code in wanted}
    return Term(term=one.term, translations=called or None)


def _read(term: str, translations: Any) -> Term:
    try:
        return msgspec.convert({"term": term, "translations": translations}, Term)
    except msgspec.ValidationError as error:
        raise InvalidGlossary(f"{term[:64]!r}: {error}") from error


def _plain(one: Term) -> Term:
    known = one.translations or {}
    called = {language(code): _text(said) for code, said in known.items()}
    return Term(term=_text(one.term), translations=called or None)


def _text(text: str) -> str:
    plain = " ".join(unicodedata.normalize("NFC", text).split())
    if not any(sign.isalnum() for sign in plain):
        raise InvalidGlossary(f"a term must have a letter or a digit: {text[:64]!r}")
    if not plain.translate(JOINERS).isprintable():
        raise InvalidGlossary(f"a term must not have control characters: {text[:64]!r}")
    return plain


def _size(one: Term) -> int:
    return sum(len(text.encode()) for text in (one.term, *(one.translations or {}).values()))
