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


def test_a_stage_and_an_overlay_show_what_is_said(speaker: Browser, scheduler: Running) -> None:
    url = scheduler.url()
    ann, code = create_room(speaker, url, "Ann")
    wide = {"width": 1280, "height": 720}
    stage = open_page(speaker, f"{url}/room/{code}/stage?lang=es&lang2=de", viewport=wide)
    overlay = open_page(speaker, f"{url}/room/{code}/overlay?lang=fr", viewport=wide)
    expect(stage.locator("body")).to_have_attribute("data-state", "open")
    expect(overlay.locator("body")).to_have_attribute("data-state", "open")
    ann.locator("#room-button").click()
    ann.locator("#talk").click()
    for lang in ("es", "de"):
        column = stage.locator(f".column[lang={lang}] li")
        expect(column.nth(1)).to_contain_text(f"[{lang}] utterance")
        expect(column.first.locator(".name")).to_have_text("Ann")
    expect(overlay.locator(".column li").first).to_contain_text("[fr] utterance")
    # OBS puts its picture behind the page.
    shown = overlay.evaluate("() => getComputedStyle(document.body).backgroundColor")
    assert shown == "rgba(0, 0, 0, 0)"
    expect(overlay.locator("#head")).to_be_hidden()
    stage.get_by_label("and in").select_option("")
    expect(stage.locator(".column")).to_have_count(1)
    assert "lang2" not in stage.url
    for page in (ann, stage, overlay):
        page.context.close()


def test_who_is_here_leaves_and_comes_back_is_seen(speaker: Browser, scheduler: Running) -> None:
    url = scheduler.url()
    ann, code = create_room(speaker, url, "Ann")
    ben = join(speaker, url, code, "Ben", "de-DE")
    members = ann.locator("#members li")
    expect(members.nth(1)).to_have_text("Benreads German")
    expect(ben.locator("#members li").nth(1)).to_have_text("Bendu · liest Deutsch")
    ben.locator("#target").click()
    ben.get_by_role("combobox").fill("Italienisch")
    ben.keyboard.press("Enter")
    expect(members.nth(1)).to_have_text("Benreads Italian")
    # A page that is loaded again takes its own place, not a second one.
    ben.reload()
    ben.locator("#room-join button").click()
    expect(ben.locator("#people")).to_be_visible()
    expect(members).to_have_count(2)
    ben.locator("#room-button").click()
    ben.get_by_role("button", name="Raum verlassen").click()
    expect(members).to_have_count(1)
    expect(ben.get_by_role("alert")).to_have_text("Du hast den Raum verlassen.")
    assert ben.url == f"{url}/"
    assert problems_of(ann) == problems_of(ben) == []
    for page in (ann, ben):
        page.context.close()


def test_a_speaker_is_told_if_there_is_nothing_to_translate(
    speaker: Browser, scheduler: Running
) -> None:
    ann, code = create_room(speaker, scheduler.url(), "Ann")
    ann.locator("#room-button").click()
    ann.locator("#talk").click()
    expect(ann.locator("#status")).to_have_text("Listening. Nobody else is here yet.")
    same = join(speaker, scheduler.url(), code, "Bob", "en-US")
    expect(ann.locator("#status")).to_contain_text("Everyone here reads this language")
    other = join(speaker, scheduler.url(), code, "Eva", "es-ES")
    expect(ann.locator("#status")).to_have_text("Listening. Speak now.")
    for page in (ann, same, other):
        page.context.close()


def test_a_wrong_code_is_told(speaker: Browser, scheduler: Running) -> None:
    page = open_page(speaker, scheduler.url())
    page.locator("#room-button").click()
    page.get_by_label("Code of a room").fill("000 000")
    page.get_by_role("button", name="Join").click()
    expect(page.get_by_role("alert")).to_contain_text("There is no room with this code.")
    page.context.close()


def test_who_comes_late_reads_what_was_said_last(speaker: Browser, scheduler: Running) -> None:
    url = scheduler.url()
    ann, code = create_room(speaker, url, "Ann")
    first = join(speaker, url, code, "Eva", "es-ES")
    ann.locator("#room-button").click()
    ann.locator("#talk").click()
    expect(first.locator("#rows li")).to_have_count(3)
    ann.locator("#talk").click()
    late = join(speaker, url, code, "Leo", "es-ES")
    expect(late.locator("#rows li.earlier").nth(2)).to_contain_text("[es] utterance 2")
    expect(late.locator("#rows li").first).to_contain_text("Ann")
    stage = open_page(speaker, f"{url}/room/{code}/stage?lang=es")
    expect(stage.locator(".column li").nth(2)).to_contain_text("[es] utterance 2")
    late.get_by_role("button", name="Ajustes").click()
    with late.expect_download() as saved:
        late.get_by_role("link", name="Todo lo dicho en esta sala").click()
    assert "Ann: [es] utterance 0" in saved.value.path().read_text(encoding="utf-8")
    assert problems_of(late) == problems_of(stage) == []
    for page in (ann, first, late, stage):
        page.context.close()
