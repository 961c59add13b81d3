"""The private server of `local` mode: one real Valkey/Redis process, owned by this process.

It is not a client (connections are in `state/link.py`), and it is not used with an external server.
The scheduler's start-up code holds one `EmbeddedServer` for as long as it runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import fcntl
import logging
import os
import re
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

from lingua_scheduler.errors import EmbeddedServerError
from lingua_scheduler.state.allocator import find_allocator, with_allocator
from lingua_scheduler.state.binary import find_server_binary
from lingua_scheduler.state.owner import DirectoryInUse, owner_of, serves

if TYPE_CHECKING:
    from collections.abc import Mapping

LOCK_NAME = "owner.lock"
LOG_NAME = "server.log"
SOCKET_NAME = "server.sock"
SOCKET_NOTE_NAME = (
    "socket-directory"  # contains the path of the socket if that is in another directory
)
SOCKET_PATH_MAX_BYTES = 103  # of macOS; Linux allows four more
LOCK_WAIT_S = 5.0  # how long the server of a killed scheduler may take to exit
READY_WAIT_S = 60.0  # includes loading the data
PING_WAIT_S = 1.0
STOP_WAIT_S = 10.0
KILL_WAIT_S = 10.0
RESTART_FIRST_PAUSE_S = 0.02
RESTART_LONGEST_PAUSE_S = 0.5
START_POLL_S = 0.01
EXIT_POLL_S = 0.05  # works on every event loop and platform; costs 20 cheap wake-ups a second

_log = logging.getLogger(__name__)

# Requests a signal at the death of its parent, then becomes the server. A separate program and not
# `preexec_fn`, because Python code between fork and exec can deadlock if there are other threads.
_KERNEL_LAUNCHER = """
import ctypes, os, signal, sys
parent_pid, command = int(sys.argv[1]), sys.argv[2:]
if ctypes.CDLL(None).prctl(1, ctypes.c_ulong(signal.SIGKILL)) != 0:  # PR_SET_PDEATHSIG
    sys.exit("the kernel refused to tie the server to the scheduler")
if os.getppid() != parent_pid:
    sys.exit("the scheduler died before its server was tied to it")
