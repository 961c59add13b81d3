"""A worker process: loads engines and runs one call at a time. Run with `python -m`, not imported.

    stdin = stdout = a socket to the node      main thread: loads and calls engines, answers
                                               reader thread: reads calls, cancels, detects EOF

The socket is moved to another descriptor before anything is loaded: the output of libraries goes
to stderr and cannot break a frame. The process ends with its node, or when it runs out of memory.
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

from lingua_cli.logs import error_text
from lingua_speech import plugins
from lingua_speech.engine import METHODS, About, Stopped
from lingua_speech.host import messages
from lingua_wire.errors import ConfigError, LinguaError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from lingua_speech.engine import Engine
    from lingua_speech.plugins import Spec

PR_SET_PDEATHSIG: Final = 1
OOM_SCORE_MORE: Final = 300
OOM_SCORE_MAX: Final = 1000
STDIN, STDOUT, STDERR = 0, 1, 2
# How errors of native libraries that ran out of memory read in Python.
MEMORY_WORDS: Final = ("bad_alloc", "bad allocation", "out of memory", "failed to allocate memory")


class NodeChannel:
    """This process' end of the socket to the node."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        # An engine may report partial results from threads of its own.
        self._sending = threading.Lock()

    def send(self, framed: bytearray) -> None:
        """Send a frame; the node always reads."""
        with self._sending:
            self._socket.sendall(framed)

    def receive(self) -> messages.ToWorker | None:
        """Wait for a message; None if the node has disconnected."""
        header = self._exactly(messages.HEADER.size)
        if header is None:
            return None
        (size,) = messages.HEADER.unpack(header)
        body = self._exactly(size)
        return None if body is None else messages.TO_WORKER.decode(body)

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


class CallWatch:
    """The watch of one call: sends the newest partial result to the node at a limited rate."""

    def __init__(self, call_id: int, node: NodeChannel, pause_s: float) -> None:
        self.id = call_id
        self._node = node
        self._pause_s = pause_s
        # When the last partial result was sent, the next one, and the last one.
        self._sent_at = 0.0
        self._next = ""
        self._sent = ""
        # The answer is no longer needed; set by the reader thread.
        self.is_stopped = False
        # The call has ended; threads of the engine may still report.
        self.is_over = False

    def partial(self, text: str) -> None:
        """Report the text so far: now, or with a later `partial` or `check`."""
        self._next = text
        self._send_if_due()

    def check(self) -> None:
        """Raise `Stopped` if the call was cancelled."""
        if self.is_stopped:
            raise Stopped
        if self._next != self._sent:
            self._send_if_due()

    def _send_if_due(self) -> None:
        now = time.monotonic()
        if now - self._sent_at < self._pause_s or self.is_over or self.is_stopped:
            return
        self._sent_at = now
        self._sent = self._next
        self._node.send(messages.frame(messages.PartialText(self.id, self._sent)))


Work = (
    messages.LoadEngines
    | messages.CloseEngines
    | tuple[messages.EngineCall[msgspec.Raw], CallWatch]
)


class EngineRunner:
    """The engines of this process, as the main thread loads and calls them."""

    def __init__(self, node: NodeChannel) -> None:
        self._node = node
        self._specs: tuple[Spec, ...] = ()
        self._engines: dict[int, Engine] = {}

    def load(self, order: messages.LoadEngines) -> None:
        """Load every engine and report the result of each."""
        began = time.monotonic()
        self._specs = order.specs
        abouts: dict[int, About] = {}
        faults: dict[int, messages.EngineFault] = {}
        for index, spec in enumerate(order.specs):
            self._node.send(messages.frame(messages.EngineLoading(index)))
            try:
                engine = plugins.make(spec)
                abouts[index] = _validated_about(engine)
                self._engines[index] = engine
            except (Exception, SystemExit) as error:  # noqa: BLE001 foreign code may raise anything
                exit_if_out_of_memory(error)
                faults[index] = messages.EngineFault.of(error)
        load_s = time.monotonic() - began
        self._node.send(messages.frame(messages.EnginesLoaded(abouts, faults, load_s)))

    def answer(self, call: messages.EngineCall[msgspec.Raw], watch: CallWatch) -> None:
        """Call an engine and send its answer or its error."""
        try:
            watch.check()
            role = self._specs[call.index].role
            arguments = messages.ARGUMENTS[role].decode(call.arguments)
            method: Callable[..., object] = getattr(self._engines[call.index], METHODS[role])
            reply = messages.frame(messages.CallDone(call.id, method(*arguments, watch)))
        except (Exception, SystemExit) as error:  # noqa: BLE001 foreign code may raise anything
            exit_if_out_of_memory(error)
            reply = messages.frame(messages.CallFailed(call.id, messages.EngineFault.of(error)))
        watch.is_over = True
        self._node.send(reply)

    def close(self) -> None:
        """Close every engine, even if one fails to close."""
        for engine in self._engines.values():
            try:
                engine.close()
            except (Exception, SystemExit) as error:  # noqa: BLE001 foreign code may raise anything
                write_stderr(f"engine did not close: {error_text(error)}")


