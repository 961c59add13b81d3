"""What speech under fire has shown: read from what the clients heard, nothing else. Pure.

An utterance must have exactly one outcome in each language, in order; every recording that was said
must be in utterances, none twice; and what the scheduler says became of the audio must add up.
`Findings.violations` is what no round may show. `chaos.py` plays, here is only counted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lingua_scheduler.bench.chaos.checker import percentile
from lingua_scheduler.bench.chaos.history import RESULT
from lingua_scheduler.speech.scores import word_error_rate, words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lingua_scheduler.bench.chaos.history import Fault, Heard
    from lingua_scheduler.messages.shared import Coverage

    # (speaker, recording) -> language -> text; "" is what was recognised.
    Texts = Mapping[tuple[int, str], Mapping[str, str]]

SILENT: Final = "silence_detected"
# So much of a recording must be in utterances: what is quiet around its words need not be.
COVERED_PART: Final = 0.5
# An outcome without a translation is an answer, but one fault at a time should hardly cost any.
FAILED_PERCENT_MAX: Final = 10.0
CHANGED_MAX: Final = 8
NEVER: Final = (
    "lost", "duplicates", "inversions", "gaps", "overlaps", "wrong", "unaccounted_ms", "unknown_ms",
)  # fmt: skip


class Said(NamedTuple):
    """A recording, and where in the audio of its session it is."""

    key: str
    start_ms: float
    end_ms: float


@dataclass(frozen=True, slots=True)
class Accepted:
    """The scheduler said that it has an utterance."""

    index: int
    start_ms: float
    end_ms: float


@dataclass(slots=True)
class History:
    """What one client said and heard; times are of the monotonic clock."""

    speaker: int
    targets: tuple[str, ...]
    said: list[Said] = field(default_factory=list)
    # How much audio was sent by when.
    sent_ms: list[float] = field(default_factory=list)
    sent_at: list[float] = field(default_factory=list)
    accepted: list[Accepted] = field(default_factory=list)
    heard: list[Heard] = field(default_factory=list)
    # Errors and refused speech it was told of.
    told: Counter[str] = field(default_factory=Counter)
    refused_ms: int = 0
    coverage: Coverage | None = None
    resumes: int = 0
    # Why it ended otherwise than it should.
    problem: str = ""

    @property
    def audio_ms(self) -> float:
        """Return how much was said, pauses included."""
        return self.sent_ms[-1] if self.sent_ms else 0.0

    def spoken_at(self, place_ms: float) -> float:
        """Return when this place of the audio was sent."""
        return self.sent_at[min(bisect_left(self.sent_ms, place_ms), len(self.sent_at) - 1)]


@dataclass(slots=True)
class Utterance:
    """One utterance, as its client knows it."""

    index: int
    start_ms: float = -1.0
    end_ms: float = -1.0
    # By language, as they came; all but the first are too many.
    heard: dict[str, list[Heard]] = field(default_factory=dict)

    def overlap_ms(self, said: Said) -> float:
        """Return how much of a recording is in it."""
        return max(0.0, min(self.end_ms, said.end_ms) - max(self.start_ms, said.start_ms))

    @property
    def heard_at(self) -> float:
        """Return when its last outcome came, of those that count."""
        return max((outcomes[0].at for outcomes in self.heard.values()), default=0.0)


@dataclass(slots=True)
class Findings:
    """What a round has shown."""

    utterances: int = 0
    outcomes: int = 0
    recordings: int = 0
    lost: int = 0
    duplicates: int = 0
    inversions: int = 0
    # Positions of outcomes that were left out or repeated.
    gaps: int = 0
    # Utterances that share audio.
    overlaps: int = 0
    # Outcomes in a language that nobody asked for.
    wrong: int = 0
    # Admitted audio without a fate, and audio that was sent and is in no account.
    unaccounted_ms: int = 0
    unknown_ms: int = 0
    delivered: int = 0
    silent: int = 0
    missing: Counter[str] = field(default_factory=Counter)
    told: Counter[str] = field(default_factory=Counter)
    broken: Counter[str] = field(default_factory=Counter)
    resumes: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    # Faults that met an utterance between its end and its outcome.
    hits: int = 0
    # From the end of an utterance to its last outcome: of all, and of those open during a fault.
    took_p50_s: float = 0.0
    affected: int = 0
    affected_p50_s: float = 0.0
    affected_max_s: float = 0.0
    # Of recordings, those whose texts are what they were without faults; errors per word.
    same: int = 0
    wer: float = 0.0
    # What some of the others were and became.
    changed: list[str] = field(default_factory=list)

    @property
    def failed(self) -> int:
        """Return how many outcomes say that there is no translation, though something was said."""
        return self.missing.total()

    @property
    def kills(self) -> int:
        """Return how many processes were killed."""
        return sum(count for kind, count in self.faults.items() if kind.startswith("kill"))

    @property
    def same_text(self) -> float:
        """Return which part of the recordings had the same texts as without faults."""
        return self.same / self.recordings if self.recordings else 0.0

    def violations(self) -> list[str]:
        """Return what no round may show."""
        found = [f"{name}: {getattr(self, name)}" for name in NEVER if getattr(self, name)]
        found += [f"a speaker broke: {why} ({count})" for why, count in self.broken.items()]
        if 100 * self.failed > FAILED_PERCENT_MAX * self.outcomes:
            found.append(f"failed: {self.failed} of {self.outcomes} outcomes")
        return found

    def voids(self) -> list[str]:
        """Return why a round proves nothing."""
        found = [] if self.utterances else ["nothing was said"]
        if self.faults and not self.hits:
            found.append("no fault met an utterance under way")
        if self.faults["kill_scheduler"] and not self.resumes:
            found.append("no session was resumed")
        return found


def check(
    histories: Sequence[History], faults: Sequence[Fault] = (), reference: Texts | None = None
) -> Findings:
    """Compare what was said with what was heard, and with what was heard without faults."""
    found = Findings(faults=Counter(fault.kind for fault in faults))
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


def utterances_of(history: History) -> list[Utterance]:
    """Return every utterance up to the last one that was accepted or answered."""
    last = max(
        (one.index for part in (history.accepted, history.heard) for one in part), default=-1
    )
    found = [Utterance(index) for index in range(last + 1)]
    for accepted in history.accepted:
        found[accepted.index].start_ms = accepted.start_ms
        found[accepted.index].end_ms = accepted.end_ms
    for outcome in history.heard:
        found[outcome.index].heard.setdefault(outcome.target, []).append(outcome)
    _place_unaccepted(found, history.audio_ms)
    return found


def _place_unaccepted(utterances: Sequence[Utterance], audio_ms: float) -> None:
    """Put what was never told to be accepted between its neighbours.

    An instance may die before it says that it has an utterance; its outcome comes all the same.
    """
    known = [one for one in utterances if one.start_ms >= 0]
    for one in utterances:
        if one.start_ms < 0 and one.heard:
            before = (other.end_ms for other in known if other.index < one.index)
            after = (other.start_ms for other in known if other.index > one.index)
            one.start_ms, one.end_ms = max(before, default=0.0), min(after, default=audio_ms)


def _check_outcomes(history: History, utterances: Sequence[Utterance], found: Findings) -> None:
    found.utterances += len(utterances)
    newest: dict[str, int] = {}
    position = ("", 0)
    for outcome in history.heard:
        found.outcomes += 1
        found.wrong += outcome.target not in history.targets
        found.inversions += outcome.index < newest.get(outcome.target, -1)
        newest[outcome.target] = max(outcome.index, newest.get(outcome.target, -1))
        expected = position[1] + 1 if position[0] == outcome.epoch else 1
        found.gaps += outcome.seq != expected
        position = (outcome.epoch, outcome.seq)
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


def _check_audio(history: History, utterances: Sequence[Utterance], found: Findings) -> None:
    """Is every recording in utterances, and none of it in two?"""
    placed = [one for one in utterances if one.start_ms >= 0]
    found.overlaps += sum(before.end_ms > after.start_ms for before, after in pairwise(placed))
    for said in history.said:
        found.recordings += 1
        covered_ms = sum(one.overlap_ms(said) for one in placed)
        if covered_ms < COVERED_PART * (said.end_ms - said.start_ms):
            found.lost += len(history.targets)


def _check_coverage(history: History, found: Findings) -> None:
    account = history.coverage
    if account is None:
        found.unknown_ms += round(history.audio_ms)
        return
    ended_ms = account.delivered_ms + account.silent_ms + account.failed_ms + account.skipped_ms
    found.unaccounted_ms += abs(account.admitted_ms - ended_ms)
    known_ms = account.admitted_ms + account.earlier_ms + history.refused_ms
    # Each number is a whole one.
    found.unknown_ms += max(0, round(abs(history.audio_ms - known_ms)) - 2)


class _Clock:
    """How long utterances took, and which faults met their work."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self._faults = faults
        self.all_s: list[float] = []
        self.affected_s: list[float] = []
        self.met: set[Fault] = set()

    def measure(self, history: History, utterances: Iterable[Utterance]) -> None:
        """Take those that were answered."""
        for one in utterances:
            if one.start_ms < 0 or not one.heard:
                continue
            began, ended = history.spoken_at(one.start_ms), history.spoken_at(one.end_ms)
            took_s = max(0.0, one.heard_at - ended)
            self.all_s.append(took_s)
            self.met.update(fault for fault in self._faults if ended <= fault.at < one.heard_at)
            if any(fault.at < one.heard_at and began < fault.until for fault in self._faults):
                self.affected_s.append(took_s)


