"""Languages as a person types them: codes, checked before anything is started.

Everywhere behind the command line a language is a code of up to eight letters, so that `english`
would pass for one, and nobody would serve it. Here a name is told from a code.
"""

from __future__ import annotations

import argparse
import difflib

from lingua_scheduler.edge.openai.language_names import CODES
from lingua_scheduler.errors import ConfigError, InvalidLanguage
from lingua_scheduler.languages import AUTO, base_of, language

# Longer ones are reserved and belong to no language.
CODE_LETTERS_MAX = 3
EXAMPLES = "like en, es or pt-br"


def language_typed(text: str) -> str:
    """Return a language's code; what is none is told with the one that was meant."""
    word = text.strip()
    try:
        code = language(word)
    except InvalidLanguage:
        code = ""
    if code and len(base_of(code)) <= CODE_LETTERS_MAX:
        return code
    raise InvalidLanguageTyped(word)


class InvalidLanguageTyped(InvalidLanguage):
    """Somebody typed a name, or a slip; says which code it may be."""

    def __init__(self, word: str) -> None:
        super().__init__(word)
        near = difflib.get_close_matches(word.lower(), CODES, n=1, cutoff=0.75)
        hint = f"did you mean {CODES[near[0]]}?" if near else f"give a code, {EXAMPLES}"
        self.args = (f"{word[:40]} is not a language code; {hint}",)


def checked(option: str, text: str) -> str:
    """Return the code that was given with an option, or raise `ConfigError`."""
    try:
        return language_typed(text)
    except InvalidLanguage as error:
        raise ConfigError(option, str(error)) from None


def source_checked(option: str, text: str) -> str:
    """Return the code of the language spoken, which may be `auto`; or raise `ConfigError`."""
    return AUTO if text.lower() == AUTO else checked(option, text)


def language_argument(text: str) -> str:
    """Read a language for argparse."""
    try:
        return language_typed(text)
    except InvalidLanguage as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def source_argument(text: str) -> str:
    """Read the language spoken for argparse; it may be `auto`."""
    return AUTO if text.lower() == AUTO else language_argument(text)


def pair_argument(text: str) -> str:
    """Read a direction for argparse, as `en>es`."""
    source, arrow, target = text.partition(">")
    if not arrow:
        problem = f"{text[:40]} is not a direction: write it as 'en>es' or en:es"
        raise argparse.ArgumentTypeError(problem)
    for side in (source, target):
        language_argument(side)
    return text