def _validated_about(engine: Engine) -> About:
    about = engine.about()
    if not isinstance(about, About):
        raise ConfigError("engines", f"about() returned a {type(about).__name__}, not an About")
    try:
        # As the node will decode it: a field may hold a value that its type does not allow.
        return msgspec.msgpack.decode(msgspec.msgpack.encode(about), type=About)
    except (msgspec.ValidationError, TypeError) as error:
        raise ConfigError("engines", f"about() is not well formed: {error}") from error


def exit_if_out_of_memory(error: BaseException) -> None:
    """End the process if it ran out of memory: a new process starts with less."""
    if isinstance(error, MemoryError) or (
        not isinstance(error, LinguaError)
        and any(words in str(error).lower() for words in MEMORY_WORDS)
    ):
        os._exit(messages.EXIT_MEMORY)


def read(node: NodeChannel, work: SimpleQueue[Work], pause_s: float = 0.1) -> None:
    """Read messages until the node disconnects, then end the process in any state."""
    watch: CallWatch | None = None
    try:
        while (message := node.receive()) is not None:
            match message:
                case messages.EngineCall():
                    watch = CallWatch(message.id, node, pause_s)
                    work.put((message, watch))
                case messages.CancelCall():
                    # The node sends one call at a time, so this is the only one.
                    if watch is not None and watch.id == message.id:
                        watch.is_stopped = True
                case messages.LoadEngines():
                    pause_s = message.partial_ms / 1000
                    work.put(message)
                case _:
                    work.put(message)
    except MemoryError:
        os._exit(messages.EXIT_MEMORY)
    except (LinguaError, msgspec.DecodeError) as error:
        write_stderr(f"the node sent an invalid message: {error_text(error)}")
    exit_with_children()


def exit_with_children() -> NoReturn:
    """End this process and the processes that its engines started."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os._exit(0)


def write_stderr(line: str) -> None:
    """Write a line for the operator."""
    os.write(STDERR, f"{line}\n".encode(errors="replace"))


def detach_socket() -> NodeChannel:
    """Move the socket from stdin and stdout to where libraries and their children cannot use it."""
    sock = socket.socket(fileno=os.dup(STDIN))
    sock.set_inheritable(False)
    os.dup2(STDERR, STDOUT)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, STDIN)
    os.close(nothing)
    return NodeChannel(sock)


def tie_to_node() -> None:
    """Let the node end this process: terminals and service managers signal the node, too."""
    for number in (signal.SIGINT, signal.SIGTERM):
        # Not SIG_IGN, which programs started by engines would inherit.
        signal.signal(number, _ignore_signal)
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # /proc may be read-only; this is optional
            raise_oom_score(Path("/proc/self/oom_score_adj"))
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))


def raise_oom_score(score: Path) -> None:
    """Make the kernel end this process, not its node, when the machine runs out of memory."""
    score.write_text(str(min(int(score.read_text()) + OOM_SCORE_MORE, OOM_SCORE_MAX)))


def _ignore_signal(number: int, where: FrameType | None) -> None:
    """Ignore a signal."""


def limit_memory(memory_mb: int) -> None:
    """Limit the address space of this process and of each process that its engines start."""
    if memory_mb:
        size = memory_mb * 1024 * 1024
        _, allowed = resource.getrlimit(resource.RLIMIT_AS)
        size = size if allowed == resource.RLIM_INFINITY else min(size, allowed)
        resource.setrlimit(resource.RLIMIT_AS, (size, size))


def main() -> NoReturn:
    """Run until the node sends `CloseEngines`."""
    tie_to_node()
    node = detach_socket()
    faulthandler.enable(STDERR)
    work: SimpleQueue[Work] = SimpleQueue()
    threading.Thread(target=read, args=(node, work), daemon=True).start()
    try:
        serve(EngineRunner(node), work)
    except MemoryError:
        os._exit(messages.EXIT_MEMORY)
    except OSError:
        # The connection to the node is lost.
        exit_with_children()
    # Skip the interpreter's shutdown, in which native libraries may crash.
    os._exit(0)


def serve(runner: EngineRunner, work: SimpleQueue[Work]) -> None:
    """Process one message after another until `CloseEngines`."""
    while True:
        match work.get():
            case messages.LoadEngines() as order:
                limit_memory(order.memory_mb)
                runner.load(order)
            case (call, watch):
                runner.answer(call, watch)
            case _:
                runner.close()
                return


if __name__ == "__main__":
    main()
