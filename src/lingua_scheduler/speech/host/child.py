"""A worker process: loads engines and runs one call at a time; `python -m` this, never imported.

    stdin = stdout = a socket to the node      main thread: loads, calls engines, answers
                                               reader thread: takes calls, cancels, notices EOF

The socket is moved away before anything is loaded: what a library prints goes to stderr and cannot
break a frame. The process does not outlive its node, and ends when memory does.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import resource
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, NoReturn

import msgspec

from lingua_scheduler.errors import ConfigError, LinguaError
from lingua_scheduler.logs import error_text
from lingua_scheduler.speech import plugins
from lingua_scheduler.speech.engine import METHODS, About, Stopped
from lingua_scheduler.speech.host import wire

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from lingua_scheduler.speech.engine import Engine
    from lingua_scheduler.speech.plugins import Spec

PR_SET_PDEATHSIG: Final = 1
OOM_SCORE_MORE: Final = 300
OOM_SCORE_MAX: Final = 1000
STDIN, STDOUT, STDERR = 0, 1, 2
# How native libraries say that they got no memory, once Python has made an error of it.
MEMORY_WORDS: Final = ("bad_alloc", "bad allocation", "out of memory", "failed to allocate memory")


class Line:
    """The socket to the node, as this process sees it."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        # An engine may tell partial results from threads of its own.
        self._sending = threading.Lock()

    def send(self, framed: bytearray) -> None:
        """Send a frame; the node reads always."""
        with self._sending:
            self._socket.sendall(framed)

    def receive(self) -> wire.Down | None:
        """Wait for a message; None if the node is gone."""
        header = self._exactly(wire.HEADER.size)
        if header is None:
            return None
        (size,) = wire.HEADER.unpack(header)
        body = self._exactly(size)
        return None if body is None else wire.DOWN.decode(body)

    def _exactly(self, size: int) -> bytearray | None:
        buffer = bytearray(size)
        view = memoryview(buffer)
        while view:
            try:
                count = self._socket.recv_into(view)
            except ConnectionError:
                return None
            if count == 0:
                return None
            view = view[count:]
        return buffer


class LineWatch:
    """The watch of one call: its partial results go to the node, newest first, not too often."""

    def __init__(self, call_id: int, line: Line, pause_s: float) -> None:
        self.id = call_id
        self._line = line
        self._pause_s = pause_s
        # When the last partial result was sent, what is to be sent next, and what was sent.
        self._sent_at = 0.0
        self._next = ""
        self._told = ""
        # Nobody wants the answer any more; set by the reader thread.
        self.is_stopped = False
        # The call is over: an engine's own threads may not know.
        self.is_over = False

    def partial(self, text: str) -> None:
        """Tell what is known so far, now or when the next one or `check` finds it due."""
        self._next = text
        self._tell_if_due()

    def check(self) -> None:
        """Raise `Stopped` if the call was cancelled."""
        if self.is_stopped:
            raise Stopped
        if self._next != self._told:
            self._tell_if_due()

    def _tell_if_due(self) -> None:
        now = time.monotonic()
        if now - self._sent_at < self._pause_s or self.is_over or self.is_stopped:
            return
        self._sent_at = now
        self._told = self._next
        self._line.send(wire.frame(wire.Partial(self.id, self._told)))


Work = wire.Load | wire.Close | tuple[wire.Call[msgspec.Raw], LineWatch]


