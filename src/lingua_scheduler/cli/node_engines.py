"""`lingua node --engines`: a node that listens, translates and speaks, as a person starts it.

Loads the engines, prints what they can do, measures how many jobs they keep up with, connects.
Exit codes: 0 stopped as asked, 1 refused by the scheduler or without a recogniser that works,
2 wrong usage, or a model that is not installed. What the node is made of is `speech/assembly.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import wave
from contextlib import AsyncExitStack
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from lingua_scheduler.cli.models import progress_on
from lingua_scheduler.cli.table import render_table
from lingua_scheduler.cli.trust import tls_of
from lingua_scheduler.cli.voice import add_voice
from lingua_scheduler.errors import ConfigError
from lingua_scheduler.logs import configure_logs
from lingua_scheduler.messages.codes import ErrorCode
from lingua_scheduler.models import default_store
from lingua_scheduler.node import JobFailed, NodeRefused
from lingua_scheduler.node.machine import default_node_id
from lingua_scheduler.node.sdk import DEFAULT_URL, DRAIN_REASON, fastest_loop
from lingua_scheduler.speech import calibrate, presets, voices
from lingua_scheduler.speech.assembly import Assembly, memory_mb
from lingua_scheduler.speech.engine import EngineError, ModelMissing, Sound
from lingua_scheduler.speech.host import WorkerLost

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from lingua_scheduler.cli.table import Cell
    from lingua_scheduler.dial import TokenSource
    from lingua_scheduler.node import Node
    from lingua_scheduler.speech.assembly import Loaded

# Where a token is not seen in the list of processes.
TOKEN_VARIABLE = "LINGUA_NODE_TOKEN"  # noqa: S105 a name, not a secret
LOOPBACK = "127.0.0.1"
LANGUAGES_SHOWN = 6


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that only a node of real engines has."""
    group = parser.add_argument_group("with --engines")
    add = group.add_argument
    add("--workers", type=_count, metavar="N",
        help="processes per stage, where a file does not say (default: 1)")  # fmt: skip
    add("--memory-mb", type=_megabytes, metavar="N",
        help="a worker that wants more is replaced (default: no bound)")  # fmt: skip
    add("--max-rtf", type=_factor, default=calibrate.MAX_RTF, metavar="X",
        help="a job may take so much of the length of its speech (default: "
        f"{calibrate.MAX_RTF:g}); decides how many are done at a time")  # fmt: skip
    add("--recalibrate", action="store_true", help="measure again, whatever was measured before")
    add("--calibrate-with", type=Path, metavar="FILE",
        help="measure with this WAV file (16-bit mono), not the node's own voice")  # fmt: skip
    add("--metrics", type=_address, metavar="[HOST:]PORT",
        help=f"show metrics for Prometheus there (default host: {LOOPBACK})")  # fmt: skip
    add_voice(group)
    add("--install", action="store_true", help="first install the models of a preset")


def token_of(args: argparse.Namespace) -> TokenSource:
    """Return the token of a command, or what reads it from its file whenever one is needed."""
    if args.token_file:
        path = Path(args.token_file)
        return lambda: path.read_text().strip()
    token: str | None = args.token
    return token


def run_engines(args: argparse.Namespace) -> int:
    """Serve until told to stop."""
    plan = presets.plan_of(args.engines, args.voice)
    if args.workers:
        plan = plan.with_workers(args.workers)
    if args.memory_mb is not None:
        plan = plan.with_memory(args.memory_mb)
    recording = None if args.calibrate_with is None else _recording(args.calibrate_with)
    presets.check_libraries(plan)
    if not _models_are_there(plan, install=args.install):
        return 2
    # Workers that are lost are told there, with the reason; what goes well is printed.
    configure_logs(sys.stderr, "warning", as_json=not sys.stderr.isatty())
    with asyncio.Runner(loop_factory=fastest_loop()) as runner:
        return runner.run(Served(args, plan, recording).serve())


