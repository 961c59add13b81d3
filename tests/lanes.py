"""Runs all tests in lanes beside each other, and other commands with them: `lanes.py 'make check'`.

Tests are divided into pieces (`pieces.py`). A lane runs one piece after another, each in a process
of its own, and takes the next when it has ended. As many pieces run at once as there are cores for:
tests that mostly wait run beside many others. What a piece prints is in build/tests/; it is shown
whole if anything failed in it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pieces import (
    NOTHING,
    Cost,
    Part,
    Piece,
    choose,
    divide,
    find_alone,
    find_files,
    is_whole,
    read_durations,
    write_durations,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "tests"
DURATIONS = ROOT / "tests" / "durations.txt"
# No more than this for each core, however little they use it: every piece has its memory.
LANES_PER_CORE = 3
# Ports for the servers of tests, divided among lanes: a port of a server that is being restarted
# is not given to another lane. The same numbers as in servers.py.
FIRST_PORT, LAST_PORT = 20_000, 31_000
POLL_S = 0.05
# The longest takes about 3 minutes. A piece that hangs prints where, and ends.
PIECE_BOUND_S = 1200.0
END_BOUND_S = 60.0
NO_TESTS = 5
INTERRUPTED = 130


@dataclass
class Total:
    """What all pieces did."""

    passed: int = 0
    skipped: int = 0
    failed: list[str] = field(default_factory=list)
    costs: dict[str, Cost] = field(default_factory=dict)
    parts: dict[str, list[Part]] = field(default_factory=dict)


class Run:
    """One process: a piece of the tests, or another command."""

    def __init__(self, name: str, lane: int, lanes: int, work: Piece | str) -> None:
        self.name = name
        self.lane = lane
        self.piece = work if isinstance(work, Piece) else Piece("", (), Cost(10.0, 10.0))
        self.log = BUILD / f"{name}.log"
        self._plan = BUILD / f"{name}.json"
        self._title = work if isinstance(work, str) else _title(work)
        self._began = time.monotonic()
        width = (LAST_PORT - FIRST_PORT) // lanes
        first = FIRST_PORT + lane * width
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                self._words(work), cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, "TEST_PORTS": f"{first}-{first + width}"},
            )  # fmt: skip

    def _words(self, work: Piece | str) -> list[str]:
        if isinstance(work, str):
            return shlex.split(work)
        plan = {"files": work.files, "part": work.part, "parts": work.parts}
        plan["is_alone"] = work.is_alone
        self._plan.write_text(json.dumps(plan), "utf-8")
        folders = sorted({str(Path(file).parent) for file in work.files})
        return [sys.executable, "-m", "pytest", "-q", "--piece", str(self._plan), *folders]

    @property
    def age_s(self) -> float:
        return time.monotonic() - self._began

    def has_ended(self) -> bool:
        """Whether it has ended; one that hangs is ended here, and pytest prints where it was."""
        if self.process.poll() is not None:
            return True
        if self.age_s > PIECE_BOUND_S:
            self.process.send_signal(signal.SIGABRT)
            self.process.wait()
            return True
        return False

    def report(self, total: Total) -> None:
        """Print one line, or everything if it failed; add what it did to the total."""
        code, passed = self.process.returncode, 0
        failed = [f"{self._title}: exit status {code}, see {self.log.relative_to(ROOT)}"]
        done = self._plan.with_suffix(".done")
        if done.exists():
            record = json.loads(done.read_text("utf-8"))
            passed = record["passed"]
            failed = record["failed"] or failed
            total.passed += passed
            total.skipped += record["skipped"]
            part = Part(record["collected"], tuple(record["ran"]))
            key = f"{self.piece.files[0]}{' alone' if self.piece.is_alone else ''}"
            total.parts.setdefault(key, []).append(part)
            for file, cost in record["costs"].items():
                total.costs[file] = total.costs.get(file, NOTHING) + Cost(*cost)
        is_well = code == 0 or (code == NO_TESTS and self.piece.files)
        if not is_well:
            total.failed += failed
            print(f"\n{self.log.read_text(errors='replace')}")
        word = f"{passed:5} passed" if is_well else "      FAILED"
        print(f"{word} {self.age_s:5.0f} s  {self._title}", flush=True)


def _title(piece: Piece) -> str:
    title = f"{piece.category or 'no category'}: {piece.files[0]}"
    if piece.is_alone:
        return f"{title}, alone"
    if piece.parts > 1:
        return f"{title}, part {piece.part + 1} of {piece.parts}"
    rest = len(piece.files) - 1
    return f"{title} and {rest} more" if rest else title


def run_all(commands: Sequence[str], pieces: Sequence[Piece], cores: int) -> Total:
    """Run commands and pieces until none is left."""
    waiting: list[Piece] = list(pieces)
    running: list[Run] = []
    total = Total()
    lanes = max(1, LANES_PER_CORE * cores) + len(commands)
    started = 0
    with _ended_with_us(running):
        for command in commands:
            running.append(Run(f"command-{len(running)}", len(running), lanes, command))
        while waiting or running:
            free = sorted(set(range(lanes)) - {run.lane for run in running})
            piece = choose(waiting, [run.piece for run in running], cores) if free else None
            if piece is not None:
                waiting.remove(piece)
                started += 1
                running.append(Run(f"{piece.category}-{started}", free[0], lanes, piece))
                continue
            for run in [run for run in running if run.has_ended()]:
                running.remove(run)
                run.report(total)
            time.sleep(POLL_S)
    if not total.failed:
        broken = [file for file, parts in total.parts.items() if not is_whole(parts)]
        total.failed += [f"{file}: its tests differ each time it is imported" for file in broken]
    return total


@contextlib.contextmanager
def _ended_with_us(running: list[Run]) -> Iterator[None]:
    """Wait for what runs however this ends, so that tests end what they have started."""
    try:
        yield
    except KeyboardInterrupt:
        # They have heard the Ctrl-C, too.
        _await(running)
        raise
    except BaseException:
        for run in running:
            run.process.send_signal(signal.SIGINT)
        _await(running)
        raise


def _await(running: list[Run]) -> None:
    for run in running:
        try:
            run.process.wait(END_BOUND_S)
        except subprocess.TimeoutExpired:
            run.process.kill()
            run.process.wait()


def main(words: Sequence[str]) -> int:
    """Run them all; 1 if anything failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("commands", nargs="*", help="also run these, beside the tests")
    parser.add_argument(
        "--cores", type=int, default=len(os.sched_getaffinity(0)), help="0: one piece at a time"
    )
    parser.add_argument("--only", action="append", metavar="CATEGORY", help="repeat for several")
    parser.add_argument("--plan", action="store_true", help="show the pieces and end")
    args = parser.parse_args(words)
    files = find_files(ROOT)
    wanted = {file: files[file] for file in files if not args.only or files[file] in args.only}
    recorded = read_durations(DURATIONS.read_text("utf-8"))
    pieces = divide(wanted, recorded, find_alone(ROOT, wanted))
    if args.plan:
        for piece in pieces:
            print(f"{piece.cost.seconds:6.1f} s {piece.cores:5.2f} cores  {_title(piece)}")
        return 0
    # As Ctrl-C: `kill` and a CI that gives up end what the tests have started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    BUILD.mkdir(parents=True, exist_ok=True)
    for old in BUILD.iterdir():
        old.unlink()
    began = time.monotonic()
    try:
        total = run_all(args.commands, pieces, args.cores)
    except KeyboardInterrupt:
        return INTERRUPTED
    (BUILD / "durations.txt").write_text(write_durations(total.costs), "utf-8")
    for name in total.failed:
        print(f"FAILED {name}")
    skipped = f", {total.skipped} skipped" if total.skipped else ""
    took = int(time.monotonic() - began)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(
        f"{total.passed} passed, {len(total.failed)} failed{skipped} in {took // 60}:{took % 60:02}"
        f" ({used.ru_utime + used.ru_stime:.0f} s of a core)"
    )
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
