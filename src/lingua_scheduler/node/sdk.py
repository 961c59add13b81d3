"""`Node`: an async function that does jobs, made a node by a decorator.

    node = Node(url, node_id="gpu-1", pairs=["en>es"], max_jobs=4)

    @node.job
    async def translate(job: Job) -> Result: ...

    node.run()

Here are the settings, what the node says of itself, and its beginning and end. docs/node-sdk.md
tells how to use it; the jobs are `worker.py`, the connection is `link.py`.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import signal
import threading
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, Final, get_args
from uuid import uuid4

import msgspec

from lingua_scheduler import __version__
from lingua_scheduler.errors import ConfigError, InvalidLabel, InvalidLanguage
from lingua_scheduler.labels import checked_labels
from lingua_scheduler.languages import language
from lingua_scheduler.messages.codec import JSON_PROTOCOL, MSGPACK_PROTOCOL
from lingua_scheduler.messages.from_node import NodeRegister
from lingua_scheduler.messages.shared import (
    CapabilityByType,
    FeatureFlags,
    Gpu,
    InstalledModel,
    InstalledService,
    LanguageCapabilities,
    LanguagePair,
    NmtCapability,
    ServiceType,
)
from lingua_scheduler.node.link import Link, addresses
from lingua_scheduler.node.machine import Usage, default_node_id, hardware, platform_name
from lingua_scheduler.node.worker import Stats, Worker

try:
    import uvloop
except ImportError:  # Not everywhere, and only faster.
    uvloop = None  # type: ignore[assignment]

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Coroutine, Sequence

    from lingua_scheduler.dial import TokenSource
    from lingua_scheduler.node.job import Handler

DEFAULT_URL: Final = "ws://127.0.0.1:5010/ws/node"
CAPABILITY_SCHEMA: Final = "2.0"
# A scheduler acknowledges within milliseconds; an older one never does.
LAST_ACKS_S: Final = 3.0
MAX_JOBS_LIMIT: Final = 1024
DRAIN_REASON: Final = "the node stops"
REASON_CHARACTERS_MAX: Final = 256

_logger = logging.getLogger("lingua_scheduler.node")


def fastest_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what makes the event loop; None is the one of the standard library."""
    return uvloop.new_event_loop if uvloop else None


def log_state(word: str, detail: str) -> None:
    """Log what happens to a connection."""
    level = logging.WARNING if word in {"lost", "refused"} else logging.INFO
    _logger.log(level, "%s: %s", word, detail)


