"""Downloads a file with the machine's own apt-get, npm or pip, when no address provided it.

They may be configured with mirrors, proxies, certificates and passwords that we do not know. Their
file is accepted only if it has the pinned hash. Used by `fetch` as the last attempt.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
import urllib.parse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

TIMEOUT_S = 300
CONFIG_TIMEOUT_S = 30
COMPLAINTS = (
    "E: ",
    "npm error",
    "npm ERR!",
    "ERROR: ",
)  # the first such line is the most informative


class PackagerFailed(Exception):
    """The program is missing, failed, or gave another file; never leaves this package."""


def download_with(
    packager: str,
    file: str,
    target: Path,
    is_pinned: Callable[[Path], bool],
    known: Collection[str],
) -> None:
    """Download the file to `target`; the hosts in `known` were tried already."""
    command = COMMANDS[packager](file, known)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        _run(command, Path(folder), TIMEOUT_S)
        for found in Path(folder).iterdir():
            if found.is_file() and is_pinned(found):
                found.rename(target)
                return
    raise PackagerFailed("provided another file than the pinned one")


def _apt_get(file: str, _: Collection[str]) -> list[str]:
    name, version, rest = urllib.parse.unquote(file).split("_")
    architecture = rest.removesuffix(".deb")
    package = name if architecture == "all" else f"{name}:{architecture}"
    return [_program("apt-get"), "download", f"{package}={version}"]


def _npm(file: str, known: Collection[str]) -> list[str]:
    npm = _program("npm")
    registry = _run([npm, "config", "get", "registry"], Path.cwd(), CONFIG_TIMEOUT_S).strip()
    # npm would wait for minutes for a host that did not answer us.
    if urllib.parse.urlsplit(registry).netloc.rpartition("@")[2] in known:
        raise PackagerFailed("has no other registry")
    name, _, version = file.removesuffix(".tgz").rpartition("-")
    options = ["--loglevel=error", "--ignore-scripts", "--fetch-retries=1"]
    return [npm, "pack", *options, f"{name}@{version}"]


def _pip(file: str, _: Collection[str]) -> list[str]:
    if importlib.util.find_spec("pip") is None:
        raise PackagerFailed("is not installed")
    if not file.endswith(".whl"):
        # To download sources, pip runs code in them.
        raise PackagerFailed("is used for wheels only, not for sources")
    name, version = file.split("-")[:2]
    options = ["--quiet", "--no-deps", "--only-binary=:all:", "--retries=1", "--no-input"]
    return [sys.executable, "-m", "pip", "download", *options, f"{name}=={version}"]


def _program(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise PackagerFailed("is not installed")
    return path


def _run(command: list[str], folder: Path, timeout_s: int) -> str:
    """Run a program, or raise with the line of its output that gives the reason."""
    try:
        done = subprocess.run(  # noqa: S603 - no shell; the words come from the catalogue
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            check=False,
            encoding="utf-8",
            errors="replace",
        )
    except subprocess.TimeoutExpired:
        raise PackagerFailed(f"took more than {timeout_s} s") from None
    except OSError as error:
        raise PackagerFailed(str(error)) from error
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"ended with {done.returncode}"]
        why = (line for line in lines if line.startswith(COMPLAINTS))
        raise PackagerFailed(next(why, lines[-1]))
    return done.stdout


COMMANDS = {"apt-get": _apt_get, "npm": _npm, "pip": _pip}
