"""The real scripts on a real server against the pure twin, step by step.

Every rule makes one call of the store and the same call of the twin and compares the answers;
after every step the whole state of every cell is read back and compared, key by key, and the
invariants of `check_invariants` are asserted on the server's data. At the end of each run time
passes and the product's own sweeper works until nothing is open: every admitted utterance must have
its one outcome.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import servers
from clocks import LOOK_EVERY_MS, Lived
from lingua_scheduler.jobs.dispatcher import Dispatcher
from lingua_scheduler.jobs.fleet import FleetSnapshot
from lingua_scheduler.jobs.relay import OutcomeRelay
from lingua_scheduler.jobs.sweeper import Sweeper
from lingua_scheduler.nodes.capability import Capability
from lingua_scheduler.state.cluster import ClusterConnection
from lingua_scheduler.state.keys import Cells
from lingua_scheduler.state.link import LinkOptions
from lingua_scheduler.state.records import (
    REFUSED,
    JobSpec,
    LaneFill,
    Lease,
    NodeAbout,
    NodeBeat,
    Reserved,
    SessionOpening,
    UndeliveredOutcome,
    job_id_of,
)
from lingua_scheduler.state.reply import Reply
from lingua_scheduler.state.single import SingleConnection
from lingua_scheduler.state.store import Store
from lingua_scheduler.state.stream_scripts import OpenedStream
from model.answers import moved_row, rows, settled, submitted
from model.audiences import Audiences
from model.clock import KEEP_MS
from model.hearing import Hearing
from model.invariants import Watch, check_invariants, check_quiet
from model.node_health import Health
from model.owners import PREFIX, Grant, Owners, chance, pick, seldom, token_of
from model.samples import ABILITIES, DEMANDS, INSTANCES, LANES, NODES, POLICIES, SESSIONS
from model.state import check_demand_cache, read_keys, real_state, twin_state
from model.twin import CellTwin, Node

pytestmark = pytest.mark.model

STEPS_PER_RUN = 50
SILENCE_MS = 20_000
START_MS = 1_700_000_000_000
# Answers to a submit after which the store has the job.
TAKEN = ("PLACED", "QUEUED", "PARKED")


async def at_once(world: World, calls) -> list:
    """The answers to calls of one turn of the loop, which go together for each cell."""
    # The first call of a turn may leave alone.
    first = [world.connection.command(cell.slot, "PING") for cell in world.cells.all]
    answers = await asyncio.gather(*calls)
    await asyncio.gather(*first)
    return answers


def settled_or_refused(answer) -> tuple:
    """An answer to a settle, as the twin gives it."""
    if answer.reply is Reply.SETTLED:
        return settled(answer.reply, answer.effects)
    if answer.reply is Reply.ALREADY:
        return (answer.reply.name, answer.outcome, answer.seq)
    return (answer.reply.name,)


class World:
    """What the runs share: the loop, the connection and the tally of what happened."""

    def __init__(self, connection, loop, cells: int) -> None:
        self.connection = Lived(connection)
        self.loop = loop
        self.cells = Cells(PREFIX, cells)
        self.replies: Counter[str] = Counter()
        self.steps = 0

    def run(self, call):
        return self.loop.run_until_complete(call)


class Machine(Owners, Audiences, Hearing, RuleBasedStateMachine):
    """Random life of a deployment."""

    world: World

    @initialize(
        policy=st.sampled_from(POLICIES),
        abilities=st.lists(pick, min_size=2, max_size=4),
        slots=st.integers(1, 3),
        acks=chance,
    )
    def begin(self, policy, abilities, slots, acks) -> None:
        world = self.world
        world.run(world.connection.every_master("FLUSHALL"))
        self.policy = policy
        self.store = Store(world.connection, policy)
        self.twins = {cell.name: CellTwin(cell.name, policy) for cell in world.cells.all}
        self.now = START_MS
        world.connection.step(START_MS)
        world.run(self.open_rooms())
        self.requests: list[tuple[str, str, JobSpec]] = []
        self.reservations: list[tuple[str, str, str, int, Reserved]] = []
        # What was read for listeners of other cells, and what was brought there.
        self.ahead: list[UndeliveredOutcome] = []
        self.reached: set[str] = set()
        self.boots: Counter[str] = Counter()
        self.conns: dict[str, str] = {}
        self.watch = Watch()
        # The streams that were opened, the latest last.
        self.spoken: list[OpenedStream] = []
        self.streams_begun = 0
        # The calls that are made together, while they are collected.
        self.gathered: list[tuple] | None = None
        self.grants: dict[str, list[Grant]] = {name: [] for name in SESSIONS}
        self.tick(0)
        for name in SESSIONS:
            self.open_as(name, "i1", "", SessionOpening(fields=("token", token_of(name))))
        for which, ability in enumerate(abilities):
            instance = INSTANCES[which % len(INSTANCES)]
            self.register(which, ability, slots, acks, fresh=True, drain=False, instance=instance)
            for _ in range(policy.good_beats):
                self.beat(which, good=True, over=False, listing="all", ability=None, stale=False)

    # Means

    def after(self, session: str, lane: str) -> int:
        """The first index of a lane that nothing has had."""
        order = self.home(session)[1].sessions[session].lanes.get(lane)
        return max([*order.entries, order.next_index - 1]) + 1 if order is not None else 0

    def tick(self, ms: int) -> None:
        self.world.run(self.let_pass(ms))

    async def let_pass(self, ms: int) -> None:
        """Time passes, and every cell is looked at all the while."""
        for at in range(self.now + LOOK_EVERY_MS, self.now + ms, LOOK_EVERY_MS):
            for twin in self.twins.values():
                twin.look_at_clock(at)
        await self.set_clock(self.now + ms)

    async def set_clock(self, now: int) -> None:
        """The server's time is this now; each cell finds out what that means for its own."""
        self.now = self.store.runner.now_ms = now
        for cell in self.world.cells.all:
            real = await self.store.cells.time(cell)
            assert real == self.twins[cell.name].look_at_clock(now)

    def home(self, session: str):
        cell = self.world.cells.home_of(session)
        return cell, self.twins[cell.name]

    def cell_of(self, node: str):
        cell = self.world.cells.of_node(node)
        return cell, self.twins[cell.name]

    def same(self, real: tuple, twin: tuple) -> None:
        self.world.replies[str(real[0])] += 1
        assert real == twin

    def jobs(self) -> list[tuple[str, str]]:
        return [(session, job) for session, job, _ in self.requests]

    def some_job(self, which: int):
        session, job, _ = self.requests[which % len(self.requests)]
        cell, twin = self.home(session)
        return cell, twin, job

    # Time

    @rule(
        ms=st.sampled_from((1, 1, 10, 10, 300, 300, 1000, 2000, 2500, 5000, 10_000, 31_000, 61_000))
    )
    def time_passes(self, ms) -> None:
        self.tick(ms)

    @rule(ms=st.sampled_from((200_000, -60_000, 3500, -251, -200, 86_400_000, -86_400_000)))
    def the_clock_of_the_server_is_set(self, ms) -> None:
        """A moment of the cells' own time, forward or back, whatever the step."""
        before = {name: twin.now for name, twin in self.twins.items()}
        self.world.connection.step(self.now + ms)
        self.world.run(self.set_clock(self.now + ms))
        for name, twin in self.twins.items():
            assert abs(twin.now - before[name]) <= 2 * KEEP_MS

    @rule()
    def a_while_passes_in_good_health(self) -> None:
        """Longer than an attempt may take, with every node and session alive all the while."""
        for _ in range(7):
            self.tick(5000)
            for twin in self.twins.values():
                for name in sorted(twin.nodes):
                    self.beat_of(name, twin.nodes[name].boot, NodeBeat(running=0))
            for which, name in enumerate(SESSIONS):
                self.renew_session(which, self.home(name)[1].sessions[name].owner, noted=False)
        self.timers_ring()

    @rule()
    def timers_ring(self) -> None:
        for cell in self.world.cells.all:
            twin = self.twins[cell.name]
            real = self.world.run(self.store.cells.due(cell))
            assert list(real) == twin.cell_due()
            for timer in real:
                self.act(cell, twin, timer)

    def act(self, cell, twin, timer: str) -> None:
        kind, *parts = timer.split("|")
        if kind == "j":
            self.fail_over(cell, twin, parts[0], -1, "", "deadline", 0)
        elif kind == "g":
            self.fill(cell, twin, parts[0], parts[1], -1, -1)
        elif kind == "s":
            self.close(cell, twin, parts[0], lapse_only=True)
        elif kind == "n":
            self.check_node(cell, twin, parts[0])
        elif kind == "m":
            self.mark(cell, twin, parts[0], "")
        elif kind == "x":
            self.relay_all(parts[0])
        elif kind == "l":
            self.release(
                cell, twin, parts[0], Lease.read("|".join(parts[1:]).encode()), lapsed=True
            )
        else:
            self.give_back(cell, twin, *parts)

    # Nodes

    @rule(
        which=pick, ability=pick, slots=st.integers(1, 3), acks=chance, fresh=chance, drain=seldom,
        instance=st.sampled_from(INSTANCES), again=st.sampled_from(("", "", "", "same", "older")),
        streams=st.sampled_from((0, 1, 2, 3)),
    )  # fmt: skip
    def register(
        self, which, ability, slots, acks, fresh, drain, instance="i1", again="", streams=2
    ) -> None:
        """A node appears on a new socket, or `again` on one it had before."""
        name = NODES[which % len(NODES)]
        cell, twin = self.cell_of(name)
        self.boots[name] += 1 if (fresh and not again) or not self.boots[name] else 0
        conn = f"conn{self.now}.{len(self.conns)}.{sum(self.boots.values())}"
        if again == "same" and name in twin.nodes:
            # A lower number ends nothing that is being heard.
            streams = max(streams, twin.nodes[name].streams_max)
        if again:
            conn = self.conns.get(name, conn) if again == "same" else "an older one"
        boot, can = f"b{self.boots[name]}", ABILITIES[ability % len(ABILITIES)]
        about = NodeAbout(
            instance=instance, max=slots, silence_ms=SILENCE_MS, acks=acks, draining=drain,
            again=bool(again), streams=streams,
        )  # fmt: skip
        answer = self.world.run(
            self.store.nodes.register(cell, name, boot, conn=conn, can=can.packed(), about=about)
        )
        node = Node(boot, conn, instance, can, slots, SILENCE_MS, acks, Health())
        node.streams_max = streams
        expected = twin.node_register(name, node, draining=drain, again=bool(again))
        if answer.reply is Reply.FENCED:
            return self.same((answer.reply.name,), expected)
        self.conns[name] = conn
        lost, held = ([lease.member for lease in kept] for kept in (answer.lost, answer.held))
        assert answer.pool == twin.nodes[name].pool
        real = (answer.reply.name, answer.status, lost, rows(answer.placed), held)
        return self.same(real, expected)

    @rule(
        which=pick,
        good=st.sampled_from((True, True, True, False)),
        over=seldom,
        listing=st.sampled_from(("count", "all", "none", "strange")),
        ability=st.none() | pick,
        stale=seldom,
    )
    def beat(self, which, good, over, listing, ability, stale) -> None:
        known = [n for twin in self.twins.values() for n in twin.nodes] or NODES
        name = NODES[0] if stale else sorted(known)[which % len(known)]
        node = self.cell_of(name)[1].nodes.get(name)
        held = ["|".join(lease.split("|")[:2]) for lease in node.leases] if node else []
        jobs = {"all": held, "none": [], "strange": ["job-abcdef|1"]}.get(listing)
        boot = "b0" if stale or node is None else node.boot
        can = ABILITIES[ability % len(ABILITIES)] if ability is not None else None
        running = len(held) + (1 if over else 0)
        self.beat_of(name, boot, NodeBeat(good=good, over=over, running=running, jobs=jobs), can)

    def beat_of(self, name: str, boot: str, beat: NodeBeat, can: Capability | None = None) -> None:
        cell, twin = self.cell_of(name)
        answer = self.world.run(
            self.store.nodes.beat(cell, name, boot, beat, can.packed() if can else b"")
        )
        expected = twin.node_beat(name, boot, msgspec.structs.asdict(beat) | {"can": can})
        if answer.reply is not Reply.OK:
            return self.same((answer.reply.name,), expected)
        lost = [lease.member for lease in answer.lost]
        real = (answer.reply.name, answer.status, lost, list(answer.unknown), rows(answer.placed))
        return self.same(real, expected)

    @rule(which=pick, ability=pick, slots=st.integers(1, 3))
    def restart(self, which, ability, slots) -> None:
        """A node crashes and comes back as a new process."""
        self.lose_socket(which, stale=False, moved=True)
        self.register(which, ability, slots, acks=False, fresh=True, drain=False)
        name = NODES[which % len(NODES)]
        for _ in range(self.policy.good_beats):
            self.beat_of(name, self.cell_of(name)[1].nodes[name].boot, NodeBeat())

    @rule(which=pick, drain=chance, operator=chance)
    def drain(self, which, drain, operator) -> None:
        name = NODES[which % len(NODES)]
        cell, twin = self.cell_of(name)
        answer, left = self.world.run(
            self.store.nodes.drain(cell, name, drain=drain, operator=operator)
        )
        expected = twin.node_drain(name, drain=drain, operator=operator)
        if answer.reply is not Reply.OK:
            return self.same((answer.reply.name,), expected)
        return self.same((answer.reply.name, left, rows(answer.placed)), expected)

    @rule(which=pick, stale=seldom, moved=chance, keep_ms=st.sampled_from((0, 0, 0, 3000)))
    def lose_socket(self, which, stale, moved, keep_ms=0) -> None:
        name = NODES[which % len(NODES)]
        conn = "another one" if stale else self.conns.get(name, "none yet")
        self.offline(name, conn, "", moved=moved, keep_ms=keep_ms)

    @rule(instance=st.sampled_from(INSTANCES), moved=chance)
    def an_instance_dies(self, instance, moved) -> None:
        """Another says of every node it knows that its instance is gone."""
        for name in NODES:
            self.offline(name, "", instance, moved=moved, keep_ms=0)

    def offline(self, name: str, conn: str, instance: str, *, moved: bool, keep_ms: int) -> None:
        cell, twin = self.cell_of(name)
        answer = self.world.run(
            self.store.nodes.offline(cell, name, conn, instance=instance, keep_ms=keep_ms)
        )
        expected = twin.node_offline(name, conn, instance, keep_ms)
        if answer.reply is not Reply.OK:
            return self.same((answer.reply.name,), expected)
        self.same((answer.reply.name, [lease.member for lease in answer.lost]), expected)
        return self.move_all(name, answer.lost) if moved else None

    def move_all(self, node: str, leases) -> None:
        cell, _ = self.cell_of(node)
        for lease in leases:
            home = self.world.cells.named(lease.home) if lease.home else cell
            self.fail_over(
                home, self.twins[home.name], lease.job, lease.attempt, node, "node_lost", 0
            )

    def check_node(self, cell, twin, name: str) -> None:
        answer = self.world.run(self.store.nodes.check(cell, name))
        expected = twin.node_check(name)
        if answer.reply is not Reply.OK:
            return self.same((answer.reply.name,), expected)
        members = [lease.member for lease in answer.lost]
        self.same((answer.reply.name, answer.status, members), expected)
        return self.move_all(name, answer.lost)

    @rule(which=pick, service=st.sampled_from(("asr", "nmt", "nmt-a", "nmt-b", "tts")))
    def model_missing(self, which, service) -> None:
        name = NODES[which % len(NODES)]
        self.mark(*self.cell_of(name), name, service)

    def mark(self, cell, twin, name: str, service: str) -> None:
        answer = self.world.run(self.store.nodes.mark(cell, name, service))
        expected = twin.node_mark(name, service)
        if len(expected) == 1:
            return self.same((answer.reply.name,), expected)
        return self.same((answer.reply.name, answer.pool, rows(answer.placed)), expected)

    # Jobs

    @rule(
        which=pick,
        lane=st.sampled_from(LANES),
        demand=pick,
        step=st.sampled_from((0, 0, 0, 0, 0, 1, 2, -1, 9, 300)),
        unwanted=seldom,
        turn=st.sampled_from(("", "", "t1", "t2")),
        part=st.sampled_from(("whole", "slice", "closing")),
        preferred=st.none() | pick,
        park=st.sampled_from((0, 0, 1, 2)),
        audio=chance,
        mine=chance,
        early=seldom,
    )
    def submit(
        self, which, lane, demand, step, unwanted, turn, part, preferred, park, audio, mine=True,
        early=False, stream=None,
    ) -> None:  # fmt: skip
        name = SESSIONS[which % len(SESSIONS)]
        cell, twin = self.home(name)
        after = self.after(name, lane)
        index = max(0, after + step)
        spec = JobSpec(
            session=name,
            index=index,
            lane=lane,
            demand=DEMANDS[demand % len(DEMANDS)].text,
            turn=turn,
            is_slice=bool(turn) and part == "slice",
            closes_turn=bool(turn) and part == "closing",
            preferred=NODES[preferred % len(NODES)] if preferred is not None else "",
            unwanted_from=after if unwanted and step > 0 else -1,
            # Together with the jobs of other languages, or alone.
            audio=audio and demand % 2 == 0,
            own_audio=audio and demand % 2 == 1,
            fence=self.fence_of(name, mine=mine),
            top=index + 1 if mine else 0,
            # Where a client does not number its chunks, nothing is known of them.
            heard=10 * index if mine and not audio else -1,
            heard_ms=index,
            heard_after=self.heard_of(name) + early if mine else -1,
            speech=index // 2,
            **said(index),
            sound="a sound" if demand % 4 == 0 else "",
            stream=stream.id if stream is not None else "",
            stream_node=stream.holder if stream is not None else "",
        )
        if len(self.world.cells.all) == 1:
            park = 0
        self.send(cell, twin, job_id_of(name, f"r{len(self.requests)}"), spec, park)

    @rule(which=pick, lane=st.sampled_from(LANES), demand=pick, turn=st.sampled_from(("", "t1")))
    def speak(self, which, lane, demand, turn) -> None:
        part = "slice" if demand % 3 else "closing"
        self.submit(
            which, lane, demand, 0, unwanted=False, turn=turn, part=part,
            preferred=None, park=which % 3, audio=which % 2 == 0,
        )  # fmt: skip

    @precondition(lambda self: self.held())
    @rule(
        which=pick,
        kind=st.sampled_from(("completed", "completed_no_text")),
        late=st.sampled_from((0, 0, 0, 0, -1)),
        thief=st.sampled_from((False, False, False, False, True)),
    )
    def answer(self, which, kind, late, thief) -> None:
        held = self.held()
        self.settle(held[which % len(held)], kind, late, other=thief, unknown=False)

    def held(self) -> list[int]:
        """Positions in `requests` of the jobs a node holds."""
        return [
            at
            for at, (session, job, _) in enumerate(self.requests)
            if (machine := self.home(session)[1].jobs[job].job).node and not machine.ended
        ]

    @precondition(lambda self: self.requests)
    @rule(which=pick)
    def submit_again(self, which) -> None:
        session, job, spec = self.requests[which % len(self.requests)]
        self.send(*self.home(session), job, spec, 0)

    def send(self, cell, twin, job: str, spec: JobSpec, park: int) -> None:
        audio = b"\0\1" if keeps_audio(spec) else b""
        call = self.store.jobs.submit(cell, job, spec, b"body", audio=audio, park=park)
        expected = twin.job_submit(job, spec, audio=keeps_audio(spec), park=park)
        if expected[0] in TAKEN:
            self.requests.append((spec.session, job, spec))
        self.meet(call, lambda answer: submitted(answer, len(expected)), expected)

    def meet(self, call, shown, expected: tuple) -> None:
        """Make a call and compare its answer; in `together` later, with the others."""
        if self.gathered is None:
            self.same(shown(self.world.run(call)), expected)
        else:
            self.gathered.append((call, shown, expected))

    @rule(
        calls=st.lists(
            st.tuples(pick, pick, st.sampled_from(LANES), chance), min_size=2, max_size=8
        )
    )
    def together(self, calls) -> None:
        """Submits and settles of one turn of an instance's loop, which the store gets in one call.

        What they do and answer must be as if each had come alone, in this order.
        """
        self.gathered = []
        for which, demand, lane, is_answer in calls:
            held = self.held() if is_answer else []
            if held:
                self.settle(held[which % len(held)], "completed", 0, other=False, unknown=False)
            else:
                self.submit(
                    which, lane, demand, 0, unwanted=False, turn="", part="whole",
                    preferred=None, park=0, audio=False,
                )  # fmt: skip
        made, self.gathered = self.gathered, None
        answers = self.world.run(at_once(self.world, [call for call, _, _ in made]))
        for (_, shown, expected), answer in zip(made, answers, strict=True):
            self.same(shown(answer), expected)
        self.world.replies["together"] += 1

    @precondition(lambda self: self.requests)
    @rule(
        which=pick, live=chance, off=seldom, other=seldom, boot=chance, newer=seldom, audio=chance
    )
    def fetch(self, which, live, off, other, boot, newer, audio) -> None:
        """The instance of its node reads a job."""
        held = [at for at in self.held() if live and keeps_audio(self.requests[at][2]) >= audio]
        cell, twin, job = self.some_job(held[which % len(held)] if held else which)
        machine = twin.jobs[job].job
        attempt, node = machine.attempt - off, "n9" if other else machine.node
        process = ("newer" if newer else machine.boot) if boot else ""
        answer = self.world.run(
            self.store.jobs.fetch(cell, job, attempt, node, process, audio=audio)
        )
        expected = twin.job_fetch(job, attempt, node, process, audio=audio)
        if answer.reply is not Reply.OK:
            return self.same((answer.reply.name,), expected)
        assert answer.body == b"body"
        has_audio = answer.audio == b"\0\1"
        real = (answer.reply.name, answer.spec, has_audio, answer.owner, answer.left_ms)
        if answer.audio:
            self.world.replies["fetch with audio"] += 1
        return self.same(real, expected)

    @precondition(lambda self: self.requests)
    @rule(
        which=pick,
        state=st.sampled_from(("DISPATCHED", "ACCEPTED", "RUNNING")),
        off=seldom,
        other=seldom,
    )
    def progress(self, which, state, off, other) -> None:
        cell, twin, job = self.some_job(which)
        machine = twin.jobs[job].job
        attempt, node = machine.attempt - off, "n9" if other else machine.node
        reply = self.world.run(self.store.jobs.mark(cell, job, attempt, node, state))
        self.same((reply.name,), (twin.job_mark(job, attempt, node, state),))

    @precondition(lambda self: self.requests)
    @rule(
        which=pick,
        kind=st.sampled_from(("completed", "completed", "completed_no_text", "failed")),
        off=st.sampled_from((0, 0, 0, 0, 1, -1)),
        other=seldom,
        unknown=seldom,
    )
    def settle(self, which, kind, off, other, unknown) -> None:
        cell, twin, job = self.some_job(which)
        machine = twin.jobs[job].job
        attempt, node = machine.attempt + off, "n9" if other else machine.node
        target = "job-00000000" if unknown else job
        call = self.store.jobs.settle(cell, target, attempt, node, kind=kind, payload=b"text")
        self.meet(call, settled_or_refused, twin.job_settle(target, attempt, node, kind))

    @precondition(lambda self: self.requests)
    @rule(
        which=pick, off=seldom, park=chance,
        reason=st.sampled_from(
            ("node_error", "deadline", "NODE_OVERLOADED", "NODE_UNAVAILABLE", "not_running")
        ),
    )  # fmt: skip
    def take_away(self, which, off, reason, park) -> None:
        cell, twin, job = self.some_job(which)
        machine = twin.jobs[job].job
        park = park and len(self.world.cells.all) > 1
        self.fail_over(cell, twin, job, machine.attempt - off, machine.node, reason, int(park))

    @precondition(lambda self: self.slices())
    @rule(which=pick)
    def a_node_sits_on_a_slice(self, which) -> None:
        """The time of a slice's attempt runs out in silence."""
        slices = self.slices()
        session, job, _ = self.requests[slices[which % len(slices)]]
        cell, twin = self.home(session)
        self.tick(max(0, twin.jobs[job].job.ends_at_ms - twin.now))
        self.fail_over(cell, twin, job, -1, "", "deadline", 0)

    def slices(self) -> list[int]:
        """Positions in `requests` of the slices a node holds."""
        return [at for at in self.held() if self.requests[at][2].is_slice]

    def fail_over(self, cell, twin, job, attempt, node, reason, park) -> None:
        moved = self.world.run(
            self.store.jobs.failover(cell, job, attempt, node=node, reason=reason, park=park)
        )
        expected = twin.job_failover(job, attempt, node, reason, park)
        self.same(moved_row(moved, expected), expected)
        if moved.reply is Reply.QUEUED or moved.reply is Reply.PARKED:
            # It may have been placed in this very step, on the slot that it left.
            began = sum(placement.job == job for placement in moved.effects.placed)
            assert moved.waiting.attempt == twin.jobs[job].job.attempt - began
            assert moved.waiting.demand == twin.jobs[job].spec.demand

    @precondition(lambda self: self.requests)
    @rule(which=pick, park=chance)
    def place_again(self, which, park) -> None:
        cell, twin, job = self.some_job(which)
        park = int(park and len(self.world.cells.all) > 1)
        answer = self.world.run(self.store.jobs.place(cell, job, park=park))
        expected = twin.job_place(job, park)
        if answer.reply is Reply.SETTLED:
            return self.same(settled(answer.reply, answer.effects)[:2], expected)
        return self.same(submitted(answer, len(expected)), expected)

    @precondition(lambda self: self.requests)
    @rule(which=pick)
    def cancel(self, which) -> None:
        cell, twin, job = self.some_job(which)
        answer, _ = self.world.run(self.store.jobs.cancel(cell, job, "unwanted"))
        expected = twin.job_cancel(job)
        if answer.reply is not Reply.SETTLED:
            return self.same((answer.reply.name,), expected)
        return self.same(settled(answer.reply, answer.effects), expected)

    @rule(
        which=pick,
        lane=st.sampled_from(LANES),
        step=st.sampled_from((0, 0, 1, -1, 300)),
        skip=seldom,
        mine=chance,
    )
    def fill_refused(self, which, lane, step, skip, mine) -> None:
        name = SESSIONS[which % len(SESSIONS)]
        cell, twin = self.home(name)
        after = self.after(name, lane)
        unwanted = after if skip and step > 0 else -1
        fence = self.fence_of(name, mine=mine)
        self.fill(cell, twin, name, lane, max(0, after + step), unwanted, fence)

    def fill(self, cell, twin, name, lane, index, unwanted, fence=0, others=None) -> None:
        # Refused, or what a job of another session has answered.
        put = LaneFill(**said(index)) if index >= 0 else REFUSED
        if fence and index >= 0:
            stream = {"top": index + 1, "heard": 10 * index, "heard_ms": index, "speech": 0}
            put = put._replace(stream=msgspec.msgpack.encode(stream))
        if index % 4 == 1 and others is None:
            put = LaneFill("completed", "=job-0123456789", 1, "-", b"heard", **said(index))
        if others is not None:
            put = put._replace(others=msgspec.msgpack.encode(others))
        answer = self.world.run(
            self.store.outbox.fill_lane(
                cell, name, lane, index=index, unwanted_from=unwanted, answer=put, fence=fence
            )
        )
        expected = twin.lane_fill(name, lane, index, unwanted, fence, put, others)
        if answer.reply is not Reply.SETTLED:
            return self.same((answer.reply.name,), expected)
        return self.same(settled(answer.reply, answer.effects)[:2], expected)

    # Placement over two cells, step by step: a crash is simply a step that never comes

    def waiting(self) -> list[tuple[str, str]]:
        return [
            (session, job)
            for session, job in self.jobs()
            if (twin := self.home(session)[1])
            and not (m := twin.jobs[job].job).node
            and not m.ended
        ]

    @precondition(lambda self: len(self.world.cells.all) > 1 and self.waiting())
    @rule(which=pick, where=pick, only=st.none() | pick, avoid=st.none() | pick)
    def reserve_elsewhere(self, which, where, only, avoid=None) -> None:
        waiting = self.waiting()
        session, job = waiting[which % len(waiting)]
        home, twin = self.home(session)
        ring = self.world.cells.ring_after(home)
        cell = ring[where % len(ring)]
        machine, spec = twin.jobs[job].job, twin.jobs[job].spec
        names = [name for name in NODES if self.world.cells.of_node(name) is cell]
        name = names[only % len(names)] if only is not None and names else ""
        lease = Lease(job, machine.attempt + 1, home.name)
        left_out = twin.jobs[job].left_out(self.now)
        tried = "".join(f"{node}@{boot}," for node, boot in left_out)
        away = NODES[avoid % len(NODES)] if avoid is not None and not name else ""
        slot = self.world.run(
            self.store.leases.reserve(cell, lease, spec.demand, only=name, tried=tried, avoid=away)
        )
        expected = self.twins[cell.name].lease_reserve(
            lease.member, spec.demand, name, left_out, away
        )
        second = slot.node if slot.reply is Reply.RESERVED else slot.label
        self.same((slot.reply.name, second), expected)
        if slot.reply is Reply.RESERVED:
            self.reservations.append((session, cell.name, job, lease.attempt, slot))

    @precondition(lambda self: len(self.world.cells.all) > 1)
    @rule(
        which=pick,
        lane=st.sampled_from(LANES),
        turn=st.sampled_from(("", "t1", "t1")),
        where=pick,
        delay=st.sampled_from((0, 0, 0, 2500)),
        crash=st.sampled_from(("", "", "", "reserved", "committed")),
    )
    def speak_to_another_cell(self, which, lane, turn, where, delay, crash) -> None:
        """All the steps of a placement elsewhere, with a pause or a crash between them."""
        before = len(self.requests)
        self.submit(
            which, lane, 0, 0, unwanted=False, turn=turn, part="whole",
            preferred=None, park=2, audio=False,
        )  # fmt: skip
        if len(self.requests) == before or not self.waiting():
            return
        reserved = len(self.reservations)
        self.reserve_elsewhere(len(self.waiting()) - 1, where, only=None)
        if len(self.reservations) == reserved or crash == "reserved":
            return
        self.go_on_with_reservation(reserved, "commit")
        self.tick(delay)
        if not crash:
            self.go_on_with_reservation(reserved, "confirm")

    @precondition(lambda self: len(self.world.cells.all) > 1)
    @rule(which=pick, wheres=st.tuples(pick, pick), asked=st.sampled_from(("nobody", "all")))
    def a_turn_goes_elsewhere_in_two_languages_at_once(self, which, wheres, asked) -> None:
        """Both look for a node before either has one."""
        reserved = len(self.reservations)
        for lane, where in zip(LANES, wheres, strict=True):
            before = len(self.requests)
            self.submit(
                which, lane, 0, 0, unwanted=False, turn=f"t{self.now}", part="closing",
                preferred=None, park=2, audio=False,
            )  # fmt: skip
            # It may have a node already, or have ended at once.
            if len(self.requests) > before and self.waiting():
                self.reserve_elsewhere(len(self.waiting()) - 1, where, only=None)
        for at in range(reserved, len(self.reservations)):
            self.go_on_with_reservation(at, "commit", asked)

    @precondition(lambda self: getattr(self, "reservations", None))
    @rule(
        which=pick,
        then=st.sampled_from(("commit", "commit", "confirm", "release", "lapse")),
        asked=st.sampled_from(("nobody", "all", "first", "never mind")),
    )
    def go_on_with_reservation(self, which, then, asked="nobody") -> None:
        session, name, job, attempt, slot = self.reservations[which % len(self.reservations)]
        home, twin = self.home(session)
        cell, other = self.world.cells.named(name), self.twins[name]
        lease = Lease(job, attempt, home.name)
        if then == "commit":
            self.commit(home, twin, cell, lease, slot, asked)
        elif then == "confirm":
            self.confirm(cell, other, slot.node, lease, twin)
        else:
            self.release(cell, other, slot.node, lease, lapsed=then == "lapse")

    def commit(self, home, twin, cell, lease, slot, asked) -> None:
        known = tuple(twin.turn_nodes(twin.jobs[lease.job].spec))
        known = {"nobody": (), "all": known, "first": known[:1], "never mind": None}[asked]
        text = "*" if known is None else f",{','.join(known)}," if known else ""
        answer = self.world.run(self.store.jobs.commit(home, lease, cell.name, slot, asked=text))
        expected = twin.job_commit(lease.job, lease.attempt, cell.name, slot, known)
        self.same(submitted(answer, len(expected)), expected)
        if answer.reply is Reply.PARKED:
            self.world.replies["the turn has a node"] += 1
        if answer.reply is not Reply.PLACED:
            self.release(cell, self.twins[cell.name], slot.node, lease, lapsed=False)

    def confirm(self, cell, other, node, lease, twin) -> None:
        machine = twin.jobs[lease.job].job
        if (machine.attempt, machine.node, machine.ended) != (lease.attempt, node, False):
            return
        hold_ms = self.policy.attempt_ms + self.policy.lease_grace_ms
        reply = self.world.run(self.store.leases.confirm(cell, node, lease, hold_ms))
        self.same((reply.name,), (other.lease_confirm(node, lease.member, hold_ms),))

    def release(self, cell, other, node, lease, *, lapsed: bool) -> None:
        answer = self.world.run(self.store.leases.release(cell, node, lease, lapsed_only=lapsed))
        expected = other.lease_release(node, lease.member, lapsed_only=lapsed)
        if answer.reply is not Reply.OK:
            return self.same((answer.reply.name,), expected)
        return self.same((answer.reply.name, rows(answer.effects.placed)), expected)

    def give_back(self, cell, twin, other: str, node: str, job: str, attempt: str) -> None:
        lease = Lease(job, int(attempt), cell.name)
        self.release(self.world.cells.named(other), self.twins[other], node, lease, lapsed=False)
        timer = f"r|{other}|{node}|{job}|{attempt}"
        self.world.run(self.world.connection.command(cell.slot, "ZREM", cell.due, timer))
        twin.due.pop(timer)

    # Comparison

    @invariant()
    def the_server_holds_what_the_twin_holds(self) -> None:
        if not hasattr(self, "twins"):
            return
        self.world.steps += 1
        states = {}
        for cell in self.world.cells.all:
            keys = self.world.run(read_keys(self.world.connection, cell, PREFIX))
            states[cell.name] = real_state(keys)
            assert states[cell.name] == twin_state(self.twins[cell.name])
            check_demand_cache(keys, self.twins[cell.name])
        check_invariants(states, self.twins, self.policy)
        for twin in self.twins.values():
            for name, session in twin.sessions.items():
                self.watch.acknowledged(name, session.epoch, session.dropped)
        self.watch.step(states)
        self.each_once_and_in_order()
        self.everybody_has_what_passed()

    def teardown(self) -> None:
        if hasattr(self, "twins"):
            self.world.run(self.until_quiet())

    async def until_quiet(self) -> None:
        """Faults have stopped; time passes and the sweeper works: all must come to rest."""
        cells = self.world.cells
        fleet = FleetSnapshot(self.store, cells)
        dispatcher = Dispatcher(self.store, cells, fleet, self.policy)
        sweeper = Sweeper(self.store, dispatcher, OutcomeRelay(self.store, cells))
        for _ in range(60):
            for cell in cells.all:
                await sweeper.sweep(cell)
            await self.let_pass(5000)
        states = {
            cell.name: real_state(await read_keys(self.world.connection, cell, PREFIX))
            for cell in cells.all
        }
        check_quiet(states, self.jobs())
        for name in SESSIONS:
            cell, twin = self.home(name)
            real = states[cell.name]["sessions"][name]
            # Every millisecond that was said has one end.
            assert sum(real["ended"]) == sum(twin.sessions[name].said.values())
            assert not real["partly"]


