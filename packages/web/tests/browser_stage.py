"""A real Chromium with a microphone made of a file, and the servers that its pages talk to.

    with chromium(microphone=file) as browser:       a browser of its own, without a profile
        page = browser.new_context().new_page()

`spoken_file` makes microphones of real recordings. Everything runs on this machine alone, without
root; `scripts/browser.py` installs the browser.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import urllib.request
import wave
from array import array
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from playwright.sync_api import expect, sync_playwright

from lingua_process import running
from lingua_speech.models.store import default_store
from workspace import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from playwright.sync_api import Browser, Page, Playwright
    from playwright.sync_api._context_manager import PlaywrightContextManager

    from lingua_process import Running

sys.path.append(str(ROOT / "scripts"))
import browser as installer

# How long a page may take for what it does at once; only ever waited for if something is wrong.
PATIENCE_MS = 30_000
expect.set_options(timeout=PATIENCE_MS)
RATE = 16_000
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--autoplay-policy=document-user-activation-required",
)  # fmt: skip


class Driver:
    """The one connection to browsers that a process may have; started while somebody needs it."""

    def __init__(self) -> None:
        self._users = 0
        self._manager: PlaywrightContextManager | None = None
        self._playwright: Playwright | None = None

    def __enter__(self) -> Playwright:
        if self._playwright is None:
            self._manager = sync_playwright()
            self._playwright = self._manager.__enter__()
        self._users += 1
        return self._playwright

    def __exit__(self, *error: object) -> None:
        self._users -= 1
        if not self._users and self._manager is not None:
            self._manager.__exit__(*error)
            self._manager = self._playwright = None


DRIVER = Driver()


@contextmanager
def chromium(microphone: Path | None = None, *, is_refused: bool = False) -> Iterator[Browser]:
    """Run a browser; without a file its microphone is silent noise, refused it is not allowed."""
    found = installer.installed()
    answer = "=deny" if is_refused else ""
    flags = [
        *FLAGS,
        "--use-fake-device-for-media-stream",
        f"--use-fake-ui-for-media-stream{answer}",
    ]
    if microphone is not None:
        flags.append(f"--use-file-for-fake-audio-capture={microphone}%noloop")
    env = {
        **{name: text for name, text in os.environ.items() if not name.startswith("LINGUA_")},
        "LD_LIBRARY_PATH": str(found.libraries),
        "FONTCONFIG_PATH": str(found.program.parent),
    }
    with tempfile.TemporaryDirectory() as home, DRIVER as playwright:
        running_browser = playwright.chromium.launch(
            executable_path=str(found.program), args=flags, env={**env, "HOME": home}
        )
        try:
            yield running_browser
        finally:
            running_browser.close()


def open_page(browser: Browser, url: str = "", **context: Any) -> Page:
    """Return a page of a person of its own; whatever goes wrong in it is kept in `problems_of`."""
    page = browser.new_context(**{"locale": "en-GB", **context}).new_page()
    page.set_default_timeout(PATIENCE_MS)
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(f"{error}"))
    page.on(
        "console",
        lambda said: problems.append(said.text) if said.type in ("error", "warning") else None,
    )
    page.problems = problems  # type: ignore[attr-defined]
    if url:
        page.goto(url)
    return page


def problems_of(page: Page) -> list[str]:
    """Return errors of scripts, broken rules of the content policy and failed requests."""
    found: list[str] = page.problems  # type: ignore[attr-defined]
    return found


@contextmanager
def service(folder: Path, *words: str, **more: str) -> Iterator[Running]:
    """Run a scheduler on a free port."""
    with running(["serve", "--port", "0", *words], folder, **more) as scheduler:
        scheduler.url()
        yield scheduler


@contextmanager
def simulated_node(scheduler: Running, folder: Path, *words: str, **more: str) -> Iterator[Running]:
    """Run simulated nodes until they are ready."""
    url = scheduler.url().replace("http", "ws", 1) + "/ws/node"
    command = ["node", "--simulate", "--url", url, *words]
    with running(command, folder, **more) as node:
        node.until("registered as")
        until_served(scheduler.url())
        yield node


def until_served(url: str) -> dict[str, Any]:
    """Wait until the pages of a service know of languages; return what they know."""
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while True:
        with urllib.request.urlopen(f"{url}/web/config.json", timeout=PATIENCE_MS) as answer:
            config: dict[str, Any] = json.load(answer)
        if config["languages"]:
            return config
        assert time.monotonic() < deadline, "no language is served"
        time.sleep(0.05)


def recording(name: str = "") -> bytes:
    """Return a real recording: pcm16 at 16 kHz."""
    files = sorted((default_store().path("recordings-librivox-en") / "wav").glob("*.wav"))
    chosen = next(file for file in files if name in file.name)
    with wave.open(str(chosen)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (RATE, 1, 2)
        return file.readframes(file.getnframes())


def sentence(duration_ms: int) -> bytes:
    """Return a piece of a real recording without a pause in it: one utterance, wherever it is."""
    samples = array("h", recording())
    length, step = RATE * duration_ms // 1000, RATE // 10

    def quietest(at: int) -> float:
        frames = (samples[start : start + step] for start in range(at, at + length, step))
        return min(sum(abs(sample) for sample in frame) / len(frame) for frame in frames)

    best = max(range(0, len(samples) - length, step), key=quietest)
    return samples[best : best + length].tobytes()


def spoken_file(target: Path, pieces: Sequence[bytes], pause_s: float = 1.2) -> Path:
    """Write a microphone's file: the pieces with pauses between them, and a long pause after."""
    silence = bytes(2 * int(RATE * pause_s))
    with wave.open(str(target), "wb") as file:
        file.setparams((1, 2, RATE, 0, "NONE", ""))
        file.writeframes(silence)
        for piece in pieces:
            file.writeframes(piece + silence)
        file.writeframes(bytes(2 * RATE * 60))
    return target