class Served:
    """One node of real engines, from loading to the end."""

    def __init__(
        self, args: argparse.Namespace, plan: presets.Plan, recording: Sound | None
    ) -> None:
        self._args = args
        self._plan = plan
        self._recording = recording
        self._name = args.node_id or default_node_id()
        # Read first: what cannot be read is told before anything is loaded.
        self._tls = tls_of(args.ca)
        # The node once it serves; before that a signal ends the whole.
        self._node: Node | None = None
        self._starting: asyncio.Task[int] | None = None
        self._is_stopping = False
        # What was said of the connection since it was registered.
        self._told: set[str] = set()

    async def serve(self) -> int:
        """Load, measure, connect, serve; return the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._take_signal)
        self._starting = asyncio.create_task(self._serve())
        try:
            return await self._starting
        except asyncio.CancelledError:
            _say("stopped before it was ready")
            return 0
        except (EngineError, WorkerLost) as error:
            print(f"lingua: no recogniser works: {error}", file=sys.stderr)
            return 2 if isinstance(error, ModelMissing) else 1

    async def _serve(self) -> int:
        if self._args.voice is None:
            self._plan, why = await voices.chosen(
                self._plan, default_store(), again=self._args.recalibrate
            )
            if why:
                _say(why)
        _say(f"loading {' '.join(str(spec) for spec in self._plan.specs)}")
        async with AsyncExitStack() as stack:
            assembly = await stack.enter_async_context(Assembly(self._plan))
            _print_engines(assembly)
            slots = await self._slots(assembly)
            if self._args.metrics is not None:
                _say(f"metrics at {await stack.enter_async_context(self._page(assembly))}")
            return await self._connect(assembly, slots)

    def _page(self, assembly: Assembly) -> AbstractAsyncContextManager[str]:
        # Only who wants the page waits for the library that serves it.
        from lingua_scheduler.speech.metrics_page import metrics_page  # noqa: PLC0415

        return metrics_page(assembly.meters, *self._args.metrics)

    async def _slots(self, assembly: Assembly) -> int:
        """Return how many jobs to take at a time; all stages have worked once then."""
        fixed = int(self._args.max_jobs or 0)
        try:
            sample = await assembly.sample(self._recording)
            if sample is not None:
                await calibrate.warm_up(assembly.rehearsal().handle, sample)
            if fixed:
                return fixed
            if sample is not None:
                found = await self._calibration(assembly, sample)
                _print_calibration(found, self._args.max_rtf)
                return found.slots
            why = "for want of a voice"
        except JobFailed as failed:
            # Its own voice may be the one that it does not understand: no reason to serve nobody.
            why = f"because it failed: {failed}"
        _say(f"not measured, {why}: {fixed or 1} job(s) at a time (see --calibrate-with)")
        return fixed or 1

    async def _calibration(
        self, assembly: Assembly, sample: calibrate.Sample
    ) -> calibrate.Calibration:
        args, folder = self._args, default_store().root
        engines = [f"{loaded.spec} {loaded.engine.about}" for loaded in assembly.loaded()]
        audio_s = sample.sound.duration_ms / 1000
        key = calibrate.key_of([*engines, str(self._plan.crew)], audio_s, args.max_rtf)
        found = None if args.recalibrate else calibrate.kept(folder, key)
        if found is None:
            handle = assembly.rehearsal().handle
            found = await calibrate.measure(handle, sample, max_rtf=args.max_rtf)
            if not calibrate.keep(folder, key, found):
                _say(f"{folder} cannot be written: it is measured again at the next start")
        return found

    async def _connect(self, assembly: Assembly, slots: int) -> int:
        args = self._args
        urls = args.urls or [DEFAULT_URL]
        self._node = node = assembly.node(
            urls, node_id=self._name, max_jobs=slots, token=token_of(args),
            json_wire=args.json_wire, labels=args.labels, watch=self._watch, tls=self._tls,
        )  # fmt: skip
        began = monotonic()
        _say(f"connecting to {', '.join(urls)}")
        try:
            await node.serve()
        except NodeRefused as refused:
            _say(f"{self._name}: refused for good: {refusal(refused)}")
            return 1
        stats = node.stats
        _say(
            f"{stats.jobs} jobs, {stats.succeeded} done, {stats.failed} failed, "
            f"{stats.cancelled} cancelled in {monotonic() - began:.1f} s"
        )
        return 0

    def _take_signal(self) -> None:
        if self._node is None:
            assert self._starting is not None
            self._starting.cancel()
        elif self._is_stopping:
            self._node.stop()
        else:
            _say("stopping: jobs under way are finished (again to end at once)")
            self._node.drain(DRAIN_REASON)
        self._is_stopping = True

    def _watch(self, word: str, detail: str) -> None:
        if word == "registered":
            self._told.clear()
            _say(f"{self._name}: {word} {detail}")
        elif word not in {"connecting", "draining"} and word + detail not in self._told:
            # Trying again and again is one piece of news.
            self._told.add(word + detail)
            _say(f"{self._name}: {word}: {detail}")


def refusal(refused: NodeRefused) -> str:
    """Say why a node was refused, and if that is its token, where to give another."""
    where = f"; give it with --token or ${TOKEN_VARIABLE}"
    is_token = refused.code == ErrorCode.UNAUTHORIZED
    return f"{refused.code}: {refused.message}{where if is_token else ''}"


def _models_are_there(plan: presets.Plan, *, install: bool) -> bool:
    store = default_store()
    missing = presets.missing_models(plan, store)
    if missing and install:
        for name in missing:
            _say(f"installing {name}")
            with progress_on(sys.stderr) as show:
                store.install(name, show)
        missing = presets.missing_models(plan, store)
    if missing:
        print(
            f"lingua: not installed: {', '.join(missing)}; run: lingua models install "
            f"{' '.join(plan.groups)} (or add --install)",
            file=sys.stderr,
        )
    return not missing


def _print_engines(assembly: Assembly) -> None:
    rows: list[list[Cell]] = []
    shown: set[str] = set()
    for loaded in assembly.loaded():
        is_first = loaded.service not in shown
        shown.add(loaded.service)
        crew = assembly.crews[loaded.service]
        about = loaded.engine.about
        rows.append(
            [
                loaded.spec.role, about.engine, _model(about.model), _languages(loaded),
                round(loaded.load_s * 1000) if is_first else None,
                memory_mb(crew) if is_first else None,
            ]
        )  # fmt: skip
    _say(render_table(["stage", "engine", "model", "languages", "loaded ms", "MB"], rows))
    for spec, why in assembly.left_out.items():
        _say(f"left out: {spec}: {why}")


def _model(name: str) -> str | None:
    # A translator's is a list of its directions, which have a column of their own.
    return name if name and ">" not in name else None


def _languages(loaded: Loaded) -> str:
    about = loaded.engine.about
    if loaded.spec.role == "mt":
        return _some([f"{source}>{target}" for source, target in about.pairs])
    if loaded.spec.role == "vad":
        return ""
    return _some(about.languages)


def _some(codes: list[str] | tuple[str, ...]) -> str:
    if not codes:
        return "any"
    listed = ", ".join(codes[:LANGUAGES_SHOWN])
    return listed if len(codes) <= LANGUAGES_SHOWN else f"{listed} … ({len(codes)})"


def _print_calibration(found: calibrate.Calibration, max_rtf: float) -> None:
    when = "measured before" if found.is_kept else "measured"
    _say(f"{when} with {found.audio_s:.1f} s of speech, at most {max_rtf:g} of its length:")
    rows: list[list[Cell]] = [
        [done.jobs, done.slowest_rtf, "ok" if done.slowest_rtf <= max_rtf else "too slow"]
        for done in found.rounds
    ]
    _say(render_table(["at once", "slowest", ""], rows))
    _say(f"takes {found.slots} job(s) at a time")


def _recording(path: Path) -> Sound:
    try:
        with wave.open(str(path), "rb") as file:
            if (file.getnchannels(), file.getsampwidth()) != (1, 2):
                raise ConfigError("--calibrate-with", f"{path} must be 16-bit mono")
            return Sound(file.readframes(file.getnframes()), file.getframerate())
    except (OSError, EOFError, wave.Error) as error:
        raise ConfigError("--calibrate-with", f"cannot read {path}: {error}") from error


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdigit() or int(port) > 0xFFFF:
        raise argparse.ArgumentTypeError("must be like 9100 or 127.0.0.1:9100")
    return host.strip("[]") or LOOPBACK, int(port)


def _count(text: str) -> int:
    return _whole(text, 1, presets.WORKERS_MAX)


def _megabytes(text: str) -> int:
    return _whole(text, 0, 1 << 30)


def _whole(text: str, least: int, most: int) -> int:
    if not text.isdigit() or not least <= int(text) <= most:
        raise argparse.ArgumentTypeError(f"must be from {least} to {most}")
    return int(text)


def _factor(text: str) -> float:
    number = float(text)
    if not 0 < number <= 10:
        raise argparse.ArgumentTypeError("must be more than 0 and at most 10")
    return number


def _say(line: str) -> None:
    print(line, flush=True)
