"""`lingua node` as a person starts it, for its tests: words read, a process run to its end."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from lingua_scheduler.cli import node as command

ENDS_S = 30


def parsed(*words: str) -> argparse.Namespace:
    """Read the words behind `lingua node`."""
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers())
    return parser.parse_args(["node", *words])


@asynccontextmanager
async def started(url: str, *words: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run it as a process; it is gone afterwards."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "lingua_scheduler", "node", "--url", url, *words,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def ended(process: asyncio.subprocess.Process) -> tuple[int | None, str, str]:
    """Wait for its end; return its exit code and what it printed."""
    out, err = await asyncio.wait_for(process.communicate(), ENDS_S)
    return process.returncode, out.decode(), err.decode()
