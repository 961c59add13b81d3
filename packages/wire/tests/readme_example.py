"""The Python example of a page, for the tests that run it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def python_example(page: Path) -> str:
    """Return the only Python block of a page."""
    [program] = PYTHON.findall(page.read_text(encoding="utf-8"))
    return str(program)
