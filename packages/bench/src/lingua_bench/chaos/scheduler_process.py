"""A scheduler of the harness: one port, and one `lingua serve` process after another.

Its counters are read before each end of a process and summed over all of its processes.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from collections import Counter
from typing import TYPE_CHECKING, Final

import aiohttp
import msgspec

from lingua_bench.chaos import marked_audio
from lingua_bench.chaos.history import RESULT
from lingua_bench.chaos.process import HarnessFailed, Process, free_port, until
from lingua_wire.codec import JSON_PROTOCOL
from lingua_wire.from_client import SessionInit

if TYPE_CHECKING:
    from pathlib import Path

START_S: Final = 30.0
ASK_S: Final = 2.0
DRAIN_S: Final = 40.0
OK: Final = 200
# Names of our own metrics.
STALE: Final = "scheduler_results_stale_total"
ADOPTED: Final = "scheduler_letters_adopted_total"
INTERNAL: Final = "scheduler_internal_errors_total"
UTTERANCES: Final = "scheduler_utterances_total"
# The scheduler's names for the end of a job, and the reasons that clients receive.
ENDS: Final = {
    "completed": RESULT,
    "completed_no_text": "silence_detected",
    "failed": "failed",
    "expired": "expired",
    "cancelled": "cancelled",
    "missing": "gap_timeout",
}


def ended(kind: str) -> str:
    """Return the metric that counts the jobs with this end."""
    return f'scheduler_jobs_total{{outcome="{kind}"}}'


class SchedulerProcess:
    """One scheduler: a fixed port, and one process after another."""

    def __init__(
        self,
        number: int,
        place: Path,
        settings: dict[str, str],
        planted: str = "",
        log_level: str = "warning",
    ) -> None:
        self.name = f"instance-{number}"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        # The ports that clients and nodes connect to; a proxy may listen there.
        self.client_port = self.node_port = self.port
        # How many instance names it had so far.
        self._names = 0
        self._counted: Counter[str] = Counter()
        # Counts of the running process, as last read.
        self._counts: Counter[str] = Counter()
        module = ["lingua_bench.chaos.planted", planted] if planted else ["lingua_cli"]
        serve = ["serve", "--port", str(self.port), "--log-level", log_level]
        command = [sys.executable, "-m", *module, *serve]
        self._process = Process(command, place / f"{self.name}.log", settings)

    @property
    def pid(self) -> int:
        """Return the pid of its process."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Tell whether it has a process."""
        return self._process.is_running

    @property
    def last_words(self) -> str:
        """Return the end of its log."""
        return self._process.last_words()

    def client_url(self) -> str:
        """Return where clients connect."""
        return f"ws://127.0.0.1:{self.client_port}/ws/session"

    def node_url(self) -> str:
        """Return where nodes connect."""
        return f"ws://127.0.0.1:{self.node_port}/ws/node"

    async def start(self, *, renamed: bool = False) -> None:
        """Start a process, under the old or a new instance name, and wait until it is ready."""
        self._names += renamed or not self._names
        self._process.changes["LINGUA_INSTANCE_ID"] = f"{self.name}.{self._names}"
        await self._process.start()
        await self._process.read_line(START_S)
        await until(self.is_ready, START_S, f"{self.name} is ready")

    async def is_ready(self) -> bool:
        """Tell whether it is ready."""
        return await self.status("/readyz") == OK

    async def status(self, path: str) -> int:
        """Return the HTTP status of a page, 0 without an answer."""
        with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
            async with _http() as http, http.get(f"{self.url}{path}") as answer:
                return answer.status
        return 0

    async def refusal(self) -> str:
        """Ask for a session and return the error code of the answer, if there is one."""
        with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
            url = f"{self.url.replace('http', 'ws', 1)}/ws/session"
            async with _http() as http, http.ws_connect(url, protocols=(JSON_PROTOCOL,)) as socket:
                init = SessionInit(src_lang=marked_audio.SOURCE, tgt_lang=marked_audio.TARGETS[0])
                await socket.send_bytes(msgspec.json.encode(init))
                answer = await socket.receive(timeout=ASK_S)
                if answer.type in {aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY}:
                    return str(msgspec.json.decode(answer.data).get("code", ""))
        return ""

    async def count(self) -> None:
        """Read its metrics; without an answer the counts that were read before stand."""
        with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
            await self.read_metrics()

    async def read_metrics(self) -> None:
        """Read its metrics; raises if it does not answer."""
        page = await read_page(f"{self.url}/metrics")
        self._counts = summed(page) + labelled(page)

    @property
    def counts(self) -> Counter[str]:
        """Return the counts of all its processes, as far as they were read."""
        return self._counted + self._counts

    async def kill(self) -> None:
        """End it by kill -9."""
        await self._process.kill()
        self._end_life()

    async def stop(self) -> int:
        """Ask it to end and return its exit code."""
        self._process.signal(signal.SIGTERM)
        try:
            code = await self._process.wait(DRAIN_S)
        except TimeoutError:
            await self._process.kill()
            raise HarnessFailed(f"{self.name} did not end within {DRAIN_S:g} s") from None
        finally:
            self._end_life()
        return code

    def freeze(self) -> None:
        """Stop it: its sockets stay open, and nothing is answered."""
        self._process.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it continue."""
        self._process.signal(signal.SIGCONT)

    def _end_life(self) -> None:
        self._counted += self._counts
        self._counts = Counter()


def _http() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ASK_S))


async def read_page(url: str) -> str:
    """Return a page; raises if the status is not good."""
    async with _http() as http, http.get(url) as answer:
        answer.raise_for_status()
        return await answer.text()


def summed(page: str) -> Counter[str]:
    """Return every metric of a page, summed over its labels."""
    found: Counter[str] = Counter()
    for line in page.splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            found[name.partition("{")[0]] += int(float(value))
    return found


def labelled(page: str) -> Counter[str]:
    """Return every metric of a page that has labels, with them."""
    found: Counter[str] = Counter()
    for line in page.splitlines():
        if "{" in line and not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            found[name] += int(float(value))
    return found
