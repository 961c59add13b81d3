"""Compares the histories of a run after it has ended.

Clients, nodes and the nemesis wrote their histories independently. An utterance that a client sent
completely must have exactly one outcome per language, in order and of its own audio; one that was
only begun may have an outcome.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lingua_bench.chaos import marked_audio
from lingua_bench.chaos.findings import ChaosFindings
from lingua_bench.chaos.history import (
    CLIENTS,
    FAULTS,
    LEASES,
    NODES,
    PEOPLE,
    RESULT,
    AttemptStarted,
    ClientEnded,
    DeliveryInterrupted,
    InjectedFault,
    NodeExited,
    NodeStarted,
    NoticeReceived,
    OutageProbe,
    OutcomeReceived,
    SessionMoved,
    SessionOpened,
    StreamBegun,
    StreamEnded,
    StreamLeaseSeen,
    UtteranceAdmitted,
    UtteranceBegun,
    UtteranceResent,
    UtteranceSent,
    read_all,
)
from lingua_bench.chaos.outcome_findings import OutcomeSequence
from lingua_bench.chaos.redispatch import measure_redispatches
from lingua_bench.chaos.room_checker import RoomCheck
from lingua_bench.chaos.stream_leases import check_stream_leases, killed_while_listening

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from lingua_bench.chaos.history import AnyLine
    from lingua_bench.chaos.redispatch import Redispatches

    Key = tuple[int, int]


@dataclass(slots=True)
class ClientUtterance:
    """One utterance, as its client recorded it."""

    targets: tuple[str, ...]
    began_at: float
    sent_at: float | None = None
    chunks: int = 0
    heard: Counter[str] = field(default_factory=Counter)
    # When the last language had its first outcome.
    heard_at: float = 0.0

    @property
    def is_answered(self) -> bool:
        """Tell whether every language had an outcome."""
        return all(self.heard[target] for target in self.targets)

    def was_open_at(self, at: float) -> bool:
        """Tell whether it was in progress at that moment."""
        return self.began_at <= at and (not self.is_answered or at < self.heard_at)


def check(place: Path) -> ChaosFindings:
    """Compare the histories in a directory."""
    findings = ChaosFindings()
    utterances: dict[Key, ClientUtterance] = {}
    processes = read_all(place, NODES)
    nodes = processes.values()
    attempts = _check_nodes(nodes, findings)
    for lines in read_all(place, CLIENTS).values():
        utterances |= _ClientCheck(lines, attempts, findings).run()
    done = [line for lines in read_all(place, FAULTS).values() for line in lines]
    _check_outages([line for line in done if isinstance(line, OutageProbe)], findings)
    faults = [line for line in done if isinstance(line, InjectedFault)]
    findings.faults = Counter(fault.kind for fault in faults)
    _count_utterances(utterances.values(), findings)
    struck = [line for line in done if isinstance(line, DeliveryInterrupted)]
    people = read_all(place, PEOPLE)
    findings.listeners_killed = killed_while_listening(processes, faults)
    leases = [line for lines in read_all(place, LEASES).values() for line in lines]
    check_stream_leases(
        [line for line in leases if isinstance(line, StreamLeaseSeen)],
        (line for lines in people.values() for line in lines),
        nodes,
        findings,
    )
    for participants in people.values():
        rooms = RoomCheck(participants, (line for lines in nodes for line in lines), findings)
        rooms.run(struck)
        utterances |= _as_utterances(rooms)
    _measure_affected(list(utterances.values()), faults, findings)
    _note_redispatches(measure_redispatches(processes, faults), findings)
    return findings


def _note_redispatches(found: Redispatches, findings: ChaosFindings) -> None:
    after_kill_ms, after_freeze_ms = found.after_kill_ms, found.after_freeze_ms
    findings.moves_unseen = found.unseen
    findings.moved_after_kill = len(after_kill_ms)
    findings.moved_after_freeze = len(after_freeze_ms)
    if after_kill_ms:
        findings.after_kill_p50_ms = percentile(after_kill_ms, 0.5)
        findings.after_kill_p99_ms = percentile(after_kill_ms, 0.99)
    if after_freeze_ms:
        findings.after_freeze_p50_ms = percentile(after_freeze_ms, 0.5)
        findings.after_freeze_most_ms = max(after_freeze_ms)


def _as_utterances(rooms: RoomCheck) -> dict[Key, ClientUtterance]:
    """Return the utterances of rooms as they are measured: every required listener is a target."""
    found: dict[Key, ClientUtterance] = {}
    for key, spoken in rooms.spoken.items():
        heard = {one: min(times.values()) for one, times in spoken.heard.items() if times}
        targets = tuple(str(one) for one in spoken.must)
        last = max((at for one, at in heard.items() if one in spoken.must), default=0.0)
        counted = Counter(str(one) for one in heard)
        found[key] = ClientUtterance(
            targets=targets,
            began_at=spoken.since,
            sent_at=spoken.since,
            chunks=0,
            heard=counted,
            heard_at=last,
        )
    return found


def _check_nodes(
    histories: Iterable[Sequence[AnyLine]], findings: ChaosFindings
) -> dict[tuple[str, str], int]:
    """Return the newest attempt of every utterance and language."""
    newest: dict[tuple[str, str], int] = defaultdict(int)
    seen: Counter[tuple[str, int]] = Counter()
    for lines in histories:
        max_jobs = max_streams = refused = 0
        for line in lines:
            if isinstance(line, NodeStarted):
                max_jobs, max_streams = line.max_jobs, line.max_streams
            elif isinstance(line, StreamBegun):
                findings.streams_opened += 1
                findings.streams_over_capacity += line.running > max_streams
            elif isinstance(line, StreamEnded):
                findings.streams_cut += line.is_cut
            elif isinstance(line, AttemptStarted):
                key = (line.said, line.target)
                newest[key] = max(newest[key], line.attempt)
                seen[line.job, line.attempt] += 1
                findings.over_capacity += line.running > max_jobs
                refused = line.refused
            elif isinstance(line, NodeExited):
                findings.node_exits += 1
        findings.refused_by_nodes += refused
    findings.attempts = seen.total()
    findings.attempts_most = max((attempt for _, attempt in seen), default=0)
    findings.started_twice = sum(count - 1 for count in seen.values())
    return newest


def _check_outages(probes: Sequence[OutageProbe], findings: ChaosFindings) -> None:
    findings.outages = len(probes)
    findings.dead_in_outage = sum(not probe.is_alive for probe in probes)
    findings.unrefused = sum(not probe.refusal for probe in probes)
    refused_ms = (1000 * probe.took_s for probe in probes if probe.refusal)
    findings.refusal_most_ms = max(refused_ms, default=0.0)


class _ClientCheck:
    """Goes through the history of one process of speakers."""

    def __init__(
        self,
        lines: Sequence[AnyLine],
        attempts: dict[tuple[str, str], int],
        findings: ChaosFindings,
    ) -> None:
        self._lines = lines
        self._attempts = attempts
        self._findings = findings
        self._utterances: dict[Key, ClientUtterance] = {}
        # (speaker, life, index) -> utterance: for outcomes that carry no text.
        self._places: dict[tuple[int, int, int], int] = {}
        self._sequence = OutcomeSequence(findings)
        self._admitted: set[Key] = set()
        self._lives: Counter[int] = Counter()
        self._moves_s: list[float] = []

    def run(self) -> dict[Key, ClientUtterance]:
        """Return every utterance that was begun."""
        for line in self._lines:
            # First of all: an outcome may be recorded before the end of its utterance is.
            if isinstance(line, UtteranceBegun):
                self._begin(line)
            elif isinstance(line, UtteranceResent):
                self._places[line.speaker, line.life, line.index] = line.number
            elif isinstance(line, UtteranceAdmitted):
                self._admitted.add((line.speaker, line.number))
            elif isinstance(line, UtteranceSent):
                utterance = self._utterances[line.speaker, line.number]
                utterance.sent_at, utterance.chunks = line.at, line.chunks
        for line in self._lines:
            if isinstance(line, OutcomeReceived):
                self._hear(line)
            else:
                self._note(line)
        self._measure_moves()
        self._findings.unaccepted += sum(
            utterance.sent_at is not None and key not in self._admitted
            for key, utterance in self._utterances.items()
        )
        return self._utterances

    def _begin(self, line: UtteranceBegun) -> None:
        self._utterances[line.speaker, line.number] = ClientUtterance(line.targets, line.at)
        self._places[line.speaker, line.life, line.index] = line.number

    def _note(self, line: AnyLine) -> None:
        findings = self._findings
        if isinstance(line, NoticeReceived):
            findings.told[line.what] += 1
        elif isinstance(line, SessionOpened):
            self._lives[line.speaker] += 1
        elif isinstance(line, SessionMoved):
            findings.moves += 1
            findings.unresumed += line.took_s is None
            self._moves_s += [] if line.took_s is None else [line.took_s]
        elif isinstance(line, ClientEnded):
            findings.resumes += line.resumes
            if line.problem:
                findings.broken[line.problem] += 1
            self._lives[line.speaker] = 0
        else:
            assert isinstance(
                line, UtteranceBegun | UtteranceResent | UtteranceSent | UtteranceAdmitted
            )

    def _hear(self, line: OutcomeReceived) -> None:
        findings = self._findings
        findings.outcomes += 1
        session = (line.speaker, line.life)
        findings.epochs += self._sequence.follow_position(session, line.epoch, line.seq)
        number = self._number_of(line)
        utterance = self._utterances.get((line.speaker, -1 if number is None else number))
        if number is None or utterance is None or line.target not in utterance.targets:
            findings.wrong += 1
            return
        if line.reason != RESULT:
            findings.missing[line.reason] += 1
        elif not self._is_right(line, number, utterance):
            findings.wrong += 1
        lane = (line.speaker, line.target)
        if utterance.heard[line.target]:
            findings.duplicates += 1
        else:
            self._sequence.follow_order(lane, number)
            utterance.heard_at = max(utterance.heard_at, line.at)
        utterance.heard[line.target] += 1

    def _number_of(self, line: OutcomeReceived) -> int | None:
        """Return the utterance of an outcome: by its audio, else by its index."""
        if line.reason != RESULT:
            return self._places.get((line.speaker, line.life, line.index))
        said = marked_audio.read(line.said)
        return said.number if said is not None and said.speaker == line.speaker else None

    def _is_right(self, line: OutcomeReceived, number: int, utterance: ClientUtterance) -> bool:
        """Tell whether it has all of the audio, the right language and the right index."""
        chunks = tuple(range(utterance.chunks))
        wanted = marked_audio.written(marked_audio.MarkedUtterance(line.speaker, number, chunks))
        words = line.text.split(" ")
        if len(words) != 3 or not words[1].isdecimal():
            return False
        newest = self._attempts.get((line.said, line.target), 0)
        self._findings.stale_accepted += int(words[1]) < newest
        at_place = self._places.get((line.speaker, line.life, line.index)) == number
        return line.said == wanted and at_place and words[0] == line.target and words[2] == wanted

    def _measure_moves(self) -> None:
        if self._moves_s:
            self._findings.resume_p50_ms = percentile(self._moves_s, 0.5) * 1000
            self._findings.resume_p99_ms = percentile(self._moves_s, 0.99) * 1000
        unended = sum(count > 0 for count in self._lives.values())
        if unended:
            self._findings.broken["it did not end"] += unended


def _count_utterances(utterances: Iterable[ClientUtterance], findings: ChaosFindings) -> None:
    for utterance in utterances:
        if utterance.sent_at is None:
            findings.unknown += not utterance.is_answered
            continue
        findings.utterances += 1
        findings.lost += sum(not utterance.heard[target] for target in utterance.targets)


def _measure_affected(
    utterances: Sequence[ClientUtterance], faults: Sequence[InjectedFault], findings: ChaosFindings
) -> None:
    """Measure how long the utterances took that were in progress during a fault."""
    moments = sorted(fault.at for fault in faults)
    met: set[float] = set()
    waits: list[float] = []
    for utterance in utterances:
        first = bisect_right(moments, utterance.began_at)
        struck = [at for at in moments[max(0, first - 1) :] if utterance.was_open_at(at)]
        met.update(struck)
        if struck and utterance.sent_at is not None and utterance.is_answered:
            waits.append(max(0.0, utterance.heard_at - utterance.sent_at))
    findings.hits, findings.affected = len(met), len(waits)
    if waits:
        findings.affected_p50_s = percentile(waits, 0.5)
        findings.affected_p99_s = percentile(waits, 0.99)


def percentile(values: Iterable[float], part: float) -> float:
    """Return the smallest value that this part of all values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -int(-part * len(ordered) // 1) - 1)]
