"""Who was in which room when, as the people themselves asked for it and were told. Pure.

Nobody asks the scheduler. A change takes hold at some moment after it was asked for; it has taken
hold for a speaker when that speaker was told of it, or when somebody was told and all instances had
the time to look. Between the two moments a listener may hear or not; outside of them it must, or
must not.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from lingua_scheduler.bench.chaos.history import (
    Accepted,
    Arrived,
    Asked,
    Cut,
    Gone,
    Passed,
    Received,
    Resumed,
    Roster,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lingua_scheduler.bench.chaos.history import AnyLine

NEVER: Final = float("inf")
# Instances look at their rooms every 5 s, whatever they were told.
KNOWN_S: Final = 6.5


@dataclass(slots=True)
class Wish:
    """A language that a member wants, from when on, and when it was told so."""

    lang: str
    asked_at: float
    told_at: float = NEVER


@dataclass(slots=True)
class Visit:
    """A person's stay in one room."""

    room: str
    asked_at: float
    told_at: float = NEVER
    left_at: float = NEVER
    # Since when it is there by the room's own word, which tells one visit from another.
    since_ms: int = -1
    wishes: list[Wish] = field(default_factory=list)


@dataclass(slots=True)
class Witness:
    """One person: what it asked for and what it was told."""

    number: int
    kind: str = "sdk"
    source: str = ""
    targets: tuple[str, ...] = ()
    # Its sessions, each from when on.
    sessions: list[tuple[float, str]] = field(default_factory=list)
    visits: list[Visit] = field(default_factory=list)
    rosters: list[Roster] = field(default_factory=list)
    resumed_at: list[float] = field(default_factory=list)
    # When it came back, and the first utterance that the server did not have all of then.
    wanted: list[tuple[float, int]] = field(default_factory=list)
    cuts: list[Cut] = field(default_factory=list)
    accepted: list[Accepted] = field(default_factory=list)
    received: list[Received] = field(default_factory=list)
    passed: list[Passed] = field(default_factory=list)
    gone_at: float = NEVER
    how: str = ""
    problem: str = ""

    def session_at(self, at: float) -> str:
        """Return which session it had."""
        place = bisect_right(self.sessions, (at, "￿")) - 1
        return self.sessions[place][1] if place >= 0 else ""

    def roster_before(self, at: float, room: str) -> Roster | None:
        """Return what it was told last of a room before a moment."""
        place = bisect_left(self.rosters, at, key=lambda roster: roster.at)
        return next((one for one in reversed(self.rosters[:place]) if one.room == room), None)

    def is_there_after(self, at: float) -> bool:
        """Tell whether it stayed so long that it can say what it did not hear."""
        return self.how == "stayed" or self.gone_at > at

    def take(self, line: AnyLine) -> None:
        """Take one line of its history."""
        if isinstance(line, Arrived):
            self._arrive(line)
        elif isinstance(line, Asked):
            self._ask(line)
        elif isinstance(line, Roster):
            self._be_told(line)
        elif isinstance(line, Resumed):
            self.resumed_at.append(line.at)
            self.wanted.append((line.at, line.wanted))
        elif isinstance(line, Gone):
            self.gone_at, self.how, self.problem = line.at, line.how, line.problem
            self._leave(line.at)
        else:
            self._keep(line)

    def _keep(self, line: AnyLine) -> None:
        for kind, kept in (
            (Cut, self.cuts), (Accepted, self.accepted), (Received, self.received),
            (Passed, self.passed),
        ):  # fmt: skip
            if isinstance(line, kind):
                kept.append(line)  # type: ignore[arg-type]

    def _arrive(self, line: Arrived) -> None:
        self.kind, self.source, self.targets = line.kind, line.source, line.targets
        if self.sessions and self.visits and self.visits[-1].left_at == NEVER:
            # Another session, which enters the room again by itself.
            former = self.visits[-1]
            self._leave(line.at)
            self._enter(former.room, former.wishes[-1].lang, line.at)
        self.sessions.append((line.at, line.session))

    def _ask(self, line: Asked) -> None:
        if line.what == "leave":
            self._leave(line.at)
        elif line.what == "language":
            if self.visits and self.visits[-1].left_at == NEVER:
                self.visits[-1].wishes.append(Wish(line.lang, line.at))
        else:
            self._leave(line.at)
            self._enter(line.room, line.lang, line.at)

    def _enter(self, room: str, lang: str, at: float) -> None:
        self.visits.append(Visit(room, at, wishes=[Wish(lang, at)]))

    def _leave(self, at: float) -> None:
        if self.visits and self.visits[-1].left_at == NEVER:
            self.visits[-1].left_at = at

    def _be_told(self, line: Roster) -> None:
        self.rosters.append(line)
        if not self.visits:
            return
        visit, session = self.visits[-1], self.sessions[-1][1]
        own = next((member for member in line.members if member[0] == session), None)
        if visit.left_at < NEVER or own is None or visit.room not in {"", line.room}:
            return
        if any(own[2] == one.since_ms and one.room == line.room for one in self.visits[:-1]):
            return  # it speaks of the visit before
        # Who makes a room learns its name by this.
        visit.room, visit.since_ms = line.room, own[2]
        visit.told_at = min(visit.told_at, line.at)
        for wish in visit.wishes:
            if wish.lang == own[1]:
                wish.told_at = min(wish.told_at, line.at)


