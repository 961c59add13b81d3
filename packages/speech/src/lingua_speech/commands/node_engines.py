"""`lingua node --engines`: a node that recognises, translates and speaks.

Loads the engines, prints their abilities, measures how many jobs they can do at once, and connects.
Exit codes: 0 stopped by the user, 1 refused by the scheduler or no recogniser works, 2 wrong usage
or a missing model. The node itself is assembled by `assembly.py`.
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
from typing import TYPE_CHECKING, NamedTuple

from lingua_cli.certificates import tls_of
from lingua_cli.logs import configure_logs
from lingua_cli.table import render_table
from lingua_node import JobFailed, NodeRefused
from lingua_node.machine import default_node_id
from lingua_node.node import DRAIN_REASON, fastest_loop
from lingua_node.settings import DEFAULT_URL
from lingua_speech import calibrate, presets, voices
from lingua_speech.assembly import Assembly, memory_mb
from lingua_speech.commands.models import progress_on
from lingua_speech.commands.voice import add_voice
from lingua_speech.engine import EngineError, ModelMissing, Sound
from lingua_speech.host import WorkerLost
from lingua_speech.models import default_store
from lingua_wire.codes import ErrorCode
from lingua_wire.errors import ConfigError

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from lingua_cli.table import Cell
    from lingua_node import Node
    from lingua_speech.assembly import ServingEngine
    from lingua_wire.token_source import TokenSource

# A token here is not visible in the list of processes.
TOKEN_VARIABLE = "LINGUA_NODE_TOKEN"  # noqa: S105 a name, not a secret
LOOPBACK = "127.0.0.1"
LANGUAGES_SHOWN = 6
# Speakers that are heard while they speak, if nothing was measured.
STREAMS = 1


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a node of real engines."""
    group = parser.add_argument_group("with --engines")
    add = group.add_argument
    add(
        "--workers",
        type=_count,
        metavar="N",
        help="processes per stage that a file does not set (default: 1)",
    )
    add(
        "--memory-mb",
        type=_megabytes,
        metavar="N",
        help="a worker that uses more is replaced (default: no limit)",
    )
    add(
        "--max-rtf",
        type=_factor,
        default=calibrate.MAX_RTF,
        metavar="X",
        help="the maximum duration of a job, as a part of the length of its speech (default: "
        f"{calibrate.MAX_RTF:g}); determines how many are done at a time",
    )
    add("--recalibrate", action="store_true", help="measure again, despite an earlier result")
    add(
        "--calibrate-with",
        type=Path,
        metavar="FILE",
        help="measure with this WAV file (16-bit mono), not the node's own voice",
    )
    add(
        "--metrics",
        type=_address,
        metavar="[HOST:]PORT",
        help=f"serve metrics for Prometheus at this address (default host: {LOOPBACK})",
    )
    add_voice(group)
    add("--install", action="store_true", help="install the models of a preset first")


def token_of(args: argparse.Namespace) -> TokenSource:
    """Return the token of a command, or a function that reads it from a file when needed."""
    if args.token_file:
        path = Path(args.token_file)
        return lambda: path.read_text().strip()
    token: str | None = args.token
    return token


def run_engines(args: argparse.Namespace) -> int:
    """Serve until stopped."""
    plan = presets.plan_of(args.engines, args.voice)
    if args.workers:
        plan = plan.with_workers(args.workers)
    if args.memory_mb is not None:
        plan = plan.with_memory(args.memory_mb)
    recording = None if args.calibrate_with is None else _recording(args.calibrate_with)
    presets.check_libraries(plan)
    if not _models_are_installed(plan, install=args.install):
        return 2
    # Lost workers are logged there, with the reason; normal progress is printed.
    configure_logs(sys.stderr, "warning", as_json=not sys.stderr.isatty())
    with asyncio.Runner(loop_factory=fastest_loop()) as runner:
        return runner.run(EngineNode(args, plan, recording).serve())


class Capacity(NamedTuple):
    """Jobs at a time, and speakers that are heard while they speak."""

    jobs: int
    streams: int


