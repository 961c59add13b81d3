"""A room of three browsers in three languages, over a lost network and a killed instance."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from browser_stage import (
    chromium,
    open_page,
    problems_of,
    sentence,
    service,
    simulated_node,
    spoken_file,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

    from lingua_process import Running

pytestmark = pytest.mark.browser

SENTENCES = 12
WORKERS = 2
PHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def speaker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Run a browser whose microphone says twelve short sentences, then is silent."""
    folder = tmp_path_factory.mktemp("microphone")
    file = spoken_file(folder / "speech.wav", [sentence(1200)] * SENTENCES, pause_s=0.9)
    with chromium(file) as browser:
        yield browser


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("service")
    with (
        service(folder, "--workers", str(WORKERS)) as running,
        simulated_node(running, folder, "--any", "--echo"),
    ):
        yield running


def create_room(browser: Browser, url: str, name: str) -> tuple[Page, str]:
    """Open a room as a person does; return the page and the room's code."""
    page = open_page(browser, url, viewport=PHONE)
    page.locator("#room-button").click()
    page.get_by_label("Your name").fill(name)
    page.get_by_role("button", name="Open a room").click()
    shown = page.locator("#room-shown-code")
    expect(shown).to_have_text(re.compile(r"\d{3}\s\d{3}"))
    return page, re.sub(r"\D", "", shown.inner_text())


def join(browser: Browser, url: str, code: str, name: str, locale: str) -> Page:
    """Follow the link to a room as a guest with a browser in another language."""
    page = open_page(browser, f"{url}/room/{code}", viewport=PHONE, locale=locale)
    page.locator("#own-name").fill(name)
    page.locator("#room-join button").click()
    expect(page.locator("#people")).to_be_visible()
    return page


def workers(scheduler: Running) -> set[int]:
    """Return the processes of a service that serve people."""
    children = Path(f"/proc/{scheduler.pid}/task/{scheduler.pid}/children").read_text().split()
    commands = {int(pid): Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children}
    return {pid for pid, command in commands.items() if b"lingua_scheduler" in command}


def kill_every_worker(scheduler: Running) -> None:
    """Kill the workers one after another, each when the one before has been replaced."""
    for number, pid in enumerate(sorted(workers(scheduler)), 1):
        os.kill(pid, signal.SIGKILL)
        scheduler.until(f'(?s)("serve.started".*){{{WORKERS + number}}}')


def sentences(page: Page) -> list[str]:
    return page.locator("#rows li .translation").all_inner_texts()


def test_every_listener_has_every_utterance_once_and_in_order(
    speaker: Browser, scheduler: Running
) -> None:
    url = scheduler.url()
    ann, code = create_room(speaker, url, "Ann")
    ben = join(speaker, url, code, "Ben", "de-DE")
    eva = join(speaker, url, code, "Eva", "es-ES")
    expect(ann.locator("#members li")).to_have_count(3)
    ann.locator("#room-button").click()
    ann.locator("#talk").click()
    expect(ben.locator("#rows li")).to_have_count(2)
    # Ben's network is gone for five seconds. Meanwhile every instance dies once, his and Ann's.
    ben.context.set_offline(True)
    gone_at = time.monotonic()
    kill_every_worker(scheduler)
    expect(ben.locator("#status")).to_contain_text("Die Verbindung ist weg.")
    ben.wait_for_timeout(max(0, 5000 - (time.monotonic() - gone_at) * 1000))
    ben.context.set_offline(False)
    for page, lang in ((ben, "de"), (eva, "es")):
        expect(page.locator("#rows li")).to_have_count(SENTENCES, timeout=60_000)
        assert sentences(page) == [f"[{lang}] utterance {index}" for index in range(SENTENCES)]
    assert problems_of(eva) == []
    for page in (ann, ben, eva):
        page.context.close()
