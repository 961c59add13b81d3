"""The private server under load while it, or the scheduler that owns it, is killed 20 times.

The scheduler is a real process (`SCHEDULER`). It checks its own data: a value that was handed to
the operating system must be there after every kill, and every call must end. The test kills, checks
that nothing is left behind, and remembers the values across lives of the scheduler.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lingua_scheduler.state.embedded import OrphanGuard

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.stress

KILLS = 20
BOUND_S = 20.0
GUARDS = [OrphanGuard.KERNEL, OrphanGuard.PIPE] if sys.platform == "linux" else [OrphanGuard.PIPE]

SCHEDULER = """
import asyncio, os, signal, sys
from pathlib import Path
import hiredis, uvloop
from lingua_scheduler.state.embedded import EmbeddedServer, OrphanGuard

CALL_BOUND_S = 15


def say(*words):
    os.write(1, " ".join(map(str, words)).encode() + b"\\n")  # at once: a kill leaves no half line


async def ask(reader, writer, parser, *words):
    writer.write(hiredis.pack_command(words))
    while (reply := parser.gets()) is False:
        received = await reader.read(65536)
        if not received:
            raise ConnectionResetError
        parser.feed(received)
    if isinstance(reply, Exception):
        raise reply
    return reply


async def write(path, name, confirmed):
    # Counts up; a value is confirmed when the server has no written data left in its own memory.
    reader, writer = await asyncio.open_unix_connection(str(path))
    parser = hiredis.Reader(encoding="utf-8")

    async def call(*words):
        async with asyncio.timeout(CALL_BOUND_S):  # a hung call ends the scheduler with an error
            return await ask(reader, writer, parser, *words)

    try:
        value = int(await call("GET", name) or 0)
        say("found", name, value)
        assert value >= confirmed.get(name, 0), (name, value, confirmed)
        while True:
            for _ in range(20):
                value += 1
                await call("SET", name, value)
            if "aof_buffer_length:0\\r\\n" in await call("INFO", "persistence"):
                confirmed[name] = value
                say("confirmed", name, value)
    finally:
        writer.close()


async def keep_writing(path, name):
    confirmed = {}
    while True:
        try:
            await write(path, name, confirmed)
        except (ConnectionError, FileNotFoundError):
            await asyncio.sleep(0.01)  # between two lives of the server
        except hiredis.ReplyError as error:
            assert str(error).startswith("LOADING"), error
            await asyncio.sleep(0.01)


async def tell_each_pid(server):
    last = None
    while server.failure is None:
        if server.pid not in (None, last):
            last = server.pid
            say("server", last)
        await asyncio.sleep(0.005)
    raise server.failure


async def main():
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    data_dir, guard = Path(sys.argv[1]), OrphanGuard(sys.argv[2])
    async with EmbeddedServer(data_dir, guard=guard, max_restarts_per_minute=999) as server:
        async with asyncio.TaskGroup() as group:
            work = [group.create_task(keep_writing(server.socket_path, f"w{i}")) for i in range(3)]
            work.append(group.create_task(tell_each_pid(server)))
            await stop.wait()
            for task in work:
                task.cancel()
    say("restarts", server.restarts)


with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
    runner.run(main())