os.execv(command[0], command)
"""

# A line on standard input means "the server has ended", end of file "the scheduler has ended".
# `$$` is the shell that becomes the server, also inside the background job.
_PIPE_LAUNCHER = 'exec 3<&0 </dev/null; { read -r line <&3 || kill -9 $$; } & exec "$@" 3<&-'


class OrphanGuard(enum.Enum):
    """Ends the server when this process ends, even by `kill -9`.

    KERNEL (Linux): the kernel kills the server when its parent dies. The parent is the *thread*
    that forked. Therefore the event loop's thread forks, and the server ends with its loop.
    PIPE (macOS, BSD): a small `sh` waits on a pipe that only this process holds open. At end of
    file it kills the server. This is the second choice, because the `sh` itself can be killed.
    """

    KERNEL = "kernel"
    PIPE = "pipe"

    def launcher(self) -> list[str]:
        """Return the command that arms the guard and then becomes the command appended to it."""
        if self is OrphanGuard.KERNEL:
            return [sys.executable, "-I", "-S", "-c", _KERNEL_LAUNCHER, str(os.getpid())]
        return ["/bin/sh", "-c", _PIPE_LAUNCHER, "sh"]


class EmbeddedServer:
    """Owns one data directory and keeps one server running on it.

    1. Own the directory: private to this user, locked against a second owner.
    2. Start the server on a Unix socket and wait until it answers.
    3. Bind the server's lifetime to this process, so that no server is left behind.
    4. Restart it with its data when it dies; give up after too many restarts.
    5. Stop it in order: it saves, the socket is removed, the directory is unlocked.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        binary: Path | None = None,
        guard: OrphanGuard | None = None,
        allocator: Path | None = None,
        max_restarts_per_minute: int = 10,
    ) -> None:
        self.data_dir = data_dir.resolve()  # all files of the server and of this class
        self.socket_path = self.data_dir / SOCKET_NAME  # final after `start` has returned
        self.restarts = 0  # how often the server was restarted
        self.failure: EmbeddedServerError | None = None  # why supervision gave up
        self._binary = binary and binary.absolute()  # symbolic links are kept, because names matter
        self._guard = guard or OrphanGuard("kernel" if sys.platform == "linux" else "pipe")
        self._allocator = allocator or find_allocator()
        self._max_restarts_per_minute = max_restarts_per_minute
        self._recent_restarts: list[float] = []  # monotonic times within the last minute
        self._lock_fd: int | None = None  # inherited by the server; None means not started
        self._process: _ServerProcess | None = None  # the latest run, possibly ended
        self._supervisor: asyncio.Task[None] | None = None  # exists exactly while started
        self._over = asyncio.Event()  # supervision has ended, by failure or by `stop`

    @property
    def pid(self) -> int | None:
        """The server's process id, or None while no server runs."""
        process = self._process
        return process.pid if process and process.exit_code() is None else None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.stop()

    async def start(self) -> Path:
        """Start the server, wait until it answers, and return its socket path."""
        if self._lock_fd is not None:
            raise EmbeddedServerError(f"the server in {self.data_dir} is already started")
        try:
            await self._start()
        except (OSError, subprocess.SubprocessError) as error:
            raise EmbeddedServerError(f"cannot start in {self.data_dir}: {error}") from error
        finally:
            if self._supervisor is None:  # failed or cancelled
                self._clean_up()
        return self.socket_path

    async def stop(self) -> None:
        """End the server after it saved, and free the directory; does nothing when not started."""
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is None:
            return
        try:
            supervisor.cancel()
            await asyncio.wait({supervisor})
            if self._process is not None:
                await self._process.end()
        finally:
            self._clean_up()
            self._over.set()
        if not supervisor.cancelled():
            supervisor.result()  # raises the error of a failed supervision task

    async def wait_failed(self) -> EmbeddedServerError | None:
        """Wait until supervision ends; return why it gave up, or None after `stop`."""
        await self._over.wait()
        return self.failure

    async def _start(self) -> None:
        self._binary = self._binary or find_server_binary()
        await asyncio.to_thread(_check_version, self._binary)
        _make_private(self.data_dir)
        self._lock_fd = await _lock(self.data_dir / LOCK_NAME)
        self.socket_path = _choose_socket_path(self.data_dir)
        self._process = self._launch()
        await self._wait_until_ready(self._process)
        self.failure = None
        self._over.clear()
        self._supervisor = asyncio.create_task(self._supervise(self._process))

    def _launch(self) -> _ServerProcess:
        assert self._lock_fd is not None
        for leftover in (self.socket_path, *self.data_dir.glob("temp-*.aof")):
            leftover.unlink(missing_ok=True)  # a killed server also leaves unfinished rewrites
        command = [
            *self._guard.launcher(),
            str(self._binary),
            *_options(self.data_dir, self.socket_path),
        ]
        environment = with_allocator(os.environ, self._allocator)
        return _ServerProcess(command, environment, self._lock_fd, self.data_dir / LOG_NAME)

    async def _wait_until_ready(self, process: _ServerProcess) -> None:
        deadline = time.monotonic() + READY_WAIT_S
        while not await _answers_ping(self.socket_path):
            if process.exit_code() is not None:
                raise process.error(f"exited with {process.exit_code()} before it was ready")
            if time.monotonic() > deadline:
                raise process.error(f"was not ready after {READY_WAIT_S:g} s")
            await asyncio.sleep(START_POLL_S)

    async def _supervise(self, process: _ServerProcess) -> None:
        try:
            while True:
                await process.wait_exit()
                _log.warning("the private server exited with %s", process.exit_code())
                await asyncio.sleep(self._note_restart(process))
                process = await self._restart(process)
        except EmbeddedServerError as error:
            self.failure = error
        finally:
            self._over.set()

    def _note_restart(self, process: _ServerProcess) -> float:
        """Count one restart and return the pause before it; raise when there are too many."""
        now = time.monotonic()
        recent = self._recent_restarts = [t for t in self._recent_restarts if now - t < 60]
        if len(recent) >= self._max_restarts_per_minute:
            died = f"exited with {process.exit_code()}"
            raise process.error(f"{died} after {len(recent)} restarts within a minute")
        recent.append(now)
        self.restarts += 1
        return min(RESTART_LONGEST_PAUSE_S, RESTART_FIRST_PAUSE_S * 2.0 ** (len(recent) - 1))

    async def _restart(self, process: _ServerProcess) -> _ServerProcess:
        try:
            self._process = process = self._launch()
            await self._wait_until_ready(process)
        except (EmbeddedServerError, OSError) as error:
            # A failed start counts as a death: the next round of supervision tries again.
            _log.warning("the private server could not be started again: %s", error)
            process.kill()
        return process

    def _clean_up(self) -> None:
        """Kill the server and remove its socket; release the lock last, which protects both."""
        if self._lock_fd is None:
            return
        try:
            if self._process is not None:
                self._process.kill()
            _remove_socket(self.data_dir, self.socket_path)
        finally:
            os.close(self._lock_fd)
            self._lock_fd = self._process = None