def keeps_audio(spec: JobSpec) -> bool:
    """Is its audio in the store, alone or with that of other languages?"""
    return spec.audio or spec.own_audio


def said(index: int) -> dict[str, int]:
    """Every third utterance goes into both languages."""
    return {"ms": 100 + index, "lanes": 2 if index % 3 == 0 else 1}


def examples(steps: int) -> settings:
    return settings(
        max_examples=max(1, steps // STEPS_PER_RUN),
        stateful_step_count=STEPS_PER_RUN,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )


def steps_wanted() -> int:
    """Steps to aim at on one server; Hypothesis ends some runs early."""
    return int(os.environ.get("LINGUA_MODEL_STEPS", "16000"))


@contextlib.contextmanager
def loop_of_its_own():
    loop = asyncio.new_event_loop()
    try:
        yield loop
    finally:
        loop.close()


def play(connection, loop, cells: int, steps: int) -> World:
    world = World(connection, loop, cells)
    machine = type(f"MachineOf{cells}Cells", (Machine,), {"world": world})
    run_state_machine_as_test(machine, settings=examples(steps))
    return world


def test_one_cell_on_one_server_does_what_the_twin_does(tmp_path) -> None:
    with servers.start_server(tmp_path) as server, loop_of_its_own() as loop:
        connection = loop.run_until_complete(
            SingleConnection.open(server.address, LinkOptions(call_timeout_ms=10_000))
        )
        world = play(connection, loop, 1, steps_wanted())
        loop.run_until_complete(connection.close())
    print(f"\n{world.steps} steps on one server: {dict(world.replies)}")
    assert world.steps >= steps_wanted() // STEPS_PER_RUN


def test_three_cells_on_a_cluster_do_what_the_twin_does(tmp_path) -> None:
    with servers.start_cluster(tmp_path, masters=3) as cluster, loop_of_its_own() as loop:
        connection = loop.run_until_complete(
            ClusterConnection.open(cluster.addresses, LinkOptions(call_timeout_ms=10_000))
        )
        world = play(connection, loop, 3, steps_wanted() // 2)
        loop.run_until_complete(connection.close())
    print(f"\n{world.steps} steps on a cluster: {dict(world.replies)}")
    assert world.steps >= steps_wanted() // 2 // STEPS_PER_RUN
