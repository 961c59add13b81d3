"""A deployment in memory, the reference implementation of the scripts.

One method per script, with the same name and the same answers, over plain Python data. It shares
no code with the Lua. It shares with the product the pure modules for the choice of a node and for
the order of outcomes. The state machine in `test_machine.py` runs both.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace

import msgspec

from lingua_scheduler.jobs.placement import (
    CellFleet,
    NodeView,
    PlacementRequest,
    PoolView,
    choose,
    may_take,
    rank_pools,
    refusal,
)
from lingua_scheduler.jobs.requirement import Demand
from lingua_scheduler.nodes.capability import Capability
from lingua_scheduler.session.ordering import FILL_AHEAD_MAX, Lane
from lingua_scheduler.state.policy import FleetPolicy
from lingua_scheduler.state.records import AS_SPOKEN, JobSpec, Reserved
from model.clock import CellClock
from model.job_twin import (
    CREATED,
    FINISHED,
    RANK,
    RELEASED,
    JobTwin,
    check_report,
    overdue_reason,
)
from model.listeners import Listeners
from model.node_health import Health, after_beat, after_silence
from model.stream_twin import Streams

LOOK_MAX = 64
TIES = 1 << 20


def job_tie(job: str) -> float:
    return int(job[4:9], 16) / TIES


def pool_name(can: Capability, services: list[str]) -> str:
    """The id the store gives to the pool of these abilities."""
    langs: dict[str, object] = {"any": can.serves_any}
    lists = {"pairs": can.pairs, "src": can.sources, "tgt": can.targets, "tts": can.speech}
    langs |= {name: list(items) for name, items in lists.items() if items is not None}
    text = json.dumps(
        {
            "breadth": can.breadth * 1000 + len(services) * 20 + len(can.features),
            **langs,
            "services": services,
            "features": list(can.features),
            "owner": can.owner,
            **({"labels": list(can.labels)} if can.labels else {}),
        },
        separators=(",", ":"),
    )
    return hashlib.sha1(text.encode()).hexdigest()[:12]


@dataclass
class Node:
    boot: str
    conn: str
    instance: str
    can: Capability
    max: int
    silence_ms: int
    acks: bool
    health: Health
    drain: bool = False
    # An operator has stopped it.
    hold: bool = False
    over: bool = False
    extra: int = 0
    pool: str = ""
    services: frozenset[str] = frozenset()
    leases: dict[str, int] = field(default_factory=dict)
    marks: dict[str, int] = field(default_factory=dict)
    orphans: list[str] = field(default_factory=list)
    missing: set[str] = field(default_factory=set)
    # What the pool's score was computed from last.
    scored_leased: int = 0
    tie: float = 0.0
    na_from: int = 0
    na_count: int = 0
    # Streams have leases of their own; how many counted in its rank, None if it has no rank.
    streams_max: int = 0
    streams: dict[str, int] = field(default_factory=dict)
    streams_ranked: int | None = None
    streams_tie: float = 0.0

    def leased(self, now: int) -> int:
        return sum(expiry > now for expiry in self.leases.values())


@dataclass
class Session:
    epoch: int
    owner: str
    tenant: str
    fence: int = 1
    # Its first epoch: what belongs to an earlier one was said in an earlier session of its name.
    born: int = 0
    seq: int = 0
    trimmed: int = 0
    # `epoch seq`: what its client has said that it has received.
    confirmed: str = ""
    closed: bool = False
    lanes: dict[str, Lane] = field(default_factory=dict)
    turns: dict[str, str] = field(default_factory=dict)
    # Every outcome ever released under this epoch, from seq 1.
    outbox: list[tuple[str, int, str, str, int, str]] = field(default_factory=list)
    last_node: str = ""
    last_node_at: int = 0
    # Language -> `directions pool`: the pool of several equally able ones that served it last.
    pools: dict[str, str] = field(default_factory=dict)
    # What a later owner needs.
    token: str = ""
    about: str = ""
    heard: int = -1
    heard_ms: int = 0
    top: int = 0
    # Outcomes for others so far; of each speaker the latest that was heard; what each position is.
    said_count: int = 0
    froms: dict[str, tuple[int, int]] = field(default_factory=dict)
    heard_ids: dict[int, str] = field(default_factory=dict)
    # Up to where positions went because too much was kept.
    dropped: int = 0
    # (lane, index) of refused utterances -> who is told.
    refused: dict[tuple[str, int], str] = field(default_factory=dict)
    speech: int = 0
    passed: str = "0 0"
    # What became of its speech: delivered, silent, skipped, failed; and of what has not ended in
    # all languages: index -> length, languages, best end so far, those that ended.
    ended: list[int] = field(default_factory=lambda: [0, 0, 0, 0])
    partly: dict[int, tuple[int, int, int, list[str]]] = field(default_factory=dict)
    # Everything that was ever said: (index, language), or (index, "") of one with several.
    said: dict[tuple[int, str], int] = field(default_factory=dict)

    def say(self, spec: JobSpec) -> None:
        # What one language of it was said to last, others of it did: the first to say holds.
        place = (spec.index, spec.lane if spec.lanes == 1 else "")
        self.said[place] = self.said.get(place) or spec.ms

    def account(self, spec: JobSpec, kind: str) -> None:
        """One language of an utterance has ended."""
        if not spec.ms:
            return
        place = FATES.index(kind) if kind in FATES else 3
        if spec.lanes > 1:
            _, _, best, names = self.partly.pop(spec.index, (0, 0, 3, []))
            place = min(place, best)
            names = [*names, spec.lane]
            if len(names) < spec.lanes:
                self.partly[spec.index] = (spec.ms, spec.lanes, place, names)
                return
        self.ended[place] += spec.ms

    def end_account(self) -> None:
        for ms, _, best, _ in self.partly.values():
            self.ended[best] += ms
        self.partly.clear()

    def note(self, fields: dict[str, str | int]) -> None:
        stream = {name: fields[name] for name in STREAM if name in fields}
        for name in fields.keys() - stream:
            assert hasattr(self, name)
            setattr(self, name, fields[name])
        self.go_on_from(**stream)

    def go_on_from(
        self, *, top: int = 0, heard: int = -1, heard_ms: int = 0, speech: int | None = None
    ) -> None:
        """Where a later owner goes on, unless a later utterance has noted more."""
        self.top = max(self.top, top)
        if heard > self.heard:
            self.heard, self.heard_ms = heard, heard_ms
            self.speech = self.speech if speech is None else speech

    def start_over(self, now: int) -> None:
        """Positions count from 1 again, over what was not acknowledged."""
        self.epoch = max(now, self.epoch + 1)
        self.outbox = self.outbox[self.trimmed :]
        self.heard_ids = {
            seq - self.trimmed: heard for seq, heard in self.heard_ids.items() if seq > self.trimmed
        }
        self.seq, self.trimmed, self.dropped = len(self.outbox), 0, 0


STREAM = ("top", "heard", "heard_ms", "speech")
# What a node refuses or never acknowledged it has not begun; as in job_failover.lua.
FATES = ("completed", "completed_no_text", "cancelled")
REFUSED = ("NODE_OVERLOADED", "NODE_UNAVAILABLE")
UNBEGUN = ("push_failed", "no_ack", *REFUSED)
REFUSED_MAX, UNANSWERED_MAX = 16, 4
# How long such a node is left out at most, and after how many all are; as in rests.lua.
REST_MAX_MS, AT_ONCE_MAX = 2000, 4


@dataclass
class Tracked:
    """A job with what the store keeps beside the machine."""

    job: JobTwin
    spec: JobSpec
    seq: int = 0
    # Its record has the audio.
    has_audio: bool = False
    history: list[str] = field(default_factory=list)
    # Attempts that were refused before they were begun, and who rests from the job until when.
    spared: int = 0
    # For people: when it came if it had to wait, when each attempt began and ended, and why.
    created_at: int = 0
    placed_at: int = 0
    past: str = ""
    reason: str = ""
    ended_at: int = 0
    rests: dict[str, int] = field(default_factory=dict)
    # Until when it may be refused, 0 if it was not.
    waits_until: int = 0

    def resting(self, now: int) -> dict[str, int]:
        return {name: at for name, at in self.rests.items() if now < at <= now + REST_MAX_MS}

    def rest(self, name: str, now: int) -> None:
        count = max(1, self.spared)
        rest_ms = min(125 * 2**count, REST_MAX_MS)
        others = {n: at for n, at in self.resting(now).items() if n not in ("*", name)}
        everybody = {"*": now + rest_ms // 2} if count > AT_ONCE_MAX else {}
        self.rests = {**everybody, name: now + rest_ms, **others}

    def left_out(self, now: int) -> list[tuple[str, str]]:
        """Who must not get it now; `*`: whatever the process, or whatever the node."""
        return [*self.job.tried, *((name, "*") for name in self.resting(now))]

    @property
    def unanswered(self) -> bool:
        """A request that its client named, and that was refused or cancelled."""
        if not self.spec.sound or self.job.state != RELEASED:
            return False
        refused = self.reason in ("queue_full", "no_pool_for_lang_pair")
        return self.job.outcome == "cancelled" or (self.job.outcome == "failed" and refused)


class CellTwin(Listeners, Streams):
    """One cell."""

    def __init__(self, name: str, policy: FleetPolicy) -> None:
        self.name = name
        self.policy = policy
        # The server's time, and the cell's own.
        self.wall = self.now = 0
        self.clock = CellClock()
        self.nodes: dict[str, Node] = {}
        self.sessions: dict[str, Session] = {}
        self.jobs: dict[str, Tracked] = {}
        self.due: dict[str, int] = {}
        self.pending: dict[str, int] = {}
        self.reserved: dict[str, str] = {}
        # Stream -> the node that heard it.
        self.heard_streams: dict[str, str] = {}
        self.audio: dict[str, set[str]] = {}
        # Speaker -> outcomes that listeners have not all got; result kept for listeners -> by whom.
        self.relays: dict[str, list] = {}
        # Outcomes that their speakers were told have passed, and (listener, outcome) that could not
        # be given because there was no such session.
        self.over: list = []
        # Who heard what, and in which of its lives: one that began anew knows nothing of before.
        self.heard_in_life: list[tuple[str, str, str]] = []
        self.unreached: set[tuple[str, str]] = set()
        self.heards: dict[str, set[str]] = {}
        # Captions of a room -> the latest outcome of each speaker in them.
        self.captions: dict[str, dict[str, tuple[int, int]]] = {}
        # Jobs whose report had a payload; who heard what, ever.
        self.paid: set[str] = set()
        self.log: list[tuple[str, str]] = []

    # Views for the pure policy

    def fleet(self, *, current: bool = False) -> CellFleet:
        """The cell as placement sees it: by the last score, or by the leases of this moment."""
        fleet = CellFleet()
        for name, node in self.nodes.items():
            fleet.pools[node.pool] = PoolView(node.pool, node.can, node.services)
            fleet.nodes[name] = NodeView(
                id=name,
                pool=node.pool,
                boot=node.boot,
                status=node.health.status,
                draining=node.drain,
                over=node.over,
                max_jobs=node.max,
                leased=node.leased(self.now) if current else node.scored_leased,
                extra=node.extra,
                tie=node.tie,
                instance=node.instance,
            )
        return fleet

    def blocked(self, name: str) -> str | None:
        return self.fleet(current=True).nodes[name].blocked_by

    def rescore(self, name: str, tie: float) -> None:
        node = self.nodes[name]
        node.scored_leased, node.tie = node.leased(self.now), tie

    def take(self, name: str, member: str, expires_at: int, tie: float) -> bool:
        if name not in self.nodes or self.blocked(name):
            return False
        self.nodes[name].leases[member] = expires_at
        self.rescore(name, tie)
        return True

    def free(self, name: str, member: str, tie: float) -> bool:
        node = self.nodes.get(name)
        if node is None or member not in node.leases:
            return False
        del node.leases[member]
        self.rescore(name, tie)
        return True

    # Placement

    def admits(self, demand: str, name: str) -> bool:
        """Could this node do the work, whatever its load?"""
        fleet = self.fleet()
        view = replace(
            fleet.nodes[name], status="ready", draining=False, over=False, leased=0, extra=-1
        )
        fleet.nodes[name] = view
        return may_take(fleet, PlacementRequest(Demand.parse(demand)), name)

    def processes(self, left_out: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """(node, boot) of those who are left out in this cell."""
        names = {name for name, boot in left_out if boot == "*"}
        resting = self.nodes if "*" in names else names & self.nodes.keys()
        return [*left_out, *((name, self.nodes[name].boot) for name in resting)]

    def affinity(self, spec: JobSpec) -> str:
        turns = self.sessions[spec.session].turns if spec.session in self.sessions else {}
        if not spec.turn:
            return ""
        return turns.get(f"{spec.turn}/{spec.lane}") or turns.get(spec.turn, "")

    def turn_nodes(self, spec: JobSpec) -> list[str]:
        """All nodes of a turn: this language's own, the turn's, those of its other languages."""
        first = self.affinity(spec)
        if not first:
            return []
        session = self.sessions[spec.session]
        lanes = [f"{spec.turn}/{lane}" for lane in session.lanes if lane != spec.lane]
        found = [session.turns.get(name) for name in (spec.turn, *lanes)]
        return list(dict.fromkeys([first, *(node for node in found if node)]))

    def place(
        self,
        job: str,
        spec: JobSpec,
        attempt: int,
        tried: list[tuple[str, str]],
        *,
        apart: bool = False,
        only_wanted: bool = False,
    ) -> object:
        """The chosen node after its slot was taken, or (code, label, the node to avoid)."""
        tried, tie = self.processes(tried), job_tie(job)
        expires_at = self.now + self.policy.attempt_ms + self.policy.lease_grace_ms
        turn_nodes = [holder.split("/") for holder in self.turn_nodes(spec)]
        near = self.sessions[spec.session].owner if spec.session in self.sessions else ""
        wish = PlacementRequest(
            Demand.parse(spec.demand), tried=frozenset(tried), tie=tie, near=near
        )
        now_fleet = self.fleet(current=True)
        named = [held for cell, held in turn_nodes if cell == self.name]
        heard_by = self.stream_node(spec)
        for name in [*named, heard_by, spec.preferred]:
            if name and may_take(now_fleet, wish, name):
                assert self.take(name, f"{job}|{attempt}", expires_at, tie)
                return name
        if only_wanted:
            return "NO_AVAILABLE_NODE", "affinity_elsewhere", ""
        session = self.sessions[spec.session]
        recent = self.now - session.last_node_at < self.policy.spread_ms
        avoid = ""
        if self.policy.spread and not turn_nodes and session.last_node and recent:
            avoid = session.last_node
        directions = spec.demand.split("|")[0]
        kept, _, pool = session.pools.get(spec.lane, "").partition(" ")
        if self.policy.sticky_pools and kept == directions:
            wish = replace(wish, sticky=pool)
        fleet = self.fleet()
        verdict = choose(fleet, replace(wish, avoid=avoid))
        if not verdict.node or (apart and verdict.node == avoid):
            groups = rank_pools(fleet.pools.values(), wish.demand)
            verdict = refusal(fleet, groups, fleet.members(), wish.demand)
            return verdict.code, verdict.label, avoid
        chosen = fleet.nodes[verdict.node].pool
        for group in rank_pools(fleet.pools.values(), wish.demand):
            if self.policy.sticky_pools and len(group) > 1 and fleet.pools[chosen] in group:
                session.pools[spec.lane] = f"{directions} {chosen}"
        assert self.take(verdict.node, f"{job}|{attempt}", expires_at, tie)
        return verdict.node

    def assign(self, job: str, attempt: int, cell: str, name: str, boot: str, acks: bool) -> bool:
        """Writes one placement; tells whether the turn moved."""
        tracked = self.jobs[job]
        spec, machine = tracked.spec, tracked.job
        moved = False
        session = self.sessions.get(spec.session)
        if spec.turn and session is not None:
            affinity, holder = self.affinity(spec), f"{cell}/{name}"
            moved = bool(affinity) and affinity != holder
            if affinity != holder:
                session.turns[f"{spec.turn}/{spec.lane}" if affinity else spec.turn] = holder
        if self.policy.spread and session is not None:
            session.last_node, session.last_node_at = name, self.now
        tracked.placed_at = self.now
        machine.state, machine.attempt = CREATED, attempt
        machine.node, machine.cell, machine.boot, machine.node_acks = name, cell, boot, acks
        machine.ends_at_ms = self.now + self.policy.attempt_ms
        machine.due_at_ms = self.now + self.policy.ack_ms if acks else machine.ends_at_ms
        self.due[f"j|{job}"] = machine.due_at_ms
        tracked.history.append(CREATED)
        return moved

    def assign_here(self, job: str, attempt: int, name: str) -> tuple[str, int, str, bool]:
        node = self.nodes[name]
        moved = self.assign(job, attempt, self.name, name, node.boot, node.acks)
        return job, attempt, name, moved

    def serve_waiting(self, name: str) -> list[tuple[str, int, str, bool]]:
        placed: list[tuple[str, int, str, bool]] = []
        queues: dict[str, list[tuple[float, str]]] = {}
        for job in self.pending:
            place = self.queue_place(job)
            queues.setdefault(self.jobs[job].spec.demand, []).append((place, job))
        for _, demand in sorted((min(queue)[0], demand) for demand, queue in queues.items()):
            if self.admits(demand, name) and not self._serve(name, sorted(queues[demand]), placed):
                break
        return placed

    def queue_place(self, job: str) -> float:
        """Its deadline, and within one millisecond its utterance."""
        return self.pending[job] + self.jobs[job].spec.index % 4096 / 4096

    def _serve(self, name: str, queue: list[tuple[float, str]], placed: list) -> bool:
        for _, job in queue[:LOOK_MAX]:
            machine = self.jobs[job].job
            if (name, self.nodes[name].boot) in self.processes(self.jobs[job].left_out(self.now)):
                continue
            attempt = machine.attempt + 1
            expires_at = self.now + self.policy.attempt_ms + self.policy.lease_grace_ms
            if not self.take(name, f"{job}|{attempt}", expires_at, job_tie(job)):
                return False
            del self.pending[job]
            placed.append(self.assign_here(job, attempt, name))
        return True

    # Order

    def push(self, session_id: str, lane_name: str, released: list) -> None:
        session = self.sessions[session_id]
        for index, entry in session.lanes[lane_name].release():
            kind, reason = entry.outcome
            tracked = self.jobs[entry.job] if entry.job[0] not in "-=" else None
            attempt = tracked.job.attempt if tracked is not None else int(entry.job.startswith("="))
            audience = self.audience_of(session_id, lane_name, index, entry.job)
            if audience or lane_name == AS_SPOKEN:
                head = f"{index} {lane_name} {entry.job} {attempt} {reason}"
                seq = self.relay_begin(session_id, kind, head, audience, released)
            else:
                seq = session.seq = session.seq + 1
                row = (kind, index, lane_name, entry.job, attempt, reason)
                session.outbox.append(row)
                released.append((seq, *row))
            if tracked is not None and lane_name != AS_SPOKEN:
                tracked.job.state, tracked.seq = RELEASED, seq
                tracked.history.append(RELEASED)

    def unhold(self, job: str, freed: list) -> str:
        """Gives the slot back; returns the node if it is of this cell and had the lease."""
        machine = self.jobs[job].job
        if not machine.node:
            return ""
        member = f"{job}|{machine.attempt}"
        if machine.cell == self.name:
            return machine.node if self.free(machine.node, member, job_tie(job)) else ""
        self.due[f"r|{machine.cell}|{machine.node}|{member}"] = self.now + 1000
        freed.append((machine.cell, machine.node, job, machine.attempt))
        return ""

    def finish(self, job: str, kind: str, reason: str, released: list) -> None:
        tracked = self.jobs[job]
        spec = tracked.spec
        session = self.sessions[spec.session]
        tracked.job.outcome, tracked.job.state = kind, FINISHED
        tracked.reason, tracked.ended_at = reason, self.now
        session.account(spec, kind)
        tracked.history.append(FINISHED)
        session.lanes[spec.lane].entries[spec.index].outcome = (kind, reason)
        self.push(spec.session, spec.lane, released)
        self.due.pop(f"j|{job}", None)
        self.pending.pop(job, None)
        tracked.has_audio = False
        if spec.audio:
            users = self.audio.get(f"{spec.session}|{spec.index}", set())
            users.discard(job)
            if not users:
                self.audio.pop(f"{spec.session}|{spec.index}", None)
        if spec.closes_turn:
            session.turns.pop(f"{spec.turn}/{spec.lane}", None)
            live = (
                lane.entries.get(spec.index)
                for name, lane in session.lanes.items()
                if name != AS_SPOKEN
            )
            if not any(entry is not None and entry.outcome is None for entry in live):
                session.turns.pop(spec.turn, None)
        if spec.readers:
            self.readers_end(spec, job, kind, reason, released)

    def end_slices(
        self, session_id: str, lane_name: str, turn: str, node: str, last: int, out, freed
    ) -> None:
        if lane_name == AS_SPOKEN:
            return
        lane = self.sessions[session_id].lanes[lane_name]
        for index in sorted(lane.entries):
            entry = lane.entries.get(index)
            if index > last or entry is None or entry.outcome is not None:
                continue
            tracked = self.jobs[entry.job]
            machine, spec = tracked.job, tracked.spec
            silent = spec.is_slice and spec.turn == turn and not machine.node_acks and machine.node
            if silent and (not node or machine.node == node):
                self.unhold(entry.job, freed)
                self.finish(entry.job, "completed_no_text", "buffered", out)

    # The scripts about jobs

    def job_submit(self, job: str, spec: JobSpec, *, audio: bool = False, park: int = 0) -> tuple:
        heard_by = self.stream_node(spec)
        if heard_by:
            self.free_stream(heard_by, spec.stream)
        known = self.jobs.get(job)
        before = known.job.attempt if known is not None else 0
        if known is not None and not known.unanswered:
            machine = known.job
            return (
                "DUPLICATE",
                machine.state,
                machine.attempt,
                machine.node,
                machine.outcome,
                known.seq,
            )
        refused = self.refuses(spec)
        if refused:
            return (refused,)
        session = self.sessions[spec.session]
        lane = session.lanes.get(spec.lane, Lane())
        affinity = self.affinity(spec)
        wanted = park == 2 and not affinity
        elsewhere = affinity.split("/")[0] != self.name if affinity else wanted and not heard_by
        if elsewhere:
            placed: object = ("NO_AVAILABLE_NODE", "affinity_elsewhere", "")
        else:
            placed = self.place(job, spec, before + 1, [], apart=park > 0, only_wanted=wanted)
        parked = isinstance(placed, tuple) and (elsewhere or park > 0)
        if isinstance(placed, tuple) and not parked:
            if placed[0] == "NO_POOL_FOR_LANG_PAIR" and self.policy.refuse_unserved_pairs:
                return (placed[0], placed[1])
            if len(self.pending) >= self.policy.pending_jobs_max:
                return ("QUEUE_FULL", placed[1])
        self.jobs[job] = Tracked(JobTwin(job), spec, history=[CREATED], spared=before)
        self.jobs[job].job.attempt = before
        lane.admit(spec.index, job, self.now, spec.unwanted_from)
        session.lanes[spec.lane] = lane
        self.arm_gap(spec)
        session.go_on_from(
            top=spec.top, heard=spec.heard, heard_ms=spec.heard_ms, speech=spec.speech or None
        )
        session.say(spec)
        if spec.readers:
            self.readers_put(spec)
        self.jobs[job].has_audio = audio and spec.own_audio
        if audio and spec.audio:
            self.audio.setdefault(f"{spec.session}|{spec.index}", set()).add(job)
        if not isinstance(placed, tuple):
            return ("PLACED", self.assign_here(job, before + 1, str(placed)))
        self.jobs[job].created_at = self.now
        self.wait(job, parked=parked)
        if not parked:
            return ("QUEUED", *placed[:2])
        return ("PARKED", *placed[:2], ",".join(self.turn_nodes(spec)), placed[2])

    def stream_node(self, spec: JobSpec) -> str:
        """The node of this cell that heard the stream of a job."""
        cell, _, name = spec.stream_node.partition("/")
        return name if cell == self.name else ""

    def refuses(self, spec: JobSpec) -> str:
        """Why the session does not take a job, or nothing."""
        session = self.sessions.get(spec.session)
        if session is None:
            return "NO_SESSION"
        if session.closed:
            return "SESSION_CLOSED"
        if spec.fence and spec.fence != session.fence:
            return "FENCED"
        if spec.heard_after > session.heard:
            return "TOO_EARLY"
        lane = session.lanes.get(spec.lane, Lane())
        refused = lane.refuses(spec.index, spec.unwanted_from, self.policy.in_flight_max)
        full = session.seq - session.trimmed >= self.policy.outbox_max
        return refused or ("OUTBOX_FULL" if full else "")

    def wait(self, job: str, *, parked: bool) -> None:
        tracked = self.jobs[job]
        machine = tracked.job
        machine.due_at_ms = self.now + (
            self.policy.reserve_ms if parked else self.policy.pending_ms
        )
        self.due[f"j|{job}"] = machine.due_at_ms
        if not parked:
            if tracked.waits_until > self.now:
                machine.due_at_ms = tracked.waits_until
            self.pending[job] = machine.due_at_ms
            self.due[f"j|{job}"] = self.wakes_at(job)

    def arm_gap(self, spec: JobSpec) -> None:
        lane = self.sessions[spec.session].lanes[spec.lane]
        below = spec.index
        if 0 <= spec.unwanted_from < spec.index and spec.unwanted_from > lane.next_index:
            below = spec.unwanted_from
        if below > lane.next_index and below - 1 not in lane.entries:
            self.due.setdefault(f"g|{spec.session}|{spec.lane}", self.now + self.policy.gap_ms)

    def job_mark(self, job: str, attempt: int, node: str, state: str) -> str:
        tracked = self.jobs.get(job)
        if tracked is None:
            return "NO_JOB"
        machine = tracked.job
        wrong = check_report(machine, attempt, node)
        if wrong:
            return wrong
        if machine.ended:
            return "JOB_ENDED"
        if RANK[state] > RANK[machine.state]:
            machine.state = state
            tracked.history.append(state)
            if state != "DISPATCHED":
                machine.due_at_ms = machine.ends_at_ms
                self.due[f"j|{job}"] = machine.ends_at_ms
        return "OK"

    def job_fetch(self, job: str, attempt: int, node: str, boot: str, *, audio: bool) -> tuple:
        """What is read, and whether the audio came with it."""
        tracked = self.jobs.get(job)
        if tracked is None:
            return ("NO_JOB",)
        machine, spec = tracked.job, tracked.spec
        if machine.ended:
            return ("JOB_ENDED",)
        wrong = check_report(machine, attempt, node)
        if wrong:
            return (wrong,)
        if boot and boot != machine.boot:
            return ("NODE_MISMATCH",)
        users = self.audio.get(f"{spec.session}|{spec.index}", set())
        kept = tracked.has_audio or job in users
        left_ms = max(1, machine.ends_at_ms - self.now)
        owner = self.sessions[spec.session].owner
        return ("OK", spec, audio and kept, owner, left_ms)

    def job_settle(self, job: str, attempt: int, node: str, kind: str) -> tuple:
        tracked = self.jobs.get(job)
        if tracked is None:
            return ("NO_JOB",)
        machine, spec = tracked.job, tracked.spec
        wrong = check_report(machine, attempt, node)
        if wrong:
            return (wrong,)
        if machine.ended:
            same = machine.outcome == kind
            return ("ALREADY", machine.outcome, tracked.seq) if same else ("JOB_ENDED",)
        released: list = []
        freed: list = []
        if spec.closes_turn:
            self.end_slices(
                spec.session, spec.lane, spec.turn, node, spec.index - 1, released, freed
            )
        local = self.unhold(job, freed)
        self.paid.add(job)
        self.finish(job, kind, "-", released)
        return ("SETTLED", released, freed, self.serve_waiting(local) if local else [])

    def job_failover(self, job: str, attempt: int, node: str, reason: str, park: int) -> tuple:
        tracked = self.jobs.get(job)
        if tracked is None:
            self.due.pop(f"j|{job}", None)
            return ("NO_JOB",)
        machine, spec = tracked.job, tracked.spec
        if machine.ended:
            return ("JOB_ENDED",)
        if attempt < 0 and reason == "deadline":
            attempt = machine.attempt
        held = bool(machine.node)
        waits = not held and not node and machine.attempt == attempt and reason == "deadline"
        wrong = check_report(machine, attempt, node or machine.node)
        if wrong and not waits:
            return (wrong,)
        if reason == "deadline":
            if machine.due_at_ms > self.now:
                return self.wake(job)
            reason = overdue_reason(machine)
        silent = reason == "timeout" and spec.is_slice and not machine.node_acks
        if silent and self.affinity(spec) and self.keeps_slot(job):
            return self.defer(job)
        released: list = []
        freed: list = []
        local = self.unhold(job, freed)
        left = machine.node
        is_refused, waits_until = reason in REFUSED, tracked.waits_until
        if held and reason in UNBEGUN:
            waits_until = waits_until or self.now + self.policy.pending_ms
            tracked.spared += tracked.spared < (REFUSED_MAX if is_refused else UNANSWERED_MAX)
        elif held:
            waits_until = 0
        too_late = is_refused and waits_until <= self.now
        if held and (attempt - tracked.spared >= self.policy.attempts_max or too_late):
            self.finish(job, "failed", reason, released)
            answer: tuple = ("SETTLED", released)
        elif not held and job in self.pending:
            self.finish(job, "expired", reason, released)
            answer = ("SETTLED", released)
        else:
            # What has ended keeps what it had.
            tracked.waits_until = waits_until
            answer = self.move(job, park, reason)
        served = self.serve_waiting(local) if local and not is_refused else []
        return (*answer, freed, served, reason, left)

    def wake(self, job: str) -> tuple:
        """A timer rang before the deadline: who rested may be asked again."""
        tracked = self.jobs[job]
        machine, left_out = tracked.job, tracked.left_out(self.now)
        if not machine.node and tracked.rests and job in self.pending:
            placed = self.place(job, tracked.spec, machine.attempt + 1, left_out)
            if not isinstance(placed, tuple):
                del self.pending[job]
                row = self.assign_here(job, machine.attempt + 1, str(placed))
                return ("PLACED", row, [], [], "", "")
        at = machine.due_at_ms if machine.node else self.wakes_at(job)
        self.due[f"j|{job}"] = at
        return ("NOT_DUE",)

    def wakes_at(self, job: str) -> int:
        tracked = self.jobs[job]
        return min([tracked.job.due_at_ms, *tracked.resting(self.now).values()])

    def defer(self, job: str) -> tuple:
        machine = self.jobs[job].job
        machine.due_at_ms = machine.ends_at_ms = self.now + self.policy.attempt_ms
        self.due[f"j|{job}"] = machine.due_at_ms
        return ("DEFERRED", machine.cell, machine.node)

    def keeps_slot(self, job: str) -> bool:
        machine = self.jobs[job].job
        node = self.nodes.get(machine.node)
        if machine.cell != self.name:
            return True
        if node is None:
            return False
        member = f"{job}|{machine.attempt}"
        expires_at = self.now + self.policy.attempt_ms + self.policy.lease_grace_ms
        if node.leases.get(member, 0) > self.now:
            node.leases[member] = expires_at
            return True
        node.leases.pop(member, None)
        return self.take(machine.node, member, expires_at, job_tie(job))

    def move(self, job: str, park: int, reason: str) -> tuple:
        tracked = self.jobs[job]
        machine = tracked.job
        left = f"{machine.cell}/{machine.node}" if reason != "lease_lapsed" else ""
        others = [name for name in self.turn_nodes(tracked.spec) if name != left]
        elsewhere = bool(park and others and others[0].split("/")[0] != self.name)
        rests = reason in UNBEGUN and (reason != "push_failed" or tracked.spared > 1)
        if machine.node:
            tracked.past += (
                f"{machine.attempt} {machine.node} {tracked.placed_at} {self.now} {reason};"
            )
        if machine.node and (rests or reason == "not_running"):
            tracked.rest(machine.node, self.now)
        elif machine.node and reason not in ("lease_lapsed", "node_lost", "push_failed"):
            machine.tried.append((machine.node, machine.boot))
        left_out = tracked.left_out(self.now)
        placed: object = ("NO_AVAILABLE_NODE", "affinity_elsewhere")
        if not elsewhere:
            placed = self.place(job, tracked.spec, machine.attempt + 1, left_out, apart=bool(park))
        if not isinstance(placed, tuple):
            return ("PLACED", self.assign_here(job, machine.attempt + 1, str(placed)))
        machine.state, machine.node = CREATED, ""
        tracked.history.append(CREATED)
        self.wait(job, parked=bool(park))
        return ("PARKED" if park else "QUEUED", *placed[:2])

    def job_place(self, job: str, park: int) -> tuple:
        tracked = self.jobs.get(job)
        if tracked is None:
            return ("NO_JOB",)
        machine = tracked.job
        if machine.ended:
            return ("JOB_ENDED",)
        if machine.node:
            return ("HELD",)
        left_out = tracked.left_out(self.now)
        placed = self.place(job, tracked.spec, machine.attempt + 1, left_out)
        if not isinstance(placed, tuple):
            self.pending.pop(job, None)
            return ("PLACED", self.assign_here(job, machine.attempt + 1, str(placed)))
        if job in self.pending:
            return ("QUEUED", *placed[:2])
        if park:
            self.wait(job, parked=True)
            return ("PARKED", *placed[:2])
        unserved = placed[0] == "NO_POOL_FOR_LANG_PAIR" and self.policy.refuse_unserved_pairs
        if machine.attempt == 0 and (unserved or len(self.pending) >= self.policy.pending_jobs_max):
            released: list = []
            reason = "no_pool_for_lang_pair" if unserved else "queue_full"
            self.finish(job, "failed", reason, released)
            return ("SETTLED", released)
        self.wait(job, parked=False)
        return ("QUEUED", *placed[:2])

    def job_commit(
        self, job: str, attempt: int, cell: str, slot: Reserved, asked: tuple[str, ...] | None
    ) -> tuple:
        """`asked`: the turn's nodes that could not take it; None: they do not matter."""
        name = slot.node
        tracked = self.jobs.get(job)
        if tracked is None:
            return ("NO_JOB",)
        machine = tracked.job
        if machine.ended:
            return ("JOB_ENDED",)
        if (machine.attempt, machine.node, machine.cell) == (attempt, name, cell):
            return ("PLACED", (job, attempt, name, False))
        if machine.node or machine.attempt + 1 != attempt:
            return ("STALE_ATTEMPT",)
        for named in self.turn_nodes(tracked.spec) if asked is not None else ():
            if named == f"{cell}/{name}":
                break
            if named not in asked:
                return ("PARKED", "NO_AVAILABLE_NODE", "affinity_elsewhere", named)
        self.pending.pop(job, None)
        moved = self.assign(job, attempt, cell, name, slot.boot, slot.acks)
        return ("PLACED", (job, attempt, name, moved))

    def job_cancel(self, job: str) -> tuple:
        tracked = self.jobs.get(job)
        if tracked is None:
            return ("NO_JOB",)
        if tracked.job.ended:
            return ("JOB_ENDED",)
        released: list = []
        freed: list = []
        local = self.unhold(job, freed)
        self.finish(job, "cancelled", "unwanted", released)
        return ("SETTLED", released, freed, self.serve_waiting(local) if local else [])

    def lane_fill(
        self, session_id: str, lane_name: str, index: int, unwanted_from: int, fence: int, answer,
        others: JobSpec | None = None,
    ) -> tuple:  # fmt: skip
        session = self.sessions.get(session_id)
        timer = f"g|{session_id}|{lane_name}"
        if session is None:
            self.due.pop(timer, None)
            return ("NO_SESSION",)
        if fence and fence != session.fence:
            return ("FENCED",)
        lane = session.lanes.get(lane_name, Lane())
        if index < 0:
            lane.fill_holes(self.now, self.policy.gap_ms)
            self.due.pop(timer, None)
            if lane.holes():
                first = min(lane.waits_since(hole) for hole in lane.holes())
                self.due[timer] = first + self.policy.gap_ms
        else:
            refused = lane.refuses(index, unwanted_from, FILL_AHEAD_MAX)
            if refused:
                return ("INDEX_AHEAD" if refused == "IN_FLIGHT_LIMIT" else refused,)
            lane.admit(index, answer.job, self.now, unwanted_from)
            lane.entries[index].outcome = (answer.kind, answer.reason)
            session.lanes[lane_name] = lane
            session.refused.pop((lane_name, index), None)
            if others is not None and others.audience:
                session.refused[lane_name, index] = others.audience
            spec = JobSpec(
                session=session_id,
                index=index,
                lane=lane_name,
                demand="",
                unwanted_from=unwanted_from,
                ms=answer.ms,
                lanes=answer.lanes,
            )
            self.arm_gap(spec)
            if answer.stream:
                session.go_on_from(**msgspec.msgpack.decode(answer.stream))
            if not session.closed:
                session.say(spec)
                session.account(spec, answer.kind)
        released: list = []
        if lane_name in session.lanes:
            self.push(session_id, lane_name, released)
        if others is not None and others.readers:
            self.readers_put(others)
            self.readers_end(others, "-", "missing", "refused", released)
        return ("SETTLED", released)

    # The scripts about sessions

    def look_at_clock(self, wall_ms: int) -> int:
        self.wall, self.now = wall_ms, self.clock.look(wall_ms)
        return self.now

    def session_open(self, name: str, owner: str, tenant: str, lease_ms: int, opening) -> tuple:
        fence, restart, fields, ended = opening
        known = self.sessions.get(name)
        if known is not None and known.tenant != tenant:
            return ("FENCED", "tenant")
        if known is not None and fence and known.fence > fence:
            return ("FENCED", known.owner)
        if known is not None and not known.closed:
            if known.owner != owner and fence <= known.fence:
                return ("FENCED", known.owner)
            known.owner, known.fence = owner, max(fence, known.fence)
            if restart:
                known.start_over(max(self.now, self.wall))
            reply, session = "RESUMED", known
        else:
            epoch, before = max(self.now, self.wall), 0
            if known is not None:
                epoch, before = max(epoch, known.epoch + 1), known.fence
            goes_on = known is not None and fence and known.owner == owner
            fresh = before if goes_on else before + 1
            reply, session = "OPENED", Session(epoch, owner, tenant, max(fence, fresh), epoch)
            self.sessions[name] = session
        session.note(dict(zip(fields[::2], fields[1::2], strict=True)))
        told = [int(part) for part in ended.split()]
        session.ended = [max(pair) for pair in zip(session.ended, told or [0] * 4, strict=True)]
        self.due[f"s|{name}"] = self.now + lease_ms
        return (reply, str(session.epoch), session.fence)

    def session_resume(self, name: str, owner: str, tenant: str, lease_ms: int, claim) -> tuple:
        token, epoch, after = claim
        session = self.sessions.get(name)
        if session is None:
            return ("NO_SESSION",)
        if session.tenant != tenant or not session.token or session.token != token:
            return ("FENCED",)
        if session.closed:
            return ("SESSION_CLOSED",)
        if epoch == str(session.epoch):
            confirmed_in, _, upto = session.confirmed.partition(" ")
            if confirmed_in == epoch:
                after = max(after, int(upto))
            if after < session.trimmed:
                return ("TRIMMED",)
            if after > session.seq:
                session.start_over(max(self.now, self.wall))
        previous, session.owner = session.owner, owner
        session.fence += 1
        self.due[f"s|{name}"] = self.now + lease_ms
        return (
            "RESUMED", str(session.epoch), session.fence, previous, session.about.encode(),
            session.heard, session.heard_ms, session.top, session.seq,
            tuple((n, max([lane.next_index - 1, *lane.entries]) + 1)
                  for n, lane in session.lanes.items()),
            (*(index for n, lane in session.lanes.items() if n != AS_SPOKEN
               for index in sorted(lane.entries)),
             *(int(item.head.split(" ")[0]) for item in self.relays.get(name, ())
               if item.head.split(" ")[1] != AS_SPOKEN)),
            tuple(sorted(turn for turn in session.turns if "/" not in turn)),
            self.speech_of(session),
            tuple(self.unsettled(session)),
        )  # fmt: skip

    def speech_of(self, session: Session) -> tuple:
        passed = tuple(int(part) for part in session.passed.split())
        return (*session.ended, *passed, session.speech, session.heard_ms, -1)

    def unsettled(self, session: Session):
        """Utterances that live in all or some of their languages."""
        found = {
            index: (index, ms, lanes, best + 1, tuple(names))
            for index, (ms, lanes, best, names) in session.partly.items()
        }
        for lane in session.lanes.values():
            for index, entry in lane.entries.items():
                if entry.outcome is None and index not in found and entry.job[0] != "~":
                    spec = self.jobs[entry.job].spec
                    if spec.ms:
                        found[index] = (index, spec.ms, spec.lanes, 4, ())
        return (found[index] for index in sorted(found))

    def session_note(
        self, name: str, fence: int, fields: dict[str, str | int], heard_after: int
    ) -> str:
        session = self.sessions.get(name)
        if session is None:
            return "NO_SESSION"
        if fence != session.fence:
            return "FENCED"
        if heard_after > session.heard:
            return "TOO_EARLY"
        session.note(fields)
        return "OK"

    def session_renew(self, name: str, owner: str, lease_ms: int) -> bool:
        known = self.sessions.get(name)
        if known is None or known.closed or known.owner != owner:
            return False
        self.due[f"s|{name}"] = self.now + lease_ms
        return True

    def session_close(self, name: str, *, lapse_only: bool, fence: int = 0) -> tuple:
        session = self.sessions.get(name)
        if session is None or session.closed:
            self.due.pop(f"s|{name}", None)
            return ("NO_SESSION",)
        if fence and fence != session.fence:
            return ("FENCED",)
        if lapse_only and self.due.get(f"s|{name}", 0) > self.now + self.policy.claim_ms:
            return ("NOT_DUE",)
        live = sorted(
            (index, entry.job)
            for lane_name, lane in session.lanes.items()
            for index, entry in lane.entries.items()
            if entry.outcome is None and lane_name != AS_SPOKEN
        )
        if lapse_only and any(self.jobs[job].spec.audience for _, job in live):
            self.due[f"s|{name}"] = self.now + self.policy.claim_ms
            return ("NOT_DUE",)
        released: list = []
        for lane_name, lane in session.lanes.items():
            lane.fill_all(self.now, "closed")
            self.push(name, lane_name, released)
        freed: list = []
        nodes: list[str] = []
        for _, job in live:
            local = self.unhold(job, freed)
            if local and local not in nodes:
                nodes.append(local)
            self.finish(job, "cancelled", "closed", released)
        session.turns.clear()
        session.end_account()
        session.closed = True
        self.due.pop(f"s|{name}", None)
        for lane in session.lanes:
            self.due.pop(f"g|{name}|{lane}", None)
        placed = [row for node in nodes for row in self.serve_waiting(node)]
        return ("SETTLED", released, freed, placed, [job for _, job in live])

    def turn_end(self, name: str, turn: str, fence: int = 0) -> tuple:
        session = self.sessions.get(name)
        if session is None:
            return ("NO_SESSION",)
        if fence and fence != session.fence:
            return ("FENCED",)
        released: list = []
        freed: list = []
        for lane_name, lane in session.lanes.items():
            last = max(lane.entries, default=0)
            self.end_slices(name, lane_name, turn, "", last, released, freed)
            session.turns.pop(f"{turn}/{lane_name}", None)
        session.turns.pop(turn, None)
        return ("SETTLED", released, freed)

    def outbox_ack(
        self, name: str, epoch: str, seq: int, fence: int = 0, *, is_confirmed: bool = False
    ) -> str:
        session = self.sessions.get(name)
        if session is None:
            return "NO_SESSION"
        if fence and fence != session.fence:
            return "FENCED"
        if epoch != str(session.epoch):
            return "EPOCH_CHANGED"
        if seq > session.seq:
            return "TRIMMED"
        for place in range(session.trimmed + 1, seq + 1):
            self.forget(name, place)
        session.trimmed = max(session.trimmed, seq)
        if is_confirmed and seq == session.trimmed:
            session.confirmed = f"{epoch} {seq}"
        return "OK"

    def outbox_read(self, name: str, epoch: str, after: int) -> tuple:
        session = self.sessions.get(name)
        if session is None:
            return ("NO_SESSION",)
        if epoch and epoch != str(session.epoch):
            return ("EPOCH_CHANGED",)
        if not session.trimmed <= after <= session.seq:
            return ("TRIMMED",)
        return ("OK", session.seq, [(i + 1, *session.outbox[i]) for i in range(after, session.seq)])

    # The scripts about leases for other cells

    def lease_reserve(
        self, member: str, demand: str, only: str, tried: list[tuple[str, str]], avoid: str = ""
    ) -> tuple:
        held = self.reserved.get(member)
        if held is not None and only and held != only:
            self.free(held, member, job_tie(member))
            del self.reserved[member]
            self.due.pop(f"l|{held}|{member}", None)
        elif (
            held is not None
            and held in self.nodes
            and self.nodes[held].leases.get(member, 0) > self.now
        ):
            return ("RESERVED", held)
        tie = job_tie(member)
        expires_at = self.now + self.policy.reserve_ms
        wish = PlacementRequest(
            Demand.parse(demand), tried=frozenset(self.processes(tried)), tie=tie
        )
        if only:
            taken = only if may_take(self.fleet(current=True), wish, only) else ""
            if not taken:
                groups = rank_pools(self.fleet().pools.values(), wish.demand)
                verdict = refusal(self.fleet(), groups, self.fleet().members(), wish.demand)
                return (verdict.code, verdict.label)
        else:
            verdict = choose(self.fleet(), replace(wish, avoid=avoid))
            taken = verdict.node
            if not taken or taken == avoid:
                groups = rank_pools(self.fleet().pools.values(), wish.demand)
                verdict = refusal(self.fleet(), groups, self.fleet().members(), wish.demand)
                return (verdict.code, verdict.label)
        assert self.take(taken, member, expires_at, tie)
        self.reserved[member] = taken
        self.due[f"l|{taken}|{member}"] = expires_at
        return ("RESERVED", taken)

    def lease_confirm(self, name: str, member: str, hold_ms: int) -> str:
        node, expires_at = self.nodes.get(name), self.now + hold_ms
        timer = f"l|{name}|{member}"
        held = node.leases.get(member) if node is not None else None
        if held is not None and held > self.now:
            node.leases[member] = expires_at
        elif held is None or not self.take(name, member, expires_at, job_tie(member)):
            if node is not None:
                node.leases.pop(member, None)
            self.reserved.pop(member, None)
            self.due.pop(timer, None)
            return "LEASE_LAPSED"
        self.reserved[member] = name
        self.due[timer] = expires_at
        return "OK"

    def lease_release(self, name: str, member: str, *, lapsed_only: bool) -> tuple:
        node = self.nodes.get(name)
        expires_at = node.leases.get(member, 0) if node is not None else 0
        if lapsed_only and expires_at > self.now:
            self.due[f"l|{name}|{member}"] = expires_at
            return ("NOT_DUE",)
        self.reserved.pop(member, None)
        self.due.pop(f"l|{name}|{member}", None)
        if not self.free(name, member, job_tie(member)):
            return ("ALREADY",)
        return ("OK", self.serve_waiting(name))

    # The scripts about nodes

    def enter_pool(self, name: str) -> None:
        node = self.nodes[name]
        marks = {service for service, until in node.marks.items() if until > self.now}

        def works(service: str, implementations: tuple[str, ...]) -> bool:
            if service in marks:
                return False
            return not implementations or any(impl not in marks for impl in implementations)

        services = sorted(s for s, impls in node.can.services.items() if works(s, impls))
        node.services = frozenset(services)
        node.pool = pool_name(node.can, services)

    def settled(self, name: str) -> list:
        self.rescore(name, 0.0)
        self.rank_streams(name, 0.0)
        return [] if self.blocked(name) else self.serve_waiting(name)

    def node_register(self, name: str, fresh: Node, *, draining: bool, again: bool) -> tuple:
        known = self.nodes.get(name)
        if again and known is not None and known.conn != fresh.conn:
            return ("FENCED",)
        same = known is not None and known.boot == fresh.boot
        status = "registering"
        if known is not None:
            if same and known.health.status != "offline":
                status = known.health.status
            fresh.orphans = known.orphans if same else by_expiry(known.leases)
            fresh.leases, fresh.marks = known.leases, known.marks
            fresh.na_from, fresh.na_count = known.na_from, known.na_count
            fresh.hold = known.hold
            if known.conn == fresh.conn and fresh.streams_max:
                fresh.streams = known.streams
        fresh.drain = draining or fresh.hold or (same and known is not None and known.drain)
        fresh.health = Health(status, registered_at_ms=self.now, beat_at_ms=self.now)
        self.nodes[name] = fresh
        self.enter_pool(name)
        self.due[f"n|{name}"] = self.now + (
            self.policy.claim_ms if fresh.orphans else fresh.silence_ms
        )
        mine = [lease for lease in by_expiry(fresh.leases) if lease not in fresh.orphans]
        placed = self.settled(name)
        reply = "RESUMED" if same else "REGISTERED"
        return (reply, status, list(fresh.orphans), placed, mine if same else [])

    def node_beat(self, name: str, boot: str, beat: dict) -> tuple:
        node = self.nodes.get(name)
        if node is None:
            return ("NO_NODE",)
        if node.boot != boot:
            return ("FENCED",)
        node.health = after_beat(node.health, good=beat["good"], now_ms=self.now, rules=self.policy)
        node.over = beat["over"]
        node.acks = node.acks or beat["acks"]
        lost, unknown = self.compare_running(node, beat)
        if beat["can"] is not None:
            node.can = beat["can"]
        self.enter_pool(name)
        if not node.orphans:
            self.due[f"n|{name}"] = self.now + node.silence_ms
        return ("OK", node.health.status, lost, unknown, self.settled(name))

    def compare_running(self, node: Node, beat: dict) -> tuple[list[str], list[str]]:
        live = [lease for lease in by_expiry(node.leases) if node.leases[lease] > self.now]
        if beat["jobs"] is None:
            node.missing = set()
            node.extra = max(0, beat["running"] - len(live))
            return [], []
        plain = {"|".join(lease.split("|")[:2]): lease for lease in live}
        missing = [lease for job, lease in plain.items() if job not in beat["jobs"]]
        lost = [lease for lease in missing if lease in node.missing]
        unknown = [job for job in beat["jobs"] if job not in plain]
        node.missing, node.extra = set(missing), len(unknown)
        return lost, unknown

    def node_drain(self, name: str, *, drain: bool, operator: bool) -> tuple:
        node = self.nodes.get(name)
        if node is None:
            return ("NO_NODE",)
        node.hold = drain if operator else node.hold
        node.drain = drain or node.hold
        placed = self.settled(name)
        return ("OK", self.nodes[name].leased(self.now), placed)

    def node_offline(self, name: str, conn: str, instance: str, keep_ms: int) -> tuple:
        node = self.nodes.get(name)
        if node is None:
            return ("NO_NODE",)
        is_its = node.conn == conn
        if not conn:
            is_its = node.instance == instance and node.health.status != "offline"
        if not is_its:
            return ("FENCED",)
        node.health, node.extra = after_silence(node.health), 0
        self.drop_streams(name)
        if keep_ms:
            self.due[f"n|{name}"] = self.now + keep_ms
            return ("OK", [])
        self.due[f"n|{name}"] = self.now + self.policy.claim_ms
        return ("OK", by_expiry(node.leases))

    def node_check(self, name: str) -> tuple:
        node = self.nodes.get(name)
        if node is None:
            self.due.pop(f"n|{name}", None)
            return ("NO_NODE",)
        silent_at = node.health.beat_at_ms + node.silence_ms
        if node.health.status != "offline" and silent_at <= self.now:
            node.health, node.extra = after_silence(node.health), 0
            self.drop_streams(name)
        offline = node.health.status == "offline"
        move = [lease for lease in by_expiry(node.leases) if offline or lease in node.orphans]
        if not offline and not move:
            node.orphans = []
        if move:
            self.due[f"n|{name}"] = self.now + self.policy.claim_ms
        elif not offline:
            self.due[f"n|{name}"] = silent_at
        elif node.hold:
            self.due[f"n|{name}"] = self.now + self.policy.stale_ms
        elif node.health.beat_at_ms + self.policy.stale_ms <= self.now:
            del self.nodes[name]
            self.due.pop(f"n|{name}", None)
            self.due.pop(f"m|{name}", None)
            return ("GONE",)
        else:
            self.due[f"n|{name}"] = node.health.beat_at_ms + self.policy.stale_ms
        return ("OK", node.health.status, move)

    def node_mark(self, name: str, service: str) -> tuple:
        node = self.nodes.get(name)
        if node is None:
            self.due.pop(f"m|{name}", None)
            return ("NO_NODE",)
        if service:
            if self.now - node.na_from >= self.policy.rate_window_ms:
                node.na_from, node.na_count = self.now, 0
            if node.na_count >= self.policy.rate_max:
                return ("RATE_LIMITED",)
            node.na_count += 1
            marked_at = node.marks.get(service, 0) - self.policy.unavailable_ms
            if self.now - marked_at < self.policy.debounce_ms:
                return ("DEBOUNCED",)
            node.marks[service] = self.now + self.policy.unavailable_ms
        else:
            node.marks = {s: until for s, until in node.marks.items() if until > self.now}
        self.due.pop(f"m|{name}", None)
        if node.marks:
            self.due[f"m|{name}"] = min(node.marks.values())
        self.enter_pool(name)
        placed = self.settled(name)
        return ("OK" if service else "RESTORED", node.pool, placed)

    # The scripts about timers

    def cell_due(self) -> list[str]:
        rung = sorted((at, timer) for timer, at in self.due.items() if at <= self.now)
        for _, timer in rung:
            self.due[timer] = self.now + self.policy.claim_ms
        return [timer for _, timer in rung]


def by_expiry(leases: dict[str, int]) -> list[str]:
    return [lease for _, lease in sorted((at, lease) for lease, at in leases.items())]
