"""The store of the schedulers: one server with an append-only file, a cluster, or a private store.

Real server processes on 127.0.0.1 that can be killed, frozen, restarted on their port, emptied and
failed over. They die with this process. `deployment.py` uses them; nothing here is for production.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import hiredis

from lingua_bench.chaos.process import Process, free_port, until
from lingua_scheduler.state.binary import find_server_binary
from lingua_scheduler.state.cluster import SLOT_COUNT
from lingua_wire.errors import LinguaError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

ANSWER_S: Final = 3.0
START_S: Final = 20.0
FORM_S: Final = 40.0
FAILOVER_S: Final = 20.0
MASTERS: Final = 3
# How long a master may be silent until its replica takes over.
NODE_TIMEOUT_MS: Final = 2000
AOF: Final = ("--appendonly", "yes", "--appendfsync", "everysec")


class StoreFailed(LinguaError):
    """A server of the harness did not do what it must."""


class StoreEndpoint:
    """Where a server of the store answers."""

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection."""
        raise NotImplementedError

    async def ask(self, *words: str | int) -> Any:
        """Send one command on a connection of its own; an error reply is raised."""
        async with asyncio.timeout(ANSWER_S):
            reader, writer = await self.connect()
            try:
                writer.write(hiredis.pack_command(tuple(map(str, words))))  # type: ignore[arg-type]
                return await _reply(reader)
            finally:
                writer.close()


class PrivateServer(StoreEndpoint):
    """The private store of a scheduler in `local` mode, which starts and ends it itself."""

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / "store" / "server.sock"

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection to its socket."""
        return await asyncio.open_unix_connection(str(self._path))


class StoreServer(StoreEndpoint):
    """One server process with a fixed port, so that it can be restarted."""

    def __init__(self, place: Path, extra: Sequence[str] = AOF) -> None:
        place.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        # The port of the cluster bus.
        self.bus_port = free_port()
        log = place / "server.log"
        self._process = Process(
            [
                str(find_server_binary()),
                "--save",
                "",
                "--dir",
                str(place),
                "--bind",
                "127.0.0.1",
                "--port",
                str(self.port),
                "--logfile",
                str(log),
                *extra,
                *(("--cluster-port", str(self.bus_port)) if "--cluster-enabled" in extra else ()),
            ],
            log,
        )

    @property
    def pid(self) -> int:
        """Return its process."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Tell whether it has a running process."""
        return self._process.is_running

    async def start(self) -> None:
        """Start it and wait until it answers."""
        await self._process.start()
        await until(self.is_answering, START_S, "the store answers")

    async def kill(self) -> None:
        """End it by kill -9."""
        await self._process.kill()

    def freeze(self) -> None:
        """Stop it: connections stay open, and nothing is answered."""
        self._process.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it continue."""
        self._process.signal(signal.SIGCONT)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection to its port."""
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def is_answering(self) -> bool:
        """Tell whether it listens and has loaded its data."""
        if not self._process.is_running:
            raise StoreFailed(f"the server ended: {self._process.last_words()}")
        with contextlib.suppress(OSError, TimeoutError, hiredis.ReplyError):
            return bool(await self.ask("PING") == b"PONG")
        return False


async def _reply(reader: asyncio.StreamReader) -> Any:
    parser = hiredis.Reader()
    while (reply := parser.gets()) is False:
        data = await reader.read(65_536)
        if not data:
            raise ConnectionResetError("closed by the server")
        parser.feed(data)
    if isinstance(reply, hiredis.ReplyError):
        raise reply
    return reply


class ChaosStore:
    """One server."""

    def __init__(self, servers: Sequence[StoreServer]) -> None:
        self.servers = tuple(servers)

    @property
    def server(self) -> StoreServer:
        """Return the one server, or the first of the cluster."""
        return self.servers[0]

    def settings(self, port: int | None = None) -> dict[str, str]:
        """Return the settings of an instance, with another port if a proxy is in between."""
        return {"LINGUA_REDIS__URL": f"redis://127.0.0.1:{port or self.server.port}"}

    async def masters(self) -> Sequence[StoreEndpoint]:
        """Return the servers that hold the data."""
        return [self.server]

    async def read_keys(self, pattern: str, *words: str) -> dict[str, Any]:
        """Send a command (its key first) to every key that matches; returns key -> answer."""
        found: dict[str, Any] = {}
        for server in await self.masters():
            for key in await server.ask("KEYS", pattern):
                name = key.decode()
                found[name] = await server.ask(words[0], name, *words[1:])
        return found

    async def leases(self, node: str = "*") -> int:
        """Count the slots that are taken, on one node or all."""
        return sum((await self.read_keys(f"*:leases:{node}", "ZCARD")).values())

    async def stream_leases(self, node: str = "*") -> list[tuple[str, str]]:
        """Return the leases of streams that have not expired: stream and node."""
        found = []
        for server in await self.masters():
            for key in await server.ask("KEYS", f"*:streams:{node}"):
                name = key.decode()
                seconds, micros = map(int, await server.ask("TIME"))
                now_ms = seconds * 1000 + micros // 1000
                held = await server.ask("ZRANGEBYSCORE", name, f"({now_ms}", "+inf")
                found += [(one.decode(), name.rpartition(":")[2]) for one in held]
        return found

    async def ready_nodes(self) -> int:
        """Count the nodes that may be given work."""
        status = await self.read_keys("*:node:*", "HGET", "status")
        return sum(value == b"ready" for value in status.values())

    async def empty(self) -> None:
        """Delete all data."""
        for server in await self.masters():
            await server.ask("FLUSHALL")