"""


class Scheduler:
    """One life of the scheduler process, seen through the lines that it prints."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        # The highest value that each writer was sure of.
        self.confirmed: dict[str, int] = {}
        # The first value that each writer found when it connected.
        self.found: dict[str, int] = {}

    @classmethod
    @contextlib.asynccontextmanager
    async def running(cls, data_dir: Path, guard: OrphanGuard) -> AsyncIterator[Scheduler]:
        """Start one; it is killed at the end, if it has not ended before."""
        command = [sys.executable, "-c", SCHEDULER, str(data_dir), guard.value]
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
        try:
            yield cls(process)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    async def told(self, kind: str) -> int:
        """Read on until a line of this kind, and return its number."""
        async with asyncio.timeout(BOUND_S):
            while line := await self._output.readline():
                said, number = self._note(line)
                if said == kind:
                    return number
        raise AssertionError(f"the scheduler ended before it said {kind!r}")

    async def kill(self) -> None:
        """Kill the scheduler, and take note of what it had still said."""
        self.process.kill()
        async with asyncio.timeout(BOUND_S):
            while line := await self._output.readline():
                self._note(line)
            assert await self.process.wait() == -signal.SIGKILL

    @property
    def _output(self) -> asyncio.StreamReader:
        assert self.process.stdout is not None
        return self.process.stdout

    def _note(self, line: bytes) -> tuple[str, int]:
        kind, *name, number = line.decode().split()
        if kind == "confirmed":
            self.confirmed[name[0]] = int(number)
        if kind == "found":
            self.found.setdefault(name[0], int(number))
        return kind, int(number)


def processes_naming(text: Path) -> list[int]:
    """Every live process with the text in its command line: schedulers, launchers, servers."""
    if sys.platform == "linux":
        lines = [(entry.name, command_line(entry)) for entry in Path("/proc").glob("[0-9]*")]
    else:
        columns = ["/bin/ps", "-axww", "-o", "pid=,command="]
        listing = subprocess.run(columns, capture_output=True, text=True, check=True).stdout
        lines = [line.split(maxsplit=1) for line in listing.splitlines()]
    return [int(pid) for pid, command in lines if str(text) in command]


def command_line(entry: Path) -> str:
    try:
        return os.fsdecode((entry / "cmdline").read_bytes())
    except (FileNotFoundError, ProcessLookupError):  # ended while we looked
        return ""


async def nothing_is_left(data_dir: Path) -> None:
    deadline = time.monotonic() + BOUND_S
    while left := processes_naming(data_dir):
        assert time.monotonic() < deadline, f"processes {left} outlived the scheduler"
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("guard", GUARDS)
def test_a_server_killed_again_and_again_under_load_always_comes_back_with_its_data(
    tmp_path: Path, guard: OrphanGuard
) -> None:
    moments = random.Random(7)

    async def scenario() -> None:
        async with Scheduler.running(tmp_path / "data", guard) as scheduler:
            for kill in range(KILLS):
                server_pid = await scheduler.told("server")
                if kill % 4 != 3:  # every fourth one dies while it starts
                    await scheduler.told("confirmed")
                await asyncio.sleep(moments.uniform(0, 0.05))
                os.kill(server_pid, signal.SIGKILL)
            await scheduler.told("server")
            await scheduler.told("confirmed")
            scheduler.process.terminate()
            assert await scheduler.told("restarts") == KILLS
            assert await scheduler.process.wait() == 0
        await nothing_is_left(tmp_path / "data")

    asyncio.run(scenario())


@pytest.mark.parametrize("guard", GUARDS)
def test_a_scheduler_killed_again_and_again_under_load_leaves_no_server_and_loses_nothing(
    tmp_path: Path, guard: OrphanGuard
) -> None:
    moments = random.Random(11)
    data_dir = tmp_path / "data"
    confirmed: dict[str, int] = {}

    async def scenario() -> None:
        for kill in range(KILLS):
            async with Scheduler.running(data_dir, guard) as scheduler:
                if kill % 4 == 3:  # every fourth one dies while it starts
                    await asyncio.sleep(moments.uniform(0.05, 0.25))
                else:
                    assert await scheduler.told("server") in processes_naming(data_dir)
                    await scheduler.told("confirmed")
                    await asyncio.sleep(moments.uniform(0, 0.05))
                await scheduler.kill()
            for name, value in scheduler.found.items():
                assert value >= confirmed.get(name, 0)
            confirmed.update(scheduler.confirmed)
            await nothing_is_left(data_dir)

    asyncio.run(scenario())
    assert confirmed