class _ServerProcess:
    """One run of the server program, which ends with this process."""

    def __init__(
        self, command: list[str], environment: Mapping[str, str], lock_fd: int, log: Path
    ) -> None:
        # The log of all runs, and where this run's part of it begins.
        self._log = log
        self._log_start_bytes = log.stat().st_size if log.exists() else 0
        with log.open("ab") as output:
            # Forks in the calling thread, the one of the event loop: see `OrphanGuard`.
            self._child = subprocess.Popen(  # noqa: S603 - our own binary, no text from outside
                command,
                bufsize=0,
                env=environment,
                stdin=subprocess.PIPE,  # the PIPE guard waits on it; the server reads nothing
                stdout=output,
                stderr=output,
                pass_fds=(lock_fd,),  # locked until both processes have ended
                start_new_session=True,  # Ctrl-C must only reach us; we stop the server
            )
        self.pid = self._child.pid

    def exit_code(self) -> int | None:
        """Return how the process ended, or None while it runs."""
        code = self._child.poll()
        if code is not None:
            self._disarm()
        return code

    async def wait_exit(self) -> None:
        """Wait until the process has ended, by polling, which works on every platform and loop."""
        while self.exit_code() is None:  # noqa: ASYNC110 - nothing sets an event at an exit
            await asyncio.sleep(EXIT_POLL_S)

    async def end(self) -> None:
        """Ask the server to save and exit, and wait a bounded time until it did."""
        self._child.terminate()
        with contextlib.suppress(TimeoutError):  # then the caller kills it
            async with asyncio.timeout(STOP_WAIT_S):
                await self.wait_exit()

    def kill(self) -> None:
        """Kill the process and wait until it has ended."""
        self._child.kill()
        try:
            self._child.wait(KILL_WAIT_S)
        except subprocess.TimeoutExpired as error:
            raise self.error(f"(process {self.pid}) does not die") from error
        self._disarm()

    def error(self, problem: str) -> EmbeddedServerError:
        """Return the error for a problem of the server, with the last lines of this run's log."""
        lines = []
        with contextlib.suppress(FileNotFoundError), self._log.open("rb") as log:
            log.seek(max(self._log_start_bytes, self._log.stat().st_size - 4096))
            lines = log.read().decode(errors="replace").splitlines()[-12:]
        return EmbeddedServerError("\n  ".join([f"the server {problem}; its log ends:", *lines]))

    def _disarm(self) -> None:
        """Release the PIPE guard, so that it never kills a later process with the same pid."""
        pipe = self._child.stdin
        if pipe is not None and not pipe.closed:
            with contextlib.suppress(BrokenPipeError):  # the guard has ended
                pipe.write(b"\n")
            pipe.close()


def _options(data_dir: Path, socket_path: Path) -> list[str]:
    """Return the whole configuration; no configuration file is read."""
    settings = (
        "--port 0 --unixsocketperm 600 --daemonize no --appendonly yes --appendfsync everysec "
        "--auto-aof-rewrite-min-size 256mb "
        "--aof-load-truncated yes --maxmemory-policy noeviction"
    )
    places = {"--unixsocket": socket_path, "--dir": data_dir, "--logfile": data_dir / LOG_NAME}
    paths = [word for name, path in places.items() for word in (name, str(path))]
    return [*settings.split(), "--save", "", *paths]


