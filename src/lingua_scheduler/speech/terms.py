"""Terms of a glossary in a text: found, kept out of whatever translator there is, and put back.

Each is replaced by a stand-in that translators copy (`routing/protected.py`), so that it comes
through every engine and every language on the way, and what is put back is what the glossary calls
it in the target language. Words are compared as they are written: an inflected form is another
word. Used by the pipeline of a node and by `lingua translate --text`.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Final

from lingua_scheduler.speech.engine import Rendered
from lingua_scheduler.speech.routing import guards, protected
from lingua_scheduler.speech.routing.protected import MARK, STAND_IN, Masked

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from lingua_scheduler.messages.shared import Term

    Ask = Callable[[str], Awaitable[str | Rendered]]

# Written without spaces between words, or with endings at the word: there a term ends anywhere.
_UNSPACED: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
)
UNSPACED = re.compile(f"[{_UNSPACED}]")
LETTER: Final = rf"[^\W{_UNSPACED}]"
# What stands for itself in a text that happens to look like ours.
LOOKALIKE: Final = rf"(?i:(?<!\w){MARK}\d+(?!\w))"
SENTENCE_START = re.compile(r"(?:^|[.!?…]\s+|[¿¡])[\"'“«(]*$")


async def translated(text: str, terms: Sequence[Term], target: str, ask: Ask) -> Rendered:
    """Have a text translated so that its terms are called in it as they say."""
    masked = mask(text, terms, target) if terms else Masked(text, ())
    rendered = _rendered(await ask(masked.text))
    if not masked.kept:
        return rendered
    if protected.is_whole(masked.text, rendered.text):
        return Rendered(restore(rendered.text, masked), rendered.route, rendered.remarks)
    # A translator that changes even stand-ins would make more wrong than a term.
    plain = _rendered(await ask(text))
    return Rendered(plain.text, plain.route, (*plain.remarks, guards.SPANS))


def _rendered(said: str | Rendered) -> Rendered:
    return said if isinstance(said, Rendered) else Rendered(said)


def mask(text: str, terms: Sequence[Term], target: str) -> Masked:
    """Return a text in which stand-ins are in place of its terms, the longest where several fit."""
    plain = unicodedata.normalize("NFC", text)
    low = plain.casefold()
    # Looking for all of them at once is cheap like this, and mostly none is there.
    there = [one for one in terms if one.term.partition(" ")[0].casefold() in low]
    if not there:
        return Masked(text, ())
    there.sort(key=lambda one: len(one.term), reverse=True)
    pattern = "|".join([*(f"({_pattern(one.term)})" for one in there), LOOKALIKE])
    kept: list[str] = []

    def replaced(found: re.Match[str]) -> str:
        number = found.lastindex
        kept.append(_said(there[number - 1], found.group(), target) if number else found.group())
        before, after = plain[: found.start()][-1:], plain[found.end() :][:1]
        return f"{_gap(before)}{MARK}{len(kept)}{_gap(after)}"

    masked = re.sub(pattern, replaced, plain)
    return Masked(masked, tuple(kept)) if kept else Masked(text, ())


def _pattern(term: str) -> str:
    """Return what finds a term: whole words of it, in the cases that are meant."""
    before = "" if UNSPACED.match(term[0]) else rf"(?<!{LETTER})"
    after = "" if UNSPACED.match(term[-1]) else rf"(?!{LETTER})"
    return f"{before}(?:{_in_cases(term)}){after}"


def _in_cases(term: str) -> str:
    """Return a term in its cases: a small one in any, `IT` in none but its own."""
    if not _has_capitals(term):
        return f"(?i:{_spaced(term)})"
    if term.isupper():
        return _spaced(term)
    # A recogniser that does not know a name writes its first letter large, if any.
    forms = (term, term.upper(), term.capitalize())
    return "|".join(map(_spaced, dict.fromkeys(forms)))


def _spaced(term: str) -> str:
    return r"\s+".join(map(re.escape, term.split(" ")))


def _has_capitals(term: str) -> bool:
    return term != term.lower()


def _said(one: Term, found: str, target: str) -> str:
    said = one.said_in(target)
    if said is not None:
        return said
    return one.term if _has_capitals(one.term) else found


def _gap(beside: str) -> str:
    """Return a space where a stand-in would be one word with what is beside it."""
    return " " if beside.isalnum() or beside == "_" else ""


def restore(text: str, masked: Masked) -> str:
    """Return a translation with its terms in it, large where a sentence begins with one."""

    def said(found: re.Match[str]) -> str:
        number = int(found[1])
        if not 0 < number <= len(masked.kept):
            return found.group()
        term = masked.kept[number - 1]
        starts = term.islower() and SENTENCE_START.search(text, 0, found.start())
        return term[0].upper() + term[1:] if starts else term

    return STAND_IN.sub(said, text)
