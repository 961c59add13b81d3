"""Language codes, in one form everywhere: lower case, checked, short. Pure.

A region is an addition: who serves `en` serves `en-us`, who serves `en-us` does not serve `en`.
"""

from __future__ import annotations

import re

from lingua_scheduler.errors import InvalidLanguage

AUTO = "auto"
CODE = re.compile(r"[a-z]{2,8}(-[a-z0-9]{1,8}){0,3}")


def language(code: str) -> str:
    """Return a language code in its one form, or raise if it is none."""
    lowered = code.replace("_", "-").lower() if len(code) <= 64 else ""
    if not CODE.fullmatch(lowered) or lowered == AUTO:
        raise InvalidLanguage(code)
    return lowered


def base_of(code: str) -> str:
    """Return the language without its region."""
    return code.partition("-")[0]


def understands(known: tuple[str, ...] | None, code: str) -> bool:
    """Tell whether who knows these languages (None: any) knows this one."""
    return known is None or code in known or base_of(code) in known
