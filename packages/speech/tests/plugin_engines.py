"""Engines as a third-party package might have them, most of them with faults.

They are loaded through real entry points in worker processes; `host/worker_pools.py` creates the
package. The first word of a text tells the translator what to do. The option `load` sets what
happens when it is loaded; if the option `only_if` is given, only while that file exists.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from lingua_speech.engine import (
    About,
    EngineError,
    Hint,
    ModelMissing,
    Sound,
    SpeechSpan,
    Transcript,
    Watch,
)
from lingua_speech.plugins import take

KNOWN = {"load": "", "only_if": "", "closed": ""}
GIGABYTE = 1 << 30


class Obedient:
    """A translator controlled by the first word of a text."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = take(options, KNOWN)
        only_if = self._options["only_if"]
        if self._options["load"] and (not only_if or Path(only_if).exists()):
            LOADS[self._options["load"]]()

    def about(self) -> About:
        return About(engine="obedient", version="1", pairs=(("en", "es"),))

    def close(self) -> None:
        if self._options["closed"]:
            Path(self._options["closed"]).write_text(str(os.getpid()))

    def translate(self, text: str, source: str, target: str, watch: Watch) -> str:
        verb, _, rest = text.partition(" ")
        return DEEDS[verb](rest, watch)


class Allround:
    def about(self) -> About:
        return About(engine="allround", languages=("en",))

    def close(self) -> None:
        pass

    def recognise(self, sound: Sound, hint: Hint, watch: Watch) -> Transcript:
        return Transcript(text=f"{len(sound.pcm)} {sum(sound.pcm[:64])}", language=hint.language)

    def speak(self, text: str, language: str, watch: Watch) -> Sound:
        return Sound(bytes([7]) * int(text), 16000)

    def spans(self, sound: Sound, watch: Watch) -> tuple[SpeechSpan, ...]:
        return (SpeechSpan(0, int(sound.duration_ms)),)

    def identify(self, text: str, allowed: tuple[str, ...], watch: Watch) -> dict[str, float]:
        return dict.fromkeys(allowed, 1 / len(allowed))


class Liar(Allround):
    def about(self) -> About:
        return About(engine="liar", languages=(1, 2))  # type: ignore[arg-type]


def make_obedient(options: Mapping[str, str]) -> Obedient:
    return Obedient(options)


def make_allround(options: Mapping[str, str]) -> Allround:
    return Allround()


def make_liar(options: Mapping[str, str]) -> Liar:
    return Liar()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _sleep_for_ever() -> None:
    while True:
        time.sleep(1)


def _hold_the_gil() -> None:
    # PyDLL keeps the interpreter lock: no other Python thread of the process runs.
    sleep = ctypes.PyDLL(None).sleep
    for _ in range(1000):
        sleep(1000)


def _take_memory() -> None:
    held = []
    while True:
        held.append(bytearray(GIGABYTE // 8))


def _abort_for_memory() -> None:
    # Like the C++ library on an uncaught std::bad_alloc.
    os.write(2, b"terminate called after throwing an instance of 'std::bad_alloc'\n")
    os.abort()


def _missing() -> None:
    raise ModelMissing("no model: lingua models install obedient")


def _exit() -> None:
    sys.exit(3)


def _quote() -> None:
    raise ValueError("the speaker said: secret words")


LOADS: dict[str, Callable[[], object]] = {
    "die": _die,
    "hang": _sleep_for_ever,
    "memory": _take_memory,
    "missing": _missing,
    "quote": _quote,
    "slow": lambda: time.sleep(1.0),
}


def _say(rest: str, watch: Watch) -> str:
    return rest


def _wait_for(rest: str, watch: Watch) -> str:
    """Continue when the second file exists; create the first one when the wait begins."""
    begun, _, until = rest.partition(" ")
    Path(begun).write_text(str(os.getpid()))
    while not Path(until).exists():
        watch.check()
        time.sleep(0.005)
    return str(os.getpid())


def _deaf(rest: str, watch: Watch) -> str:
    """Report the start and never check the watch."""
    Path(rest).write_text(str(os.getpid()))
    _sleep_for_ever()
    return ""


def _nap(rest: str, watch: Watch) -> str:
    """Report the start, and sleep for a moment without a look at the watch."""
    Path(rest).touch()
    time.sleep(0.3)
    return ""


def _print(rest: str, watch: Watch) -> str:
    print("garbage from Python", rest, flush=True)
    os.write(1, b"\x00\xff\x00\x00garbage from C" * 5000 + b"\n")
    ctypes.CDLL(None).puts(b"garbage from stdio")
    ctypes.CDLL(None).fflush(None)
    return rest


def _partials(rest: str, watch: Watch) -> str:
    """Report 1000 partial results within at least 0.5 s."""
    for number in range(1000):
        watch.partial(str(number))
        time.sleep(0.0005)
    return rest


def _refuse(rest: str, watch: Watch) -> str:
    raise EngineError("LANG_PAIR_UNSUPPORTED", rest)


def _start_child(rest: str, watch: Watch) -> str:
    """Start a process that keeps its inherited descriptors, then hang."""
    child = subprocess.Popen(["sleep", "1000"])
    Path(rest).write_text(str(child.pid))
    _sleep_for_ever()
    return ""


DEEDS: dict[str, Callable[[str, Watch], str]] = {
    "say": _say,
    "nap": _nap,
    "pid": lambda rest, watch: str(os.getpid()),
    "die": lambda rest, watch: str(_die()),
    "exit": lambda rest, watch: str(_exit()),
    "hang": lambda rest, watch: str(_sleep_for_ever()),
    "gil": lambda rest, watch: str(_hold_the_gil()),
    "memory": lambda rest, watch: str(_take_memory()),
    "abort": lambda rest, watch: str(_abort_for_memory()),
    "quote": lambda rest, watch: str(_quote()),
    "wrong": lambda rest, watch: 42,  # type: ignore[dict-item, return-value]
    "object": lambda rest, watch: object(),  # type: ignore[dict-item, return-value]
    "huge": lambda rest, watch: "x" * (65 << 20),
    "surrogate": lambda rest, watch: "\ud800",
    "signals": lambda rest, watch: str([os.kill(os.getpid(), n) for n in (2, 15)]),
    "wait_for": _wait_for,
    "deaf": _deaf,
    "print": _print,
    "partials": _partials,
    "refuse": _refuse,
    "start_child": _start_child,
}
