"""Checks rooms: who had to receive which outcome in which language, who might, and who must not.

An utterance is cut at some moment between the client's request and the first sign that the store
has it. A listener that was surely in the speaker's room all that time must receive it, once, in the
language wanted then, whatever happens later to speaker, listener or room. A listener that surely
was not there must not. All others may. `memberships.py` decides what is sure.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from lingua_bench.chaos import marked_audio
from lingua_bench.chaos.history import (
    RESULT,
    AttemptStarted,
    NoticeReceived,
    PassedNoticeReceived,
    RoomOutcomeReceived,
)
from lingua_bench.chaos.memberships import NEVER, ParticipantHistory, RoomStay, RoomTimeline
from lingua_bench.chaos.message_recorder import AS_SPOKEN
from lingua_bench.chaos.partial_checker import PartialCheck

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lingua_bench.chaos.findings import ChaosFindings
    from lingua_bench.chaos.history import AnyLine, CutRequested, DeliveryInterrupted

    # Speaker and the number of the utterance.
    Key = tuple[int, int]

# Longer than any outcome may take: a listener that left earlier cannot show a loss.
PATIENCE_S: Final = 20.0
# How long after the others a speaker's own instance may not know of the speaker's change.
OWN_S: Final = 0.3
EXAMPLES_MAX: Final = 5
# The reason of an outcome at an index without an utterance.
HOLE: Final = "gap_timeout"


@dataclass(slots=True)
class RoomUtterance:
    """One utterance."""

    speaker: ParticipantHistory
    cut: CutRequested
    # The request to cut, and the moment it was surely in the store.
    since: float
    until: float = NEVER
    is_accepted: bool = False
    # The stay that it was spoken in, or None outside of rooms; several if that is not certain.
    stays: list[RoomStay | None] = field(default_factory=list)
    # Language -> when a node started with it.
    begun: dict[str, float] = field(default_factory=dict)
    # Listener -> lanes it may receive; listeners that must receive it.
    may: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    must: set[int] = field(default_factory=set)
    # Listener -> lanes received, and when first.
    heard: dict[int, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    passed: set[str] = field(default_factory=set)

    @property
    def is_certain(self) -> bool:
        """Tell whether it is known where it was spoken."""
        return len(self.stays) == 1

    @property
    def has_lane(self) -> bool:
        """Tell whether there was a translation for others."""
        lanes = {lane for heard in self.heard.values() for lane in heard} | self.passed
        return bool(lanes - {AS_SPOKEN})

    @property
    def answered_at(self) -> float:
        """Return when the last required listener received it; never if one did not."""
        times = [min(self.heard[one].values(), default=NEVER) for one in self.must]
        return max(times, default=NEVER)


class RoomCheck:
    """Goes through the histories of the participants of one run."""

    def __init__(
        self, participants: Sequence[AnyLine], nodes: Iterable[AnyLine], findings: ChaosFindings
    ) -> None:
        self._findings = findings
        self._known = RoomTimeline(participants)
        self._notices = [line for line in participants if isinstance(line, NoticeReceived)]
        self.spoken: dict[Key, RoomUtterance] = {}
        # (session, index) -> utterance.
        self._places: dict[tuple[str, int], Key] = {}
        # Room -> all stays in it.
        self._stays: dict[str, list[tuple[ParticipantHistory, RoomStay]]] = defaultdict(list)
        for participant in self._known.participants.values():
            for stay in participant.stays:
                self._stays[stay.room].append((participant, stay))
        self._collect(nodes)

    def run(self, struck: Sequence[DeliveryInterrupted]) -> None:
        """Compare everything."""
        for notice in self._notices:
            self._findings.told[notice.what] += 1
            self._findings.misplaced += notice.what == "misplaced"
        for spoken in self.spoken.values():
            self._decide(spoken)
        for participant in self._known.participants.values():
            self._hear(participant)
        for spoken in self.spoken.values():
            self._count(spoken)
        PartialCheck(self._known, self._places, self._findings).run()
        self._count_participants()
        self._count_dangers(struck)

    # The utterances

    def _collect(self, nodes: Iterable[AnyLine]) -> None:
        participants = self._known.participants.values()
        for participant in participants:
            for cut in participant.cuts:
                self.spoken[participant.number, cut.number] = RoomUtterance(
                    participant, cut, cut.at
                )
        for line in nodes:
            if isinstance(line, AttemptStarted):
                self._begin(line)
        for participant in participants:
            self._place(participant)
        known = set(self._places.values())
        for participant in participants:
            for cut in participant.cuts:
                if (participant.number, cut.number) not in known:
                    place = (participant.session_at(cut.at), cut.place)
                    self._places.setdefault(place, (participant.number, cut.number))
        for spoken in self.spoken.values():
            spoken.until = self._until(spoken)

    def _begin(self, line: AttemptStarted) -> None:
        said = marked_audio.read(line.said)
        spoken = self.spoken.get((said.speaker, said.number)) if said is not None else None
        if spoken is not None:
            spoken.begun[line.target] = min(spoken.begun.get(line.target, NEVER), line.at)

    def _place(self, participant: ParticipantHistory) -> None:
        """Find the utterance of each index: by its outcomes, its acceptance, or its place."""
        for told in participant.accepted:
            key = (participant.number, told.number)
            if key in self.spoken:
                self._places[told.session, told.index] = key
                spoken = self.spoken[key]
                spoken.is_accepted = True
                spoken.until = min(spoken.until, told.at)
        for at, wanted in participant.wanted:
            # The cut was before that, wherever it was: the server has what ended it. That is an
            # acceptance, too, and the only one if the message was lost with the connection.
            for cut in participant.cuts:
                if cut.at < at and cut.number < wanted:
                    spoken = self.spoken[participant.number, cut.number]
                    spoken.is_accepted = True
                    spoken.until = min(spoken.until, at)
        for line in participant.received:
            said = marked_audio.read(line.said)
            if said is not None and (said.speaker, said.number) in self.spoken:
                self._places[line.session, line.index] = (said.speaker, said.number)

    def _until(self, spoken: RoomUtterance) -> float:
        """Return when it was surely in the store."""
        first = min(spoken.begun.values(), default=NEVER)
        participant, told_at = spoken.speaker, spoken.until
        was_lost = any(spoken.since <= at <= told_at for at in participant.resumed_at)
        # A speaker that lost its connection meanwhile may have sent it again, to be cut again.
        return min(first, told_at) if participant.kind == "old" or not was_lost else told_at

    # The listeners

    def _decide(self, spoken: RoomUtterance) -> None:
        speaker = spoken.speaker
        spoken.stays = self._said_in(spoken)
        self._findings.ambiguous += not spoken.is_certain
        for stay in spoken.stays:
            if stay is not None:
                self._decide_in(spoken, stay.room)
        # As far as is known, no other member wants a language: then the speaker's own languages
        # hold.
        others = [lanes - {AS_SPOKEN} for one, lanes in spoken.may.items() if one in spoken.must]
        if None in spoken.stays or not any(others):
            spoken.may[speaker.number] |= set(speaker.targets)
        if spoken.stays == [None] and (spoken.is_accepted or spoken.begun):
            spoken.must.add(speaker.number)

    def _said_in(self, spoken: RoomUtterance) -> list[RoomStay | None]:
        """Return where it may have been spoken."""
        participant, since, until = spoken.speaker, spoken.since, spoken.until
        found: list[RoomStay | None] = [
            stay for stay in participant.stays if stay.told_at <= since < stay.left_at
        ]
        if not found:
            found = [
                stay
                for stay in participant.stays
                if stay.asked_at <= since and self._own_end(participant, stay) > since
            ]
            found.append(None)
        if any(since <= at <= until for at in participant.resumed_at):
            later = [stay for stay in participant.stays if since < stay.asked_at <= until]
            left = any(since < stay.left_at <= until for stay in participant.stays)
            found += [*later, *([None] if left and None not in found else [])]
        return found

    def _own_end(self, participant: ParticipantHistory, stay: RoomStay) -> float:
        if stay.left_at == NEVER:
            return NEVER
        return self._known.gone_at(participant, stay) + OWN_S

    def _decide_in(self, spoken: RoomUtterance, room: str) -> None:
        known, speaker = self._known, spoken.speaker
        since, until = spoken.since, spoken.until
        for listener, stay in self._stays[room]:
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

    # The outcomes

    def _hear(self, participant: ParticipantHistory) -> None:
        # (epoch, seq) -> the outcome; utterance and lane -> the epoch of its outcome.
        places: dict[tuple[str, int], tuple[str, int, str]] = {}
        came: dict[tuple[Key, str], str] = {}
        newest: dict[tuple[str, str], int] = {}
        for line in participant.received:
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
                    self._object("wrong", f"of an utterance that was not spoken: {line}")
                continue
            if (key, line.lane) in came:
                if came[key, line.lane] == line.epoch:
                    self._object("duplicates", f"at another position: {line}")
                continue
            came[key, line.lane] = line.epoch
            self._take(participant, line, self.spoken[key])
            lane = (line.session, line.lane)
            if line.index < newest.get(lane, -1):
                self._object("inversions", f"after {newest[lane]}: {line}")
            newest[lane] = max(line.index, newest.get(lane, -1))
        self._follow_positions(participant)

    def _take(
        self, participant: ParticipantHistory, line: RoomOutcomeReceived, spoken: RoomUtterance
    ) -> None:
        findings, heard = self._findings, spoken.heard[participant.number]
        findings.outcomes += 1
        if line.reason != RESULT:
            findings.missing[line.reason] += 1
        elif not is_right(line, spoken):
            self._object("wrong", f"not what was said, {spoken.cut}: {line}")
        if heard and participant is not spoken.speaker:
            self._object("duplicates", f"also in {sorted(heard)}: {line}")
        heard.setdefault(line.lane, line.at)
        may = spoken.may.get(participant.number)
        if not may:
            self._object("heard_wrong", f"{spoken.cut}: {line}")
        elif line.lane not in may:
            self._object("wrong_language", f"not in {sorted(may)}, {spoken.cut}: {line}")

    def _object(self, name: str, why: str) -> None:
        """Count a violation, and keep the first few as examples."""
        findings = self._findings
        setattr(findings, name, getattr(findings, name) + 1)
        if sum(one.startswith(f"{name}: ") for one in findings.examples) < EXAMPLES_MAX:
            findings.examples.append(f"{name}: {why}")

    def _follow_positions(self, participant: ParticipantHistory) -> None:
        if participant.kind == "old":
            return  # a speaker gets no outcome of what went to others
        both: list[RoomOutcomeReceived | PassedNoticeReceived] = [
            *participant.received,
            *participant.passed,
        ]
        both.sort(key=lambda line: line.at)
        last: dict[str, int] = {}
        for line in both:
            at = last.get(line.epoch, 0)
            if line.seq > at + 1:
                self._object("gaps", f"after {at}: {line}")
            last[line.epoch] = max(at, line.seq)
        seen: dict[tuple[Key, str], tuple[str, int]] = {}
        for line in participant.passed:
            key = self._places.get((line.session, line.index))
            if key is not None:
                self.spoken[key].passed.add(line.lane)
                position = (line.epoch, line.seq)
                was = seen.setdefault((key, line.lane), position)
                if was != position and was[0] == line.epoch:
                    self._object("duplicates", f"told as passed at {was}, too: {line}")

    # The counts

    def _count(self, spoken: RoomUtterance) -> None:
        findings, speaker = self._findings, spoken.speaker
        if not (spoken.is_accepted or spoken.begun):
            is_sdk = speaker.kind == "sdk" and speaker.is_there_after(spoken.since + PATIENCE_S)
            if is_sdk:
                self._object("lost", f"never accepted: {spoken.cut}")
            findings.unknown += not is_sdk
            return
        findings.utterances += 1
        in_room = spoken.stays[0] is not None
        findings.room_utterances += in_room
        if spoken.stays == [None]:
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

    def _missed(self, spoken: RoomUtterance, number: int) -> set[str]:
        """Return the lanes that a listener had to receive, and did not."""
        listener, lanes = self._known.participants[number], spoken.may[number]
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

    def _count_participants(self) -> None:
        findings = self._findings
        for participant in self._known.participants.values():
            findings.people += 1
            findings.resumes += len(participant.resumed_at)
            findings.listeners_reset += max(0, len(participant.sessions) - 1)
            if participant.problem:
                findings.broken[participant.problem] += 1
            elif not participant.how:
                findings.broken["a participant did not end"] += 1

    # The dangerous paths

    def _count_dangers(self, struck: Sequence[DeliveryInterrupted]) -> None:
        dangers = self._findings.dangers
        for spoken in self.spoken.values():
            if spoken.must - {spoken.speaker.number}:
                self._note_dangers(spoken, dangers)
            dangers["alone"] += spoken.stays == [None]
            dangers["midway"] += spoken.cut.by == "change" and spoken.is_certain
        for blow in struck:
            said = marked_audio.read(blow.said)
            hit = self.spoken.get((said.speaker, said.number)) if said is not None else None
            dangers["delivery_kill"] += hit is not None and hit.answered_at > blow.at

    def _note_dangers(self, spoken: RoomUtterance, dangers: Counter[str]) -> None:
        participants, end = self._known.participants, spoken.answered_at
        speaker = spoken.speaker
        spoken_in = spoken.stays[0]
        assert spoken_in is not None
        dangers["old_spoke"] += speaker.kind == "old"
        dangers["speaker_gone"] += speaker.gone_at < end < NEVER
        dangers["speaker_moved"] += spoken_in.left_at < end < NEVER
        dangers["late_join"] += any(
            spoken.until < stay.asked_at < end < NEVER for _, stay in self._stays[spoken_in.room]
        )
        for number in spoken.must:
            listener = participants[number]
            heard_at = min(spoken.heard[number].values(), default=NEVER)
            dangers["old_heard"] += listener.kind == "old" and heard_at < NEVER
            dangers["listener_resume"] += any(
                spoken.until < at < heard_at < NEVER for at in listener.resumed_at
            )
            stays = [stay for one, stay in self._stays[spoken_in.room] if one is listener]
            dangers["listener_left"] += any(
                spoken.until < stay.left_at < heard_at < NEVER for stay in stays
            )
            dangers["language"] += any(
                spoken.until < request.asked_at < heard_at < NEVER
                for stay in stays
                for request in stay.requests[1:]
            )


def is_right(line: RoomOutcomeReceived, spoken: RoomUtterance) -> bool:
    """Tell whether a result has all of the utterance, in the language it claims."""
    chunks = tuple(range(spoken.cut.chunks))
    wanted = marked_audio.written(
        marked_audio.MarkedUtterance(spoken.cut.participant, spoken.cut.number, chunks)
    )
    if line.said != wanted:
        return False
    if line.lane == AS_SPOKEN:
        return line.text == wanted
    words = line.text.split(" ")
    return len(words) == 3 and words[0] == line.lane and words[2] == wanted
