"""`private_service`: a scheduler on a free port of this machine, its data in a temporary folder.

With engines, or other arguments for it, a node too; then it is ready when the scheduler would give
that node work in all the languages wanted. A failure to start is raised with the output of the
process. `own_service` is the same with the scheduler that the settings describe, data and all.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import urllib.error
import urllib.parse
import urllib.request
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from lingua_translate.local.child import Child
from lingua_translate.local.folder import private_folder
from lingua_wire.errors import LinguaError

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from pathlib import Path

    Pairs = Sequence[tuple[str, str]]

SESSION_PATH, NODE_PATH = "/ws/session", "/ws/node"
# Reading models from a slow disk, and measuring their speed, takes its time.
READY_S: Final = 180.0
SERVE_S: Final = 30.0
# How long a ready node may take to serve the languages wanted.
SETTLE_S: Final = 3.0
POLL_S: Final = 0.1
ANSWER_S: Final = 5.0
ANSWER_BYTES_MAX: Final = 1 << 24
NODE_ID: Final = "private"
# The first words of a scheduler's output.
LISTENS: Final = re.compile(r"listens on (https?://[^ ]+)")
# Settings that would let the private scheduler share something with another one.
SETTINGS_PREFIX: Final = "LINGUA_"


class ServiceFailed(LinguaError):
    """The private scheduler or its node did not start, or ended; has its output."""

    def __init__(self, what: str, tail: str) -> None:
        self.what = what
        self.tail = tail
        super().__init__(f"{what}\n{tail}" if tail else what)


@dataclass(frozen=True, slots=True)
class ServiceAccess:
    """What a scheduler for others asks of those who ask it: a token, and trust in its name."""

    token: str = field(default="", repr=False)
    tls: ssl.SSLContext | None = None


@dataclass(slots=True)
class PrivateService:
    """A running private scheduler."""

    http_url: str
    scheduler: Child
    node: Child | None = None
    access: ServiceAccess = ServiceAccess()

    @property
    def is_running(self) -> bool:
        """Tell whether neither process has ended."""
        return all(child.exit_code is None for child in self._children)

    @property
    def _children(self) -> list[Child]:
        return [self.scheduler] if self.node is None else [self.scheduler, self.node]

    async def ended(self) -> Child:
        """Wait until one of the processes has ended by itself; return it."""
        waits: dict[asyncio.Task[int], Child] = {
            asyncio.create_task(child.wait()): child for child in self._children
        }
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()
        return next(child for task, child in waits.items() if task in done)

    @property
    def session_url(self) -> str:
        """Return where clients connect."""
        return self.http_url.replace("http", "ws", 1) + SESSION_PATH

    @property
    def node_url(self) -> str:
        """Return where nodes connect."""
        return self.http_url.replace("http", "ws", 1) + NODE_PATH

    @property
    def node_pid(self) -> int | None:
        """Return the process id of the node, if there is one."""
        return self.node.pid if self.node is not None else None


@asynccontextmanager
async def private_service(
    engines: Sequence[str] = (),
    settings: Mapping[str, object] | None = None,
    *,
    pairs: Pairs = (),
    node_words: Sequence[str] = (),
    say: Callable[[str], None] | None = None,
) -> AsyncIterator[PrivateService]:
    """Run a scheduler until the block is left, and with `engines` or `node_words` a node too.

    `settings` are those of `lingua.toml`, by their path: {"segmentation.pause_ms": 500}. `pairs`
    are those that the node must serve before the block begins. `say` receives the output until
    then.
    """
    words = [*(("--engines", *engines) if engines else ()), *node_words]
    async with AsyncExitStack() as stack:
        folder, lock = stack.enter_context(private_folder())
        scheduler = await _start_scheduler(folder, lock, settings or {})
        stack.push_async_callback(scheduler.end)
        service = PrivateService(await _address(scheduler), scheduler)
        if words:
            service.node = await _start_node(service, words)
            stack.push_async_callback(service.node.end)
            if say is not None:
                service.node.watch(say)
            await _until_served(service, pairs)
            service.node.unwatch()
        yield service


@asynccontextmanager
async def own_service(
    serve_words: Sequence[str],
    node_words: Sequence[str],
    say: Callable[[str], None],
    access: ServiceAccess | None = None,
) -> AsyncIterator[PrivateService]:
    """Run the scheduler of the settings, and a node if there are arguments for it, as children.

    Nothing of theirs is removed afterwards. `say` receives every line of their output.
    """
    async with AsyncExitStack() as stack:
        scheduler = await Child.start("the scheduler", serve_words, os.environ)
        stack.push_async_callback(scheduler.end)
        address = await _address(scheduler)
        service = PrivateService(address, scheduler, access=access or ServiceAccess())
        # Its log; the caller prints where it listens.
        scheduler.watch(lambda line: say(line) if line.startswith("{") else None)
        if node_words:
            words = ("node", *node_words, "--url", service.node_url)
            service.node = await Child.start("the node", words, os.environ)
            stack.push_async_callback(service.node.end)
            service.node.watch(say)
            await _until_served(service, ())
        yield service


async def unserved_pairs(
    http_url: str, pairs: Pairs, token: str = "", tls: ssl.SSLContext | None = None
) -> list[tuple[str, str]]:
    """Return the pairs that no node of a scheduler would serve now; OSError without a scheduler."""
    found = []
    for source, target in pairs:
        query = urllib.parse.urlencode({"from": source, "to": target})
        url = f"{http_url}/api/v1/explain?{query}"
        answer = await asyncio.to_thread(_get, url, token, tls)
        cells = answer.get("cells", ()) if isinstance(answer, dict) else ()
        if not any(cell["verdict"]["node"] for cell in cells):
            found.append((source, target))
    return found


async def _start_scheduler(folder: Path, lock: int, settings: Mapping[str, object]) -> Child:
    environ = {
        name: value for name, value in os.environ.items() if not name.startswith(SETTINGS_PREFIX)
    }
    for path, value in settings.items():
        shown = str(value).lower() if isinstance(value, bool) else str(value)
        environ[f"{SETTINGS_PREFIX}{path.replace('.', '__').upper()}"] = shown
    environ[f"{SETTINGS_PREFIX}DATA_DIR"] = str(folder)
    # An empty file, given by name, so that one in the current folder is not read.
    config = folder / "private.toml"
    config.touch()
    words = (
        "--config",
        str(config),
        "serve",
        "--host",
        "127.0.0.1",
        "--port",
        "0",
        "--log-level",
        "warning",
    )
    # The child may outlive us by some seconds: until then the next run must not remove the folder.
    return await Child.start("the private scheduler", words, environ, (lock,))


async def _start_node(service: PrivateService, words: Sequence[str]) -> Child:
    given = ("node", *words, "--url", service.node_url, "--node-id", NODE_ID)
    return await Child.start("the private node", given, os.environ)


async def _address(scheduler: Child) -> str:
    """Return where it listens, as soon as it prints that."""
    listens: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def look(line: str) -> None:
        if (found := LISTENS.search(line)) and not listens.done():
            listens.set_result(found[1])

    scheduler.watch(look)
    ended = asyncio.create_task(scheduler.wait())
    try:
        await asyncio.wait((listens, ended), timeout=SERVE_S, return_when=asyncio.FIRST_COMPLETED)
        if not listens.done():
            tail = scheduler.tail
            await scheduler.end()
            raise ServiceFailed(f"{scheduler.name} could not be started:", tail)
    finally:
        ended.cancel()
    return listens.result()


async def _until_served(service: PrivateService, pairs: Pairs) -> None:
    """Wait until the node serves the pairs wanted; raises with its output if it ends before."""
    node = service.node
    assert node is not None
    until = monotonic() + READY_S
    missing = list(pairs)
    ready_until = 0.0
    while service.is_running and monotonic() < (ready_until or until):
        if any(one["status"] == "ready" for one in await _nodes(service)):
            missing = await unserved_pairs(
                service.http_url, pairs, service.access.token, service.access.tls
            )
            if not missing:
                return
            # The node has announced its languages; but parts of it may still be loading.
            ready_until = ready_until or monotonic() + SETTLE_S
        await asyncio.sleep(POLL_S)
    if service.scheduler.exit_code is not None:
        raise ServiceFailed(f"{service.scheduler.name} ended:", service.scheduler.tail)
    if node.exit_code is not None:
        await node.wait()
        raise ServiceFailed(f"{node.name} could not be started:", node.tail)
    if not ready_until:
        told = f"{node.name} was not ready within {READY_S:.0f} s; it printed:"
        raise ServiceFailed(told, node.tail)
    wanted = ", ".join(f"{source} to {target}" for source, target in missing)
    known = "; ".join(_directions(one["languages"]) for one in await _nodes(service))
    raise ServiceFailed(f"{node.name} does not serve {wanted}, but {known}", "")


def _directions(can: Mapping[str, Any] | None) -> str:
    """Return everything that a node translates, in words."""
    if can is None:
        return "what is not known"
    if can["pairs"] is not None:
        return ", ".join(pair.replace(">", " to ") for pair in can["pairs"])
    sides = (can[side] for side in ("sources", "targets"))
    return " to ".join("any" if codes is None else ", ".join(codes) for codes in sides)


async def _nodes(service: PrivateService) -> list[dict[str, Any]]:
    """Return the scheduler's view of the node; nothing if it ends, or is busy."""
    url, access = f"{service.http_url}/api/v1/nodes?limit=10", service.access
    try:
        page = await asyncio.to_thread(_get, url, access.token, access.tls)
    except OSError:
        return []
    return list(page["nodes"])


def _get(url: str, token: str, tls: ssl.SSLContext | None = None) -> Any:
    """Return the answer of an address; OSError unless it is the answer of a scheduler."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 it is http, by our making
    https = urllib.request.HTTPSHandler(context=tls)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), https)
    try:
        with opener.open(request, timeout=ANSWER_S) as answer:
            return json.loads(answer.read(ANSWER_BYTES_MAX))
    except (http.client.HTTPException, ValueError) as error:
        raise OSError(f"the answer is not that of a scheduler: {error}") from error