class EngineNode:
    """One node of real engines, from loading to the end."""

    def __init__(
        self, args: argparse.Namespace, plan: presets.EnginePlan, recording: Sound | None
    ) -> None:
        self._args = args
        self._plan = plan
        self._recording = recording
        self._name = args.node_id or default_node_id()
        # Read first, so that an error is reported before anything is loaded.
        self._tls = tls_of(args.ca)
        # The node once it serves; before that a signal cancels the start.
        self._node: Node | None = None
        self._starting: asyncio.Task[int] | None = None
        self._is_stopping = False
        # Messages on the connection since it was registered, so that each is printed once.
        self._printed: set[str] = set()

    async def serve(self) -> int:
        """Load, measure, connect, serve; return the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._handle_signal)
        self._starting = asyncio.create_task(self._serve())
        try:
            return await self._starting
        except asyncio.CancelledError:
            _print("stopped before it was ready")
            return 0
        except (EngineError, WorkerLost) as error:
            print(f"lingua: no recogniser works: {error}", file=sys.stderr)
            return 2 if isinstance(error, ModelMissing) else 1

    async def _serve(self) -> int:
        if self._args.voice is None:
            self._plan, why = await voices.with_natural_voice(
                self._plan, default_store(), again=self._args.recalibrate
            )
            if why:
                _print(why)
        _print(f"loading {' '.join(str(spec) for spec in self._plan.specs)}")
        async with AsyncExitStack() as stack:
            assembly = await stack.enter_async_context(Assembly(self._plan))
            _print_engines(assembly)
            capacity = await self._capacity(assembly)
            if self._args.metrics is not None:
                _print(
                    f"metrics at {await stack.enter_async_context(self._metrics_server(assembly))}"
                )
            return await self._connect(assembly, capacity)

    def _metrics_server(self, assembly: Assembly) -> AbstractAsyncContextManager[str]:
        # Imported only if needed: the HTTP server takes time to import.
        from lingua_speech.metrics_server import metrics_server  # noqa: PLC0415

        return metrics_server(assembly.metrics, *self._args.metrics)

    async def _capacity(self, assembly: Assembly) -> Capacity:
        """Return how much to accept at a time, after a warm-up of all stages."""
        fixed = int(self._args.max_jobs or 0)
        streams = STREAMS if self._args.streams is None else int(self._args.streams)
        try:
            sample = await assembly.sample(self._recording)
            if sample is not None:
                await calibrate.warm_up(assembly.rehearsal().handle, sample)
            if fixed:
                return Capacity(fixed, streams)
            if sample is not None:
                found = await self._calibration(assembly, sample)
                if self._args.streams is None:
                    workers = self._plan.workers.workers.get("asr", 1)
                    streams = calibrate.streams_of(found.rounds, found.audio_s, workers)
                _print_calibration(found, self._args.max_rtf)
                _print(f"hears {streams} speaker(s) while they speak")
                return Capacity(found.slots, streams)
            why = "for lack of a voice"
        except JobFailed as failed:
            # The recogniser may fail on the node's own voice but still work for others.
            why = f"because it failed: {failed}"
        _print(f"not measured, {why}: {fixed or 1} job(s) at a time (see --calibrate-with)")
        return Capacity(fixed or 1, streams)

    async def _calibration(
        self, assembly: Assembly, sample: calibrate.Sample
    ) -> calibrate.Calibration:
        args, folder = self._args, default_store().root
        engines = [f"{loaded.spec} {loaded.engine.about}" for loaded in assembly.loaded()]
        audio_s = sample.sound.duration_ms / 1000
        key = calibrate.key_of([*engines, str(self._plan.workers)], audio_s, args.max_rtf)
        found = None if args.recalibrate else calibrate.load(folder, key)
        if found is None:
            handle = assembly.rehearsal().handle
            found = await calibrate.measure(handle, sample, max_rtf=args.max_rtf)
            if not calibrate.store(folder, key, found):
                _print(f"{folder} is not writable: the next start will measure again")
        return found

    async def _connect(self, assembly: Assembly, capacity: Capacity) -> int:
        args = self._args
        urls = args.urls or [DEFAULT_URL]
        self._node = node = assembly.node(
            urls,
            node_id=self._name,
            max_jobs=capacity.jobs,
            max_streams=capacity.streams,
            token=token_of(args),
            json_wire=args.json_wire,
            labels=args.labels,
            watch=self._print_event,
            tls=self._tls,
        )
        began = monotonic()
        _print(f"connecting to {', '.join(urls)}")
        try:
            await node.serve()
        except NodeRefused as refused:
            _print(f"{self._name}: refused for good: {refusal(refused)}")
            return 1
        stats = node.stats
        _print(
            f"{stats.jobs} jobs, {stats.succeeded} done, {stats.failed} failed, "
            f"{stats.cancelled} cancelled in {monotonic() - began:.1f} s"
        )
        return 0

    def _handle_signal(self) -> None:
        if self._node is None:
            assert self._starting is not None
            self._starting.cancel()
        elif self._is_stopping:
            self._node.stop()
        else:
            _print("stopping after the current jobs (repeat to stop at once)")
            self._node.drain(DRAIN_REASON)
        self._is_stopping = True

    def _print_event(self, word: str, detail: str) -> None:
        if word == "registered":
            self._printed.clear()
            _print(f"{self._name}: {word} {detail}")
        elif word not in {"connecting", "draining"} and word + detail not in self._printed:
            # Repeated attempts are reported once.
            self._printed.add(word + detail)
            _print(f"{self._name}: {word}: {detail}")


def refusal(refused: NodeRefused) -> str:
    """Return why a node was refused; for its token also where to give another."""
    where = f"; give it with --token or ${TOKEN_VARIABLE}"
    is_token = refused.code == ErrorCode.UNAUTHORIZED
    return f"{refused.code}: {refused.message}{where if is_token else ''}"


def _models_are_installed(plan: presets.EnginePlan, *, install: bool) -> bool:
    store = default_store()
    missing = presets.missing_models(plan, store)
    if missing and install:
        for name in missing:
            _print(f"installing {name}")
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
        pool = assembly.pools[loaded.service]
        about = loaded.engine.about
        rows.append(
            [
                loaded.spec.role,
                about.engine,
                _model(about.model),
                _languages(loaded),
                round(loaded.load_s * 1000) if is_first else None,
                memory_mb(pool) if is_first else None,
            ]
        )
    _print(render_table(["stage", "engine", "model", "languages", "loaded ms", "MB"], rows))
    for spec, why in assembly.left_out.items():
        _print(f"left out: {spec}: {why}")


def _model(name: str) -> str | None:
    # The model of a translator is a list of its directions, which have a column of their own.
    return name if name and ">" not in name else None


def _languages(loaded: ServingEngine) -> str:
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
    _print(f"{when} with {found.audio_s:.1f} s of speech, at most {max_rtf:g} of its length:")
    rows: list[list[Cell]] = [
        [done.jobs, done.slowest_rtf, "ok" if done.slowest_rtf <= max_rtf else "too slow"]
        for done in found.rounds
    ]
    _print(render_table(["at once", "slowest", ""], rows))
    _print(f"takes {found.slots} job(s) at a time")


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


def _print(line: str) -> None:
    print(line, flush=True)
