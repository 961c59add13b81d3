"""A node of real engines, put together: crews of workers, what they can do, the pipeline, the node.

    plan ──> crews (asr with vad and lid, nmt, tts) ──> abilities ──> pipeline ──> Node

Without a recogniser there is no node: that is an error. Any other engine that cannot be loaded is
left out and told; the node then declares what is left. When the workers of a stage are gone for a
while the scheduler is told at once, and told again when they are back.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lingua_scheduler.node import Node
from lingua_scheduler.speech import calibrate, stages
from lingua_scheduler.speech.abilities import Abilities, Engine
from lingua_scheduler.speech.engine import EngineError
from lingua_scheduler.speech.host import Crew, CrewRules, WorkerLost
from lingua_scheduler.speech.meters import Meters
from lingua_scheduler.speech.pipeline import Pipeline
from lingua_scheduler.speech.plugins import FILES
from lingua_scheduler.speech.presets import SERVICES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from lingua_scheduler.messages.shared import ServiceType
    from lingua_scheduler.speech.engine import Role, Sound
    from lingua_scheduler.speech.plugins import Spec
    from lingua_scheduler.speech.presets import Plan, Service

# A scheduler gives a job 30 s: one that waited so long for a worker is better off elsewhere.
WORKER_WAIT_S: Final = 20.0
QUEUE_MAX: Final = 256


class Loaded(NamedTuple):
    """An engine at work, for who shows what a node is made of."""

    service: Service
    spec: Spec
    engine: Engine
    load_s: float


class Assembly:
    """The engines of one node; `async with` it, then `node`."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.meters = Meters()
        # By service, those that could be started.
        self.crews: dict[Service, Crew] = {}
        # What could not be loaded, and why.
        self.left_out: dict[str, str] = {}
        self.abilities: Abilities
        self.pipeline: Pipeline
        # The node that is told when a stage stops working, once there is one.
        self._node: Node | None = None

    async def __aenter__(self) -> Assembly:
        is_started = False
        try:
            await self._start()
            is_started = True
        finally:
            if not is_started:
                await self.close()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End all workers."""
        await asyncio.gather(*(crew.close() for crew in self.crews.values()))

    def loaded(self) -> list[Loaded]:
        """Return the engines at work, in the order of the stages and of the plan."""
        return [
            Loaded(service, spec, _engine(service, index, spec, crew), crew.load_s)
            for service, crew in self.crews.items()
            for index, spec in enumerate(self.plan.of(service))
            if index in crew.abouts
        ]

    def node(self, url: str | Sequence[str], **settings: Any) -> Node:
        """Return the node of these engines, declaring what they really have."""
        can = self.abilities
        node = Node(
            url,
            pairs=can.pairs(),
            asr_languages=can.heard(),
            tts_languages=can.spoken() if can.engines("tts") else (),
            services=can.services(),
            models=can.models(),
            # The slots were measured with the CPU as busy as it gets.
            reports_cpu=False,
            **settings,
        )
        node.job(self.pipeline.handle)
        self._node = node
        self.meters.slots.set(node.max_jobs)
        for service in self.crews:
            self._tell_ready(service)
        return node

    async def sample(self, recording: Sound | None = None) -> calibrate.Sample | None:
        """Return speech to calibrate with: a recording, or the node's own voice; None without."""
        can = self.abilities
        for language, sentence in calibrate.SENTENCES.items():
            engine = can.recogniser((language,))
            voice = can.voice(language)
            if engine is None or (voice is None and recording is None):
                continue
            sound = recording
            if sound is None and voice is not None:
                within_s = stages.speaking_s(sentence)
                speaker = stages.Stage("tts", self._speakers(voice[0]), Meters())
                sound = await speaker.call(voice[0], sentence, voice[1], within_s=within_s)
            if sound is not None:
                return self._sample(sound, language)
        return None

    def _speakers(self, voice: Engine) -> Crew:
        return next(crew for name, crew in self.crews.items() if name == (voice.stage or "tts"))

    def _sample(self, sound: Sound, source: str) -> calibrate.Sample:
        """Return a sample that goes through as many stages as there are."""
        can = self.abilities
        targets = [pair.partition(">")[2] for pair in can.pairs() if pair.startswith(f"{source}>")]
        targets.sort(key=lambda code: (code == source, can.voice(code) is None))
        target = targets[0] if targets else source
        return calibrate.Sample(sound, source, target, can.voice(target) is not None)

    async def _start(self) -> None:
        wanted = [service for service in SERVICES if self.plan.of(service)]
        self.crews = {service: self._crew(service) for service in wanted}
        ends = await asyncio.gather(
            *(crew.start() for crew in self.crews.values()), return_exceptions=True
        )
        for service, end in zip(wanted, ends, strict=True):
            if isinstance(end, EngineError | WorkerLost) and service != "asr":
                crew = self.crews.pop(service)
                self._leave_out(
                    service, crew.failures or dict.fromkeys(_all(self.plan, service), end)
                )
            elif end is not None:
                raise end
        self._take_stock()

    def _crew(self, service: Service) -> Crew:
        settings = self.plan.crew
        rules = CrewRules(
            workers=settings.workers.get(service, 1),
            load_s=settings.load_s,
            memory_mb=settings.memory_mb,
            queue_max=QUEUE_MAX,
            wait_s=WORKER_WAIT_S,
        )
        return Crew(self._specs(service), rules, watch=self._watching(service))

    def _specs(self, service: Service) -> tuple[Spec, ...]:
        """Return what a stage's workers load: the engines of the plan, and who reads files."""
        return (*self.plan.of(service), *((FILES,) if service == "asr" else ()))

    def _take_stock(self) -> None:
        """Find out what was loaded; raises if that is no recogniser."""
        found: list[tuple[Spec, Engine]] = []
        for service, crew in self.crews.items():
            self._leave_out(service, crew.failures)
            found += [
                (spec, _engine(service, index, spec, crew))
                for index, spec in enumerate(self._specs(service))
                if index in crew.abouts
            ]
        # Crews of one role may be several, but the plan says who is preferred.
        order = (*self.plan.specs, FILES)
        found.sort(key=lambda one: order.index(one[0]))
        engines: dict[Role, list[Engine]] = {}
        for spec, engine in found:
            engines.setdefault(spec.role, []).append(engine)
        if "asr" not in engines:
            raise next(iter(self.crews["asr"].failures.values()))
        self.abilities = Abilities(dict(engines))
        self.meters.watch({str(service): crew for service, crew in self.crews.items()})
        self.pipeline = self._pipeline(self.meters)

    def rehearsal(self) -> Pipeline:
        """Return a pipeline for jobs that nobody asked for: they are not counted."""
        return self._pipeline(Meters())

    def _pipeline(self, meters: Meters) -> Pipeline:
        working = {
            str(service): stages.Stage(_kind(service), crew, meters)
            for service, crew in self.crews.items()
        }
        return Pipeline(working, self.abilities, meters, self.plan.crew.attempt_s)

    def _leave_out(self, service: Service, failures: dict[int, Any]) -> None:
        specs = self._specs(service)
        self.left_out |= {str(specs[index]): str(error) for index, error in failures.items()}

    # Readiness

    def _watching(self, service: Service) -> Callable[[str, str], None]:
        def watch(_state: str, _detail: str) -> None:
            self._tell_ready(service)

        return watch

    def _tell_ready(self, service: Service) -> None:
        """Tell the scheduler whether a stage works, if that changed."""
        node, crew = self._node, self.crews.get(service)
        if node is None or crew is None:
            return
        for kind in self._kinds(service):
            node.set_ready(kind, crew.is_ready, crew.reason or "loading")

    def _kinds(self, service: Service) -> Iterable[ServiceType]:
        """Give what a stage's workers serve: a recogniser that translates by itself is two.

        The natural voice is none where there are others: they speak when its workers are away.
        """
        can = self.abilities
        if service != "natural" or "tts" not in self.crews:
            yield _kind(service)
        if service == "asr" and can.translates and not can.engines("mt"):
            yield "nmt"


def _kind(service: Service) -> ServiceType:
    """Return what the scheduler calls the work of a stage."""
    return "tts" if service == "natural" else service


def _engine(service: Service, index: int, spec: Spec, crew: Crew) -> Engine:
    return Engine(index, crew.abouts[index], spec.role, service)


def _all(plan: Plan, service: Service) -> range:
    return range(len(plan.of(service)))


def memory_mb(crew: Crew) -> int:
    """Return the memory of a crew's workers and of what they started; 0 where nothing tells."""
    groups = {str(pid) for pid in crew.pids}
    total_kb = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # The name in brackets may hold spaces; the group is the third field after it.
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if fields[2] in groups:
                total_kb += int(fields[21]) * 4
        except (OSError, IndexError, ValueError):
            # Gone meanwhile.
            continue
    return total_kb // 1024
