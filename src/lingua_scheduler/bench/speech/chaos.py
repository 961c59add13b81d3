"""Real speech under fire: engines, nodes and schedulers are killed while people speak.

    Company (store, 2 schedulers, 2 nodes of real engines)     Speaker (a client) ──> History
        ▲                                                          │
      Harm (one blow after another, by a seed) ──> Fault           └──> chaos_report.check

First a round without faults, whose texts are the reference, then one under fire. One process at a
time is harmed, where there is work if it can be caught, and the next blow waits until the last has
healed. Speakers go on until all is done. Nothing that was started is left behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import count, cycle
from pathlib import Path
from random import Random
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import aiohttp

from lingua_scheduler.bench.chaos.cast import Instance, summed
from lingua_scheduler.bench.chaos.history import RESULT, Fault, Heard
from lingua_scheduler.bench.chaos.process import HarnessFailed, Process, free_port, until
from lingua_scheduler.bench.chaos.store import Store, StoreFailed, running_store
from lingua_scheduler.bench.speech import material
from lingua_scheduler.bench.speech.chaos_report import (
    Accepted,
    ChaosReport,
    History,
    Said,
    check,
    reference_of,
)
from lingua_scheduler.bench.speech.run import family
from lingua_scheduler.client import Notice, Options, Outcome, connect
from lingua_scheduler.errors import LinguaError
from lingua_scheduler.interpret import RecordingSource
from lingua_scheduler.messages.to_client import ErrorMessage, Gap, UtteranceAccepted
from lingua_scheduler.models import default_store
from lingua_scheduler.speech.host.worker import CHILD

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from lingua_scheduler.bench.speech.material import Spoken
    from lingua_scheduler.client import Session

MAX_JOBS: Final = 2
# Recordings that are neither a word nor sliced.
LEAST_MS, MOST_MS = 2000, 8500
# Loading two nodes at once, on two cores that are busy otherwise.
NODE_S: Final = 120.0
HEAL_S: Final = 60.0
CATCH_S: Final = 6.0
CATCH_POLL_S: Final = 0.002
LOOK_S: Final = 0.2
CLOSE_S: Final = 90.0
LEFT_S: Final = 5.0
ANSWER_S: Final = 2.0
# What ends a run, or its harm, and is told: nothing of the harness or the store answers any more.
BROKEN: Final = (HarnessFailed, StoreFailed, OSError, TimeoutError)
STAGES: Final = ("asr", "nmt", "tts")
READY, RESTARTS = "lingua_node_ready", "lingua_node_worker_restarts_total"
# What a worker has in its memory tells its stage; a translator's has programs of its own instead.
LIBRARIES: Final = {"asr": ("onnxruntime",), "tts": ("espeak", "pico")}
SETTINGS: Final = {
    "LINGUA_DEPLOYMENT_MODE": "cross_instance",
    "LINGUA_NODES__RESOURCE_PERCENT_MAX": "100",
}
# Languages of the speakers, in turn: spoken, wanted, and whether it is LibriVox.
PARTS: Final = (
    ("en", ("es",), True), ("en", ("es", "fr"), False),
    ("en", ("fr",), False), ("es", ("en",), False),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ChaosPlan:
    """How much is said, and what is done."""

    sessions: int
    recordings: int
    # `kill_` or `stop_` and whom, in this order.
    kinds: tuple[str, ...]
    # Mean pause before each.
    gap_s: float
    bound_s: float
    seed: int = 1


KILLS: Final = ("kill_asr", "kill_nmt", "kill_tts", "kill_node", "kill_scheduler")
QUICK: Final = ChaosPlan(2, 3, (*KILLS, "stop_tts"), gap_s=1.0, bound_s=150.0)
FULL: Final = ChaosPlan(
    4, 8, (*KILLS, "stop_tts", *KILLS, "stop_asr", *KILLS, "stop_nmt"), gap_s=3.0, bound_s=420.0
)


class Blow(NamedTuple):
    """Something that is to be done: not before this, and not before the last has healed."""

    at_s: float
    kind: str
    # Which of the schedulers; nodes and workers are harmed where there is work.
    scheduler: int


def schedule(plan: ChaosPlan) -> list[Blow]:
    """Return what is done when, by the chances of the seed; schedulers are struck in turn."""
    chance, at_s = Random(plan.seed), 0.0
    turn = count(chance.randrange(2))
    blows = []
    for kind in plan.kinds:
        at_s += chance.uniform(0.5, 1.5) * plan.gap_s
        blows.append(Blow(at_s, kind, next(turn) % 2 if kind == "kill_scheduler" else 0))
    return blows


# The processes


class SpeechNode:
    """A node of real engines: a name that stays, and one process after another."""

    def __init__(self, name: str, urls: Sequence[str], place: Path) -> None:
        self.name = name
        self._port = free_port()
        # Workers its former processes had to replace.
        self._counted = 0
        self._counts: Counter[str] = Counter()
        words = ["node", "--engines", "default", "--node-id", name, "--max-jobs", str(MAX_JOBS)]
        words += ["--metrics", f"127.0.0.1:{self._port}"]
        words += [word for url in urls for word in ("--url", url)]
        self._process = Process(
            [sys.executable, "-m", "lingua_scheduler", *words],
            place / f"{name}.log",
            {"LINGUA_MODELS": str(default_store().root)},
        )

    @property
    def pid(self) -> int:
        """Return its process."""
        return self._process.pid

    @property
    def restarts(self) -> int:
        """Return how many workers all its processes had to replace, as far as it was read."""
        return self._counted + self._counts[RESTARTS]

    async def start(self) -> None:
        """Start a process and wait until a scheduler has it."""
        await self._process.start()
        async with asyncio.timeout(NODE_S):
            while ": registered" not in await self._process.hear(NODE_S):
                pass

    async def count(self) -> None:
        """Read what it counts; without an answer what was read before stands."""
        with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
            timeout = aiohttp.ClientTimeout(total=ANSWER_S)
            url = f"http://127.0.0.1:{self._port}/metrics"
            async with aiohttp.ClientSession(timeout=timeout) as http, http.get(url) as answer:
                self._counts = summed(await answer.text())

    async def has_healed(self, restarts: int) -> bool:
        """Tell whether a worker was replaced since then, and all stages work."""
        await asyncio.sleep(LOOK_S)
        await self.count()
        return self.restarts > restarts and self._counts[READY] == len(STAGES)

    async def kill(self) -> None:
        """End it by kill -9."""
        await self._process.kill()
        self._counted, self._counts = self.restarts, Counter()

    async def stop(self) -> None:
        """Ask it to end, and make it."""
        await self.count()
        await self._process.stop()

    def workers(self) -> dict[int, str]:
        """Return its worker processes and their stages, those that have loaded."""
        pids = [pid for pid in family(self.pid) if CHILD in _read(pid, "cmdline")]
        found = {pid: stage_of(pid) for pid in pids}
        return {pid: stage for pid, stage in found.items() if stage}


def stage_of(pid: int) -> str:
    """Return what a worker does; empty while it has not loaded."""
    maps = _read(pid, "maps")
    for stage, libraries in LIBRARIES.items():
        if any(library in maps for library in libraries):
            return stage
    return "nmt" if len(family(pid)) > 1 else ""


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text(errors="replace")
    except OSError:
        return ""


def _stat(pid: int) -> tuple[str, int]:
    """Return the state of a process and when it began; nothing and 0 if there is none."""
    fields = _read(pid, "stat").rpartition(")")[2].split()
    return (fields[0], int(fields[19])) if fields else ("", 0)


class Roll:
    """Everyone a process started, and whoever these started: none may be there afterwards."""

    def __init__(self, starter: int) -> None:
        self._starter = starter
        # Process -> when it began: numbers are given again.
        self._seen: dict[int, int] = {}

    def note(self) -> None:
        """Look who is there."""
        for pid in family(self._starter)[1:]:
            self._seen[pid] = _stat(pid)[1]

    async def watch(self) -> None:
        """Look again and again."""
        while True:
            self.note()
            await asyncio.sleep(LOOK_S)

    def left(self) -> list[int]:
        """Return who is still there; the dead that nobody has buried do not count."""
        now = {pid: _stat(pid) for pid in self._seen}
        return [
            pid for pid, (state, began) in now.items()
            if began == self._seen[pid] and state not in {"", "Z", "X"}
        ]  # fmt: skip

    async def end(self, within_s: float = LEFT_S) -> int:
        """Give them a moment, end those that are left, and return how many these were."""

        async def are_gone() -> bool:
            return not self.left()

        with contextlib.suppress(HarnessFailed):  # these are counted
            await until(are_gone, within_s, "all processes are gone")
        left = self.left()
        for pid in left:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(pid, signal.SIGKILL)
        return len(left)


class Company:
    """Two schedulers over one store, and two nodes."""

    def __init__(self, place: Path, store: Store) -> None:
        settings = SETTINGS | store.settings()
        self.instances = [Instance(number, place, settings) for number in range(2)]
        urls = [instance.node_url() for instance in self.instances]
        self.nodes = [
            SpeechNode("speech-0", urls, place), SpeechNode("speech-1", urls[::-1], place),
        ]  # fmt: skip
        self._store = store

    async def start(self, stack: AsyncExitStack) -> None:
        """Start all; whoever leaves the stack kills them."""
        for kill in (one.kill for group in (self.instances, self.nodes) for one in group):
            stack.push_async_callback(kill)
        for group in (self.instances, self.nodes):
            async with asyncio.TaskGroup() as starting:
                for start in (one.start for one in group):
                    starting.create_task(start())
        await until(self.has_nodes, HEAL_S, "both nodes are ready")

    async def has_nodes(self) -> bool:
        """Tell whether both nodes may be given work."""
        return await self._store.ready_nodes() == len(self.nodes)

    async def stop(self) -> list[str]:
        """Ask all to end, nodes first; return what went wrong with that."""
        await asyncio.gather(*(node.stop() for node in self.nodes))
        codes = await asyncio.gather(*(instance.stop() for instance in self.instances))
        return [f"a scheduler ended with {code}" for code in codes if code]


# The clients


class Speaker:
    """One client: says recordings with pauses between, and notes what it hears."""

    def __init__(self, number: int, pieces: Sequence[Spoken], urls: Sequence[str]) -> None:
        source, targets, _ = PARTS[number % len(PARTS)]
        self.history = History(number, targets)
        self._source = source
        self._pieces = pieces
        at = number % len(urls)
        self._urls = [*urls[at:], *urls[:at]]
        self._rate = pieces[0].recording.sample_rate

    async def run(self, enough: asyncio.Event) -> None:
        """Say everything once, and go on until it is enough."""
        try:
            async with connect(
                self._urls, source=self._source, targets=self.history.targets,
                sample_rate=self._rate, options=Options(reopen=False),
            ) as session:  # fmt: skip
                await self._live(session, enough)
        except (LinguaError, OSError, TimeoutError) as error:
            self.history.problem = f"{type(error).__name__}: {error}".rstrip(": ")

    async def _live(self, session: Session, enough: asyncio.Event) -> None:
        hearing = asyncio.create_task(self._hear(session))
        try:
            # Not all in step.
            await asyncio.sleep(self.history.speaker * 0.7)
            await self._speak(session, enough)
            async with asyncio.timeout(CLOSE_S):
                self.history.coverage = await session.close()
                await hearing
        finally:
            hearing.cancel()
            await asyncio.wait({hearing})
            self.history.resumes = session.resumes

    async def _speak(self, session: Session, enough: asyncio.Event) -> None:
        history = self.history
        for number, piece in enumerate(cycle(self._pieces)):
            if number >= len(self._pieces) and enough.is_set():
                return
            start_ms = history.audio_ms
            history.said.append(Said(piece.key, start_ms, start_ms + piece.duration_ms))
            source = RecordingSource(piece.recording, tail_ms=material.PAUSE_MS)
            async for chunk in source.chunks():
                await session.send(chunk)
                history.sent_ms.append(history.audio_ms + len(chunk) * 500 / self._rate)
                history.sent_at.append(monotonic())

    async def _hear(self, session: Session) -> None:
        async for event in session:
            if isinstance(event, Outcome):
                self._take(event)
            elif isinstance(event, Notice):
                self._notice(event.message)

    def _take(self, outcome: Outcome) -> None:
        history = self.history
        reason = RESULT if outcome.kind == "translation" else outcome.reason
        history.heard.append(
            Heard(
                monotonic(), history.speaker, 0, outcome.utterance_index, outcome.target, reason,
                outcome.text_asr, outcome.text, outcome.epoch, outcome.seq,
            )
        )  # fmt: skip

    def _notice(self, message: object) -> None:
        history = self.history
        if isinstance(message, UtteranceAccepted):
            # Places are of admitted audio.
            start_ms, end_ms = (
                history.refused_ms + place for place in (message.start_ms, message.end_ms)
            )
            history.accepted.append(Accepted(message.utterance_index, start_ms, end_ms))
        elif isinstance(message, Gap):
            history.told[f"gap {message.reason}"] += 1
            history.refused_ms += message.end_ms - message.start_ms
        elif isinstance(message, ErrorMessage):
            history.told[message.code] += 1


def pieces_of(plan: ChaosPlan) -> list[list[Spoken]]:
    """Return what each speaker says."""
    store = default_store()
    keys = [prompt.key for prompt in material.parallel(store, "en", "es")]
    spoken = {
        language: _of_a_length(material.prompts(store, language, keys)) for language in ("en", "es")
    }
    read_aloud = [
        material.Spoken(one.key, one.text, material.trimmed(one.recording))
        for one in material.librivox(store)
    ]
    # The shortest first: the quick run has time for some.
    read_aloud.sort(key=lambda one: one.duration_ms)
    found, size = [], plan.recordings
    for number in range(plan.sessions):
        language, _, is_read = PARTS[number % len(PARTS)]
        prompts = spoken[language][number * size : (number + 1) * size]
        found.append(read_aloud[:size] if is_read else prompts)
    return found


def _of_a_length(spoken: Sequence[Spoken]) -> list[Spoken]:
    return [one for one in spoken if LEAST_MS <= one.duration_ms <= MOST_MS]


# The harm


class Harm:
    """Does one thing after another to a company."""

    def __init__(self, company: Company, plan: ChaosPlan) -> None:
        self._company = company
        self._blows = schedule(plan)
        self._chance = Random(plan.seed)
        self.done: list[Fault] = []

    async def rage(self, tell: Callable[[str], None]) -> None:
        """Do all of it; raises `HarnessFailed` if something does not heal."""
        began = monotonic()
        for blow in self._blows:
            await asyncio.sleep(max(0.0, blow.at_s - (monotonic() - began)))
            fault = await self._strike(blow)
            self.done.append(fault)
            tell(f"{fault.kind} of {fault.target}, healed after {fault.until - fault.at:.1f} s")

    async def _strike(self, blow: Blow) -> Fault:
        how, _, whom = blow.kind.partition("_")
        if whom == "scheduler":
            at, target = await self._kill_scheduler(blow.scheduler)
        elif whom == "node":
            at, target = await self._kill_node()
        else:
            at, target = await self._hurt_worker(whom, is_killed=how == "kill")
        return Fault(at, blow.kind, target, monotonic())

    async def _kill_scheduler(self, number: int) -> tuple[float, str]:
        instance = self._company.instances[number]
        at = monotonic()
        await instance.kill()
        await instance.start()
        await until(self._company.has_nodes, HEAL_S, "both nodes are ready again")
        return at, instance.name

    async def _kill_node(self) -> tuple[float, str]:
        node, _ = await self._catch("asr")
        await node.count()
        at = monotonic()
        await node.kill()
        await node.start()
        await until(self._company.has_nodes, HEAL_S, "both nodes are ready again")
        return at, node.name

    async def _hurt_worker(self, stage: str, *, is_killed: bool) -> tuple[float, str]:
        """Kill a worker, or stop it until its node has noticed that it hangs."""
        await asyncio.gather(*(node.count() for node in self._company.nodes))
        before = {node.name: node.restarts for node in self._company.nodes}
        node, pid = await self._catch(stage)
        at = monotonic()
        with contextlib.suppress(ProcessLookupError):  # it was lost without us, and is replaced
            os.kill(pid, signal.SIGKILL if is_killed else signal.SIGSTOP)

        async def has_healed() -> bool:
            return await node.has_healed(before[node.name])

        await until(has_healed, HEAL_S, f"{node.name} has a new {stage} worker")
        return at, f"{node.name} {stage}"

    async def _catch(self, stage: str) -> tuple[SpeechNode, int]:
        """Return a worker of this stage in the midst of its work, any if none is caught."""
        found: dict[int, SpeechNode] = {}

        async def are_known() -> bool:
            for node in self._company.nodes:
                found.update({pid: node for pid, its in node.workers().items() if its == stage})
            return bool(found)

        await until(are_known, HEAL_S, f"there is a {stage} worker")
        deadline = monotonic() + CATCH_S
        while monotonic() < deadline:
            for pid, node in found.items():
                if _stat(pid)[0] == "R":
                    return node, pid
            await asyncio.sleep(CATCH_POLL_S)
        pid = self._chance.choice(sorted(found))
        return found[pid], pid


# All of it


async def play(plan: ChaosPlan, tell: Callable[[str], None]) -> ChaosReport:
    """Speak without faults and under fire; return what came of it. Nothing is left behind."""
    report, roll, began = ChaosReport(), Roll(os.getpid()), monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="lingua-chaos-speech-") as place:
            async with asyncio.timeout(plan.bound_s):
                await _play_in(Path(place), plan, (report, roll), tell)
    except (*BROKEN, ExceptionGroup) as error:
        first = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
        report.mishaps.append(f"the run broke off: {type(first).__name__} {first}".rstrip())
    finally:
        report.left_over = await roll.end()
    report.wall_s = monotonic() - began
    return report


async def _play_in(
    place: Path, plan: ChaosPlan, into: tuple[ChaosReport, Roll], tell: Callable[[str], None]
) -> None:
    report, roll = into
    tell("starting a store, two schedulers and two nodes of real engines")
    pieces = pieces_of(plan)
    async with AsyncExitStack() as stack:
        company = Company(place, await stack.enter_async_context(running_store(place / "store")))
        watching = asyncio.create_task(roll.watch())
        stack.callback(watching.cancel)
        await company.start(stack)
        tell("speaking without faults, in real time")
        calm = await _round(company, pieces)
        report.undisturbed = check(calm, reference=reference_of(calm))
        tell("speaking under fire")
        harm = Harm(company, plan)
        stormy = await _round(company, pieces, _raging(harm, report, tell))
        report.faults = harm.done
        report.under_fire = check(stormy, harm.done, reference_of(calm))
        roll.note()
        report.mishaps += await company.stop()
        report.restarts = sum(node.restarts for node in company.nodes)


async def _raging(harm: Harm, report: ChaosReport, tell: Callable[[str], None]) -> None:
    try:
        await harm.rage(tell)
    except BROKEN as error:
        # What was said until then is still heard to its end, and checked.
        report.mishaps.append(f"it did not heal: {type(error).__name__} {error}".rstrip())


async def _round(
    company: Company,
    pieces: Sequence[Sequence[Spoken]],
    raging: Coroutine[Any, Any, None] | None = None,
) -> list[History]:
    """Have all speakers speak, until everything was said once and all harm is done."""
    urls = [instance.client_url() for instance in company.instances]
    speakers = [Speaker(number, said, urls) for number, said in enumerate(pieces)]
    enough = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for speaker in speakers:
            group.create_task(speaker.run(enough))
        if raging is not None:
            await raging
        enough.set()
    return [speaker.history for speaker in speakers]