@dataclass(eq=False)
class Node:
    """A node: its settings, then `job`, then `run` or `serve`. Without languages it takes any."""

    # The scheduler's address, or one per instance: the next is tried when one is lost.
    url: str | Sequence[str] = DEFAULT_URL
    _: KW_ONLY
    # Must stay the same over restarts and be this node's alone (default: from the host's name).
    node_id: str = ""
    # Directions it translates, as "en>es". If none: asr_languages x target_languages.
    pairs: Sequence[str] = ()
    asr_languages: Sequence[str] = ()
    target_languages: Sequence[str] = ()
    tts_languages: Sequence[str] = ()
    # What it can do: of asr, nmt, tts, tone, semantic, by name or told in detail; and feature
    # names of the protocol.
    services: Sequence[str | InstalledService] = ("asr", "nmt", "tts")
    features: Sequence[str] = ()
    models: Sequence[InstalledModel] = ()
    gpus: Sequence[Gpu] = ()
    # Jobs at the same time; more are refused.
    max_jobs: int = 4
    accept_public_jobs: bool = True
    # A node token, or what gives one each time it is needed, at once or when awaited.
    token: TokenSource = field(default=None, repr=False)
    # Words that operators name groups of nodes by, such as "eu" or "gpu-a".
    labels: Sequence[str] = ()
    # JSON instead of MessagePack, to read along.
    json_wire: bool = False
    # Tell when a job has arrived and begun; without, only results are sent.
    acks: bool = True
    # Tell how busy the machine is: a scheduler gives no new jobs to one that is too busy.
    reports_usage: bool = True
    # Not for one whose slots were measured: its own jobs are what keeps the CPU busy.
    reports_cpu: bool = True
    # If the scheduler does not say how often.
    heartbeat_ms: int = 2000
    # How long jobs may go on after `drain`, and how long the scheduler may be silent.
    drain_s: float = 30.0
    silence_s: float = 4.0
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    # Told ("connecting" | "registered" | "lost" | "refused" | "draining", detail); default: logs.
    watch: Callable[[str, str], None] = log_state
    # Names this process of the node.
    boot_id: str = field(default_factory=lambda: uuid4().hex)

    def __post_init__(self) -> None:
        self.node_id = self.node_id or default_node_id()
        self._handler: Handler | None = None
        self._link: Link | None = None
        self._stats = Stats()
        self._drain_asked = asyncio.Event()
        self._stop_asked = asyncio.Event()
        # Services that do not work now, and why.
        self._not_ready: dict[str, str] = {}
        self._check()
        # What it says of itself. Made here, so that a wrong setting is told where it is written.
        self.registration = self._describe()

    @property
    def stats(self) -> Stats:
        """Return what was done since `serve` began."""
        return self._stats

    def job(self, handler: Handler) -> Handler:
        """Make an async function the one that does this node's jobs."""
        if not inspect.iscoroutinefunction(handler):
            raise TypeError("a handler must be an async function")
        self._handler = handler
        return handler

    def run(self) -> None:
        """Serve until SIGTERM or Ctrl-C, which drain; a second one ends it at once."""
        with asyncio.Runner(loop_factory=fastest_loop()) as runner:
            runner.run(self._serve_until_signal())

    async def serve(self) -> None:
        """Serve until drained, stopped or cancelled; raise `NodeRefused` if not wanted."""
        link, worker = self._prepare()
        waits: list[asyncio.Task[Any]] = [
            asyncio.create_task(link.run()),
            asyncio.create_task(self._until_drained(worker)),
            asyncio.create_task(self._stop_asked.wait()),
        ]
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            await self._end(waits, worker)

    def set_ready(self, service: str, ready: bool, reason: str = "") -> None:
        """Say that a kind of service works, or why it does not; the scheduler is told at once."""
        if service not in self._kinds():
            raise ConfigError("services", f"{service!r} is none of {', '.join(self._kinds())}")
        before = dict(self._not_ready)
        if ready:
            self._not_ready.pop(service, None)
        else:
            self._not_ready[service] = reason or "not ready"
        if before != self._not_ready:
            now = self._capabilities()
            self.registration = msgspec.structs.replace(self.registration, capability_by_type=now)
            if self._link is not None:
                self._link.redeclare(self.registration)

    def drain(self, reason: str = DRAIN_REASON) -> None:
        """Take no new jobs, finish those under way, then end `serve`."""
        if not self._drain_asked.is_set():
            self._drain_asked.set()
            self.watch("draining", reason)
            if self._link is not None:
                self._link.drain(reason)

    def stop(self) -> None:
        """End `serve` now; jobs under way are cancelled and go to other nodes."""
        self._stop_asked.set()

    async def _serve_until_signal(self) -> None:
        if threading.current_thread() is threading.main_thread():
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self._take_signal)
        await self.serve()

    def _take_signal(self) -> None:
        if self._drain_asked.is_set():
            self.stop()
        else:
            self.drain()

    def _prepare(self) -> tuple[Link, Worker]:
        if self._handler is None:
            raise ConfigError("job", "no function was decorated with @node.job")
        if self._link is not None:
            raise ConfigError("serve", "this node is being served already")
        offered = (JSON_PROTOCOL,) if self.json_wire else (MSGPACK_PROTOCOL, JSON_PROTOCOL)
        link = Link(self.url, offered, silence_s=self.silence_s, tls=self.tls)
        link.token = self.token
        link.usage = Usage(is_measured=self.reports_usage, with_cpu=self.reports_cpu)
        worker = Worker(self._handler, link, max_jobs=self.max_jobs, acks=self.acks)
        link.attach(worker, self.registration, self.heartbeat_ms, self.watch)
        self._link, self._stats = link, worker.stats
        return link, worker

    async def _until_drained(self, worker: Worker) -> None:
        await self._drain_asked.wait()
        await _at_most(self.drain_s, worker.until(lambda: not worker.running_count))
        await _at_most(LAST_ACKS_S, worker.until(lambda: not worker.unacknowledged_count))

    async def _end(self, waits: Sequence[asyncio.Task[Any]], worker: Worker) -> None:
        # The socket first: the scheduler then moves what is left over to other nodes at once.
        for task in waits:
            task.cancel()
        await asyncio.wait(waits)
        await worker.stop()
        self._link = None
        self._drain_asked.clear()
        self._stop_asked.clear()

    def _check(self) -> None:
        urls = addresses(self.url)
        if not urls or not all(url.startswith(("ws://", "wss://")) for url in urls):
            raise ConfigError("url", "must begin with ws:// or wss://, each of them")
        if not 1 <= self.max_jobs <= MAX_JOBS_LIMIT:
            raise ConfigError("max_jobs", f"must be from 1 to {MAX_JOBS_LIMIT}")
        for name in ("heartbeat_ms", "silence_s"):
            if getattr(self, name) <= 0:
                raise ConfigError(name, "must be more than 0")
        _check_names("services", self._kinds(), get_args(ServiceType))
        _check_names("features", self.features, FeatureFlags.__struct_fields__)

    def _describe(self) -> NodeRegister:
        features = FeatureFlags(**dict.fromkeys(self.features, True))
        return NodeRegister(
            node_id=self.node_id,
            version=__version__,
            capability_schema_version=CAPABILITY_SCHEMA,
            platform=platform_name(),
            hardware=hardware(self.gpus),
            installed_models=tuple(self.models),
            installed_services=self._installed(),
            capability_by_type=self._capabilities(),
            features_supported=features,
            accept_public_jobs=self.accept_public_jobs,
            language_capabilities=self._languages(),
            boot_id=self.boot_id,
            max_jobs=self.max_jobs,
            sends_acks=self.acks,
            labels=self._labels(),
        )

    def _labels(self) -> tuple[str, ...] | None:
        try:
            return checked_labels(self.labels) or None
        except InvalidLabel as error:
            raise ConfigError("labels", str(error)) from None

    def _kinds(self) -> tuple[str, ...]:
        kinds = (one if isinstance(one, str) else one.type for one in self.services)
        return tuple(dict.fromkeys(kinds))

    def _installed(self) -> tuple[InstalledService, ...]:
        return tuple(self._service(one) if isinstance(one, str) else one for one in self.services)

    def _service(self, name: Any) -> InstalledService:
        device = "gpu" if self.gpus else "cpu"
        return InstalledService(service_id=name, type=name, device=device, version=__version__)

    def _capabilities(self) -> tuple[CapabilityByType, ...]:
        """Return which kinds of service work now."""
        ids: dict[str, list[str]] = {kind: [] for kind in self._kinds()}
        for service in self._installed():
            ids[service.type].append(service.service_id)
        return tuple(_capability(kind, tuple(ids[kind]), self._not_ready.get(kind)) for kind in ids)

    def _languages(self) -> LanguageCapabilities | None:
        pairs = tuple(_pair(text) for text in self.pairs)
        targets = _codes("target_languages", self.target_languages)
        said = LanguageCapabilities(
            asr_languages=_codes("asr_languages", self.asr_languages),
            tts_languages=_codes("tts_languages", self.tts_languages),
            nmt_capabilities=(NmtCapability(model_id="nmt", tgt_langs=targets),)
            if targets
            else None,
            supported_language_pairs=pairs or None,
        )
        return None if said == LanguageCapabilities() else said


