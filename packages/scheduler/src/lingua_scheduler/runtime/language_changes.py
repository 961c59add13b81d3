"""The languages of a session's next utterances: changes wait for the end of an utterance."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lingua_scheduler.jobs.profile import Profile


class LanguageChanges:
    """The profile of the current utterance, and of those after it."""

    __slots__ = ("_next", "by_chunk", "profile")

    def __init__(self, profile: Profile) -> None:
        # Of the utterance that is being spoken.
        self.profile = profile
        # A change that waits for the end of the utterance that is being spoken.
        self._next: Profile | None = None
        # Changes that a former owner received, by the chunk they came after.
        self.by_chunk: list[tuple[int, Profile]] = []

    @property
    def next_profile(self) -> Profile:
        """Return the profile of the next utterance."""
        if self.by_chunk:
            return self.by_chunk[-1][1]
        return self._next or self.profile

    def restore(self, changes: Iterable[tuple[int, Profile]]) -> None:
        """Restore changes that a former owner received."""
        self.by_chunk.extend(changes)

    def reach(self, seq: int | None, *, is_idle: bool) -> None:
        """Apply the next restored change if its chunk is passed."""
        if self.by_chunk and (seq is None or seq > self.by_chunk[0][0]):
            self.change_to(self.by_chunk.pop(0)[1], is_idle=is_idle)

    def reach_all(self, *, is_idle: bool) -> None:
        """Apply all restored changes: a newer one follows."""
        while self.by_chunk:
            self.change_to(self.by_chunk.pop(0)[1], is_idle=is_idle)

    def change_to(self, profile: Profile, *, is_idle: bool) -> None:
        """Let other languages count from the next utterance on."""
        if is_idle:
            self.profile = profile
        else:
            self._next = profile

    def utterance_ended(self) -> None:
        """Apply a change that waited for the end of the utterance."""
        if self._next is not None:
            self.profile, self._next = self._next, None
