"""`lingua node` for its tests: parsed words, and a process run to its end."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from lingua_speech.commands import node as command

ENDS_S = 30


def parsed(*words: str) -> argparse.Namespace:
    """Parse the words after `lingua node`."""
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers())
    return parser.parse_args(["node", *words])


@asynccontextmanager
async def started(url: str, *words: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run the command as a process; it has ended afterwards."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "lingua_cli",
        "node",
        "--url",
        url,
        *words,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def ended(process: asyncio.subprocess.Process) -> tuple[int | None, str, str]:
    """Wait for the end of a process; return its exit code and its output."""
    out, err = await asyncio.wait_for(process.communicate(), ENDS_S)
    return process.returncode, out.decode(), err.decode()