class Bench:
    """The engines of this process, and what the main thread does with them."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._specs: tuple[Spec, ...] = ()
        self._engines: dict[int, Engine] = {}

    def load(self, order: wire.Load) -> None:
        """Load every engine and tell what came of each."""
        began = time.monotonic()
        self._specs = order.specs
        abouts: dict[int, About] = {}
        faults: dict[int, wire.Fault] = {}
        for index, spec in enumerate(order.specs):
            self._line.send(wire.frame(wire.Loading(index)))
            try:
                engine = plugins.make(spec)
                abouts[index] = _truth_of(engine)
                self._engines[index] = engine
            except (Exception, SystemExit) as error:  # noqa: BLE001 it is somebody else's code
                end_if_no_memory(error)
                faults[index] = wire.Fault.of(error)
        load_s = time.monotonic() - began
        self._line.send(wire.frame(wire.Loaded(abouts, faults, load_s)))

    def answer(self, call: wire.Call[msgspec.Raw], watch: LineWatch) -> None:
        """Ask an engine and send what it says, whatever that is."""
        try:
            watch.check()
            role = self._specs[call.index].role
            arguments = wire.ARGUMENTS[role].decode(call.arguments)
            ask: Callable[..., object] = getattr(self._engines[call.index], METHODS[role])
            reply = wire.frame(wire.Done(call.id, ask(*arguments, watch)))
        except (Exception, SystemExit) as error:  # noqa: BLE001 it is somebody else's code
            end_if_no_memory(error)
            reply = wire.frame(wire.Failed(call.id, wire.Fault.of(error)))
        watch.is_over = True
        self._line.send(reply)

    def close(self) -> None:
        """Let every engine go, also after one that cannot."""
        for engine in self._engines.values():
            try:
                engine.close()
            except (Exception, SystemExit) as error:  # noqa: BLE001 it is somebody else's code
                say(f"engine did not close: {error_text(error)}")


def _truth_of(engine: Engine) -> About:
    about = engine.about()
    if not isinstance(about, About):
        raise ConfigError("engines", f"about() gave a {type(about).__name__}, not an About")
    try:
        # As the node will read it: a field may hold what its type does not allow.
        return msgspec.msgpack.decode(msgspec.msgpack.encode(about), type=About)
    except (msgspec.ValidationError, TypeError) as error:
        raise ConfigError("engines", f"about() is not well formed: {error}") from error


def end_if_no_memory(error: BaseException) -> None:
    """End the process if memory ran out: whatever it holds, a new one holds less."""
    if isinstance(error, MemoryError) or (
        not isinstance(error, LinguaError)
        and any(words in str(error).lower() for words in MEMORY_WORDS)
    ):
        os._exit(wire.EXIT_MEMORY)


def read(line: Line, work: SimpleQueue[Work], pause_s: float = 0.1) -> None:
    """Take what the node sends until it is gone, and then end the process, whatever it does."""
    watch: LineWatch | None = None
    try:
        while (message := line.receive()) is not None:
            match message:
                case wire.Call():
                    watch = LineWatch(message.id, line, pause_s)
                    work.put((message, watch))
                case wire.Cancel():
                    # The node sends the next call after the end of this one: there is no other.
                    if watch is not None and watch.id == message.id:
                        watch.is_stopped = True
                case wire.Load():
                    pause_s = message.partial_ms / 1000
                    work.put(message)
                case _:
                    work.put(message)
    except MemoryError:
        os._exit(wire.EXIT_MEMORY)
    except (LinguaError, msgspec.DecodeError) as error:
        say(f"the node sent no message: {error_text(error)}")
    end_with_all()


def end_with_all() -> NoReturn:
    """End this process and those that its engines started."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os._exit(0)


def say(words: str) -> None:
    """Write a line for the operator."""
    os.write(STDERR, f"{words}\n".encode(errors="replace"))


def take_line() -> Line:
    """Move the socket away from stdin and stdout, out of reach of libraries and their children."""
    sock = socket.socket(fileno=os.dup(STDIN))
    sock.set_inheritable(False)
    os.dup2(STDERR, STDOUT)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, STDIN)
    os.close(nothing)
    return Line(sock)


def live_and_die_with_node() -> None:
    """Leave the end to the node: signals of a terminal or a service manager go to it, too."""
    for number in (signal.SIGINT, signal.SIGTERM):
        # Not SIG_IGN: programs that engines start would inherit that.
        signal.signal(number, _let_pass)
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # /proc may be read-only; it is a wish only
            be_first_to_go(Path("/proc/self/oom_score_adj"))
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))


def be_first_to_go(score: Path) -> None:
    """Ask the kernel, if the machine has no memory left, to end this process and not its node."""
    score.write_text(str(min(int(score.read_text()) + OOM_SCORE_MORE, OOM_SCORE_MAX)))


def _let_pass(number: int, where: FrameType | None) -> None:
    """Do nothing about a signal."""


def limit_memory(memory_mb: int) -> None:
    """Bound the address space of this process, and of each that its engines start."""
    if memory_mb:
        size = memory_mb * 1024 * 1024
        _, allowed = resource.getrlimit(resource.RLIMIT_AS)
        size = size if allowed == resource.RLIM_INFINITY else min(size, allowed)
        resource.setrlimit(resource.RLIMIT_AS, (size, size))


def main() -> NoReturn:
    """Do what the node says until it says `Close`."""
    live_and_die_with_node()
    line = take_line()
    faulthandler.enable(STDERR)
    work: SimpleQueue[Work] = SimpleQueue()
    threading.Thread(target=read, args=(line, work), daemon=True).start()
    try:
        serve(Bench(line), work)
    except MemoryError:
        os._exit(wire.EXIT_MEMORY)
    except OSError:
        # There is no way to the node any more.
        end_with_all()
    # Without the interpreter's own end, in which native libraries like to crash.
    os._exit(0)


def serve(bench: Bench, work: SimpleQueue[Work]) -> None:
    """Do one thing after the other, until it is `Close`."""
    while True:
        match work.get():
            case wire.Load() as order:
                limit_memory(order.memory_mb)
                bench.load(order)
            case (call, watch):
                bench.answer(call, watch)
            case _:
                bench.close()
                return


if __name__ == "__main__":
    main()
