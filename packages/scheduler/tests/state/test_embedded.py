"""The private server of local mode, with real server processes, real locks and real kills."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hiredis
import pytest
import uvloop

from lingua_scheduler.errors import EmbeddedServerError
from lingua_scheduler.state import embedded
from lingua_scheduler.state.binary import find_server_binary
from lingua_scheduler.state.embedded import EmbeddedServer, OrphanGuard, _ServerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

pytestmark = pytest.mark.store

LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]
GUARDS = [OrphanGuard.KERNEL, OrphanGuard.PIPE] if sys.platform == "linux" else [OrphanGuard.PIPE]
BOUND_S = 20.0

# A scheduler that starts the server, says where it is, and then waits to be killed.
SCHEDULER = """
import asyncio, sys
from pathlib import Path
from lingua_scheduler.state.embedded import EmbeddedServer, OrphanGuard

async def main():
    async with EmbeddedServer(Path(sys.argv[1]), guard=OrphanGuard(sys.argv[2])) as server:
        print(server.pid, server.socket_path, flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""

# One that dies between the fork and everything after it, before the server can have started.
SHORT_LIVED_SCHEDULER = """
import asyncio, os, signal, sys
from pathlib import Path
from lingua_scheduler.state import embedded

class Dying(embedded.EmbeddedServer):
    async def _wait_until_ready(self, process):
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(Dying(Path(sys.argv[1]), guard=embedded.OrphanGuard(sys.argv[2])).start())
"""


class Client:
    """A blocking connection that speaks the protocol of the server."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(BOUND_S)
        self._reader = hiredis.Reader(encoding="utf-8")
        try:
            self._socket.connect(str(path))
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        self._socket.close()

    def call(self, *words: str) -> Any:
        self._socket.sendall(hiredis.pack_command(words))
        while (reply := self._reader.gets()) is False:
            received = self._socket.recv(65536)
            if not received:
                raise ConnectionError("the server closed the connection")
            self._reader.feed(received)
        if isinstance(reply, hiredis.ReplyError):
            raise reply
        return reply


def call(path: Path, *words: str) -> Any:
    with contextlib.closing(Client(path)) as client:
        return client.call(*words)


def answers(path: Path) -> bool:
    try:
        return bool(call(path, "PING") == "PONG")
    except (OSError, hiredis.ReplyError):
        return False


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


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + BOUND_S
    while not condition():
        assert time.monotonic() < deadline, "the condition was not met in time"
        await asyncio.sleep(0.01)


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test to its end, bounded, in the kind of loop that it asks for."""

    @functools.wraps(test)
    def run(**arguments: Any) -> None:
        with asyncio.Runner(loop_factory=arguments.get("loop")) as runner:
            runner.run(asyncio.wait_for(test(**arguments), 2 * BOUND_S))

    return run


async def kill_and_wait_for_the_next(server: EmbeddedServer) -> None:
    old = server.pid
    assert old is not None
    os.kill(old, signal.SIGKILL)
    await until(lambda: server.pid not in {None, old} and answers(server.socket_path))


@contextlib.contextmanager
def doomed_scheduler(data_dir: Path, guard: OrphanGuard) -> Iterator[tuple[int, int, Path]]:
    """Give the pids of a scheduler and its server, and the socket; then kill the scheduler."""
    command = [sys.executable, "-c", SCHEDULER, str(data_dir), guard.value]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as scheduler:
        assert scheduler.stdout is not None
        try:
            server_pid, path = scheduler.stdout.readline().split()
            yield scheduler.pid, int(server_pid), Path(path)
        finally:
            scheduler.kill()


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "data"
    yield directory
    asyncio.run(until(lambda: processes_naming(directory) == []))  # whatever a test did


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the bounded waits short where a test makes them run out."""
    monkeypatch.setattr(embedded, "LOCK_WAIT_S", 0.1)
    monkeypatch.setattr(embedded, "STOP_WAIT_S", 0.2)


# --- start and stop -------------------------------------------------------------------------------


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("guard", GUARDS)
@in_a_loop
async def test_it_answers_when_started_and_leaves_nothing_but_data_when_stopped(
    data_dir: Path, loop: Callable[[], Any], guard: OrphanGuard
) -> None:
    server = EmbeddedServer(data_dir, guard=guard)
    path = await server.start()
    pid = server.pid
    assert pid is not None
    assert path == server.socket_path
    assert call(path, "PING") == "PONG"
    assert call(path, "EVAL", "return redis.call('INCR', KEYS[1])", "1", "k") == 1
    await server.stop()
    assert server.pid is None
    assert not path.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@in_a_loop
async def test_only_this_user_can_reach_it(data_dir: Path) -> None:
    async with EmbeddedServer(data_dir) as server:
        assert mode(data_dir) == 0o700
        assert mode(server.socket_path) == 0o600


@in_a_loop
async def test_it_runs_with_our_settings_and_none_from_outside(data_dir: Path) -> None:
    expected = {
        "port": "0",
        "save": "",
        "appendonly": "yes",
        "appendfsync": "everysec",
        "aof-load-truncated": "yes",
        "maxmemory-policy": "noeviction",
        "daemonize": "no",
        "dir": str(data_dir),
        "logfile": str(data_dir / "server.log"),
    }
    async with EmbeddedServer(data_dir) as server:
        reply = call(server.socket_path, "CONFIG", "GET", *expected)
        assert dict(zip(reply[::2], reply[1::2], strict=True)) == expected
        assert "config_file:\r\n" in call(server.socket_path, "INFO", "server")


def test_the_server_is_started_with_the_allocator_and_we_are_not(
    data_dir: Path, tmp_path: Path
) -> None:
    library = tmp_path / "libjemalloc.so.2"
    library.write_bytes(b"no library, which the loader of Linux says and leaves out")

    async def start_and_stop() -> None:
        async with EmbeddedServer(data_dir, allocator=library) as server:
            assert call(server.socket_path, "PING") == "PONG"

    asyncio.run(start_and_stop())
    is_named = str(library) in (data_dir / "server.log").read_text(encoding="utf-8")
    assert is_named == (sys.platform == "linux")
    assert "LD_PRELOAD" not in os.environ


@in_a_loop
async def test_ctrl_c_in_the_terminal_reaches_only_us(data_dir: Path) -> None:
    async with EmbeddedServer(data_dir) as server:
        assert server.pid is not None
        assert os.getpgid(server.pid) == server.pid != os.getpgid(0)


@in_a_loop
async def test_a_stop_and_a_start_keep_all_data(data_dir: Path) -> None:
    server = EmbeddedServer(data_dir)
    call(await server.start(), "SET", "k", "kept")
    await server.stop()
    assert call(await server.start(), "GET", "k") == "kept"
    await server.stop()


@in_a_loop
async def test_start_returns_only_when_all_data_is_loaded(data_dir: Path) -> None:
    fill = "for i = 1, 300000 do redis.call('SET', 'k' .. i, i) end"
    async with EmbeddedServer(data_dir) as server:
        call(server.socket_path, "EVAL", fill, "0")
    async with EmbeddedServer(data_dir) as server:
        assert call(server.socket_path, "DBSIZE") == 300_000


@pytest.mark.usefixtures("impatient")
@in_a_loop
async def test_a_server_that_does_not_react_is_killed_at_stop(data_dir: Path) -> None:
    server = EmbeddedServer(data_dir)
    await server.start()
    pid = server.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    await server.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@in_a_loop
async def test_a_cancelled_start_leaves_no_process_and_no_lock(data_dir: Path) -> None:
    server = EmbeddedServer(data_dir)
    starting = asyncio.create_task(server.start())
    await until(lambda: server.pid is not None)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert server.pid is None
    assert processes_naming(data_dir) == []
    await server.start()
    await server.stop()


@in_a_loop
async def test_stop_is_harmless_before_start_and_twice(data_dir: Path) -> None:
    server = EmbeddedServer(data_dir)
    await server.stop()
    await server.start()
    await server.stop()
    await server.stop()
    assert server.pid is None


# --- one owner, one private directory -------------------------------------------------------------


@pytest.mark.usefixtures("impatient")
@in_a_loop
async def test_a_second_owner_is_told_who_the_first_is_and_disturbs_nothing(data_dir: Path) -> None:
    async with EmbeddedServer(data_dir) as first:
        with pytest.raises(EmbeddedServerError, match=f"in use by process {os.getpid()}\n"):
            await EmbeddedServer(data_dir).start()
        assert call(first.socket_path, "PING") == "PONG"


@pytest.mark.usefixtures("impatient")
def test_an_owner_in_another_process_is_named(data_dir: Path) -> None:
    with doomed_scheduler(data_dir, GUARDS[0]) as (owner_pid, _, path):
        with pytest.raises(EmbeddedServerError, match=f"in use by process {owner_pid}\n"):
            asyncio.run(EmbeddedServer(data_dir).start())
        assert call(path, "PING") == "PONG"


@in_a_loop
async def test_a_start_while_started_is_refused_and_disturbs_nothing(data_dir: Path) -> None:
    async with EmbeddedServer(data_dir) as server:
        with pytest.raises(EmbeddedServerError, match="already started"):
            await server.start()
        assert call(server.socket_path, "PING") == "PONG"


@pytest.mark.usefixtures("impatient")
@in_a_loop
async def test_the_directory_is_locked_as_long_as_the_server_itself_lives(data_dir: Path) -> None:
    server = EmbeddedServer(data_dir)
    await server.start()
    assert server._lock_fd is not None
    os.close(server._lock_fd)  # as if our process had died and the server not yet
    with pytest.raises(EmbeddedServerError, match="in use"):
        await EmbeddedServer(data_dir).start()
    server._lock_fd = os.open(os.devnull, os.O_RDONLY)
    await server.stop()
    async with EmbeddedServer(data_dir) as second:
        assert call(second.socket_path, "PING") == "PONG"


@in_a_loop
async def test_leftovers_of_a_crash_do_not_matter(data_dir: Path) -> None:
    make_open_directory(data_dir)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(data_dir / "server.sock"))
    (data_dir / "owner.lock").write_text("1\n")  # a pid that lives, but holds no lock
    unfinished = data_dir / "temp-rewriteaof-bg-123.aof"
    unfinished.write_bytes(b"half a rewrite")
    async with EmbeddedServer(data_dir) as server:
        assert call(server.socket_path, "PING") == "PONG"
        assert (data_dir / "owner.lock").read_text() == f"{os.getpid()}\n"
        assert not unfinished.exists()


@in_a_loop
async def test_an_empty_directory_that_others_can_read_is_closed_to_them(data_dir: Path) -> None:
    make_open_directory(data_dir)
    async with EmbeddedServer(data_dir):
        assert mode(data_dir) == 0o700


def test_a_directory_that_others_use_is_refused_and_left_as_it_is(data_dir: Path) -> None:
    make_open_directory(data_dir)
    (data_dir / "letter.txt").write_text("not ours")
    with pytest.raises(EmbeddedServerError, match="open to others"):
        asyncio.run(EmbeddedServer(data_dir).start())
    assert mode(data_dir) == 0o755
    assert [entry.name for entry in data_dir.iterdir()] == ["letter.txt"]


def test_a_directory_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EmbeddedServerError, match=r"cannot start in .*file/data"):
        asyncio.run(EmbeddedServer(tmp_path / "file" / "data").start())


@in_a_loop
async def test_a_too_long_path_gets_a_short_private_socket_directory(tmp_path: Path) -> None:
    data_dir = tmp_path / ("long" * 30)
    server = EmbeddedServer(data_dir)
    path = await server.start()
    assert path.parent not in {data_dir, *data_dir.parents}
    assert mode(path.parent) == 0o700
    assert mode(path) == 0o600
    await kill_and_wait_for_the_next(server)
    assert server.socket_path == path
    await server.stop()
    assert not path.parent.exists()
    assert not (data_dir / "socket-directory").exists()


@in_a_loop
async def test_the_short_socket_directory_of_a_killed_owner_is_used_again(tmp_path: Path) -> None:
    data_dir = tmp_path / ("long" * 30)
    with doomed_scheduler(data_dir, GUARDS[0]) as (_, _, path):
        pass
    async with EmbeddedServer(data_dir) as server:
        assert server.socket_path == path
    assert not path.parent.exists()


@in_a_loop
async def test_a_short_socket_directory_that_lost_its_privacy_is_not_used_again(
    tmp_path: Path,
) -> None:
    data_dir = tmp_path / ("long" * 30)
    with doomed_scheduler(data_dir, GUARDS[0]) as (_, _, path):
        pass
    path.parent.chmod(0o777)
    async with EmbeddedServer(data_dir) as server:
        assert server.socket_path != path
    shutil.rmtree(path.parent)


# --- errors at start ------------------------------------------------------------------------------


def program(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_a_too_old_server_is_refused_by_its_version(tmp_path: Path, data_dir: Path) -> None:
    old = program(tmp_path / "old", "echo 'Redis server v=6.2.16 sha=00000000:0 bits=64'")
    with pytest.raises(EmbeddedServerError, match=r"is version 6\.2, 7\.0 is the oldest"):
        asyncio.run(EmbeddedServer(data_dir, binary=old).start())
    assert not data_dir.exists()


def test_a_program_that_is_no_server_is_refused(tmp_path: Path, data_dir: Path) -> None:
    other = program(tmp_path / "other", "echo 'hello 9.9'")
    with pytest.raises(EmbeddedServerError, match="not a Valkey or Redis server: 'hello"):
        asyncio.run(EmbeddedServer(data_dir, binary=other).start())


@in_a_loop
async def test_a_binary_behind_a_link_keeps_its_name(tmp_path: Path, data_dir: Path) -> None:
    # Debian's redis-server is a link to redis-check-rdb: one program that looks at its own name.
    shutil.copy(find_server_binary(), tmp_path / "valkey-check-rdb")
    (tmp_path / "valkey-server").symlink_to("valkey-check-rdb")
    async with EmbeddedServer(data_dir, binary=tmp_path / "valkey-server") as server:
        assert call(server.socket_path, "PING") == "PONG"


def test_a_binary_that_is_not_there_is_a_clear_error(tmp_path: Path, data_dir: Path) -> None:
    with pytest.raises(EmbeddedServerError, match="no-such-server"):
        asyncio.run(EmbeddedServer(data_dir, binary=tmp_path / "no-such-server").start())


@pytest.mark.parametrize("guard", GUARDS)
@in_a_loop
async def test_a_server_that_exits_early_is_an_error_with_its_last_log_lines(
    data_dir: Path, guard: OrphanGuard
) -> None:
    async with EmbeddedServer(data_dir, guard=guard) as server:
        for i in range(100):
            call(server.socket_path, "SET", f"k{i}", "v")
    spoil_the_middle_of_the_data(data_dir)
    with pytest.raises(EmbeddedServerError, match=r"(?s)before it was ready.*Bad file format"):
        await EmbeddedServer(data_dir, guard=guard).start()
    os.close(await embedded._lock(data_dir / "owner.lock"))


def make_open_directory(path: Path) -> None:
    path.mkdir()
    path.chmod(0o755)


def newest_data_file(data_dir: Path) -> Path:
    return max((data_dir / "appendonlydir").glob("*.incr.aof"), key=lambda p: p.stat().st_mtime)


def spoil_the_middle_of_the_data(data_dir: Path) -> None:
    path = newest_data_file(data_dir)
    text = path.read_bytes()
    path.write_bytes(text[: len(text) // 2] + b"spoiled\r\n" + text[len(text) // 2 :])


# --- the server dies ------------------------------------------------------------------------------


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("guard", GUARDS)
@in_a_loop
async def test_a_killed_server_comes_back_on_its_socket_with_its_data(
    data_dir: Path, loop: Callable[[], Any], guard: OrphanGuard
) -> None:
    async with EmbeddedServer(data_dir, guard=guard) as server:
        for round_number in range(1, 4):
            with contextlib.closing(Client(server.socket_path)) as client:
                client.call("INCR", "rounds")
                assert client.call("WAITAOF", "1", "0", "10000")[0] == 1
            await kill_and_wait_for_the_next(server)
            assert call(server.socket_path, "GET", "rounds") == str(round_number)
            assert server.restarts == round_number
            assert server.failure is None


@in_a_loop
async def test_a_half_written_last_command_does_not_stop_the_server(data_dir: Path) -> None:
    async with EmbeddedServer(data_dir) as server:
        call(server.socket_path, "SET", "whole", "kept")
        call(server.socket_path, "SET", "half", "lost")
    path = newest_data_file(data_dir)
    os.truncate(path, path.stat().st_size - 5)
    async with EmbeddedServer(data_dir) as server:
        assert call(server.socket_path, "MGET", "whole", "half") == ["kept", None]


@in_a_loop
async def test_a_crash_loop_ends_in_a_failure_that_the_owner_is_told(data_dir: Path) -> None:
    async with EmbeddedServer(data_dir, max_restarts_per_minute=2) as server:
        told = asyncio.create_task(server.wait_failed())
        await kill_and_wait_for_the_next(server)
        await kill_and_wait_for_the_next(server)
        assert not told.done()
        assert server.pid is not None
        os.kill(server.pid, signal.SIGKILL)
        failure = await told
        assert failure is server.failure is not None
        assert "exited with -9 after 2 restarts within a minute" in str(failure)
        assert server.restarts == 2
        assert server.pid is None


@in_a_loop
async def test_data_that_cannot_be_loaded_again_ends_in_a_failure_with_the_log(
    data_dir: Path,
) -> None:
    async with EmbeddedServer(data_dir, max_restarts_per_minute=3) as server:
        for i in range(100):
            call(server.socket_path, "SET", f"k{i}", "v")
        assert server.pid is not None
        os.kill(server.pid, signal.SIGSTOP)
        spoil_the_middle_of_the_data(data_dir)
        os.kill(server.pid, signal.SIGKILL)
        failure = await server.wait_failed()
        assert "after 3 restarts within a minute" in str(failure)
        assert "Bad file format" in str(failure)
    async with EmbeddedServer(data_dir.with_name("other")) as other:
        assert call(other.socket_path, "PING") == "PONG"


@in_a_loop
async def test_restarts_of_an_earlier_minute_do_not_count_as_a_crash_loop(data_dir: Path) -> None:
    async with EmbeddedServer(data_dir, max_restarts_per_minute=1) as server:
        await kill_and_wait_for_the_next(server)
        server._recent_restarts = [at - 61 for at in server._recent_restarts]
        await kill_and_wait_for_the_next(server)
        assert server.restarts == 2
        assert server.failure is None


@in_a_loop
async def test_a_failed_server_can_be_stopped_and_started_again(data_dir: Path) -> None:
    server = EmbeddedServer(data_dir, max_restarts_per_minute=0)
    await server.start()
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    assert await server.wait_failed() is not None
    await server.stop()
    await server.start()
    assert server.failure is None
    assert call(server.socket_path, "PING") == "PONG"
    await server.stop()


@in_a_loop
async def test_stop_during_a_restart_leaves_nothing(data_dir: Path) -> None:
    server = EmbeddedServer(data_dir)
    await server.start()
    old = server.pid
    assert old is not None
    os.kill(old, signal.SIGKILL)
    await until(lambda: server.pid not in {None, old})
    await server.stop()
    assert processes_naming(data_dir) == []


@in_a_loop
async def test_who_waits_for_a_failure_is_let_go_at_stop(data_dir: Path) -> None:
    server = EmbeddedServer(data_dir)
    await server.start()
    waiting = asyncio.create_task(server.wait_failed())
    await asyncio.sleep(0)
    await server.stop()
    assert await waiting is None


# --- the scheduler dies ---------------------------------------------------------------------------


@pytest.mark.parametrize("guard", GUARDS)
@in_a_loop
async def test_a_killed_scheduler_leaves_no_server_and_all_saved_data(
    data_dir: Path, guard: OrphanGuard
) -> None:
    with doomed_scheduler(data_dir, guard) as (_, server_pid, path):
        assert server_pid in processes_naming(data_dir)
        with contextlib.closing(Client(path)) as client:
            client.call("SET", "k", "kept")
            assert client.call("WAITAOF", "1", "0", "10000")[0] == 1
    await until(lambda: processes_naming(data_dir) == [])
    async with EmbeddedServer(data_dir, guard=guard) as server:
        assert call(server.socket_path, "GET", "k") == "kept"


@pytest.mark.parametrize("guard", GUARDS)
def test_a_scheduler_killed_right_after_the_fork_leaves_no_server(
    data_dir: Path, guard: OrphanGuard
) -> None:
    scheduler = subprocess.run(
        [sys.executable, "-c", SHORT_LIVED_SCHEDULER, str(data_dir), guard.value],
        timeout=BOUND_S,
        check=False,
    )
    assert scheduler.returncode == -signal.SIGKILL
    asyncio.run(until(lambda: processes_naming(data_dir) == []))


@in_a_loop
async def test_the_guard_on_the_pipe_ends_with_its_server(data_dir: Path) -> None:
    async with EmbeddedServer(data_dir, guard=OrphanGuard.PIPE) as server:
        await until(lambda: len(processes_naming(data_dir)) == 2)
        await kill_and_wait_for_the_next(server)
        await until(lambda: len(processes_naming(data_dir)) == 2)


@in_a_loop
async def test_a_released_guard_on_the_pipe_kills_nothing(tmp_path: Path) -> None:
    program = [*OrphanGuard.PIPE.launcher(), "tail", "-f", str(tmp_path / "log")]
    lock_fd = embedded._try_lock(tmp_path / "owner.lock")
    process = _ServerProcess(program, os.environ, lock_fd, tmp_path / "log")
    try:
        await until(lambda: len(processes_naming(tmp_path)) == 2)
        process._disarm()
        await until(lambda: len(processes_naming(tmp_path)) == 1)
        assert processes_naming(tmp_path) == [process.pid]
    finally:
        process.kill()
        os.close(lock_fd)


@pytest.mark.parametrize("guard", GUARDS)
def test_a_server_whose_event_loop_ended_ends_with_its_thread_or_can_still_be_cleaned_up(
    data_dir: Path, guard: OrphanGuard
) -> None:
    server = EmbeddedServer(data_dir, guard=guard)
    thread = threading.Thread(target=lambda: asyncio.run(server.start()))
    thread.start()
    thread.join(BOUND_S)
    if guard is OrphanGuard.KERNEL:
        asyncio.run(until(lambda: server.pid is None))
    else:
        assert server.pid is not None
    server._clean_up()
    assert server.pid is None
