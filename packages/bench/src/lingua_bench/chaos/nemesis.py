"""The faults of a run, injected one after another in the order of a seed.

Every fault harms a process, waits, undoes the harm where needed, and is recorded with the moment of
the harm. The counts of an instance are read before it is killed. A fault ends when its target
serves again, within a bound; work of the last fault can still be in progress then.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from time import monotonic
from typing import TYPE_CHECKING, Final

import hiredis

from lingua_bench.chaos.fault_runner import FaultRunner
from lingua_bench.chaos.history import (
    DeliveryInterrupted,
    OutageProbe,
    open_streams,
    read_lines,
    running_attempts,
)
from lingua_bench.chaos.process import HarnessFailed, until
from lingua_bench.chaos.proxy import HEALTHY, Faults

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from random import Random

    from lingua_bench.chaos.deployment import Deployment
    from lingua_bench.chaos.proxy import ProxiedLink
    from lingua_bench.chaos.scheduler_process import SchedulerProcess

    Span = tuple[float, float]

WHOLE_S: Final = 40.0
TURN_S: Final = 90.0
# Longer than the time after which a silent node (6 s) or instance (5 s) is declared dead.
LONG_S: Final = (6.8, 8.0)
SHORT_S: Final = (0.2, 1.5)
# A short stop before the kill, so that the last messages are unread.
UNREAD_S: Final = (0.1, 0.5)
OUTAGE_S: Final = (0.3, 1.2)
# How long requests that waited for the store have to arrive before an instance is killed again.
SETTLE_S: Final = 1.5
# Between a node's sending of a result and the kill: the result is read, settled and relayed within
# this time. Every second target is stopped before, so that the result is surely in transit.
IN_DELIVERY_S: Final = (0.0, 0.03)
# The part of killed instances that start again under another name.
RENAMED: Final = 0.5
OK: Final = 200
CATCH_MIN, CATCH_S = 2, 2.0
# How long a signal takes at most until its process is really stopped.
STOPPED_S: Final = 0.01
TOXIC_S: Final = (1.5, 3.0)

TOXICS: Final[dict[str, Faults]] = {
    "late": Faults(latency_ms=150, jitter_ms=250),
    "crumbs": Faults(crumbs=True),
    "cut_off": Faults(reset_s=1.0),
    "deaf_up": Faults(deaf=frozenset({"up"})),
    "deaf_down": Faults(deaf=frozenset({"down"})),
}


class Nemesis(FaultRunner):
    """Injects faults into a deployment; the names of the faults are in `FAULTS`."""

    def __init__(self, deployment: Deployment, chance: Random) -> None:
        super().__init__(deployment.place, chance)
        self._deployment = deployment
        # The targets of faults in progress: two faults at a time never share a target.
        self._busy: set[str] = set()
        self._terms = 0
        self._in_delivery = 0

    async def rage(self, kinds: list[str], gap_s: float) -> None:
        """Inject these faults one after another, with a pause before each."""
        for kind in kinds:
            await asyncio.sleep(self.chance.uniform(0.5, 1.5) * gap_s)
            await self.do(kind)

    async def inject(self, kind: str) -> None:
        """Inject one fault and undo it; `link:toxic` is done to a proxy of a link."""
        link, colon, toxic = kind.partition(":")
        if colon:
            await self.poison(link, toxic)  # type: ignore[arg-type]
        else:
            await FAULTS[kind](self)

    async def kill_in_delivery(self) -> None:
        """Kill an instance in the moment a node sends it a result for a room.

        The target is the instance of the node, which may not get the time to read the result, or
        the instance of the speaker.
        """
        deliveries = self._deployment.deliveries
        assert deliveries is not None, "the deployment has no rooms"
        self._in_delivery += 1
        is_unread = self._in_delivery % 2 == 1
        while True:
            moment = await deliveries.next(TURN_S)
            chosen = moment.host if is_unread else self.chance.choice(moment[1:3])
            if chosen is not None and chosen.name not in self._busy and chosen.is_running:
                break
            deliveries.release(moment)
        self._busy.add(chosen.name)
        try:
            if is_unread:
                chosen.freeze()
            deliveries.release(moment)
            await asyncio.sleep(self.chance.uniform(*IN_DELIVERY_S))
            at = monotonic()
            await chosen.kill()
            self.recorder.note(DeliveryInterrupted(at, chosen.name, moment.said))
            await chosen.start(renamed=self.chance.random() < RENAMED)
            self.note("kill_in_delivery", chosen.name, at)
        finally:
            self._busy.discard(chosen.name)

    # Instances

    async def kill_instance(self, pause_s: Span | None = None) -> None:
        """Kill an instance; if it is stopped before, its inbox is unread when it dies."""
        async with self._instance() as instance:
            await instance.count()
            if pause_s is not None:
                instance.freeze()
                await self._nap(pause_s)
            at = monotonic()
            await instance.kill()
            # Under the same name or another one: both recoveries are exercised. The unread inbox of
            # a name that does not return must be adopted.
            is_renamed = pause_s is not None or self.chance.random() < RENAMED
            await instance.start(renamed=is_renamed)
            kind = "kill_instance" if pause_s is None else "pause_kill_instance"
            self.note(kind, instance.name, at)

    async def term_instance(self) -> None:
        """Restart one instance after another, as an update does."""
        instance = self._deployment.instances[self._terms % len(self._deployment.instances)]
        self._terms += 1
        await instance.count()
        at = monotonic()
        code = await instance.stop()
        if code:
            raise HarnessFailed(f"{instance.name} ended with {code}: {instance.last_words}")
        await instance.start(renamed=True)
        self.note("term_instance", instance.name, at)

    async def freeze_instance(self, length_s: Span) -> None:
        """Stop an instance for a while."""
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
            self.note(kind, instance.name, at)

    @contextlib.asynccontextmanager
    async def _instance(self) -> AsyncIterator[SchedulerProcess]:
        """Choose an instance that no fault is using; one instance is always left unharmed."""
        instances = self._deployment.instances
        names = {instance.name for instance in instances}
        spare_max = max(1, len(instances) - 1)

        async def is_free() -> bool:
            return len(self._busy & names) < spare_max

        await until(is_free, TURN_S, "an instance is free to be harmed")
        chosen = self.chance.choice([one for one in instances if one.name not in self._busy])
        self._busy.add(chosen.name)
        try:
            yield chosen
        finally:
            self._busy.discard(chosen.name)

    # Nodes

    async def kill_node(self, pause_s: Span | None = None) -> None:
        """Kill a node; if it is stopped before, the last messages are unread."""
        with self._node() as name:
            pid, stopped_at = self._deployment.nodes.pids[name], 0.0
            if pause_s is not None:
                stopped_at = monotonic()
                os.kill(pid, signal.SIGSTOP)
                await self._nap(pause_s)
            at = monotonic()
            os.kill(pid, signal.SIGKILL)
            await self._deployment.nodes.start(name)
        kind = "kill_node" if pause_s is None else "pause_kill_node"
        self.note(kind, name, at, stopped_at)

    async def kill_busy_node(self) -> None:
        """Kill a node that runs attempts: their jobs must be dispatched again."""
        with self._node() as name:
            await self._stop_at_work(name)
            at = monotonic()
            os.kill(self._deployment.nodes.pids[name], signal.SIGKILL)
            await self._deployment.nodes.start(name)
        self.note("kill_busy_node", name, at)

    async def kill_listening_node(self) -> None:
        """Kill a node that listens to somebody who speaks, whichever does so first."""
        name = await self._stop_a_listener()
        try:
            at = monotonic()
            os.kill(self._deployment.nodes.pids[name], signal.SIGKILL)
            await self._deployment.nodes.start(name)
        finally:
            self._busy.discard(name)
        self.note("kill_listening_node", name, at)

    async def _stop_a_listener(self) -> str:
        """Stop a node while it listens, by its own history, and reserve it; return its name."""
        stopped: list[str] = []

        async def is_stopped() -> bool:
            with contextlib.suppress(OSError, TimeoutError, hiredis.ReplyError):
                leases = await self._deployment.store.stream_leases()
                listening = {node for _, node in leases} - self._busy
                for name in self.chance.sample(sorted(listening), len(listening)):
                    if await self._stops_listening(name):
                        stopped.append(name)
                        return True
            return False

        await until(is_stopped, TURN_S, "a node listens")
        return stopped[0]

    async def _stops_listening(self, name: str) -> bool:
        self._busy.add(name)
        pid = self._deployment.nodes.pids[name]
        history = self._deployment.place / f"{name}-{pid}.node"
        os.kill(pid, signal.SIGSTOP)
        await asyncio.sleep(STOPPED_S)
        if history.exists() and open_streams(read_lines(history)):
            return True
        os.kill(pid, signal.SIGCONT)
        self._busy.discard(name)
        return False

    async def freeze_busy_node(self) -> None:
        """Stop a node that runs attempts for longer than the scheduler waits for a silent node."""
        with self._node() as name:
            await self._stop_at_work(name)
            await self._freeze(name, LONG_S, "freeze_busy_node")

    async def freeze_node(self, length_s: Span) -> None:
        """Stop a node for a while when it has work: only then its results can be stale."""
        with self._node() as name:
            with contextlib.suppress(HarnessFailed, OSError, TimeoutError, hiredis.ReplyError):
                await self._until_busy(name, CATCH_S)
            kind = "freeze_node" if length_s is LONG_S else "stutter_node"
            await self._freeze(name, length_s, kind)

    async def _freeze(self, name: str, length_s: Span, kind: str) -> None:
        pid, at = self._deployment.nodes.pids[name], monotonic()
        os.kill(pid, signal.SIGSTOP)
        try:
            await self._nap(length_s)
        finally:
            os.kill(pid, signal.SIGCONT)
        self.note(kind, name, at)

    async def _stop_at_work(self, name: str) -> None:
        """Stop a node while it runs attempts, by its own history: no moment is left to chance."""
        pid = self._deployment.nodes.pids[name]
        history = self._deployment.place / f"{name}-{pid}.node"

        async def is_stopped_at_work() -> bool:
            if await self._deployment.store.leases(name) < CATCH_MIN:
                return False
            os.kill(pid, signal.SIGSTOP)
            await asyncio.sleep(STOPPED_S)
            if running_attempts(history):
                return True
            os.kill(pid, signal.SIGCONT)
            return False

        await until(is_stopped_at_work, TURN_S, f"{name} has work")

    async def _until_busy(self, name: str, bound_s: float) -> None:
        async def has_work() -> bool:
            return await self._deployment.store.leases(name) >= CATCH_MIN

        await until(has_work, bound_s, f"{name} has work")

    @contextlib.contextmanager
    def _node(self) -> Iterator[str]:
        """Choose a node that no fault is using."""
        name = self.chance.choice(sorted(self._deployment.nodes.pids.keys() - self._busy))
        self._busy.add(name)
        try:
            yield name
        finally:
            self._busy.discard(name)

    # The store

    async def kill_store(self) -> None:
        """Kill the store, probe an instance during the outage, and start the store again."""
        server = self._deployment.store.server
        async with self._all_instances():
            at = monotonic()
            await server.kill()
            await self._look_at_outage()
            await self._nap(OUTAGE_S)
            await server.start()
            self.note("kill_store", "store", at)
            await self._all_ready()
            if self._deployment.scenario.hands > 1:
                await asyncio.sleep(SETTLE_S)

    @contextlib.asynccontextmanager
    async def _all_instances(self) -> AsyncIterator[None]:
        """Reserve all instances: the guarantees are for one failing process at a time."""
        names = {instance.name for instance in self._deployment.instances}

        async def are_free() -> bool:
            return not self._busy & names

        await until(are_free, TURN_S, "no instance is being harmed")
        self._busy |= names
        try:
            yield
        finally:
            self._busy -= names

    async def freeze_store(self) -> None:
        """Stop the store for a moment."""
        server = self._deployment.store.server
        at = monotonic()
        server.freeze()
        try:
            await self._nap(SHORT_S)
        finally:
            server.thaw()
        self.note("freeze_store", "store", at)
        await self._all_ready()

    async def flush(self) -> None:
        """Delete all data of the store."""
        at = monotonic()
        await self._deployment.store.empty()
        self.note("flush", "store", at)
        await self._all_ready()
        await until(self._deployment.nodes_are_ready, WHOLE_S, "the nodes are known again")

    async def fail_over(self, *, kill: bool) -> None:
        """Let a replica take over from a master that is killed or asked to step down."""
        cluster = self._deployment.cluster
        master = self.chance.choice(await cluster.masters())
        at = monotonic()
        await cluster.fail_over(master, kill=kill)
        if kill:
            await master.start()
        self.note("kill_master" if kill else "move_master", str(master.port), at)
        await until(cluster.is_whole, WHOLE_S, "the cluster is whole again")
        await self._all_ready()

    async def _look_at_outage(self) -> None:
        """Probe an instance during an outage: it must be alive and refuse new sessions at once."""
        instance = self.chance.choice(self._deployment.instances)
        is_alive = await instance.status("/livez") == OK
        began = monotonic()
        refusal = await instance.refusal()
        self.recorder.note(OutageProbe(began, is_alive, refusal, monotonic() - began))

    async def _all_ready(self) -> None:
        for instance in self._deployment.instances:
            await until(instance.is_ready, WHOLE_S, f"{instance.name} is ready again")

    # Links

    async def poison(self, link: ProxiedLink, toxic: str) -> None:
        """Apply a fault to the connections of one proxy for a while."""
        proxy = self.chance.choice(self._deployment.proxies[link])
        at = monotonic()
        proxy.faults = TOXICS[toxic]
        try:
            await self._nap(TOXIC_S)
        finally:
            proxy.faults = HEALTHY
        self.note(f"{link}_{toxic}", str(proxy.port), at)

    async def _nap(self, length_s: Span) -> None:
        await asyncio.sleep(self.chance.uniform(*length_s))


FAULTS: Final[dict[str, Callable[[Nemesis], Awaitable[None]]]] = {
    "kill_instance": Nemesis.kill_instance,
    "pause_kill_instance": lambda nemesis: nemesis.kill_instance(UNREAD_S),
    "kill_in_delivery": Nemesis.kill_in_delivery,
    "term_instance": Nemesis.term_instance,
    "freeze_instance": lambda nemesis: nemesis.freeze_instance(LONG_S),
    "stutter_instance": lambda nemesis: nemesis.freeze_instance(SHORT_S),
    "kill_node": Nemesis.kill_node,
    "pause_kill_node": lambda nemesis: nemesis.kill_node(UNREAD_S),
    "kill_busy_node": Nemesis.kill_busy_node,
    "kill_listening_node": Nemesis.kill_listening_node,
    "freeze_busy_node": Nemesis.freeze_busy_node,
    "freeze_node": lambda nemesis: nemesis.freeze_node(LONG_S),
    "stutter_node": lambda nemesis: nemesis.freeze_node(SHORT_S),
    "kill_store": Nemesis.kill_store,
    "freeze_store": Nemesis.freeze_store,
    "flush": Nemesis.flush,
    "kill_master": lambda nemesis: nemesis.fail_over(kill=True),
    "move_master": lambda nemesis: nemesis.fail_over(kill=False),
}
