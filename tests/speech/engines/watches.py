"""Watches for tests: one whose owner goes away, one that writes down what it is told."""

from __future__ import annotations

from lingua_scheduler.speech.engine import Stopped, Unwatched


class WantedFor(Unwatched):
    """A watch whose owner goes away after some looks."""

    def __init__(self, looks: int) -> None:
        self.left = looks

    def check(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Stopped


class Noting(Unwatched):
    """A watch that keeps what it was told."""

    def __init__(self) -> None:
        self.partials: list[str] = []

    def partial(self, text: str) -> None:
        self.partials.append(text)
