"""What a run is held to (`Rules`), what it has shown (`Findings`), and what follows of both.

`Findings.violations` is what no run may show, `Findings.voids` is what a run must have been through
to prove anything.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final, Literal

# What a run may have to go through; a run that did not proves nothing about it.
Danger = Literal[
    "hit", "resume", "stale", "adoption", "move", "epoch", "failover",
    # In rooms; `dangers` of the findings counts them.
    "delivery_kill", "listener_resume", "late_join", "listener_left", "language", "speaker_gone",
    "speaker_moved", "alone", "midway", "old_spoke", "old_heard",
]  # fmt: skip
# What it means that one of those in rooms is 0.
ROOM_DANGERS: Final[dict[Danger, str]] = {
    "delivery_kill": "no instance was killed while a result was on its way to a room",
    "listener_resume": "no listener came back to hear what it had missed",
    "late_join": "nobody entered a room while something said before was on its way",
    "listener_left": "nobody heard what was said before it left",
    "language": "nobody changed its language while something was on its way",
    "speaker_gone": "nobody was heard after its session had ended",
    "speaker_moved": "nobody was heard after it had left the room",
    "alone": "nobody spoke outside of rooms",
    "midway": "nobody changed the room in mid-utterance",
    "old_spoke": "no client of the older protocol was heard",
    "old_heard": "no client of the older protocol heard anything",
}


@dataclass(frozen=True, slots=True)
class Rules:
    """What a run is held to."""

    # The setting's, and as many as may be refused before they are begun.
    attempts_max: int = 3 + 16
    # The store may lose what it had acknowledged: attempts may then be counted anew.
    store_forgets: bool = False
    # It may lose sessions and rooms altogether.
    rooms_forget: bool = False
    # Outcomes without a translation are answers, but nobody wants a service that only has those.
    missing_percent_max: float = 5.0
    affected_max_s: float = 8.0
    resume_max_ms: float = 250.0
    refusal_max_ms: float = 500.0
    leases_max_s: float = 10.0
    needs: frozenset[Danger] = frozenset({"hit"})


@dataclass(slots=True)
class Findings:
    """What a run has shown."""

    utterances: int = 0
    outcomes: int = 0
    lost: int = 0
    duplicates: int = 0
    inversions: int = 0
    # Positions of outcomes that were left out or repeated.
    gaps: int = 0
    # Results of other audio, another language or nobody's utterance.
    wrong: int = 0
    # Begun and never known to be finished; neither good nor bad.
    unknown: int = 0
    missing: Counter[str] = field(default_factory=Counter)
    told: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    # Faults that met utterances under way, and these utterances.
    hits: int = 0
    affected: int = 0
    affected_p50_s: float = 0.0
    affected_p99_s: float = 0.0
    resumes: int = 0
    moves: int = 0
    resume_p50_ms: float = 0.0
    resume_p99_ms: float = 0.0
    unresumed: int = 0
    epochs: int = 0
    attempts: int = 0
    attempts_most: int = 0
    started_twice: int = 0
    stale_accepted: int = 0
    over_capacity: int = 0
    refused_by_nodes: int = 0
    # Instances that lost their store: how many were looked at, were not alive, did not refuse new
    # sessions, and how long the refusals took at most.
    outages: int = 0
    dead_in_outage: int = 0
    unrefused: int = 0
    refusal_most_ms: float = 0.0
    # In rooms: what was said there, who had to hear it and did not, who heard what was not meant
    # for it, or in another language than it wanted.
    people: int = 0
    room_utterances: int = 0
    had_to_hear: int = 0
    listeners_lost: int = 0
    heard_wrong: int = 0
    wrong_language: int = 0
    # Speakers told that others have it although one of them never got it; not told although.
    passed_early: int = 0
    unpassed: int = 0
    # The client SDK said that somebody is in a room who was told to be in another one.
    misplaced: int = 0
    # Sessions of people that could not go on, and outcomes told again at the same position.
    listeners_reset: int = 0
    redelivered: int = 0
    # Utterances of which it cannot be said where they were spoken; nothing is asked of them.
    ambiguous: int = 0
    dangers: Counter[str] = field(default_factory=Counter)
    # The first few of what was found in rooms, for who looks for the reason.
    examples: list[str] = field(default_factory=list)
    # What `/metrics` says, beside what was counted here; only where both are well defined.
    metrics: dict[str, tuple[int, int]] = field(default_factory=dict)
    # Speakers that ended otherwise than they should, and why.
    broken: Counter[str] = field(default_factory=Counter)
    # Measured at the schedulers and the store.
    stale_rejected: int = 0
    adopted: int = 0
    internal_errors: int = 0
    leases_left: int = 0
    leases_free_s: float = 0.0
    # Everything the schedulers count, by the names of their metrics.
    counted: Counter[str] = field(default_factory=Counter, repr=False)
    # What went wrong with the run itself.
    mishaps: list[str] = field(default_factory=list)
    wall_s: float = 0.0

    @property
    def kills(self) -> int:
        """Return how many processes were killed."""
        return sum(count for kind, count in self.faults.items() if "kill" in kind)

    @property
    def missing_percent(self) -> float:
        """Return how much of all had no translation."""
        return 100 * self.missing.total() / max(1, self.outcomes)

    @property
    def untranslated_share(self) -> float:
        """Return which part of all outcomes had no translation, from 0 to 1."""
        return self.missing.total() / max(1, self.outcomes)

    def violations(self, rules: Rules) -> list[str]:
        """Return what no run may show."""
        never = ["lost", "duplicates", "inversions", "gaps", "wrong", "over_capacity"]
        never += ["listeners_lost", "heard_wrong", "wrong_language", "passed_early", "unpassed"]
        never += ["misplaced"]
        never += [] if rules.rooms_forget else ["listeners_reset"]
        never += ["leases_left", "internal_errors", "unresumed", "dead_in_outage", "unrefused"]
        never += [] if rules.store_forgets else ["started_twice", "stale_accepted"]
        found = [f"{name}: {getattr(self, name)}" for name in never if getattr(self, name)]
        found += [f"a speaker broke: {why} ({count})" for why, count in self.broken.items()]
        found += self.mishaps
        found += [
            f"/metrics says {told} {name}, the checker counted {counted}"
            for name, (told, counted) in self.metrics.items() if told != counted
        ]  # fmt: skip
        for text, is_so in {
            f"missing_percent: {self.missing_percent:.1f}": (
                self.missing_percent > rules.missing_percent_max
            ),
            f"attempts_most: {self.attempts_most}": self.attempts_most > rules.attempts_max,
            f"affected_p99_s: {self.affected_p99_s:.2f}": (
                self.affected_p99_s > rules.affected_max_s
            ),
            f"resume_p99_ms: {self.resume_p99_ms:.0f}": self.resume_p99_ms > rules.resume_max_ms,
            f"refusal_most_ms: {self.refusal_most_ms:.0f}": (
                self.refusal_most_ms > rules.refusal_max_ms
            ),
            f"leases_free_s: {self.leases_free_s:.1f}": self.leases_free_s > rules.leases_max_s,
        }.items():
            found += [text] if is_so else []
        return found

    def voids(self, rules: Rules) -> list[str]:
        """Return which dangerous paths were not taken."""
        failovers = sum(count for kind, count in self.faults.items() if "master" in kind)
        been: dict[Danger, tuple[int, str]] = {
            "hit": (self.hits, "no fault met an utterance under way"),
            "resume": (self.resumes, "no session was resumed"),
            "stale": (self.stale_rejected, "no stale result was rejected"),
            "adoption": (self.adopted, "no inbox entry was adopted"),
            "move": (self.moves, "no session was moved"),
            "epoch": (self.epochs, "no session got a new epoch"),
            "failover": (failovers, "no master failed over"),
        }
        been |= {name: (self.dangers[name], reason) for name, reason in ROOM_DANGERS.items()}
        empty = [] if self.utterances else ["nothing was said"]
        return empty + [been[need][1] for need in sorted(rules.needs) if not been[need][0]]
