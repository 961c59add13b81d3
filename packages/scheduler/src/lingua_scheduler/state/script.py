"""A Lua script with its hash, and the words that a command to the store consists of."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

Word = bytes | str | int | float


@dataclass(frozen=True, slots=True)
class Script:
    """One Lua script: its name for messages, its text, and the hash the server knows it by."""

    name: str
    source: bytes
    sha: bytes

    @classmethod
    def of(cls, name: str, source: str) -> Script:
        """Return the script with its hash computed."""
        text = source.encode()
        sha = hashlib.sha1(text, usedforsecurity=False).hexdigest().encode()
        return cls(name, text, sha)
