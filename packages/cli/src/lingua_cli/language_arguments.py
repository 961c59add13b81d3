"""Languages as a person types them: codes, checked before anything is started.

Behind the command line a language code may have up to eight letters, so `english` would pass as a
code that no node serves. Here names are distinguished from codes.
"""

from __future__ import annotations

import argparse
import difflib

from lingua_wire.errors import ConfigError, InvalidLanguage
from lingua_wire.language_names import CODES
from lingua_wire.languages import AUTO, base_of, language

# Longer codes are reserved and belong to no language.
CODE_LETTERS_MAX = 3
EXAMPLES = "like en, es or pt-br"


def parse_language(text: str) -> str:
    """Return the language code; raises `TypedLanguageError` if it is not a valid code."""
    word = text.strip()
    try:
        code = language(word)
    except InvalidLanguage:
        code = ""
    if code and len(base_of(code)) <= CODE_LETTERS_MAX:
        return code
    raise TypedLanguageError(word)


class TypedLanguageError(InvalidLanguage):
    """A person typed a name or a misspelling; the message suggests the probable code."""

    def __init__(self, word: str) -> None:
        super().__init__(word)
        near = difflib.get_close_matches(word.lower(), CODES, n=1, cutoff=0.75)
        hint = f"did you mean {CODES[near[0]]}?" if near else f"give a code, {EXAMPLES}"
        self.args = (f"{word[:40]} is not a language code; {hint}",)


def checked_language(option: str, text: str) -> str:
    """Return the code that an option gives, or raise `ConfigError`."""
    try:
        return parse_language(text)
    except InvalidLanguage as error:
        raise ConfigError(option, str(error)) from None


def checked_source_language(option: str, text: str) -> str:
    """Return the code of the source language, which may be `auto`, or raise `ConfigError`."""
    return AUTO if text.lower() == AUTO else checked_language(option, text)


def language_argument(text: str) -> str:
    """Parse a language for argparse."""
    try:
        return parse_language(text)
    except InvalidLanguage as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def source_argument(text: str) -> str:
    """Parse the source language for argparse; it may be `auto`."""
    return AUTO if text.lower() == AUTO else language_argument(text)


def pair_argument(text: str) -> str:
    """Parse a direction for argparse, as `en>es`."""
    source, arrow, target = text.partition(">")
    if not arrow:
        problem = f"{text[:40]} is not a direction: write it as 'en>es' or en:es"
        raise argparse.ArgumentTypeError(problem)
    for side in (source, target):
        language_argument(side)
    return text
