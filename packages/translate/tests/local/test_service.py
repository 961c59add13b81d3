"""A private scheduler and node: isolated, ready when reported, and ended with their user."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lingua_client import Outcome, connect
from lingua_translate.local import PrivateService, ServiceFailed, private_service, unserved_pairs
from lingua_translate.local.folder import private_folder

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.stress

BOUND_S = 30
LOUD = b"\x00\x40\x00\xc0" * 400


def is_alive(pid: int) -> bool:
    """Tell whether a process runs; one that ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + BOUND_S
    while not is_so():
        assert time.monotonic() < deadline, f"not within {BOUND_S} s: {what}"
        time.sleep(0.02)


async def say_something(service: PrivateService) -> str:
    async with connect(service.session_url, source="en", targets="es") as session:
        for _ in range(10):
            await session.send(LOUD)
        await session.cut()
        async with asyncio.timeout(BOUND_S):
            async for event in session:
                if isinstance(event, Outcome):
                    return event.text
    return ""


def test_it_serves_what_was_wanted_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if a deployment were configured here: the private one must not touch it.
    monkeypatch.setenv("LINGUA_STORE__URL", "redis://127.0.0.1:1")
    monkeypatch.setenv("LINGUA_SERVER__PORT", "1")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    printed: list[str] = []

    async def scenario() -> list[int]:
        async with private_service(
            node_words=("--simulate", "--pairs", "en:es,en:fr"),
            pairs=[("en", "es"), ("en", "fr")],
            say=printed.append,
        ) as service:
            assert "[es] simulated speech" in await say_something(service)
            assert await unserved_pairs(service.http_url, [("en", "es"), ("es", "en")]) == [
                ("es", "en")
            ]
            assert service.node is not None
            return [service.scheduler.pid, service.node.pid]

    pids = asyncio.run(scenario())
    assert not any(is_alive(pid) for pid in pids)
    assert [path.name for path in tmp_path.iterdir()] == []
    assert any("registered" in line for line in printed)


def test_settings_are_those_of_the_private_scheduler() -> None:
    async def scenario() -> None:
        async with private_service(settings={"segmentation.silence_ms": -1}):
            pass

    with pytest.raises(ServiceFailed, match="silence_ms"):
        asyncio.run(scenario())


def test_without_a_node_it_is_ready_at_once() -> None:
    async def scenario() -> None:
        async with private_service(settings={"segmentation.silence_ms": 300}) as service:
            assert service.node_pid is None
            assert await unserved_pairs(service.http_url, [("en", "es")]) == [("en", "es")]

    asyncio.run(scenario())


def test_a_node_that_does_not_start_is_told_with_what_it_printed() -> None:
    async def scenario() -> None:
        async with private_service(["asr=nothing-of-the-kind"], pairs=[("en", "es")]):
            pass

    with pytest.raises(ServiceFailed, match="nothing-of-the-kind"):
        asyncio.run(scenario())


def test_a_node_that_has_not_the_languages_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lingua_translate.local.service.SETTLE_S", 0.5)

    async def scenario() -> None:
        words = ("--simulate", "--pairs", "en:fr")
        async with private_service(node_words=words, pairs=[("en", "fr"), ("en", "es")]):
            pass

    with pytest.raises(ServiceFailed, match=r"does not serve en to es, but en to fr$"):
        asyncio.run(scenario())


def test_where_no_scheduler_listens_it_is_an_os_error() -> None:
    with pytest.raises(OSError, match="refused"):
        asyncio.run(unserved_pairs("http://127.0.0.1:9", [("en", "es")]))


PARENT = """
import asyncio
from lingua_translate.local import private_service
async def main():
    async with private_service(node_words=("--simulate",), pairs=[("en", "es")]) as service:
        print(service.scheduler.pid, service.node.pid, flush=True)
        await asyncio.sleep(600)
asyncio.run(main())
"""


def is_removed(left: Path) -> bool:
    with private_folder():
        return not left.exists()


def test_nothing_of_a_parent_that_is_killed_remains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert parent.stdout is not None
    pids = [int(word) for word in parent.stdout.readline().split()]
    assert len(pids) == 2
    assert all(is_alive(pid) for pid in pids)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    until(lambda: not any(is_alive(pid) for pid in pids), "both children are gone")
    # A later run removes what it could not remove, but nothing that another one uses.
    (left,) = tmp_path.iterdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    until(lambda: is_removed(left), "the store of the killed one is gone, too")
    with private_folder() as (first, _):
        with private_folder() as (second, _):
            assert first.exists()
        assert [path.name for path in tmp_path.iterdir()] == [first.name]
        assert not second.exists()


def test_a_folder_of_which_nothing_is_known_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "lingua-private-other").mkdir()
    (tmp_path / "lingua-private-link").symlink_to(tmp_path)
    with private_folder():
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "lingua-private-link",
        "lingua-private-other",
    ]


def test_a_process_that_ends_by_itself_is_told() -> None:
    async def scenario() -> None:
        async with private_service(node_words=("--simulate",), pairs=[("en", "es")]) as service:
            ended = asyncio.create_task(service.ended())
            assert service.node is not None
            os.kill(service.node.pid, signal.SIGKILL)
            async with asyncio.timeout(BOUND_S):
                assert await ended is service.node
            assert not service.is_running
            assert service.node.exit_code == -signal.SIGKILL

    asyncio.run(scenario())
