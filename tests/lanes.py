"""Runs all tests in lanes beside each other: `lanes.py 'model|unit' 'speech|stress' 'store'`.

A lane is marks, whose tests run one after another in one process. The last lane prints as it goes,
the others write to build/ and are shown when all have ended: whole if anything failed in them.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import IO

BUILD = Path("build")
SHOWN_LINES = 3


class Lane:
    """One process that runs the tests of some marks."""

    def __init__(self, marks: str, *, is_shown: bool) -> None:
        self.marks = " or ".join(marks.split("|"))
        self.log = BUILD / f"{marks.replace('|', '-')}.log"
        self._output: IO[str] | None = None if is_shown else self.log.open("w")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-q", "-m", self.marks],
            stdout=self._output, stderr=subprocess.STDOUT if self._output else None,
        )  # fmt: skip

    def wait(self) -> bool:
        """Wait for its end; tell whether all went well."""
        code = self.process.wait()
        if self._output is not None:
            self._output.close()
            lines = self.log.read_text(errors="replace").splitlines()
            shown = lines[-SHOWN_LINES:] if code == 0 else lines
            print(f"\n{self.marks}:", *shown, sep="\n", flush=True)
        return code == 0


def main(lanes: list[str]) -> int:
    """Run them all; 1 if any test failed."""
    BUILD.mkdir(exist_ok=True)
    running: list[Lane] = []
    try:
        running.extend(Lane(marks, is_shown=marks == lanes[-1]) for marks in lanes)
        # The one that is shown first: all others are quiet until it has ended.
        passed = [lane.wait() for lane in reversed(running)]
    except KeyboardInterrupt:
        # They have heard the Ctrl-C, too, and end what their tests have started.
        for lane in running:
            lane.process.wait()
        return 130
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
