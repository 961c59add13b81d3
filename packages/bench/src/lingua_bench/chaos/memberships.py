"""Which participant was in which room when, from its own requests and rosters. Pure.

The scheduler is not asked. A change takes effect at some moment after it was requested. It has
surely taken effect for a speaker when that speaker received a roster with it, or when any
participant did and all instances had the time to reload their rooms. Between the two moments a
listener may receive an outcome or not; outside of them it must, or must not.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from lingua_bench.chaos.history import (
    ChangeRequested,
    CutRequested,
    PartialReceived,
    ParticipantConnected,
    ParticipantLeft,
    ParticipantResumed,
    PassedNoticeReceived,
    RoomLine,
    RoomOutcomeReceived,
    RosterReceived,
    UtteranceAcknowledged,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lingua_bench.chaos.history import AnyLine

NEVER: Final = float("inf")
# Instances reload their rooms every 5 s in any case.
KNOWN_S: Final = 6.5


@dataclass(slots=True)
class LanguageRequest:
    """A language that a member requested, and when a roster first showed it."""

    lang: str
    asked_at: float
    told_at: float = NEVER


@dataclass(slots=True)
class RoomStay:
    """The stay of a participant in one room."""

    room: str
    asked_at: float
    told_at: float = NEVER
    left_at: float = NEVER
    # The time of entry by the roster, which tells one stay from another.
    since_ms: int = -1
    requests: list[LanguageRequest] = field(default_factory=list)


@dataclass(slots=True)
class ParticipantHistory:
    """One participant: its requests and what it received."""

    number: int
    kind: str = "sdk"
    source: str = ""
    targets: tuple[str, ...] = ()
    # Its sessions, each with its begin.
    sessions: list[tuple[float, str]] = field(default_factory=list)
    stays: list[RoomStay] = field(default_factory=list)
    rosters: list[RosterReceived] = field(default_factory=list)
    resumed_at: list[float] = field(default_factory=list)
    # When it resumed, and the first utterance that the server did not have completely.
    wanted: list[tuple[float, int]] = field(default_factory=list)
    cuts: list[CutRequested] = field(default_factory=list)
    accepted: list[UtteranceAcknowledged] = field(default_factory=list)
    received: list[RoomOutcomeReceived] = field(default_factory=list)
    passed: list[PassedNoticeReceived] = field(default_factory=list)
    partials: list[PartialReceived] = field(default_factory=list)
    gone_at: float = NEVER
    how: str = ""
    problem: str = ""

    def session_at(self, at: float) -> str:
        """Return the session that it had at a moment."""
        place = bisect_right(self.sessions, (at, "￿")) - 1
        return self.sessions[place][1] if place >= 0 else ""

    def roster_before(self, at: float, room: str) -> RosterReceived | None:
        """Return the last roster of a room that it received before a moment."""
        place = bisect_left(self.rosters, at, key=lambda roster: roster.at)
        return next((one for one in reversed(self.rosters[:place]) if one.room == room), None)

    def is_there_after(self, at: float) -> bool:
        """Tell whether it stayed so long that a missing outcome is a loss."""
        return self.how == "stayed" or self.gone_at > at

    def handle(self, line: AnyLine) -> None:
        """Handle one line of its history."""
        if isinstance(line, ParticipantConnected):
            self._arrive(line)
        elif isinstance(line, ChangeRequested):
            self._ask(line)
        elif isinstance(line, RosterReceived):
            self._be_told(line)
        elif isinstance(line, ParticipantResumed):
            self.resumed_at.append(line.at)
            self.wanted.append((line.at, line.wanted))
        elif isinstance(line, ParticipantLeft):
            self.gone_at, self.how, self.problem = line.at, line.how, line.problem
            self._leave(line.at)
        else:
            self._keep(line)

    def _keep(self, line: AnyLine) -> None:
        for kind, kept in (
            (CutRequested, self.cuts),
            (UtteranceAcknowledged, self.accepted),
            (RoomOutcomeReceived, self.received),
            (PassedNoticeReceived, self.passed),
            (PartialReceived, self.partials),
        ):
            if isinstance(line, kind):
                kept.append(line)  # type: ignore[arg-type]

    def _arrive(self, line: ParticipantConnected) -> None:
        self.kind, self.source, self.targets = line.kind, line.source, line.targets
        if self.sessions and self.stays and self.stays[-1].left_at == NEVER:
            # Another session, which enters the room again by itself.
            former = self.stays[-1]
            self._leave(line.at)
            self._enter(former.room, former.requests[-1].lang, line.at)
        self.sessions.append((line.at, line.session))

    def _ask(self, line: ChangeRequested) -> None:
        if line.what == "leave":
            self._leave(line.at)
        elif line.what == "language":
            if self.stays and self.stays[-1].left_at == NEVER:
                self.stays[-1].requests.append(LanguageRequest(line.lang, line.at))
        else:
            self._leave(line.at)
            self._enter(line.room, line.lang, line.at)

    def _enter(self, room: str, lang: str, at: float) -> None:
        self.stays.append(RoomStay(room, at, requests=[LanguageRequest(lang, at)]))

    def _leave(self, at: float) -> None:
        if self.stays and self.stays[-1].left_at == NEVER:
            self.stays[-1].left_at = at

    def _be_told(self, line: RosterReceived) -> None:
        self.rosters.append(line)
        if not self.stays:
            return
        stay, session = self.stays[-1], self.sessions[-1][1]
        own = next((member for member in line.members if member[0] == session), None)
        if stay.left_at < NEVER or own is None or stay.room not in {"", line.room}:
            return
        if any(own[2] == one.since_ms and one.room == line.room for one in self.stays[:-1]):
            return  # it is about the stay before
        # The creator of a room learns its code from this.
        stay.room, stay.since_ms = line.room, own[2]
        stay.told_at = min(stay.told_at, line.at)
        for request in stay.requests:
            if request.lang == own[1]:
                request.told_at = min(request.told_at, line.at)


def is_on(roster: RosterReceived, session: str, stay: RoomStay, lang: str | None = None) -> bool:
    """Tell whether a roster has this stay of a session, and with a language if one is given."""
    return any(
        member == session and stay.since_ms in {-1, since_ms} and lang in {None, wanted}
        for member, wanted, since_ms in roster.members
    )


class RoomTimeline:
    """All participants, and who may and who must receive whose utterances."""

    def __init__(self, lines: Iterable[AnyLine]) -> None:
        self.participants: dict[int, ParticipantHistory] = {}
        # Session -> participant.
        self.owner: dict[str, int] = {}
        # Room -> all rosters of it, in order.
        self._told: dict[str, list[RosterReceived]] = defaultdict(list)
        for line in lines:
            if not isinstance(line, RoomLine):
                continue
            number = line.participant
            participant = self.participants.setdefault(number, ParticipantHistory(number))
            participant.handle(line)
            if isinstance(line, ParticipantConnected):
                self.owner[line.session] = number
            elif isinstance(line, RosterReceived):
                self._told[line.room].append(line)
        for rosters in self._told.values():
            rosters.sort(key=lambda roster: roster.at)
        # Every utterance of a room asks for every stay in it: the results are kept, by the number
        # of the speaker (none for `gone_at`) and the stay.
        self._over: dict[tuple[int, int], float] = {}
        self._gone: dict[int, float] = {}

    def is_sure(
        self,
        speaker: ParticipantHistory,
        listener: ParticipantHistory,
        stay: RoomStay,
        at: float,
    ) -> bool:
        """Tell whether the listener's stay was known by then, to the speaker or to all."""
        if stay.told_at == NEVER:
            return False
        if stay.told_at + KNOWN_S <= at:
            return True
        roster = speaker.roster_before(at, stay.room)
        session = listener.session_at(stay.told_at)
        return roster is not None and roster.at >= stay.asked_at and is_on(roster, session, stay)

    def over_at(
        self, speaker: ParticipantHistory, listener: ParticipantHistory, stay: RoomStay
    ) -> float:
        """Return from when on nothing more can be for the listener of this stay."""
        found = self._over.get((speaker.number, id(stay)))
        if found is None:
            found = self._find_over(speaker, listener, stay)
            self._over[speaker.number, id(stay)] = found
        return found

    def _find_over(
        self, speaker: ParticipantHistory, listener: ParticipantHistory, stay: RoomStay
    ) -> float:
        if stay.left_at == NEVER:
            return NEVER
        gone_at = self.gone_at(listener, stay)
        if gone_at == NEVER:
            return NEVER
        session = listener.session_at(stay.left_at)
        return min(gone_at + KNOWN_S, self._first_told_without(speaker, stay, session))

    def gone_at(self, participant: ParticipantHistory, stay: RoomStay) -> float:
        """Return when a roster first showed that a participant had left."""
        found = self._gone.get(id(stay))
        if found is None:
            found = self._gone[id(stay)] = self._find_gone(participant, stay)
        return found

    def _find_gone(self, participant: ParticipantHistory, stay: RoomStay) -> float:
        session = participant.session_at(stay.left_at)
        for roster in self._after(stay.room, stay.left_at):
            if not is_on(roster, session, stay):
                return roster.at
        return NEVER

    def _first_told_without(
        self, speaker: ParticipantHistory, stay: RoomStay, session: str
    ) -> float:
        place = bisect_left(speaker.rosters, stay.left_at, key=lambda roster: roster.at)
        for roster in speaker.rosters[place:]:
            if roster.room == stay.room and not is_on(roster, session, stay):
                return roster.at
        return NEVER

    def _after(self, room: str, at: float) -> Iterable[RosterReceived]:
        rosters = self._told[room]
        return rosters[bisect_left(rosters, at, key=lambda roster: roster.at) :]

    def langs(
        self,
        speaker: ParticipantHistory,
        listener: ParticipantHistory,
        stay: RoomStay,
        span: tuple[float, float],
    ) -> set[str]:
        """Return the languages that may hold for a listener at some moment of a span."""
        found: set[str] = set()
        since, until = span
        for request, following in zip(stay.requests, [*stay.requests[1:], None], strict=True):
            over_at = NEVER
            if following is not None:
                over_at = self._known_at(speaker, listener, stay, following)
            if request.asked_at <= until and over_at > since:
                found.add(request.lang)
        return found

    def _known_at(
        self,
        speaker: ParticipantHistory,
        listener: ParticipantHistory,
        stay: RoomStay,
        request: LanguageRequest,
    ) -> float:
        """Return when a language was surely known to the instance of a speaker."""
        session = listener.session_at(request.asked_at)
        place = bisect_left(speaker.rosters, request.asked_at, key=lambda roster: roster.at)
        for roster in speaker.rosters[place:]:
            if roster.room == stay.room and is_on(roster, session, stay, request.lang):
                return min(roster.at, request.told_at + KNOWN_S)
        return request.told_at + KNOWN_S
