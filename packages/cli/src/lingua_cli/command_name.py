"""The name under which this command was called, for messages with a command to type next."""

from __future__ import annotations

import sys
from pathlib import Path


def command_name() -> str:
    """Return the name under which this command was called, as short as it works here."""
    called = Path(sys.argv[0])
    if called.name != "lingua":
        return "lingua"
    here = Path.cwd()
    return str(called.relative_to(here) if called.is_relative_to(here) else called)
