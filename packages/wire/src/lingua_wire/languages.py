"""Language codes in one canonical form: lower case, checked, short. Pure.

A region is an addition: a node that serves `en` serves `en-us`, but not the other way round.
"""

from __future__ import annotations

import re

from lingua_wire.errors import InvalidLanguage

AUTO = "auto"
CODE = re.compile(r"[a-z]{2,8}(-[a-z0-9]{1,8}){0,3}")


def language(code: str) -> str:
    """Return a language code in its canonical form; raises `InvalidLanguage`."""
    lowered = code.replace("_", "-").lower() if len(code) <= 64 else ""
    if not CODE.fullmatch(lowered) or lowered == AUTO:
        raise InvalidLanguage(code)
    return lowered


def base_of(code: str) -> str:
    """Return the language without its region."""
    return code.partition("-")[0]


def understands(known: tuple[str, ...] | None, code: str) -> bool:
    """Tell whether these languages (None: any) include this one."""
    return known is None or code in known or base_of(code) in known