def _check_version(binary: Path) -> None:
    """Refuse a program that is not a server or lacks commands that our scripts use."""
    answer = subprocess.run(  # noqa: S603 - the binary that we are about to run anyway
        [binary, "--version"], capture_output=True, text=True, timeout=10, check=False
    ).stdout
    found = re.search(r"\bv=(\d+)\.(\d+)", answer)
    if found is None:
        raise EmbeddedServerError(f"{binary} is not a Valkey or Redis server: {answer[:200]!r}")
    if (int(found[1]), int(found[2])) < (7, 0):
        raise EmbeddedServerError(f"{binary} is version {found[1]}.{found[2]}, 7.0 is the oldest")


def _make_private(directory: Path) -> None:
    """Make the directory private to this user, unless others already use it."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = directory.stat()
    if status.st_uid != os.geteuid():
        raise EmbeddedServerError(f"{directory} belongs to another user")
    in_use = any(directory.iterdir()) and not (directory / LOCK_NAME).exists()
    if in_use and status.st_mode & 0o077:
        raise EmbeddedServerError(f"{directory} is open to others and in use: chmod it to 700")
    directory.chmod(0o700)


async def _lock(path: Path) -> int:
    """Return a descriptor that holds the lock, after a bounded wait for a dying server."""
    deadline = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            return _try_lock(path)
        except DirectoryInUse as error:
            if time.monotonic() > deadline or await serves(error.owner):
                raise
        await asyncio.sleep(START_POLL_S)


def _try_lock(path: Path) -> int:
    with path.open("a+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = owner_of(path.parent, path.read_text().strip())
            raise DirectoryInUse(path.parent, owner) from None
        file.truncate(0)
        file.write(b"%d\n" % os.getpid())
        # The copy keeps the lock. Its number is high, because `_PIPE_LAUNCHER` uses 3.
        return fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, 10)


def _choose_socket_path(data_dir: Path) -> Path:
    """Return a path in the data directory, or in a short private one when that is too long."""
    path = data_dir / SOCKET_NAME
    if len(os.fsencode(path)) <= SOCKET_PATH_MAX_BYTES:
        return path
    note = data_dir / SOCKET_NOTE_NAME
    directory = _remembered_directory(note) or Path(tempfile.mkdtemp(prefix="lingua-"))
    path = directory / SOCKET_NAME
    if len(os.fsencode(path)) > SOCKET_PATH_MAX_BYTES:
        directory.rmdir()
        raise EmbeddedServerError(f"{path} is too long for a socket; set TMPDIR to a shorter path")
    note.write_text(str(directory))
    return path


def _remembered_directory(note: Path) -> Path | None:
    """Return the socket directory of a killed owner, if it still exists and is private."""
    try:
        directory = Path(note.read_text())
        status = directory.lstat()
    except FileNotFoundError:
        return None
    private = status.st_mode == stat.S_IFDIR | 0o700 and status.st_uid == os.geteuid()
    return directory if private and directory.is_absolute() else None


def _remove_socket(data_dir: Path, socket_path: Path) -> None:
    socket_path.unlink(missing_ok=True)
    if socket_path.parent != data_dir:
        with contextlib.suppress(FileNotFoundError):  # removed by a cleaner of /tmp
            socket_path.parent.rmdir()
        (data_dir / SOCKET_NOTE_NAME).unlink(missing_ok=True)


async def _answers_ping(socket_path: Path) -> bool:
    """Tell whether the server is ready; one that still loads its data answers LOADING."""
    try:
        async with asyncio.timeout(PING_WAIT_S):
            reader, writer = await asyncio.open_unix_connection(str(socket_path))
            with contextlib.closing(writer):
                writer.write(b"PING\r\n")
                return await reader.readline() == b"+PONG\r\n"
    except OSError:  # no socket yet, no listener, or (TimeoutError) no answer
        return False