def is_on(roster: Roster, session: str, visit: Visit, lang: str | None = None) -> bool:
    """Tell whether a roster has this visit of a session, and with a language if one is given."""
    return any(
        member == session and visit.since_ms in {-1, since_ms} and lang in {None, wanted}
        for member, wanted, since_ms in roster.members
    )


class Whereabouts:
    """Everybody, and what follows of who may and who must hear whom."""

    def __init__(self, lines: Iterable[AnyLine]) -> None:
        self.people: dict[int, Witness] = {}
        # Session -> person.
        self.owner: dict[str, int] = {}
        # Room -> what anybody was told of it, in order.
        self._told: dict[str, list[Roster]] = defaultdict(list)
        for line in lines:
            number = getattr(line, "person", None)
            if number is None:
                continue
            person = self.people.setdefault(number, Witness(number))
            person.take(line)
            if isinstance(line, Arrived):
                self.owner[line.session] = number
            elif isinstance(line, Roster):
                self._told[line.room].append(line)
        for rosters in self._told.values():
            rosters.sort(key=lambda roster: roster.at)
        # Every utterance of a room asks for every visit to it: what was found once is kept, by the
        # number of the speaker (none for `gone_at`) and the visit.
        self._over: dict[tuple[int, int], float] = {}
        self._gone: dict[int, float] = {}

    def is_sure(self, speaker: Witness, listener: Witness, visit: Visit, at: float) -> bool:
        """Tell whether the listener's visit was known by then, to the speaker or to all."""
        if visit.told_at == NEVER:
            return False
        if visit.told_at + KNOWN_S <= at:
            return True
        roster = speaker.roster_before(at, visit.room)
        session = listener.session_at(visit.told_at)
        return roster is not None and roster.at >= visit.asked_at and is_on(roster, session, visit)

    def over_at(self, speaker: Witness, listener: Witness, visit: Visit) -> float:
        """Return from when on nothing more can be meant for the listener of this visit."""
        found = self._over.get((speaker.number, id(visit)))
        if found is None:
            found = self._find_over(speaker, listener, visit)
            self._over[speaker.number, id(visit)] = found
        return found

    def _find_over(self, speaker: Witness, listener: Witness, visit: Visit) -> float:
        if visit.left_at == NEVER:
            return NEVER
        gone_at = self.gone_at(listener, visit)
        if gone_at == NEVER:
            return NEVER
        session = listener.session_at(visit.left_at)
        return min(gone_at + KNOWN_S, self._first_told_without(speaker, visit, session))

    def gone_at(self, person: Witness, visit: Visit) -> float:
        """Return when anybody was first told that a person has left."""
        found = self._gone.get(id(visit))
        if found is None:
            found = self._gone[id(visit)] = self._find_gone(person, visit)
        return found

    def _find_gone(self, person: Witness, visit: Visit) -> float:
        session = person.session_at(visit.left_at)
        for roster in self._after(visit.room, visit.left_at):
            if not is_on(roster, session, visit):
                return roster.at
        return NEVER

    def _first_told_without(self, speaker: Witness, visit: Visit, session: str) -> float:
        place = bisect_left(speaker.rosters, visit.left_at, key=lambda roster: roster.at)
        for roster in speaker.rosters[place:]:
            if roster.room == visit.room and not is_on(roster, session, visit):
                return roster.at
        return NEVER

    def _after(self, room: str, at: float) -> Iterable[Roster]:
        rosters = self._told[room]
        return rosters[bisect_left(rosters, at, key=lambda roster: roster.at) :]

    def langs(
        self, speaker: Witness, listener: Witness, visit: Visit, span: tuple[float, float]
    ) -> set[str]:
        """Return the languages that may hold for a listener at some moment of a span."""
        found: set[str] = set()
        since, until = span
        for wish, following in zip(visit.wishes, [*visit.wishes[1:], None], strict=True):
            over_at = NEVER
            if following is not None:
                over_at = self._known_at(speaker, listener, visit, following)
            if wish.asked_at <= until and over_at > since:
                found.add(wish.lang)
        return found

    def _known_at(
        self, speaker: Witness, listener: Witness, visit: Visit, wish: Wish
    ) -> float:  # fmt: skip
        """Return when a language was known for certain to those who ask about a speaker."""
        session = listener.session_at(wish.asked_at)
        place = bisect_left(speaker.rosters, wish.asked_at, key=lambda roster: roster.at)
        for roster in speaker.rosters[place:]:
            if roster.room == visit.room and is_on(roster, session, visit, wish.lang):
                return min(roster.at, wish.told_at + KNOWN_S)
        return wish.told_at + KNOWN_S
