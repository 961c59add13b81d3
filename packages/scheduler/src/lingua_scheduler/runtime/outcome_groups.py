"""Groups of outcomes that belong together on a client's screen, per speaker.

The words of the client itself also become the context that nodes are sent with its next jobs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_scheduler.jobs.result import Shown
from lingua_scheduler.session.group import GroupTracker

if TYPE_CHECKING:
    from lingua_scheduler.clock import Clock
    from lingua_scheduler.state.records import Released
    from lingua_wire.to_client import TranslationResult

# Speakers whose words form groups of their own for a listener.
SPEAKERS_MAX = 16


class OutcomeGroups:
    """The groups of one client's outcomes."""

    __slots__ = ("_clock", "_latest", "_of_speakers", "_own", "context")

    def __init__(self, session: str, clock: Clock) -> None:
        self._clock = clock
        self._own = GroupTracker(session)
        self._of_speakers: dict[str, GroupTracker] = {}
        # What a node may be sent of the conversation so far.
        self.context = ""
        # The latest own utterance that entered a group, and its place there.
        self._latest: tuple[int, str, int] = (-1, "", 0)

    def begin_with(self, context: str) -> None:
        """Let the conversation begin with a hint of the client."""
        self.context = context

    def join(
        self, outcome: Released, kept: TranslationResult, now_ms: float, wall_ms: int
    ) -> tuple[str, int] | None:
        """Put a result of the client itself into a group, once for all its languages.

        Returns the group and the place there, if the utterance is the latest that entered one.
        """
        if self._latest[0] != outcome.utterance and kept.text_asr:
            found = self._own.result(kept.text_asr, kept.text_translated, now_ms, wall_ms)
            if found is not None:
                self._latest = (outcome.utterance, *found)
                self.context = self._own.context_text()
        index, group, part = self._latest
        return (group, part) if index == outcome.utterance else None

    def join_speaker(
        self, speaker: str, kept: TranslationResult, shown: Shown, now_ms: float, wall_ms: int
    ) -> Shown:
        """Put a result of another speaker into the group of its latest words."""
        groups = self._of_speakers
        tracker = groups.pop(speaker, None) or GroupTracker(speaker)
        groups[speaker] = tracker
        if len(groups) > SPEAKERS_MAX:
            del groups[next(iter(groups))]
        found = tracker.result(kept.text_asr, kept.text_translated, now_ms, wall_ms)
        return shown if found is None else Shown(shown.timeline, *found)

    def playing(self, *, starts: bool) -> None:
        """Keep groups open while the client plays a translation."""
        now = self._clock.now_ms()
        for group in (self._own, *self._of_speakers.values()):
            if starts:
                group.tts_started(now)
            else:
                group.tts_ended(now)
