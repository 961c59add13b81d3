"""The progress of a benchmark on a terminal or in a log."""

from __future__ import annotations

from typing import TextIO


class ProgressLine:
    """Shows the progress on stderr: in place on a terminal, else one line per new step."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._in_place = stream.isatty()
        # What was shown before, so that a log does not repeat it.
        self._said: set[str] = set()

    def tell(self, doing: str, done: float) -> None:
        """Show one state."""
        if self._in_place:
            self._stream.write(f"\r\x1b[K{done:4.0%}  {doing}")
            self._stream.flush()
        elif doing not in self._said:
            self._said.add(doing)
            self._stream.write(f"{doing}\n")
            self._stream.flush()

    def note(self, line: str) -> None:
        """Write a line that stays."""
        self._stream.write(f"{line}\n")
        self._stream.flush()

    def end(self) -> None:
        """Remove the line."""
        if self._in_place:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