async def _at_most(seconds: float, waiting: Coroutine[Any, Any, None]) -> None:
    try:
        async with asyncio.timeout(seconds):
            await waiting
    except TimeoutError:
        _logger.warning("not everything ended within %g s of draining", seconds)


def _capability(kind: Any, ids: tuple[str, ...], problem: str | None) -> CapabilityByType:
    if problem is None:
        return CapabilityByType(type=kind, ready=True, ready_impl_ids=ids)
    return CapabilityByType(type=kind, ready=False, reason=problem[:REASON_CHARACTERS_MAX])


def _check_names(setting: str, names: Sequence[str], known: Sequence[str]) -> None:
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise ConfigError(setting, f"{', '.join(unknown)} is none of {', '.join(known)}")


def _pair(text: str) -> LanguagePair:
    source, arrow, target = text.partition(">")
    if not arrow:
        raise ConfigError("pairs", f"{text!r} must be like en>es")
    return LanguagePair(src=_code("pairs", source), tgt=_code("pairs", target))


def _codes(setting: str, codes: Sequence[str]) -> tuple[str, ...] | None:
    return tuple(_code(setting, code) for code in codes) or None


def _code(setting: str, code: str) -> str:
    try:
        return language(code.strip())
    except InvalidLanguage as error:
        raise ConfigError(setting, str(error)) from None
