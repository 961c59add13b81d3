r"""Our row in the peer harness (its `run.py`): the whole live path as a queue.

`worker` is a real `lingua serve` on the Redis of the environment (REDIS_HOST, REDIS_PORT) and one
process of nodes that answer at once. `submit` drives client sockets: a job is one whole `utterance`
with a small payload, done when its `translation_result` is in the client's hand. Settings are the
defaults, except that nodes on a busy machine still get work. Every process of ours runs on the
machine that the peers get, too. Run it from the repository's folder:

    DIR/venv/bin/python run.py --home DIR --only lingua,bullmq \
        --row "lingua=.venv/bin/python bench/peer_lingua.py"

`common` (the harness' driver) comes through PYTHONPATH, which the harness sets.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from typing import Any

import uvloop

from lingua_bench.live_processes import SETTINGS, clean_environment
from lingua_bench.live_speaker import BenchmarkSession, LoadFailed, SpeakerMessage, Tally

PORT = int(os.environ.get("PEER_PORT", "17510"))
SOCKETS = f"ws://127.0.0.1:{PORT}"
NODES, SLOTS = 4, 1024
# Each session may have 8 utterances in progress; 64 sessions carry 256 with room to spare.
SESSIONS = 64
PAYLOAD = bytes(64)
READY_S = 30.0


def worker() -> int:
    """Run scheduler and nodes until stopped, or until one of them ends."""
    host, port = os.environ["REDIS_HOST"], os.environ["REDIS_PORT"]
    settings = {
        **SETTINGS,
        "LINGUA_DEPLOYMENT_MODE": "cross_instance",
        "LINGUA_REDIS__URL": f"redis://{host}:{port}/0",
    }
    serve = [sys.executable, "-m", "lingua_cli", "serve", "--port", str(PORT)]
    nodes = [sys.executable, "-m", "lingua_bench.live_nodes", f"{SOCKETS}/ws/node"]
    # Both are in our process group, which the harness ends as a whole.
    processes = [
        subprocess.Popen(serve, env=clean_environment() | settings),  # noqa: S603 our own
        subprocess.Popen(  # noqa: S603 our own
            [*nodes, str(NODES), str(SLOTS)], env=clean_environment()
        ),
    ]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        while all(process.poll() is None for process in processes):
            time.sleep(0.2)
        return 1
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(10)


class Client:
    """Sessions that turn one utterance into one awaitable result."""

    def __init__(self) -> None:
        self.tally = Tally()
        # Session and utterance -> the future that waits for it.
        self._waiting: dict[tuple[str, int], asyncio.Future[str]] = {}
        self._speakers: list[BenchmarkSession] = []
        self._turn = 0

    async def open(self) -> None:
        """Open the sessions, and wait for the scheduler if it does not run yet."""
        until = time.monotonic() + READY_S
        while True:
            try:
                first = self._speaker()
                await first.open(f"{SOCKETS}/ws/session")
                break
            except OSError:
                if time.monotonic() > until:
                    raise
                await asyncio.sleep(0.1)
        self._speakers = [first]
        for _ in range(SESSIONS - 1):
            speaker = self._speaker()
            await speaker.open(f"{SOCKETS}/ws/session")
            self._speakers.append(speaker)

    def _speaker(self) -> BenchmarkSession:
        # A name is for a client that may ask again; the jobs of the other systems have none.
        return BenchmarkSession(self.tally, self._take, names_requests=False)

    async def one(self, number: int) -> str:
        """Submit one utterance and return its translation; the sessions speak in turn."""
        del number  # one submitter of many jobs is not one person who speaks
        self._turn = (self._turn + 1) % SESSIONS
        speaker = self._speakers[self._turn]
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting[speaker.session_id, speaker.say(PAYLOAD)] = future
        # The harness has a time limit for all of them; what was lost is counted in the end.
        return await future

    def _take(self, speaker: BenchmarkSession, _: float, heard: SpeakerMessage) -> None:
        future = self._waiting.pop((speaker.session_id, heard.utterance_index))
        if future.done():
            return
        if heard.type == "translation_result":
            future.set_result(heard.text_asr)
        else:
            future.set_exception(LoadFailed(f"no translation: {heard}"))


async def submit(drive: Any) -> int:
    """Run the harness' phases; 1 if an outcome was lost, came twice or out of order."""
    client = Client()
    await client.open()
    await drive(client.one)
    tally = client.tally
    wrong = tally.lost or tally.duplicates or tally.inversions
    if wrong or tally.errors:
        sys.stderr.write(f"checks: {tally}, lost {tally.lost}\n")
    return 1 if wrong else 0


def main() -> int:
    """Run the worker or the submitter."""
    if sys.argv[1:] == ["worker"]:
        return worker()
    if sys.argv[1:] != ["submit"]:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    from common import drive_async  # noqa: PLC0415 only the harness brings it

    return uvloop.run(submit(drive_async))


if __name__ == "__main__":
    sys.exit(main())
