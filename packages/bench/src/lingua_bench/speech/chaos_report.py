"""Checks real speech under faults from the histories of the clients. Pure.

An utterance must have exactly one outcome in each language, in order. Every recording must be in
utterances, none of it twice. The scheduler's account of the audio must add up.
`SpeechFindings.violations` lists what no round may show.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lingua_bench.chaos.checker import percentile
from lingua_bench.chaos.history import RESULT
from lingua_bench.chaos.outcome_findings import OutcomeFindings, OutcomeSequence
from lingua_speech.scores import word_error_rate, words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lingua_bench.chaos.history import InjectedFault, OutcomeReceived
    from lingua_wire.shared import Coverage

    # (speaker, recording) -> language -> text; "" is what was recognised.
    Texts = Mapping[tuple[int, str], Mapping[str, str]]

SILENT: Final = "silence_detected"
# So much of a recording must be in utterances: the silence around its words need not be.
COVERED_PART: Final = 0.5
# An outcome without a translation is an outcome, but one fault at a time should cost few of them.
FAILED_PERCENT_MAX: Final = 10.0
CHANGED_MAX: Final = 8
NEVER: Final = (
    "lost",
    "duplicates",
    "inversions",
    "gaps",
    "overlaps",
    "wrong",
    "unaccounted_ms",
    "unknown_ms",
)


class SpokenRecording(NamedTuple):
    """A recording, and its place in the audio of its session."""

    key: str
    start_ms: float
    end_ms: float


@dataclass(frozen=True, slots=True)
class AcceptedSpan:
    """An utterance that the scheduler accepted."""

    index: int
    start_ms: float
    end_ms: float


@dataclass(slots=True)
class ClientHistory:
    """What one client sent and received; times are of the monotonic clock."""

    speaker: int
    targets: tuple[str, ...]
    said: list[SpokenRecording] = field(default_factory=list)
    # How much audio was sent until when.
    sent_ms: list[float] = field(default_factory=list)
    sent_at: list[float] = field(default_factory=list)
    accepted: list[AcceptedSpan] = field(default_factory=list)
    heard: list[OutcomeReceived] = field(default_factory=list)
    # Errors and refusals that it received.
    told: Counter[str] = field(default_factory=Counter)
    refused_ms: int = 0
    coverage: Coverage | None = None
    resumes: int = 0
    # Why it did not end as it should.
    problem: str = ""

    @property
    def audio_ms(self) -> float:
        """Return how much audio was sent, pauses included."""
        return self.sent_ms[-1] if self.sent_ms else 0.0

    def spoken_at(self, place_ms: float) -> float:
        """Return when this place of the audio was sent."""
        return self.sent_at[min(bisect_left(self.sent_ms, place_ms), len(self.sent_at) - 1)]


@dataclass(slots=True)
class RecognisedUtterance:
    """One utterance, as its client recorded it."""

    index: int
    start_ms: float = -1.0
    end_ms: float = -1.0
    # By language, in order of arrival; all but the first are duplicates.
    heard: dict[str, list[OutcomeReceived]] = field(default_factory=dict)

    def overlap_ms(self, said: SpokenRecording) -> float:
        """Return how much of a recording is in it."""
        return max(0.0, min(self.end_ms, said.end_ms) - max(self.start_ms, said.start_ms))

    @property
    def heard_at(self) -> float:
        """Return when its last first outcome arrived."""
        return max((outcomes[0].at for outcomes in self.heard.values()), default=0.0)


@dataclass(slots=True)
class SpeechFindings(OutcomeFindings):
    """What a round has shown."""

    recordings: int = 0
    # Utterances that share audio.
    overlaps: int = 0
    # Admitted audio without an outcome, and sent audio that is in no account.
    unaccounted_ms: int = 0
    unknown_ms: int = 0
    delivered: int = 0
    silent: int = 0
    # From the end of an utterance to its last outcome: of all, and of those open during a fault.
    took_p50_s: float = 0.0
    affected_max_s: float = 0.0
    # Recordings whose texts are the same as without faults; errors per word.
    same: int = 0
    wer: float = 0.0
    # Examples of other texts: before and under faults.
    changed: list[str] = field(default_factory=list)

    @property
    def failed(self) -> int:
        """Return how many outcomes have no translation, though something was spoken."""
        return self.missing.total()

    @property
    def same_text(self) -> float:
        """Return the part of the recordings with the same texts as without faults."""
        return self.same / self.recordings if self.recordings else 0.0

    def violations(self) -> list[str]:
        """Return what no round may show."""
        found = self.counted_violations(NEVER)
        if 100 * self.failed > FAILED_PERCENT_MAX * self.outcomes:
            found.append(f"failed: {self.failed} of {self.outcomes} outcomes")
        return found

    def voids(self) -> list[str]:
        """Return why a round proves nothing."""
        found = [] if self.utterances else ["nothing was spoken"]
        if self.faults and not self.hits:
            found.append("no fault met an utterance in progress")
        if self.faults["kill_scheduler"] and not self.resumes:
            found.append("no session was resumed")
        return found


def check(
    histories: Sequence[ClientHistory],
    faults: Sequence[InjectedFault] = (),
    reference: Texts | None = None,
) -> SpeechFindings:
    """Compare what was sent with what was received, and with the texts without faults."""
    found = SpeechFindings(faults=Counter(fault.kind for fault in faults))
    clock = _Clock(faults)
    for history in histories:
        utterances = utterances_of(history)
        _check_outcomes(history, utterances, found)
        _check_audio(history, utterances, found)
        _check_coverage(history, found)
        clock.measure(history, utterances)
    found.hits, found.affected = len(clock.met), len(clock.affected_s)
    found.took_p50_s = percentile(clock.all_s, 0.5) if clock.all_s else 0.0
    if clock.affected_s:
        found.affected_p50_s = percentile(clock.affected_s, 0.5)
        found.affected_max_s = max(clock.affected_s)
    if reference is not None:
        _compare(histories, reference, found)
    return found


def utterances_of(history: ClientHistory) -> list[RecognisedUtterance]:
    """Return every utterance up to the last one that was accepted or answered."""
    last = max(
        (one.index for part in (history.accepted, history.heard) for one in part), default=-1
    )
    found = [RecognisedUtterance(index) for index in range(last + 1)]
    for accepted in history.accepted:
        found[accepted.index].start_ms = accepted.start_ms
        found[accepted.index].end_ms = accepted.end_ms
    for outcome in history.heard:
        found[outcome.index].heard.setdefault(outcome.target, []).append(outcome)
    _place_unaccepted(found, history.audio_ms)
    return found


def _place_unaccepted(utterances: Sequence[RecognisedUtterance], audio_ms: float) -> None:
    """Place utterances without an acceptance between their neighbours.

    An instance may die before it confirms an utterance; the outcome comes all the same.
    """
    known = [one for one in utterances if one.start_ms >= 0]
    for one in utterances:
        if one.start_ms < 0 and one.heard:
            before = (other.end_ms for other in known if other.index < one.index)
            after = (other.start_ms for other in known if other.index > one.index)
            one.start_ms, one.end_ms = max(before, default=0.0), min(after, default=audio_ms)


def _check_outcomes(
    history: ClientHistory, utterances: Sequence[RecognisedUtterance], found: SpeechFindings
) -> None:
    found.utterances += len(utterances)
    sequence = OutcomeSequence(found)
    for outcome in history.heard:
        found.outcomes += 1
        found.wrong += outcome.target not in history.targets
        sequence.follow_order(outcome.target, outcome.index)
        sequence.follow_position(history.speaker, outcome.epoch, outcome.seq)
        if outcome.reason == RESULT:
            found.delivered += 1
        elif outcome.reason == SILENT:
            found.silent += 1
        else:
            found.missing[outcome.reason] += 1
    for one in utterances:
        found.lost += sum(target not in one.heard for target in history.targets)
        found.duplicates += sum(len(outcomes) - 1 for outcomes in one.heard.values())
    found.told += history.told
    found.resumes += history.resumes
    if history.problem:
        found.broken[history.problem] += 1


def _check_audio(
    history: ClientHistory, utterances: Sequence[RecognisedUtterance], found: SpeechFindings
) -> None:
    """Check that every recording is in utterances, and none of it in two."""
    placed = [one for one in utterances if one.start_ms >= 0]
    found.overlaps += sum(before.end_ms > after.start_ms for before, after in pairwise(placed))
    for said in history.said:
        found.recordings += 1
        covered_ms = sum(one.overlap_ms(said) for one in placed)
        if covered_ms < COVERED_PART * (said.end_ms - said.start_ms):
            found.lost += len(history.targets)


def _check_coverage(history: ClientHistory, found: SpeechFindings) -> None:
    account = history.coverage
    if account is None:
        found.unknown_ms += round(history.audio_ms)
        return
    ended_ms = account.delivered_ms + account.silent_ms + account.failed_ms + account.skipped_ms
    found.unaccounted_ms += abs(account.admitted_ms - ended_ms)
    known_ms = account.admitted_ms + account.earlier_ms + history.refused_ms
    # Each number is rounded.
    found.unknown_ms += max(0, round(abs(history.audio_ms - known_ms)) - 2)


class _Clock:
    """Measures how long utterances took, and which faults met them."""

    def __init__(self, faults: Sequence[InjectedFault]) -> None:
        self._faults = faults
        self.all_s: list[float] = []
        self.affected_s: list[float] = []
        self.met: set[InjectedFault] = set()

    def measure(self, history: ClientHistory, utterances: Iterable[RecognisedUtterance]) -> None:
        """Measure the utterances that have outcomes."""
        for one in utterances:
            if one.start_ms < 0 or not one.heard:
                continue
            began, ended = history.spoken_at(one.start_ms), history.spoken_at(one.end_ms)
            took_s = max(0.0, one.heard_at - ended)
            self.all_s.append(took_s)
            self.met.update(fault for fault in self._faults if ended <= fault.at < one.heard_at)
            if any(fault.at < one.heard_at and began < fault.until for fault in self._faults):
                self.affected_s.append(took_s)


def _compare(histories: Iterable[ClientHistory], reference: Texts, found: SpeechFindings) -> None:
    """Compare the texts of each recording with the reference."""
    pairs: list[tuple[str, str]] = []
    for history in histories:
        for said, texts in texts_of(history, utterances_of(history)):
            wanted = reference.get((history.speaker, said.key), {})
            pairs.append((wanted.get("", ""), texts[""]))
            other = [name for name in texts if words(wanted.get(name, "")) != words(texts[name])]
            found.same += not other
            if other and len(found.changed) < CHANGED_MAX:
                name = other[0]
                found.changed.append(
                    f"{said.key} {name or 'heard'}: {wanted.get(name, '')!r} -> {texts[name]!r}"
                )
    found.wer = word_error_rate(pairs)


def texts_of(
    history: ClientHistory, utterances: Sequence[RecognisedUtterance]
) -> Iterator[tuple[SpokenRecording, dict[str, str]]]:
    """Give the texts of each recording: those of the utterances that are mostly it."""
    parts: dict[SpokenRecording, list[RecognisedUtterance]] = {said: [] for said in history.said}
    for one in utterances:
        said = max(history.said, key=one.overlap_ms, default=None)
        if said is not None and one.overlap_ms(said) > 0:
            parts[said].append(one)
    for said, ones in parts.items():
        firsts = [
            [one.heard[target][0] for one in ones if target in one.heard]
            for target in history.targets
        ]
        # Recognised once for all languages, but one of the outcomes may have failed.
        texts = {"": max((_joined(outcome.said for outcome in lane) for lane in firsts), key=len)}
        for target, lane in zip(history.targets, firsts, strict=True):
            texts[target] = _joined(outcome.text for outcome in lane)
        yield said, texts


def _joined(texts: Iterable[str]) -> str:
    return " ".join(filter(None, texts))


def reference_of(histories: Iterable[ClientHistory]) -> Texts:
    """Return the texts of each recording; of one that was spoken twice, those of the first time."""
    found: dict[tuple[int, str], Mapping[str, str]] = {}
    for history in histories:
        for said, texts in texts_of(history, utterances_of(history)):
            found.setdefault((history.speaker, said.key), texts)
    return found


@dataclass(slots=True)
class ChaosReport:
    """Both rounds, and what happened to the processes."""

    undisturbed: SpeechFindings = field(default_factory=SpeechFindings)
    under_fire: SpeechFindings = field(default_factory=SpeechFindings)
    faults: list[InjectedFault] = field(default_factory=list)
    # Workers that nodes had to replace.
    restarts: int = 0
    # Processes that were left at the end.
    left_over: int = 0
    # Problems of the run, and faults that did not heal.
    mishaps: list[str] = field(default_factory=list)
    wall_s: float = 0.0

    @property
    def problems(self) -> list[str]:
        """Return the broken promises, and the reasons why the run proves nothing."""
        found = [f"undisturbed: {text}" for text in self.undisturbed.violations()]
        found += [f"under fire: {text}" for text in self.under_fire.violations()]
        found += [f"processes left over: {self.left_over}"] if self.left_over else []
        voids = [*self.undisturbed.voids(), *self.under_fire.voids()]
        return [*found, *self.mishaps, *(f"VOID: {text}" for text in dict.fromkeys(voids))]

    def summary(self) -> dict[str, float]:
        """Return the numbers to quote, of the round under fire."""
        found = self.under_fire
        return {
            "utterances": found.utterances,
            "kills": found.kills,
            "lost": found.lost,
            "duplicates": found.duplicates,
            "inversions": found.inversions,
            "failed": found.failed,
            "same_text": round(found.same_text, 4),
            "wer": round(found.wer, 4),
            "affected_p50_s": round(found.affected_p50_s, 3),
            "affected_max_s": round(found.affected_max_s, 3),
            "resumes": found.resumes,
            "restarts": self.restarts,
            "left_over": self.left_over,
        }

    def objects(self) -> list[dict[str, Any]]:
        """Return both rounds, every fault, the problems, and the numbers to quote last."""
        rounds = (("undisturbed", self.undisturbed), ("under fire", self.under_fire))
        rows: list[dict[str, Any]] = [
            {"round": name} | {one.name: getattr(found, one.name) for one in fields(found)}
            for name, found in rounds
        ]
        rows += [
            {"fault": one.kind, "target": one.target, "healed_s": round(one.until - one.at, 2)}
            for one in self.faults
        ]
        problems = {"problems": self.problems, "wall_s": round(self.wall_s, 1)}
        return [*rows, problems, dict(self.summary())]
