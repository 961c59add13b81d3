"""How this command was called: what is told to be typed next begins with the same word."""

from __future__ import annotations

import sys
from pathlib import Path


def own_name() -> str:
    """Return how this command was called, as short as it still works here."""
    called = Path(sys.argv[0])
    if called.name != "lingua":
        return "lingua"
    here = Path.cwd()
    return str(called.relative_to(here) if called.is_relative_to(here) else called)
