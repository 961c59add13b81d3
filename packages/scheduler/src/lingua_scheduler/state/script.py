"""A function of the store with its library, and the words that a command to the store consists of.

The Lua code of a release is one library of functions, which a server loads once. Library and
functions are named by their content: two releases with different code live side by side on one
server, and a function with a known name is known to do the same.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

Word = bytes | str | int | float

# The beginning of the names of all our libraries, and the number of hex digits that follow.
LIBRARY_PREFIX = "lingua_"
DIGITS = 12
# Stands for the digits in the text of a library before they are known.
CONTENT = "@content@"


@dataclass(frozen=True, slots=True)
class FunctionLibrary:
    """The Lua text that a server loads, and the name it has there."""

    name: str
    source: bytes

    @classmethod
    def of(cls, text: str) -> FunctionLibrary:
        """Name a library by its text, in which `CONTENT` stands for the digits of its name."""
        digits = hashlib.sha256(text.encode()).hexdigest()[:DIGITS]
        name = f"{LIBRARY_PREFIX}{digits}"
        return cls(name, f"#!lua name={name}\n{text.replace(CONTENT, digits)}".encode())

    def script(self, name: str) -> Script:
        """Return one of its functions."""
        return Script(name, f"{name}_{self.name.removeprefix(LIBRARY_PREFIX)}".encode(), self)


@dataclass(frozen=True, slots=True)
class Script:
    """One function of a library: its name for messages, and the one the server knows it by."""

    name: str
    function: bytes
    library: FunctionLibrary

    @classmethod
    def of(cls, name: str, body: str) -> Script:
        """Return a function of this body in a library of its own."""
        return FunctionLibrary.of(registered(name, f"function(KEYS, ARGV)\n{body}\nend")).script(
            name
        )


def registered(name: str, function: str) -> str:
    """Return the Lua statement that makes a function known under its name."""
    return f"redis.register_function('{name}_{CONTENT}', {function})\n"
