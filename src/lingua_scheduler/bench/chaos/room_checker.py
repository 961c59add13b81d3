"""What a run has shown of rooms: who had to hear what in which language, who might, who must not.

An utterance is cut at some moment between the client's wish and the first sign that the store has
it. Whoever was surely in the speaker's room all that time has to hear it, once, in the language
wanted then, whatever happens later to speaker, listener or room; who surely was not must not. The
rest may. See `visits.py` for what is sure.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from lingua_scheduler.bench.chaos import speech
from lingua_scheduler.bench.chaos.ear import AS_SPOKEN
from lingua_scheduler.bench.chaos.history import RESULT, Passed, Received, Started, Told
from lingua_scheduler.bench.chaos.visits import NEVER, Visit, Whereabouts, Witness

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lingua_scheduler.bench.chaos.findings import Findings
    from lingua_scheduler.bench.chaos.history import AnyLine, Cut, Struck

    # Speaker and the number of the utterance.
    Key = tuple[int, int]

# Longer than any outcome may take: who went earlier after a cut cannot say that it was lost.
PATIENCE_S: Final = 20.0
# How long after the others were told of it a speaker's own change may not be known where it is.
OWN_S: Final = 0.3
EXAMPLES_MAX: Final = 5
# In the place of an index that was never given to an utterance.
HOLE: Final = "gap_timeout"


@dataclass(slots=True)
class Spoken:
    """One utterance."""

    speaker: Witness
    cut: Cut
    # Asked to be cut at, and surely in the store by then.
    since: float
    until: float = NEVER
    is_accepted: bool = False
    # Where it was said: one visit, or None outside of rooms; several if that is not certain.
    visits: list[Visit | None] = field(default_factory=list)
    # Language -> when a node began with it.
    begun: dict[str, float] = field(default_factory=dict)
    # Listener -> lanes it may hear; who has to hear it.
    may: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    must: set[int] = field(default_factory=set)
    # Listener -> lanes heard, and when first.
    heard: dict[int, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    passed: set[str] = field(default_factory=set)

    @property
    def is_certain(self) -> bool:
        """Tell whether it is known where it was said."""
        return len(self.visits) == 1

    @property
    def has_lane(self) -> bool:
        """Tell whether there was a translation of it to be heard by others."""
        lanes = {lane for heard in self.heard.values() for lane in heard} | self.passed
        return bool(lanes - {AS_SPOKEN})

    @property
    def answered_at(self) -> float:
        """Return when the last of those who had to hear it did; never if one did not."""
        times = [min(self.heard[one].values(), default=NEVER) for one in self.must]
        return max(times, default=NEVER)


class RoomCheck:
    """Goes through what the people of one run saw."""

    def __init__(
        self, people: Sequence[AnyLine], nodes: Iterable[AnyLine], findings: Findings
    ) -> None:
        self._findings = findings
        self._known = Whereabouts(people)
        for line in people:
            if isinstance(line, Told):
                findings.told[line.what] += 1
                findings.misplaced += line.what == "misplaced"
        self.spoken: dict[Key, Spoken] = {}
        # (session, index) -> utterance.
        self._places: dict[tuple[str, int], Key] = {}
        # Room -> everybody's visits there.
        self._visits: dict[str, list[tuple[Witness, Visit]]] = defaultdict(list)
        for person in self._known.people.values():
            for visit in person.visits:
                self._visits[visit.room].append((person, visit))
        self._collect(nodes)

    def run(self, struck: Sequence[Struck]) -> None:
        """Compare everything."""
        for spoken in self.spoken.values():
            self._decide(spoken)
        for person in self._known.people.values():
            self._hear(person)
        for spoken in self.spoken.values():
            self._count(spoken)
        self._count_people()
        self._count_dangers(struck)

    # What was said

    def _collect(self, nodes: Iterable[AnyLine]) -> None:
        people = self._known.people.values()
        for person in people:
            for cut in person.cuts:
                self.spoken[person.number, cut.number] = Spoken(person, cut, cut.at)
        for line in nodes:
            if isinstance(line, Started):
                self._begin(line)
        for person in people:
            self._place(person)
        known = set(self._places.values())
        for person in people:
            for cut in person.cuts:
                if (person.number, cut.number) not in known:
                    place = (person.session_at(cut.at), cut.place)
                    self._places.setdefault(place, (person.number, cut.number))
        for spoken in self.spoken.values():
            spoken.until = self._until(spoken)

    def _begin(self, line: Started) -> None:
        said = speech.read(line.said)
        spoken = self.spoken.get((said.speaker, said.number)) if said is not None else None
        if spoken is not None:
            spoken.begun[line.target] = min(spoken.begun.get(line.target, NEVER), line.at)

    def _place(self, person: Witness) -> None:
        """Find out which index is which utterance: by what was heard, told, or counted."""
        for told in person.accepted:
            key = (person.number, told.number)
            if key in self.spoken:
                self._places[told.session, told.index] = key
                spoken = self.spoken[key]
                spoken.is_accepted = True
                spoken.until = min(spoken.until, told.at)
        for at, wanted in person.wanted:
            # The cut was before that, wherever it was: the server has what ended it.
            for cut in person.cuts:
                if cut.at < at and cut.number < wanted:
                    spoken = self.spoken[person.number, cut.number]
                    spoken.until = min(spoken.until, at)
        for line in person.received:
            said = speech.read(line.said)
            if said is not None and (said.speaker, said.number) in self.spoken:
                self._places[line.session, line.index] = (said.speaker, said.number)

    def _until(self, spoken: Spoken) -> float:
        """Return when it was surely in the store."""
        first = min(spoken.begun.values(), default=NEVER)
        person, told_at = spoken.speaker, spoken.until
        was_lost = any(spoken.since <= at <= told_at for at in person.resumed_at)
        # Who lost its connection meanwhile may have said it again, to be cut again.
        return min(first, told_at) if person.kind == "old" or not was_lost else told_at

    # Who it was for

    def _decide(self, spoken: Spoken) -> None:
        speaker = spoken.speaker
        spoken.visits = self._said_in(spoken)
        self._findings.ambiguous += not spoken.is_certain
        for visit in spoken.visits:
            if visit is not None:
                self._decide_in(spoken, visit)
        # Nobody else wants a language, as far as is known: then the speaker's own hold.
        others = [lanes - {AS_SPOKEN} for one, lanes in spoken.may.items() if one in spoken.must]
        if None in spoken.visits or not any(others):
            spoken.may[speaker.number] |= set(speaker.targets)
        if spoken.visits == [None] and (spoken.is_accepted or spoken.begun):
            spoken.must.add(speaker.number)

    def _said_in(self, spoken: Spoken) -> list[Visit | None]:
        """Return where it may have been said."""
        person, since, until = spoken.speaker, spoken.since, spoken.until
        found: list[Visit | None] = [
            visit for visit in person.visits if visit.told_at <= since < visit.left_at
        ]
        if not found:
            found = [
                visit for visit in person.visits
                if visit.asked_at <= since and self._own_end(person, visit) > since
            ]  # fmt: skip
            found.append(None)
        if any(since <= at <= until for at in person.resumed_at):
            later = [visit for visit in person.visits if since < visit.asked_at <= until]
            left = any(since < visit.left_at <= until for visit in person.visits)
            found += [*later, *([None] if left and None not in found else [])]
        return found

    def _own_end(self, person: Witness, visit: Visit) -> float:
        if visit.left_at == NEVER:
            return NEVER
        return self._known.gone_at(person, visit) + OWN_S

    def _decide_in(self, spoken: Spoken, visit: Visit) -> None:
        known, speaker = self._known, spoken.speaker
        since, until = spoken.since, spoken.until
        for listener, stay in self._visits[visit.room]:
            if listener is speaker or stay.asked_at > until:
                continue
            if known.over_at(speaker, listener, stay) <= since:
                continue
            langs = known.langs(speaker, listener, stay, (since, until))
            spoken.may[listener.number] |= {
                AS_SPOKEN if lang == speaker.source else lang for lang in langs if lang
            }
            is_there = stay.left_at > until and known.is_sure(speaker, listener, stay, since)
            if is_there and spoken.is_certain and "" not in langs and until < NEVER:
                spoken.must.add(listener.number)

    # Who heard it

    def _hear(self, person: Witness) -> None:
        # (epoch, seq) -> what was there; utterance and lane -> under which epoch it came.
        places: dict[tuple[str, int], tuple[str, int, str]] = {}
        came: dict[tuple[Key, str], str] = {}
        newest: dict[tuple[str, str], int] = {}
        for line in person.received:
            content = (line.session, line.index, line.lane)
            if line.seq and (line.epoch, line.seq) in places:
                self._findings.redelivered += 1
                if places[line.epoch, line.seq] != content:
                    self._object("wrong", f"another outcome at the same position: {line}")
                continue
            places[line.epoch, line.seq] = content
            key = self._places.get((line.session, line.index))
            if key is None:
                if line.reason == HOLE:
                    self._findings.missing[line.reason] += 1
                else:
                    self._object("wrong", f"of an utterance nobody spoke: {line}")
                continue
            if (key, line.lane) in came:
                if came[key, line.lane] == line.epoch:
                    self._object("duplicates", f"at another position: {line}")
                continue
            came[key, line.lane] = line.epoch
            self._take(person, line, self.spoken[key])
            lane = (line.session, line.lane)
            if line.index < newest.get(lane, -1):
                self._object("inversions", f"after {newest[lane]}: {line}")
            newest[lane] = max(line.index, newest.get(lane, -1))
        self._follow_positions(person)

    def _take(self, person: Witness, line: Received, spoken: Spoken) -> None:
        findings, heard = self._findings, spoken.heard[person.number]
        findings.outcomes += 1
        if line.reason != RESULT:
            findings.missing[line.reason] += 1
        elif not is_right(line, spoken):
            self._object("wrong", f"not what was said, {spoken.cut}: {line}")
        if heard and person is not spoken.speaker:
            self._object("duplicates", f"also in {sorted(heard)}: {line}")
        heard.setdefault(line.lane, line.at)
        may = spoken.may.get(person.number)
        if not may:
            self._object("heard_wrong", f"{spoken.cut}: {line}")
        elif line.lane not in may:
            self._object("wrong_language", f"not in {sorted(may)}, {spoken.cut}: {line}")

    def _object(self, name: str, why: str) -> None:
        """Count something that must not be, with the first few examples."""
        findings = self._findings
        setattr(findings, name, getattr(findings, name) + 1)
        if sum(one.startswith(f"{name}: ") for one in findings.examples) < EXAMPLES_MAX:
            findings.examples.append(f"{name}: {why}")

    def _follow_positions(self, person: Witness) -> None:
        if person.kind == "old":
            return  # it is not told of what went to others
        both: list[Received | Passed] = [*person.received, *person.passed]
        both.sort(key=lambda line: line.at)
        last: dict[str, int] = {}
        for line in both:
            at = last.get(line.epoch, 0)
            if line.seq > at + 1:
                self._object("gaps", f"after {at}: {line}")
            last[line.epoch] = max(at, line.seq)
        seen: dict[tuple[Key, str], tuple[str, int]] = {}
        for line in person.passed:
            key = self._places.get((line.session, line.index))
            if key is not None:
                self.spoken[key].passed.add(line.lane)
                position = (line.epoch, line.seq)
                was = seen.setdefault((key, line.lane), position)
                if was != position and was[0] == line.epoch:
                    self._object("duplicates", f"told as passed at {was}, too: {line}")

    # What came of it

    def _count(self, spoken: Spoken) -> None:
        findings, speaker = self._findings, spoken.speaker
        if not (spoken.is_accepted or spoken.begun):
            is_sdk = speaker.kind == "sdk" and speaker.is_there_after(spoken.since + PATIENCE_S)
            if is_sdk:
                self._object("lost", f"never accepted: {spoken.cut}")
            findings.unknown += not is_sdk
            return
        findings.utterances += 1
        in_room = spoken.visits[0] is not None
        findings.room_utterances += in_room
        if spoken.visits == [None]:
            left = set(speaker.targets) - set(spoken.heard[speaker.number])
            if left and speaker.is_there_after(spoken.until + PATIENCE_S):
                self._object("lost", f"said alone, without {sorted(left)}: {spoken.cut}")
            return
        lost_lanes: set[str] = set()
        for number in spoken.must:
            lost_lanes |= self._missed(spoken, number)
        for lane in lost_lanes & spoken.passed:
            self._object("passed_early", f"{lane}: {spoken.cut}")
        if speaker.kind == "sdk" and speaker.is_there_after(spoken.until + PATIENCE_S):
            lanes = {lane for one in spoken.must for lane in spoken.heard[one]} - {AS_SPOKEN}
            for lane in lanes - spoken.passed:
                self._object("unpassed", f"{lane}: {spoken.cut}")

    def _missed(self, spoken: Spoken, number: int) -> set[str]:
        """Return the lanes of one that a listener had to hear, and did not."""
        listener, lanes = self._known.people[number], spoken.may[number]
        is_begun = spoken.is_accepted or bool(lanes & spoken.begun.keys())
        if lanes == {AS_SPOKEN}:
            is_begun = spoken.has_lane
        if not is_begun or not listener.is_there_after(spoken.until + PATIENCE_S):
            return set()
        self._findings.had_to_hear += 1
        if spoken.heard[number]:
            return set()
        how = "told as passed" if lanes & spoken.passed else "not passed"
        self._object("listeners_lost", f"{number} in {sorted(lanes)}, {how}: {spoken.cut}")
        return lanes

    def _count_people(self) -> None:
        findings = self._findings
        for person in self._known.people.values():
            findings.people += 1
            findings.resumes += len(person.resumed_at)
            findings.listeners_reset += max(0, len(person.sessions) - 1)
            if person.problem:
                findings.broken[person.problem] += 1
            elif not person.how:
                findings.broken["a person did not end"] += 1

    # What the run has been through

    def _count_dangers(self, struck: Sequence[Struck]) -> None:
        dangers = self._findings.dangers
        for spoken in self.spoken.values():
            if spoken.must - {spoken.speaker.number}:
                self._note_dangers(spoken, dangers)
            dangers["alone"] += spoken.visits == [None]
            dangers["midway"] += spoken.cut.by == "change" and spoken.is_certain
        for blow in struck:
            said = speech.read(blow.said)
            hit = self.spoken.get((said.speaker, said.number)) if said is not None else None
            dangers["delivery_kill"] += hit is not None and hit.answered_at > blow.at

    def _note_dangers(self, spoken: Spoken, dangers: Counter[str]) -> None:
        people, end = self._known.people, spoken.answered_at
        speaker = spoken.speaker
        visit = spoken.visits[0]
        assert visit is not None
        dangers["old_spoke"] += speaker.kind == "old"
        dangers["speaker_gone"] += speaker.gone_at < end < NEVER
        dangers["speaker_moved"] += visit.left_at < end < NEVER
        dangers["late_join"] += any(
            spoken.until < stay.asked_at < end < NEVER for _, stay in self._visits[visit.room]
        )
        for number in spoken.must:
            listener = people[number]
            heard_at = min(spoken.heard[number].values(), default=NEVER)
            dangers["old_heard"] += listener.kind == "old" and heard_at < NEVER
            dangers["listener_resume"] += any(
                spoken.until < at < heard_at < NEVER for at in listener.resumed_at
            )
            stays = [stay for one, stay in self._visits[visit.room] if one is listener]
            dangers["listener_left"] += any(
                spoken.until < stay.left_at < heard_at < NEVER for stay in stays
            )
            dangers["language"] += any(
                spoken.until < wish.asked_at < heard_at < NEVER
                for stay in stays for wish in stay.wishes[1:]
            )  # fmt: skip


def is_right(line: Received, spoken: Spoken) -> bool:
    """Tell whether a result is of all of the utterance, in the language it says it is."""
    chunks = tuple(range(spoken.cut.chunks))
    wanted = speech.written(speech.Said(spoken.cut.person, spoken.cut.number, chunks))
    if line.said != wanted:
        return False
    if line.lane == AS_SPOKEN:
        return line.text == wanted
    words = line.text.split(" ")
    return len(words) == 3 and words[0] == line.lane and words[2] == wanted
