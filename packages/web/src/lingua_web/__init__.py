"""The pages for people and the browser SDK, as plain static files; the scheduler serves them.

`static/` has everything that a browser loads. There is no build step: a file is served as it is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

STATIC: Final = Path(__file__).parent / "static"