def _compare(histories: Iterable[History], reference: Texts, found: Findings) -> None:
    """Compare what each recording became with what it was in the reference."""
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
    history: History, utterances: Sequence[Utterance]
) -> Iterator[tuple[Said, dict[str, str]]]:
    """Give what became of each recording: the texts of the utterances that are mostly it."""
    parts: dict[Said, list[Utterance]] = {said: [] for said in history.said}
    for one in utterances:
        said = max(history.said, key=one.overlap_ms, default=None)
        if said is not None and one.overlap_ms(said) > 0:
            parts[said].append(one)
    for said, ones in parts.items():
        firsts = [
            [one.heard[target][0] for one in ones if target in one.heard]
            for target in history.targets
        ]
        # Recognised once for all languages, but one of them may have failed.
        texts = {"": max((_joined(outcome.said for outcome in lane) for lane in firsts), key=len)}
        for target, lane in zip(history.targets, firsts, strict=True):
            texts[target] = _joined(outcome.text for outcome in lane)
        yield said, texts


def _joined(texts: Iterable[str]) -> str:
    return " ".join(filter(None, texts))


def reference_of(histories: Iterable[History]) -> Texts:
    """Return what each recording became; one that was said twice counts the first time."""
    found: dict[tuple[int, str], Mapping[str, str]] = {}
    for history in histories:
        for said, texts in texts_of(history, utterances_of(history)):
            found.setdefault((history.speaker, said.key), texts)
    return found