class PrivateStore(ChaosStore):
    """The private store of the only scheduler."""

    def __init__(self, data_dir: Path) -> None:
        super().__init__(())
        self._data_dir = data_dir
        self._private = PrivateServer(data_dir)

    def settings(self, port: int | None = None) -> dict[str, str]:
        """Return the settings of the scheduler; a proxy cannot be put in between."""
        assert port is None, "a private store has no port"
        return {"LINGUA_DEPLOYMENT_MODE": "local", "LINGUA_DATA_DIR": str(self._data_dir)}

    async def masters(self) -> Sequence[StoreEndpoint]:
        """Return the private server."""
        return [self._private]


class ChaosCluster(ChaosStore):
    """Masters with all slots among them, each with a replica."""

    def settings(self, port: int | None = None) -> dict[str, str]:
        """Return the settings of an instance; a proxy cannot be put in between."""
        assert port is None, "a cluster names its own addresses"
        urls = ",".join(f'"redis://127.0.0.1:{server.port}"' for server in self.servers)
        return {"LINGUA_REDIS__MODE": "cluster", "LINGUA_REDIS__URLS": f"[{urls}]"}

    async def masters(self) -> list[StoreServer]:
        """Return the servers that hold slots now, as a majority of the running ones sees it."""
        ports = {port for port in (await self._slots()).values() if port}
        return [server for server in self.servers if server.port in ports]

    async def replicas_of(self, master: StoreServer) -> list[StoreServer]:
        """Return the servers that could take over from a master now."""
        identity = (await master.ask("CLUSTER", "MYID")).decode()
        rows = (await master.ask("CLUSTER", "REPLICAS", identity)) or []
        ports = {
            int(row.decode().split()[1].split("@")[0].rpartition(":")[2])
            for row in rows
            if b"fail" not in row
        }
        return [server for server in self.servers if server.port in ports and server.is_running]

    async def fail_over(self, master: StoreServer, *, kill: bool) -> None:
        """Let a replica take over, because the master is killed or because it is asked to."""
        replicas = await self.replicas_of(master)
        if not replicas:
            raise StoreFailed("this master has no replica")
        if kill:
            await master.kill()
        else:
            await replicas[0].ask("CLUSTER", "FAILOVER")
        ports = {replica.port for replica in replicas}

        async def promoted() -> bool:
            return bool(ports & set((await self._slots()).values()))

        await until(promoted, FAILOVER_S, "a replica takes over")

    async def is_whole(self) -> bool:
        """Tell whether every server runs, sees all slots served and has what its master has."""
        for server in self.servers:
            state = await server.ask("CLUSTER", "INFO")
            about = (await server.ask("INFO", "replication")).decode()
            if b"cluster_state:ok" not in state or "master_link_status:down" in about:
                return False
        # Every master has its replica again: it could be failed over.
        return all([await self.replicas_of(master) for master in await self.masters()])

    async def _slots(self) -> dict[int, int]:
        """Return first slot -> port of its master, as the newest view of all has it."""
        newest: dict[int, int] = {}
        views = []
        for server in self.servers:
            if server.is_running:
                with contextlib.suppress(OSError, TimeoutError, hiredis.ReplyError):
                    info = (await server.ask("CLUSTER", "INFO")).decode()
                    epoch = int(info.partition("cluster_current_epoch:")[2].split()[0])
                    views.append((epoch, server.port, await server.ask("CLUSTER", "SLOTS")))
        for _, _, rows in sorted(views, key=lambda view: view[:2]):
            newest |= {row[0]: row[2][1] for row in rows}
        return newest


@contextlib.asynccontextmanager
async def running_store(place: Path) -> AsyncIterator[ChaosStore]:
    """Run one server."""
    server = StoreServer(place)
    try:
        await server.start()
        yield ChaosStore([server])
    finally:
        await server.kill()


@contextlib.asynccontextmanager
async def private_store(place: Path) -> AsyncIterator[PrivateStore]:
    """Give the private store of a scheduler, which runs as long as the scheduler does."""
    yield PrivateStore(place)


@contextlib.asynccontextmanager
async def running_cluster(place: Path) -> AsyncIterator[ChaosCluster]:
    """Run three masters with a replica each."""
    servers = [_member(place / f"server-{number}") for number in range(2 * MASTERS)]
    try:
        for server in servers:
            await server.start()
        await _form(servers)
        cluster = ChaosCluster(servers)
        await until(cluster.is_whole, FORM_S, "the cluster is whole")
        yield cluster
    finally:
        for server in servers:
            await server.kill()


def _member(place: Path) -> StoreServer:
    timing = ("--cluster-node-timeout", str(NODE_TIMEOUT_MS))
    eager = ("--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0")
    return StoreServer(place, (*AOF, "--cluster-enabled", "yes", *timing, *eager))


async def _form(servers: Sequence[StoreServer]) -> None:
    masters, replicas = servers[:MASTERS], servers[MASTERS:]
    for number, master in enumerate(masters):
        first, end = (part * SLOT_COUNT // MASTERS for part in (number, number + 1))
        await master.ask("CLUSTER", "ADDSLOTSRANGE", first, end - 1)
    # Distinct epochs from the start: else the servers settle collisions during a run.
    for number, server in enumerate(servers):
        await server.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
    for server in servers[1:]:
        await servers[0].ask("CLUSTER", "MEET", "127.0.0.1", server.port, server.bus_port)
    for server in servers:
        await until(partial(_has_met, server, len(servers)), FORM_S, "the servers have met")
    for master, replica in zip(masters, replicas, strict=True):
        identity = (await master.ask("CLUSTER", "MYID")).decode()
        await replica.ask("CLUSTER", "REPLICATE", identity)


async def _has_met(server: StoreServer, count: int) -> bool:
    lines = (await server.ask("CLUSTER", "NODES")).decode().splitlines()
    return len(lines) == count and not any("handshake" in line for line in lines)
