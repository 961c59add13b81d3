"""The rules of a run (`ChaosRules`) and its findings (`ChaosFindings`).

`ChaosFindings.violations` lists what no run may show. `ChaosFindings.voids` lists the dangerous
paths that a run had to take and did not take: such a run proves nothing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final, Literal

from lingua_bench.chaos.outcome_findings import OutcomeFindings

UNLIMITED: Final = float("inf")
# Dangerous paths that a run may have to take.
Danger = Literal[
    "hit",
    "resume",
    "stale",
    "adoption",
    "move",
    "epoch",
    "failover",
    "after_kill",
    "after_freeze",
    "stream",
    "overheard",
    # In rooms; `ChaosFindings.dangers` counts them.
    "delivery_kill",
    "listener_resume",
    "late_join",
    "listener_left",
    "language",
    "speaker_gone",
    "speaker_moved",
    "alone",
    "midway",
    "old_spoke",
    "old_heard",
]
# What it means that a room's path was taken 0 times.
ROOM_DANGERS: Final[dict[Danger, str]] = {
    "delivery_kill": "no instance was killed while a result for a room was in transit",
    "listener_resume": "no listener resumed to receive what it had missed",
    "late_join": "no participant entered a room while an earlier utterance was open",
    "listener_left": "no participant received an utterance from before it left",
    "language": "no participant changed its language while an utterance was open",
    "speaker_gone": "no utterance was delivered after its speaker's session had ended",
    "speaker_moved": "no utterance was delivered after its speaker had left the room",
    "alone": "no participant spoke outside of rooms",
    "midway": "no participant changed the room in mid-utterance",
    "old_spoke": "no utterance of a client of the older protocol was delivered",
    "old_heard": "no client of the older protocol received anything",
}


@dataclass(frozen=True, slots=True)
class ChaosRules:
    """The rules that a run must keep."""

    # The setting, and as many attempts as may be refused before they start.
    attempts_max: int = 3 + 16
    # The store may lose acknowledged data: attempts may then be counted anew.
    store_forgets: bool = False
    # The store may lose sessions and rooms altogether.
    rooms_forget: bool = False
    # An outcome without a translation is an outcome, but too many of them are a failure.
    missing_percent_max: float = 5.0
    affected_max_s: float = 8.0
    resume_max_ms: float = 250.0
    refusal_max_ms: float = 500.0
    leases_max_s: float = 10.0
    # Every utterance that was sent completely must be confirmed: no scheduler is harmed.
    all_accepted: bool = False
    # How soon the jobs of a killed and of a frozen node must run elsewhere.
    after_kill_p50_max_ms: float = UNLIMITED
    after_kill_p99_max_ms: float = UNLIMITED
    after_freeze_p50_max_ms: float = UNLIMITED
    after_freeze_max_ms: float = UNLIMITED
    # The part of all attempts that must have failed.
    failed_attempts_percent_min: float = 0.0
    needs: frozenset[Danger] = frozenset({"hit"})


@dataclass(slots=True)
class ChaosFindings(OutcomeFindings):
    """What a run has shown."""

    # Begun, and not known to be sent completely: neither good nor bad.
    unknown: int = 0
    affected_p99_s: float = 0.0
    # Sent completely, and never confirmed by the scheduler.
    unaccepted: int = 0
    # Jobs of killed and of frozen nodes that started again elsewhere, and how soon.
    moved_after_kill: int = 0
    after_kill_p50_ms: float = 0.0
    after_kill_p99_ms: float = 0.0
    moved_after_freeze: int = 0
    after_freeze_p50_ms: float = 0.0
    after_freeze_most_ms: float = 0.0
    moves_unseen: int = 0
    # Node processes that ended although nothing was done to them.
    node_exits: int = 0
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
    # Instances that lost their store: how many were probed, were not alive, did not refuse new
    # sessions, and the longest time that a refusal took.
    outages: int = 0
    dead_in_outage: int = 0
    unrefused: int = 0
    refusal_most_ms: float = 0.0
    # In rooms: utterances, outcomes that a listener had to receive and did not, outcomes that were
    # not for the listener, and outcomes in another language than the listener wanted.
    people: int = 0
    room_utterances: int = 0
    had_to_hear: int = 0
    listeners_lost: int = 0
    heard_wrong: int = 0
    wrong_language: int = 0
    # Speakers that were notified although a listener never got the outcome; and not notified.
    passed_early: int = 0
    unpassed: int = 0
    # The client SDK reported another room than the roster.
    misplaced: int = 0
    # Sessions of participants that were lost, and outcomes that came again at the same position.
    listeners_reset: int = 0
    redelivered: int = 0
    # Streams that nodes listened to, those whose utterance was cut, and more than a node declared.
    streams_opened: int = 0
    streams_cut: int = 0
    streams_over_capacity: int = 0
    # Nodes that were killed while they listened. Leases of streams that were seen in the store,
    # that outlived their speakers, that were too many for their node, and left at the end.
    listeners_killed: int = 0
    stream_leases_seen: int = 0
    streams_outlived: int = 0
    stream_leases_over: int = 0
    stream_leases_left: int = 0
    # Partial texts in rooms, and those of others; after their outcome, not for the listener or of
    # other speech, and with stable words that were different before.
    partials: int = 0
    partials_of_others: int = 0
    partials_late: int = 0
    partials_misheard: int = 0
    partials_changed: int = 0
    # Utterances whose room is not certain; nothing is required of them.
    ambiguous: int = 0
    dangers: Counter[str] = field(default_factory=Counter)
    # The first few findings in rooms, as examples.
    examples: list[str] = field(default_factory=list)
    # The values of `/metrics` beside our own counts; only where both are well defined.
    metrics: dict[str, tuple[int, int]] = field(default_factory=dict)
    # Measured at the schedulers and the store.
    stale_rejected: int = 0
    adopted: int = 0
    internal_errors: int = 0
    leases_left: int = 0
    leases_free_s: float = 0.0
    # Everything the schedulers count, by the names of their metrics.
    counted: Counter[str] = field(default_factory=Counter, repr=False)
    # Problems of the run itself.
    mishaps: list[str] = field(default_factory=list)
    wall_s: float = 0.0

    @property
    def missing_percent(self) -> float:
        """Return the percentage of outcomes without a translation."""
        return 100 * self.missing.total() / max(1, self.outcomes)

    @property
    def untranslated_share(self) -> float:
        """Return the part of all outcomes without a translation, from 0 to 1."""
        return self.missing.total() / max(1, self.outcomes)

    @property
    def streams_lost(self) -> int:
        """Return how many streams ended before their utterance: dropped, or lost with a process."""
        return self.streams_opened - self.streams_cut

    @property
    def failed_attempts_percent(self) -> float:
        """Return the percentage of attempts without a result."""
        results = self.outcomes - self.missing.total() - self.duplicates
        return 100 * (self.attempts - results) / max(1, self.attempts)

    def violations(self, rules: ChaosRules) -> list[str]:
        """Return what no run may show."""
        never = ["lost", "duplicates", "inversions", "gaps", "wrong", "over_capacity"]
        never += ["listeners_lost", "heard_wrong", "wrong_language", "passed_early", "unpassed"]
        never += ["misplaced", "node_exits"]
        never += ["streams_outlived", "stream_leases_over", "stream_leases_left"]
        never += ["streams_over_capacity", "partials_misheard", "partials_changed"]
        never += ["unaccepted"] if rules.all_accepted else []
        never += [] if rules.rooms_forget else ["listeners_reset"]
        never += ["leases_left", "internal_errors", "unresumed", "dead_in_outage", "unrefused"]
        # An utterance that the store lost is spoken again, and has partials again.
        if not rules.store_forgets:
            never += ["started_twice", "stale_accepted", "partials_late"]
        found = self.counted_violations(never) + self.mishaps
        found += [
            f"/metrics says {told} {name}, the checker counted {counted}"
            for name, (told, counted) in self.metrics.items()
            if told != counted
        ]
        limits = (
            ("missing_percent", ".1f", rules.missing_percent_max),
            ("attempts_most", "d", rules.attempts_max),
            ("affected_p99_s", ".2f", rules.affected_max_s),
            ("resume_p99_ms", ".0f", rules.resume_max_ms),
            ("refusal_most_ms", ".0f", rules.refusal_max_ms),
            ("leases_free_s", ".1f", rules.leases_max_s),
            ("after_kill_p50_ms", ".0f", rules.after_kill_p50_max_ms),
            ("after_kill_p99_ms", ".0f", rules.after_kill_p99_max_ms),
            ("after_freeze_p50_ms", ".0f", rules.after_freeze_p50_max_ms),
            ("after_freeze_most_ms", ".0f", rules.after_freeze_max_ms),
        )
        return found + [
            f"{name}: {getattr(self, name):{form}}"
            for name, form, limit in limits
            if getattr(self, name) > limit
        ]

    def voids(self, rules: ChaosRules) -> list[str]:
        """Return the dangerous paths that the run had to take and did not take."""
        failovers = sum(count for kind, count in self.faults.items() if "master" in kind)
        been: dict[Danger, tuple[int, str]] = {
            "hit": (self.hits, "no fault met an utterance in progress"),
            "resume": (self.resumes, "no session was resumed"),
            "stale": (self.stale_rejected, "no stale result was rejected"),
            "adoption": (self.adopted, "no inbox entry was adopted"),
            "move": (self.moves, "no session was moved"),
            "epoch": (self.epochs, "no session got a new epoch"),
            "failover": (failovers, "no master failed over"),
            "after_kill": (self.moved_after_kill, "nothing was moved after a kill"),
            "after_freeze": (self.moved_after_freeze, "nothing was moved after a freeze"),
            "stream": (self.streams_opened, "no node listened while somebody spoke"),
            "overheard": (self.partials_of_others, "no listener received a partial text"),
        }
        been |= {name: (self.dangers[name], reason) for name, reason in ROOM_DANGERS.items()}
        empty = [] if self.utterances else ["nothing was spoken"]
        failed_percent, least = self.failed_attempts_percent, rules.failed_attempts_percent_min
        if least and failed_percent < least:
            empty.append(f"{failed_percent:.1f} % of the attempts failed, not {least:g} %")
        if self.listeners_killed < (meant := self.faults["kill_listening_node"]):
            empty.append(f"{self.listeners_killed} of {meant} nodes listened when they were killed")
        return empty + [been[need][1] for need in sorted(rules.needs) if not been[need][0]]
