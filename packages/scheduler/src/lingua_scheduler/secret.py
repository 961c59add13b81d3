"""Texts that must not be shown: keys, and store URLs that may contain a password.

`str()`, `repr()` and every encoder that falls back to them give the masked form; only `reveal()`
gives the real one, so a search for `reveal` finds each place where a password leaves this type.
"""

from __future__ import annotations

MASK = "***"


class Secret:
    """A text that only `reveal()` returns."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text itself, for the code that connects, signs or checks with it."""
        return self._text

    def __bool__(self) -> bool:
        return bool(self._text)

    def __str__(self) -> str:
        return MASK if self._text else ""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


class SecretUrl(Secret):
    """A URL whose user and password are hidden; the rest of it is shown."""

    __slots__ = ()

    def __str__(self) -> str:
        return mask(self._text)


def mask(text: str) -> str:
    """Hide everything that could be a password in a URL, or a whole text that is not a URL."""
    scheme, separator, rest = text.partition("://")
    if not separator:
        return MASK if text else ""
    # A `?` or `#` may start a query or stand unescaped in a password: nothing after it is safe.
    if "?" in rest or "#" in rest:
        return f"{scheme}://{MASK}"
    # The last @ ends the user and password, even if the password has an unescaped one.
    _, at, host = rest.rpartition("@")
    return f"{scheme}://{MASK}@{host}" if at else text
