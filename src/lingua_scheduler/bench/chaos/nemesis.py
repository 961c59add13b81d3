"""What is done to a running system, one thing after another, by the chances of a seed.

Every fault hurts, waits, makes good and is written down with the moment it hurt. Instances are
counted before they are killed. A fault ends when what it hurt serves again, within a bound: the
next one meets a system that could be well, with the work of the last one still under way.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from time import monotonic
from typing import TYPE_CHECKING, Final

import hiredis

from lingua_scheduler.bench.chaos.history import Fault, Probe, Recorder, Struck
from lingua_scheduler.bench.chaos.process import HarnessFailed, until
from lingua_scheduler.bench.chaos.proxy import HEALTHY, Faults

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from random import Random

    from lingua_scheduler.bench.chaos.cast import Cast, Hop, Instance

    Span = tuple[float, float]

WHOLE_S: Final = 40.0
TURN_S: Final = 90.0
# Longer than anyone waits for a silent node (6 s) or a silent instance (5 s).
LONG_S: Final = (6.8, 8.0)
SHORT_S: Final = (0.2, 1.5)
# Stopped for a moment before the kill, so that what came last is unread.
UNREAD_S: Final = (0.1, 0.5)
OUTAGE_S: Final = (0.3, 1.2)
# How long what waited for the store has to get there, before an instance is killed again.
SETTLE_S: Final = 1.5
# Between a node's sending of a result and the kill: it is read, settled, relayed within this. Every
# second one is stopped before, so that the result is surely on its way.
IN_DELIVERY_S: Final = (0.0, 0.03)
# How many of those killed at once come back under another name.
RENAMED: Final = 0.5
OK: Final = 200
CATCH_MIN, CATCH_S = 2, 2.0
TOXIC_S: Final = (1.5, 3.0)

TOXICS: Final[dict[str, Faults]] = {
    "late": Faults(latency_ms=150, jitter_ms=250),
    "crumbs": Faults(crumbs=True),
    "cut_off": Faults(reset_s=1.0),
    "deaf_up": Faults(deaf=frozenset({"up"})),
    "deaf_down": Faults(deaf=frozenset({"down"})),
}


class Nemesis:
    """Does harm to a cast; the names of what it can do are in `FAULTS`."""

    def __init__(self, cast: Cast, chance: Random) -> None:
        self._cast = cast
        self._chance = chance
        self._recorder = Recorder(cast.place / "nemesis.faults")
        self.done = 0
        # Whom something is being done to, so that two faults at a time leave each other alone.
        self._busy: set[str] = set()
        self._terms = 0
        self._in_delivery = 0

    async def rage(self, kinds: list[str], gap_s: float) -> None:
        """Do these things one after another, with a pause before each."""
        for kind in kinds:
            await asyncio.sleep(self._chance.uniform(0.5, 1.5) * gap_s)
            await self.do(kind)

    async def do(self, kind: str) -> None:
        """Do one thing and make it good; `hop:toxic` is done to a proxy of a hop."""
        hop, colon, toxic = kind.partition(":")
        if colon:
            await self.poison(hop, toxic)  # type: ignore[arg-type]
        else:
            await FAULTS[kind](self)
        self.done += 1

    def close(self) -> None:
        """Close the history."""
        self._recorder.close()

    async def kill_in_delivery(self) -> None:
        """Kill an instance in the moment a node sends it the result of what a room waits for.

        It is the one that has the node, which may get no time to read it, or the speaker's.
        """
        deliveries = self._cast.deliveries
        assert deliveries is not None, "the cast has no rooms"
        self._in_delivery += 1
        is_unread = self._in_delivery % 2 == 1
        while True:
            moment = await deliveries.next(TURN_S)
            chosen = moment.host if is_unread else self._chance.choice(moment[1:3])
            if chosen is not None and chosen.name not in self._busy and chosen.is_running:
                break
            deliveries.release(moment)
        self._busy.add(chosen.name)
        try:
            if is_unread:
                chosen.freeze()
            deliveries.release(moment)
            await asyncio.sleep(self._chance.uniform(*IN_DELIVERY_S))
            at = monotonic()
            await chosen.kill()
            self._recorder.note(Struck(at, chosen.name, moment.said))
            await chosen.start(renamed=self._chance.random() < RENAMED)
            self._note("kill_in_delivery", chosen, at)
        finally:
            self._busy.discard(chosen.name)

    # Instances

    async def kill_instance(self, pause_s: Span | None = None) -> None:
        """Kill it; if it is stopped before, letters to it are unread when it dies."""
        async with self._instance() as instance:
            await instance.count()
            if pause_s is not None:
                instance.freeze()
                await self._nap(pause_s)
            at = monotonic()
            await instance.kill()
            # As the same instance or as another one: each has its own way to what was left. Unread
            # letters of a name that does not come back must be adopted.
            is_renamed = pause_s is not None or self._chance.random() < RENAMED
            await instance.start(renamed=is_renamed)
            self._note("kill_instance" if pause_s is None else "pause_kill_instance", instance, at)

    async def term_instance(self) -> None:
        """Restart one after another, as an update does."""
        instance = self._cast.instances[self._terms % len(self._cast.instances)]
        self._terms += 1
        await instance.count()
        at = monotonic()
        code = await instance.stop()
        if code:
            raise HarnessFailed(f"{instance.name} ended with {code}: {instance.last_words}")
        await instance.start(renamed=True)
        self._note("term_instance", instance, at)

    async def freeze_instance(self, length_s: Span) -> None:
        """Stop it for a while."""
        async with self._instance() as instance:
            await instance.count()
            at = monotonic()
            instance.freeze()
            try:
                await self._nap(length_s)
            finally:
                instance.thaw()
            await until(instance.is_ready, WHOLE_S, f"{instance.name} serves again")
            kind = "freeze_instance" if length_s is LONG_S else "stutter_instance"
            self._note(kind, instance, at)

    @contextlib.asynccontextmanager
    async def _instance(self) -> AsyncIterator[Instance]:
        """Choose an instance that nothing is being done to; one is always left alone."""
        instances = self._cast.instances
        names = {instance.name for instance in instances}
        spare_max = max(1, len(instances) - 1)

        async def is_free() -> bool:
            return len(self._busy & names) < spare_max

        await until(is_free, TURN_S, "an instance is free to be harmed")
        chosen = self._chance.choice([one for one in instances if one.name not in self._busy])
        self._busy.add(chosen.name)
        try:
            yield chosen
        finally:
            self._busy.discard(chosen.name)

    # Nodes

    async def kill_node(self, pause_s: Span | None = None) -> None:
        """Kill it; if it is stopped before, what came last is unread."""
        with self._node() as name:
            pid = self._cast.nodes.pids[name]
            if pause_s is not None:
                os.kill(pid, signal.SIGSTOP)
                await self._nap(pause_s)
            at = monotonic()
            os.kill(pid, signal.SIGKILL)
            await self._cast.nodes.start(name)
        self._note("kill_node" if pause_s is None else "pause_kill_node", name, at)

    async def freeze_node(self, length_s: Span) -> None:
        """Stop it for a while, when it has work: only then its results can be stale."""
        with self._node() as name:
            await self._catch(name)
            pid, at = self._cast.nodes.pids[name], monotonic()
            os.kill(pid, signal.SIGSTOP)
            try:
                await self._nap(length_s)
            finally:
                os.kill(pid, signal.SIGCONT)
        self._note("freeze_node" if length_s is LONG_S else "stutter_node", name, at)

    async def _catch(self, name: str) -> None:
        async def has_work() -> bool:
            return await self._cast.store.leases(name) >= CATCH_MIN

        with contextlib.suppress(HarnessFailed, OSError, TimeoutError, hiredis.ReplyError):
            await until(has_work, CATCH_S, f"{name} has work")

    @contextlib.contextmanager
    def _node(self) -> Iterator[str]:
        """Choose a node that nothing is being done to."""
        name = self._chance.choice(sorted(self._cast.nodes.pids.keys() - self._busy))
        self._busy.add(name)
        try:
            yield name
        finally:
            self._busy.discard(name)

    # The store

    async def kill_store(self) -> None:
        """Kill it, look how the schedulers bear it, and start it again."""
        server = self._cast.store.server
        async with self._all_instances():
            at = monotonic()
            await server.kill()
            await self._look_at_outage()
            await self._nap(OUTAGE_S)
            await server.start()
            self._note("kill_store", "store", at)
            await self._all_ready()
            if self._cast.scenario.hands > 1:
                await asyncio.sleep(SETTLE_S)

    @contextlib.asynccontextmanager
    async def _all_instances(self) -> AsyncIterator[None]:
        """Let no instance be harmed meanwhile: what is promised is for one process at a time."""
        names = {instance.name for instance in self._cast.instances}

        async def are_free() -> bool:
            return not self._busy & names

        await until(are_free, TURN_S, "no instance is being harmed")
        self._busy |= names
        try:
            yield
        finally:
            self._busy -= names

    async def freeze_store(self) -> None:
        """Stop it for a moment."""
        server = self._cast.store.server
        at = monotonic()
        server.freeze()
        try:
            await self._nap(SHORT_S)
        finally:
            server.thaw()
        self._note("freeze_store", "store", at)
        await self._all_ready()

    async def flush(self) -> None:
        """Have it forget everything."""
        at = monotonic()
        await self._cast.store.empty()
        self._note("flush", "store", at)
        await self._all_ready()
        await until(self._cast.nodes_are_ready, WHOLE_S, "the nodes are known again")

    async def fail_over(self, *, kill: bool) -> None:
        """Have a replica take over from a master that dies, or that is asked to step back."""
        cluster = self._cast.cluster
        master = self._chance.choice(await cluster.masters())
        at = monotonic()
        await cluster.fail_over(master, kill=kill)
        if kill:
            await master.start()
        self._note("kill_master" if kill else "move_master", str(master.port), at)
        await until(cluster.is_whole, WHOLE_S, "the cluster is whole again")
        await self._all_ready()

    async def _look_at_outage(self) -> None:
        """An instance without a store must be alive, and refuse new sessions at once."""
        instance = self._chance.choice(self._cast.instances)
        is_alive = await instance.status("/livez") == OK
        began = monotonic()
        refusal = await instance.refusal()
        self._recorder.note(Probe(began, is_alive, refusal, monotonic() - began))

    async def _all_ready(self) -> None:
        for instance in self._cast.instances:
            await until(instance.is_ready, WHOLE_S, f"{instance.name} is ready again")

    # Hops

    async def poison(self, hop: Hop, toxic: str) -> None:
        """Spoil the connections of one proxy for a while."""
        proxy = self._chance.choice(self._cast.proxies[hop])
        at = monotonic()
        proxy.faults = TOXICS[toxic]
        try:
            await self._nap(TOXIC_S)
        finally:
            proxy.faults = HEALTHY
        self._note(f"{hop}_{toxic}", str(proxy.port), at)

    async def _nap(self, length_s: Span) -> None:
        await asyncio.sleep(self._chance.uniform(*length_s))

    def _note(self, kind: str, target: str | Instance, at: float) -> None:
        name = target if isinstance(target, str) else target.name
        self._recorder.note(Fault(at, kind, name, monotonic()))


FAULTS: Final[dict[str, Callable[[Nemesis], Awaitable[None]]]] = {
    "kill_instance": Nemesis.kill_instance,
    "pause_kill_instance": lambda nemesis: nemesis.kill_instance(UNREAD_S),
    "kill_in_delivery": Nemesis.kill_in_delivery,
    "term_instance": Nemesis.term_instance,
    "freeze_instance": lambda nemesis: nemesis.freeze_instance(LONG_S),
    "stutter_instance": lambda nemesis: nemesis.freeze_instance(SHORT_S),
    "kill_node": Nemesis.kill_node,
    "pause_kill_node": lambda nemesis: nemesis.kill_node(UNREAD_S),
    "freeze_node": lambda nemesis: nemesis.freeze_node(LONG_S),
    "stutter_node": lambda nemesis: nemesis.freeze_node(SHORT_S),
    "kill_store": Nemesis.kill_store,
    "freeze_store": Nemesis.freeze_store,
    "flush": Nemesis.flush,
    "kill_master": lambda nemesis: nemesis.fail_over(kill=True),
    "move_master": lambda nemesis: nemesis.fail_over(kill=False),
}
