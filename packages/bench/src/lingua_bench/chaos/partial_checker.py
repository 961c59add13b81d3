"""Checks partial texts: none after the outcome of its utterance, none at a wrong ear, none changed.

A partial names its utterance by the marks in its text, and its stream in the part that may still
change. A listener may receive one if it may have been in the room with the speaker at some moment
since the utterance before was cut. `memberships.py` decides what may have been.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lingua_bench.chaos import marked_audio
from lingua_bench.chaos.history import PartialReceived

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lingua_bench.chaos.findings import ChaosFindings
    from lingua_bench.chaos.history import PassedNoticeReceived, RoomOutcomeReceived
    from lingua_bench.chaos.memberships import ParticipantHistory, RoomTimeline

    # Speaker and the number of the utterance.
    Key = tuple[int, int]

EXAMPLES_MAX: Final = 5


class PartialCheck:
    """Goes through the partials that participants received."""

    def __init__(
        self,
        known: RoomTimeline,
        places: Mapping[tuple[str, int], Key],
        findings: ChaosFindings,
    ) -> None:
        self._known = known
        # (session, index) -> utterance: for outcomes without a text.
        self._places = places
        self._findings = findings

    def run(self) -> None:
        """Compare the partials of all participants with everything else."""
        for participant in self._known.participants.values():
            self._follow(participant)

    def _follow(self, listener: ParticipantHistory) -> None:
        answered: set[Key] = set()
        # Stream -> its last stable text.
        stable: dict[str, str] = {}
        for line in in_order(listener):
            if not isinstance(line, PartialReceived):
                answered.add(self._places.get((line.session, line.index), (-1, -1)))
                continue
            self._findings.partials += 1
            before = stable.get(line.stream, "")
            if not line.stable.startswith(before):
                self._object("partials_changed", f"after {before}: {line}")
            stable[line.stream] = line.stable
            self._check(listener, line, answered)

    def _check(
        self, listener: ParticipantHistory, line: PartialReceived, answered: set[Key]
    ) -> None:
        said = marked_audio.read(line.stable)
        speaker = self._known.participants.get(self._known.owner.get(line.session, -1))
        if said is None or speaker is None or said.speaker != speaker.number:
            self._object("partials_misheard", f"of other speech: {line}")
            return
        if (said.speaker, said.number) in answered:
            self._object("partials_late", f"after its outcome: {line}")
        if listener is speaker:
            return
        self._findings.partials_of_others += 1
        if not self._may_hear(listener, speaker, said.number, line.at):
            self._object("partials_misheard", f"not in the room of {speaker.number}: {line}")

    def _may_hear(
        self, listener: ParticipantHistory, speaker: ParticipantHistory, number: int, at: float
    ) -> bool:
        """Tell whether both may have been in one room since the utterance before was cut."""
        since = max((cut.at for cut in speaker.cuts if cut.number < number), default=0.0)
        return any(
            own.room == stay.room
            and max(own.asked_at, stay.asked_at) <= at
            and self._known.over_at(speaker, listener, stay) > since
            and self._known.over_at(listener, speaker, own) > since
            for own in speaker.stays
            for stay in listener.stays
        )

    def _object(self, name: str, why: str) -> None:
        findings = self._findings
        setattr(findings, name, getattr(findings, name) + 1)
        if sum(one.startswith(f"{name}: ") for one in findings.examples) < EXAMPLES_MAX:
            findings.examples.append(f"{name}: {why}")


def in_order(
    participant: ParticipantHistory,
) -> Iterator[PartialReceived | RoomOutcomeReceived | PassedNoticeReceived]:
    """Give partials and outcomes of a participant in the order in which they arrived."""
    lines: list[PartialReceived | RoomOutcomeReceived | PassedNoticeReceived]
    lines = [*participant.received, *participant.passed, *participant.partials]
    yield from sorted(lines, key=lambda line: line.at)