@dataclass(slots=True)
class ChaosReport:
    """Both rounds and what became of the processes."""

    undisturbed: Findings = field(default_factory=Findings)
    under_fire: Findings = field(default_factory=Findings)
    faults: list[Fault] = field(default_factory=list)
    # Workers that nodes had to replace.
    restarts: int = 0
    # Processes that were there when all was closed.
    left_over: int = 0
    # What went wrong with the run, or did not heal.
    mishaps: list[str] = field(default_factory=list)
    wall_s: float = 0.0

    @property
    def problems(self) -> list[str]:
        """Return which promises were broken, and what makes the run prove nothing."""
        found = [f"undisturbed: {text}" for text in self.undisturbed.violations()]
        found += [f"under fire: {text}" for text in self.under_fire.violations()]
        found += [f"processes left over: {self.left_over}"] if self.left_over else []
        voids = [*self.undisturbed.voids(), *self.under_fire.voids()]
        return [*found, *self.mishaps, *(f"VOID: {text}" for text in dict.fromkeys(voids))]

    def summary(self) -> dict[str, float]:
        """Return the numbers to quote, of the round under fire."""
        found = self.under_fire
        return {
            "utterances": found.utterances, "kills": found.kills, "lost": found.lost,
            "duplicates": found.duplicates, "inversions": found.inversions,
            "failed": found.failed, "same_text": round(found.same_text, 4),
            "wer": round(found.wer, 4), "affected_p50_s": round(found.affected_p50_s, 3),
            "affected_max_s": round(found.affected_max_s, 3), "resumes": found.resumes,
            "restarts": self.restarts, "left_over": self.left_over,
        }  # fmt: skip

    def objects(self) -> list[dict[str, Any]]:
        """Return both rounds, every fault, the problems, and the numbers to quote last."""
        rounds = (("undisturbed", self.undisturbed), ("under fire", self.under_fire))
        rows: list[dict[str, Any]] = [
            {"round": name} | {key: getattr(found, key) for key in found.__slots__}
            for name, found in rounds
        ]
        rows += [
            {"fault": one.kind, "target": one.target, "healed_s": round(one.until - one.at, 2)}
            for one in self.faults
        ]
        problems = {"problems": self.problems, "wall_s": round(self.wall_s, 1)}
        return [*rows, problems, dict(self.summary())]
