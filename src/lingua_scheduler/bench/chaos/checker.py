"""What a run has shown, read from the histories after the fact.

Clients, nodes and the nemesis wrote independently; here their files are compared. An utterance
whose end the client sent must have exactly one outcome per language, in order and of its own audio;
one that was only begun may have one or none. `Findings.violations` is what no run may show,
`Findings.voids` is what a run must have been through to prove anything.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lingua_scheduler.bench.chaos import speech
from lingua_scheduler.bench.chaos.findings import Findings
from lingua_scheduler.bench.chaos.history import (
    CLIENTS,
    FAULTS,
    NODES,
    PEOPLE,
    RESULT,
    Again,
    Began,
    Ended,
    Fault,
    Heard,
    Moved,
    Opened,
    Probe,
    Sent,
    Started,
    Struck,
    Told,
    Up,
    read_all,
)
from lingua_scheduler.bench.chaos.room_checker import RoomCheck

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from lingua_scheduler.bench.chaos.history import AnyLine

    Key = tuple[int, int]


@dataclass(slots=True)
class Utterance:
    """One utterance as its client knows it."""

    targets: tuple[str, ...]
    began_at: float
    sent_at: float | None = None
    chunks: int = 0
    heard: Counter[str] = field(default_factory=Counter)
    # When the last first outcome came.
    heard_at: float = 0.0

    @property
    def is_answered(self) -> bool:
        """Tell whether every language had an outcome."""
        return all(self.heard[target] for target in self.targets)

    def was_open_at(self, at: float) -> bool:
        """Tell whether it was under way at that moment."""
        return self.began_at <= at and (not self.is_answered or at < self.heard_at)


def check(place: Path) -> Findings:
    """Compare the histories in a directory."""
    findings = Findings()
    utterances: dict[Key, Utterance] = {}
    nodes = read_all(place, NODES).values()
    attempts = _check_nodes(nodes, findings)
    for lines in read_all(place, CLIENTS).values():
        utterances |= _ClientCheck(lines, attempts, findings).run()
    done = [line for lines in read_all(place, FAULTS).values() for line in lines]
    _check_outages([line for line in done if isinstance(line, Probe)], findings)
    faults = [line for line in done if isinstance(line, Fault)]
    findings.faults = Counter(fault.kind for fault in faults)
    _count_utterances(utterances.values(), findings)
    struck = [line for line in done if isinstance(line, Struck)]
    for people in read_all(place, PEOPLE).values():
        rooms = RoomCheck(people, (line for lines in nodes for line in lines), findings)
        rooms.run(struck)
        utterances |= _as_utterances(rooms)
    _measure_affected(list(utterances.values()), faults, findings)
    return findings


def _as_utterances(rooms: RoomCheck) -> dict[Key, Utterance]:
    """Return what was said in rooms as it is measured: every listener who must hear is a target."""
    found: dict[Key, Utterance] = {}
    for key, spoken in rooms.spoken.items():
        heard = {one: min(times.values()) for one, times in spoken.heard.items() if times}
        targets = tuple(str(one) for one in spoken.must)
        last = max((at for one, at in heard.items() if one in spoken.must), default=0.0)
        counted = Counter(str(one) for one in heard)
        found[key] = Utterance(targets, spoken.since, spoken.since, 0, counted, last)
    return found


def _check_nodes(
    histories: Iterable[Sequence[AnyLine]], findings: Findings
) -> dict[tuple[str, str], int]:
    """Return the newest attempt of every utterance and language."""
    newest: dict[tuple[str, str], int] = defaultdict(int)
    seen: Counter[tuple[str, int]] = Counter()
    for lines in histories:
        max_jobs = refused = 0
        for line in lines:
            if isinstance(line, Up):
                max_jobs = line.max_jobs
            elif isinstance(line, Started):
                key = (line.said, line.target)
                newest[key] = max(newest[key], line.attempt)
                seen[line.job, line.attempt] += 1
                findings.over_capacity += line.running > max_jobs
                refused = line.refused
        findings.refused_by_nodes += refused
    findings.attempts = seen.total()
    findings.attempts_most = max((attempt for _, attempt in seen), default=0)
    findings.started_twice = sum(count - 1 for count in seen.values())
    return newest


def _check_outages(probes: Sequence[Probe], findings: Findings) -> None:
    findings.outages = len(probes)
    findings.dead_in_outage = sum(not probe.is_alive for probe in probes)
    findings.unrefused = sum(not probe.refusal for probe in probes)
    refused_ms = (1000 * probe.took_s for probe in probes if probe.refusal)
    findings.refusal_most_ms = max(refused_ms, default=0.0)


class _ClientCheck:
    """Goes through what one process of speakers saw."""

    def __init__(
        self, lines: Sequence[AnyLine], attempts: dict[tuple[str, str], int], findings: Findings
    ) -> None:
        self._lines = lines
        self._attempts = attempts
        self._findings = findings
        self._utterances: dict[Key, Utterance] = {}
        # (speaker, life, index) -> utterance: for outcomes that carry no text.
        self._places: dict[tuple[int, int, int], int] = {}
        # (speaker, target) -> newest utterance heard.
        self._newest: dict[tuple[int, str], int] = {}
        # (speaker, life) -> where it is in its outcomes.
        self._positions: dict[tuple[int, int], tuple[str, int]] = {}
        self._lives: Counter[int] = Counter()
        self._moves_s: list[float] = []

    def run(self) -> dict[Key, Utterance]:
        """Return every utterance that was begun."""
        for line in self._lines:
            # Before all else: an outcome may be written before the end of its utterance is.
            if isinstance(line, Began):
                self._begin(line)
            elif isinstance(line, Again):
                self._places[line.speaker, line.life, line.index] = line.number
            elif isinstance(line, Sent):
                utterance = self._utterances[line.speaker, line.number]
                utterance.sent_at, utterance.chunks = line.at, line.chunks
        for line in self._lines:
            if isinstance(line, Heard):
                self._hear(line)
            else:
                self._note(line)
        self._measure_moves()
        return self._utterances

    def _begin(self, line: Began) -> None:
        self._utterances[line.speaker, line.number] = Utterance(line.targets, line.at)
        self._places[line.speaker, line.life, line.index] = line.number

    def _note(self, line: AnyLine) -> None:
        findings = self._findings
        if isinstance(line, Told):
            findings.told[line.what] += 1
        elif isinstance(line, Opened):
            self._lives[line.speaker] += 1
        elif isinstance(line, Moved):
            findings.moves += 1
            findings.unresumed += line.took_s is None
            self._moves_s += [] if line.took_s is None else [line.took_s]
        elif isinstance(line, Ended):
            findings.resumes += line.resumes
            if line.problem:
                findings.broken[line.problem] += 1
            self._lives[line.speaker] = 0
        else:
            assert isinstance(line, Began | Again | Sent), line

    def _hear(self, line: Heard) -> None:
        findings = self._findings
        findings.outcomes += 1
        self._follow_position(line)
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
            findings.inversions += number < self._newest.get(lane, -1)
            self._newest[lane] = max(number, self._newest.get(lane, -1))
            utterance.heard_at = max(utterance.heard_at, line.at)
        utterance.heard[line.target] += 1

    def _number_of(self, line: Heard) -> int | None:
        """Return which utterance an outcome is of: by its audio, else by its place."""
        if line.reason != RESULT:
            return self._places.get((line.speaker, line.life, line.index))
        said = speech.read(line.said)
        return said.number if said is not None and said.speaker == line.speaker else None

    def _is_right(self, line: Heard, number: int, utterance: Utterance) -> bool:
        """Tell whether it is all of the audio, in the right language, at the right place."""
        chunks = tuple(range(utterance.chunks))
        wanted = speech.written(speech.Said(line.speaker, number, chunks))
        words = line.text.split(" ")
        if len(words) != 3 or not words[1].isdecimal():
            return False
        newest = self._attempts.get((line.said, line.target), 0)
        self._findings.stale_accepted += int(words[1]) < newest
        at_place = self._places.get((line.speaker, line.life, line.index)) == number
        return line.said == wanted and at_place and words[0] == line.target and words[2] == wanted

    def _follow_position(self, line: Heard) -> None:
        life = (line.speaker, line.life)
        epoch, seq = self._positions.get(life, (line.epoch, 0))
        if epoch != line.epoch:
            self._findings.epochs += 1
            seq = 0
        self._findings.gaps += line.seq != seq + 1
        self._positions[life] = (line.epoch, line.seq)

    def _measure_moves(self) -> None:
        if self._moves_s:
            self._findings.resume_p50_ms = percentile(self._moves_s, 0.5) * 1000
            self._findings.resume_p99_ms = percentile(self._moves_s, 0.99) * 1000
        unended = sum(count > 0 for count in self._lives.values())
        if unended:
            self._findings.broken["it did not end"] += unended


def _count_utterances(utterances: Iterable[Utterance], findings: Findings) -> None:
    for utterance in utterances:
        if utterance.sent_at is None:
            findings.unknown += not utterance.is_answered
            continue
        findings.utterances += 1
        findings.lost += sum(not utterance.heard[target] for target in utterance.targets)


def _measure_affected(
    utterances: Sequence[Utterance], faults: Sequence[Fault], findings: Findings
) -> None:
    """Measure how long those waited that were under way when something was done."""
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
    """Return the smallest value that this part of all is not above."""
    ordered = sorted(values)
    return ordered[max(0, -int(-part * len(ordered) // 1) - 1)]
