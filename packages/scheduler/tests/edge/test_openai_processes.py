"""The OpenAI surface of real processes: `lingua serve`, nodes that are killed, the real client."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import openai
import pytest

from edge.openai_stage import WORDS, spoken, wav

pytestmark = pytest.mark.stress

LINGUA = [sys.executable, "-m", "lingua_cli"]
PATIENCE_S = 20


@contextmanager
def running(*words: str, **env: str) -> Iterator[subprocess.Popen[str]]:
    """Run a command until the block is left."""
    process = subprocess.Popen(
        [*LINGUA, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env={**os.environ, **env},
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


@contextmanager
def scheduler(folder: Path) -> Iterator[str]:
    with running("serve", "--port", "0", LINGUA_DATA_DIR=str(folder)) as process:
        assert process.stdout is not None
        found = re.search(r"http://[0-9.:]+", process.stdout.readline())
        assert found is not None
        yield found[0]


def nodes(url: str) -> dict[str, int]:
    """Return the nodes that are ready, and how many jobs each has."""
    page = httpx2.get(f"{url}/api/v1/nodes").json()
    return {node["id"]: node["leased"] for node in page["nodes"] if node["status"] == "ready"}


def until_ready(url: str, *names: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not set(names) <= nodes(url).keys():
        assert time.monotonic() < deadline, f"{names} are not ready"
        time.sleep(0.05)


def node_words(url: str, name: str, *more: str) -> tuple[str, ...]:
    address = url.replace("http", "ws") + "/ws/node"
    return ("node", "--simulate", "--url", address, "--node-id", name, *more)


def test_a_recording_survives_a_node_that_is_killed_under_it(tmp_path: Path) -> None:
    file = ("a.wav", wav(spoken(*WORDS, *WORDS)))
    answers: list[str] = []
    with scheduler(tmp_path) as url, contextlib.ExitStack() as stack:
        doomed = stack.enter_context(
            running(*node_words(url, "doomed", "--delay-ms", "400", "--max-jobs", "2"))
        )
        until_ready(url, "doomed")
        with openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client:

            def ask() -> None:
                found = client.audio.transcriptions.with_raw_response.create(
                    model="whisper-1", file=file, language="en"
                )
                assert "x-lingua-missing-ms" not in found.headers
                answers.append(found.parse().text)

            asking = threading.Thread(target=ask)
            asking.start()
            deadline = time.monotonic() + PATIENCE_S
            while not nodes(url).get("doomed"):
                assert time.monotonic() < deadline, "it has no job"
                time.sleep(0.02)
            doomed.kill()
            stack.enter_context(running(*node_words(url, "healthy", "--delay-ms", "10")))
            asking.join(PATIENCE_S)
            assert not asking.is_alive()
    assert answers[0].count("simulated speech of") == 2 * len(WORDS)
