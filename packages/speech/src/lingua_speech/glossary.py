"""Terms of a glossary: masked before translation and restored in the translation.

Each term is replaced by a stand-in that translators copy (`routing/protected.py`), so that it
passes every engine and every intermediate language. In the result the stand-in is replaced by
the glossary's term for the target language. Terms are compared as written: an inflected form is
another word. The pipeline of a node and `lingua translate --text` use this module.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Final

from lingua_speech.engine import Rendered
from lingua_speech.routing import guards, protected
from lingua_speech.routing.protected import MARK, STAND_IN, Masked

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from lingua_wire.shared import Term

    Translate = Callable[[str], Awaitable[str | Rendered]]

# Scripts without spaces between words, or with suffixes: a term may end anywhere in them.
_UNSPACED: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
)
UNSPACED = re.compile(f"[{_UNSPACED}]")
LETTER: Final = rf"[^\W{_UNSPACED}]"
# Text of the speaker that looks like a stand-in.
LOOKALIKE: Final = rf"(?i:(?<!\w){MARK}\d+(?!\w))"
SENTENCE_START = re.compile(r"(?:^|[.!?…]\s+|[¿¡])[\"'“«(]*$")


async def translate_with_terms(
    text: str, terms: Sequence[Term], target: str, translate: Translate
) -> Rendered:
    """Translate a text so that its terms appear as the glossary requires."""
    masked = mask(text, terms, target) if terms else Masked(text, ())
    rendered = _rendered(await translate(masked.text))
    if not masked.kept:
        return rendered
    if protected.is_whole(masked.text, rendered.text):
        return Rendered(restore(rendered.text, masked), rendered.route, rendered.remarks)
    # The translator changed a stand-in: the result would contain more errors than a term.
    plain = _rendered(await translate(text))
    return Rendered(plain.text, plain.route, (*plain.remarks, guards.SPANS))


def _rendered(answer: str | Rendered) -> Rendered:
    return answer if isinstance(answer, Rendered) else Rendered(answer)


def mask(text: str, terms: Sequence[Term], target: str) -> Masked:
    """Return a text whose terms are stand-ins; the longest term wins where several match."""
    plain = unicodedata.normalize("NFC", text)
    low = plain.casefold()
    # A cheap first check: most texts contain no term.
    present = [one for one in terms if one.term.partition(" ")[0].casefold() in low]
    if not present:
        return Masked(text, ())
    present.sort(key=lambda one: len(one.term), reverse=True)
    pattern = "|".join([*(f"({_pattern(one.term)})" for one in present), LOOKALIKE])
    kept: list[str] = []

    def replaced(found: re.Match[str]) -> str:
        number = found.lastindex
        kept.append(
            _replacement(present[number - 1], found.group(), target) if number else found.group()
        )
        before, after = plain[: found.start()][-1:], plain[found.end() :][:1]
        return f"{_gap(before)}{MARK}{len(kept)}{_gap(after)}"

    masked = re.sub(pattern, replaced, plain)
    return Masked(masked, tuple(kept)) if kept else Masked(text, ())


def _pattern(term: str) -> str:
    """Return a pattern that matches a term as whole words, in the intended cases."""
    before = "" if UNSPACED.match(term[0]) else rf"(?<!{LETTER})"
    after = "" if UNSPACED.match(term[-1]) else rf"(?!{LETTER})"
    return f"{before}(?:{_case_variants(term)}){after}"


def _case_variants(term: str) -> str:
    """Return a pattern for the case variants: any for lower case, only its own for `IT`."""
    if not _has_capitals(term):
        return f"(?i:{_spaced(term)})"
    if term.isupper():
        return _spaced(term)
    # A recogniser that does not know a name capitalises at most its first letter.
    forms = (term, term.upper(), term.capitalize())
    return "|".join(map(_spaced, dict.fromkeys(forms)))


def _spaced(term: str) -> str:
    return r"\s+".join(map(re.escape, term.split(" ")))


def _has_capitals(term: str) -> bool:
    return term != term.lower()


def _replacement(one: Term, found: str, target: str) -> str:
    translation = one.said_in(target)
    if translation is not None:
        return translation
    return one.term if _has_capitals(one.term) else found


def _gap(beside: str) -> str:
    """Return a space where a stand-in would join the adjacent word."""
    return " " if beside.isalnum() or beside == "_" else ""


def restore(text: str, masked: Masked) -> str:
    """Return a translation with its terms, capitalised at the start of a sentence."""

    def restored(found: re.Match[str]) -> str:
        number = int(found[1])
        if not 0 < number <= len(masked.kept):
            return found.group()
        term = masked.kept[number - 1]
        starts = term.islower() and SENTENCE_START.search(text, 0, found.start())
        return term[0].upper() + term[1:] if starts else term

    return STAND_IN.sub(restored, text)
