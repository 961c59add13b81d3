"""Assembles a node of real engines: worker pools, abilities, pipeline, node.

    plan ──> worker pools (asr with vad and lid, nmt, tts) ──> abilities ──> pipeline ──> Node

A node without a recogniser is an error. Any other engine that fails to load is left out and
reported; the node then declares the rest. When all workers of a stage are lost, the scheduler is
informed at once, and again when they are back.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lingua_node import Node
from lingua_speech import calibrate, pipeline_stage
from lingua_speech.abilities import Abilities, LoadedEngine
from lingua_speech.engine import EngineError
from lingua_speech.host import WorkerLost, WorkerPool, WorkerPoolRules
from lingua_speech.metrics import NodeMetrics
from lingua_speech.pipeline import SpeechPipeline
from lingua_speech.pipeline_stage import PipelineStage
from lingua_speech.plugins import FILES
from lingua_speech.presets import SERVICES
from lingua_speech.stage_calls import StageCalls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from lingua_speech.engine import Role, Sound
    from lingua_speech.listening.listener import SpeechListener
    from lingua_speech.plugins import Spec
    from lingua_speech.presets import EnginePlan, Service
    from lingua_wire.shared import ServiceType

# A scheduler gives a job 30 s: after this wait for a worker, another node should do it.
WORKER_WAIT_S: Final = 20.0
QUEUE_MAX: Final = 256


class ServingEngine(NamedTuple):
    """A loaded engine with its origin, for display."""

    service: Service
    spec: Spec
    engine: LoadedEngine
    load_s: float


class Assembly:
    """The engines of one node; enter it with `async with`, then call `node`."""

    def __init__(self, plan: EnginePlan) -> None:
        self.plan = plan
        self.metrics = NodeMetrics()
        # Worker pools that started, by service.
        self.pools: dict[Service, WorkerPool] = {}
        # Specs that could not be loaded, and why.
        self.left_out: dict[str, str] = {}
        self.abilities: Abilities
        self.calls: StageCalls
        self.pipeline: SpeechPipeline
        # Receives changes of readiness, once it exists.
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
        await asyncio.gather(*(pool.close() for pool in self.pools.values()))

    def loaded(self) -> list[ServingEngine]:
        """Return the loaded engines, in the order of the stages and of the plan."""
        return [
            ServingEngine(service, spec, _engine(service, index, spec, pool), pool.load_s)
            for service, pool in self.pools.items()
            for index, spec in enumerate(self.plan.of(service))
            if index in pool.abouts
        ]

    def node(self, url: str | Sequence[str], **settings: Any) -> Node:
        """Return the node of these engines; it declares their actual abilities."""
        abilities = self.abilities
        node = Node(
            url,
            pairs=abilities.pairs(),
            asr_languages=abilities.recognised_languages(),
            tts_languages=abilities.spoken_languages() if abilities.engines("tts") else (),
            services=abilities.services(),
            models=abilities.models(),
            # The calibration of the slots already allows for a busy CPU.
            reports_cpu=False,
            **{"max_streams": 0} | settings,
        )
        node.job(self.pipeline.handle)
        if node.max_streams:
            node.stream(self.listener().listen)
        self._node = node
        self.metrics.slots.set(node.max_jobs)
        for service in self.pools:
            self._report_readiness(service)
        return node

    def listener(self) -> SpeechListener:
        """Return what listens to speech that goes on."""
        # Imported only if needed: it needs numpy.
        from lingua_speech.listening.listener import SpeechListener  # noqa: PLC0415

        return SpeechListener(self.calls, self.pipeline)

    async def sample(self, recording: Sound | None = None) -> calibrate.Sample | None:
        """Return speech for the calibration: a recording, or the node's own voice; None without."""
        abilities = self.abilities
        for language, sentence in calibrate.SENTENCES.items():
            engine = abilities.recogniser((language,))
            voice = abilities.voice(language)
            if engine is None or (voice is None and recording is None):
                continue
            sound = recording
            if sound is None and voice is not None:
                within_s = pipeline_stage.synthesis_s(sentence)
                speaker = PipelineStage("tts", self._voice_pool(voice[0]), NodeMetrics())
                sound = await speaker.call(voice[0], sentence, voice[1], within_s=within_s)
            if sound is not None:
                return self._sample(sound, language)
        return None

    def _voice_pool(self, voice: LoadedEngine) -> WorkerPool:
        return next(pool for name, pool in self.pools.items() if name == (voice.stage or "tts"))

    def _sample(self, sound: Sound, source: str) -> calibrate.Sample:
        """Return a sample that uses as many stages as possible."""
        abilities = self.abilities
        pairs = [pair for pair in abilities.pairs() if pair.startswith(f"{source}>")]
        targets = [pair.partition(">")[2] for pair in pairs]
        targets.sort(key=lambda code: (code == source, abilities.voice(code) is None))
        target = targets[0] if targets else source
        return calibrate.Sample(sound, source, target, abilities.voice(target) is not None)

    async def _start(self) -> None:
        wanted = [service for service in SERVICES if self.plan.of(service)]
        self.pools = {service: self._pool(service) for service in wanted}
        ends = await asyncio.gather(
            *(pool.start() for pool in self.pools.values()), return_exceptions=True
        )
        for service, end in zip(wanted, ends, strict=True):
            if isinstance(end, EngineError | WorkerLost) and service != "asr":
                pool = self.pools.pop(service)
                self._leave_out(
                    service, pool.failures or dict.fromkeys(_all(self.plan, service), end)
                )
            elif end is not None:
                raise end
        self._collect_abilities()

    def _pool(self, service: Service) -> WorkerPool:
        settings = self.plan.workers
        rules = WorkerPoolRules(
            workers=settings.workers.get(service, 1),
            load_s=settings.load_s,
            memory_mb=settings.memory_mb,
            queue_max=QUEUE_MAX,
            wait_s=WORKER_WAIT_S,
        )
        return WorkerPool(self._specs(service), rules, on_state=self._state_listener(service))

    def _specs(self, service: Service) -> tuple[Spec, ...]:
        """Return the engines that the workers of a stage load; `asr` also reads files."""
        return (*self.plan.of(service), *((FILES,) if service == "asr" else ()))

    def _collect_abilities(self) -> None:
        """Combine the abilities of the loaded engines; raises if no recogniser was loaded."""
        found: list[tuple[Spec, LoadedEngine]] = []
        for service, pool in self.pools.items():
            self._leave_out(service, pool.failures)
            found += [
                (spec, _engine(service, index, spec, pool))
                for index, spec in enumerate(self._specs(service))
                if index in pool.abouts
            ]
        # Several pools may have engines of one role; the plan gives the order of preference.
        order = (*self.plan.specs, FILES)
        found.sort(key=lambda one: order.index(one[0]))
        engines: dict[Role, list[LoadedEngine]] = {}
        for spec, engine in found:
            engines.setdefault(spec.role, []).append(engine)
        if "asr" not in engines:
            raise next(iter(self.pools["asr"].failures.values()))
        self.abilities = Abilities(dict(engines))
        self.metrics.add_worker_pools({str(service): pool for service, pool in self.pools.items()})
        self.calls = self._calls(self.metrics)
        self.pipeline = SpeechPipeline(self.calls, self.plan.workers.attempt_s)

    def rehearsal(self) -> SpeechPipeline:
        """Return a pipeline for the node's own jobs, which are not counted."""
        return SpeechPipeline(self._calls(NodeMetrics()), self.plan.workers.attempt_s)

    def _calls(self, metrics: NodeMetrics) -> StageCalls:
        working = {
            str(service): PipelineStage(_service_type(service), pool, metrics)
            for service, pool in self.pools.items()
        }
        return StageCalls(working, self.abilities, metrics)

    def _leave_out(self, service: Service, failures: dict[int, Any]) -> None:
        specs = self._specs(service)
        self.left_out |= {str(specs[index]): str(error) for index, error in failures.items()}

    # Readiness

    def _state_listener(self, service: Service) -> Callable[[str, str], None]:
        def on_state(_state: str, _detail: str) -> None:
            self._report_readiness(service)

        return on_state

    def _report_readiness(self, service: Service) -> None:
        """Report to the scheduler whether a stage works, if that changed."""
        node, pool = self._node, self.pools.get(service)
        if node is None or pool is None:
            return
        for service_type in self._service_types(service):
            node.set_ready(service_type, pool.is_ready, pool.reason or "loading")

    def _service_types(self, service: Service) -> Iterable[ServiceType]:
        """Yield the services of a stage; a recogniser that alone translates has two.

        The natural voice does not count if there are others, which replace it while it is lost.
        """
        abilities = self.abilities
        if service != "natural" or "tts" not in self.pools:
            yield _service_type(service)
        if service == "asr" and abilities.translates and not abilities.engines("mt"):
            yield "nmt"


def _service_type(service: Service) -> ServiceType:
    """Return the service of a stage in the protocol."""
    return "tts" if service == "natural" else service


def _engine(service: Service, index: int, spec: Spec, pool: WorkerPool) -> LoadedEngine:
    return LoadedEngine(index, pool.abouts[index], spec.role, service)


def _all(plan: EnginePlan, service: Service) -> range:
    return range(len(plan.of(service)))


def memory_mb(pool: WorkerPool) -> int:
    """Return the memory of a pool's workers and their children; 0 where /proc is missing."""
    groups = {str(pid) for pid in pool.pids}
    total_kb = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # The name in brackets may hold spaces; the group is the third field after it.
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if fields[2] in groups:
                total_kb += int(fields[21]) * 4
        except (OSError, IndexError, ValueError):
            # The process has ended meanwhile.
            continue
    return total_kb // 1024
