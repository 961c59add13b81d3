"""Watches for tests: one that stops after some checks, one that records partial texts."""

from __future__ import annotations

from lingua_speech.engine import Stopped, Unwatched


class StopAfter(Unwatched):
    """A watch that raises `Stopped` after some checks."""

    def __init__(self, checks: int) -> None:
        self.left = checks

    def check(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Stopped


class RecordingWatch(Unwatched):
    """A watch that records the partial texts."""

    def __init__(self) -> None:
        self.partials: list[str] = []

    def partial(self, text: str) -> None:
        self.partials.append(text)
