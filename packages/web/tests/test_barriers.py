"""No page has a serious barrier for people with disabilities, as far as axe-core finds them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from browser_stage import (
    chromium,
    installer,
    open_page,
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

SERIOUS = {"serious", "critical"}
RULES = """async () => (await axe.run(document, {
    runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
})).violations"""


@pytest.fixture(scope="module")
def speaker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    folder = tmp_path_factory.mktemp("microphone")
    with chromium(spoken_file(folder / "speech.wav", [sentence(1200)] * 20, pause_s=0.9)) as made:
        yield made


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("service")
    with (
        service(folder) as running,
        simulated_node(running, folder, "--pairs", "en>es,en>de,es>en", "--partials", "3"),
    ):
        yield running


def barriers(page: Page) -> list[str]:
    """Return what axe-core finds, each with its place."""
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(installer.installed().axe.read_text(encoding="utf-8"))
    found: list[dict[str, Any]] = page.evaluate(RULES)
    return [
        f"{one['id']}: {node['target']} {node['html'][:120]}"
        for one in found
        if one["impact"] in SERIOUS
        for node in one["nodes"]
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_has_no_serious_barrier(
    speaker: Browser, scheduler: Running, scheme: str, width: int
) -> None:
    size = {"width": width, "height": 844}
    page = open_page(speaker, scheduler.url(), viewport=size, color_scheme=scheme)
    expect(page.locator("#talk")).to_be_enabled()
    assert barriers(page) == []
    page.locator("#target").click()
    assert barriers(page) == []
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Settings").click()
    assert barriers(page) == []
    page.keyboard.press("Escape")
    page.locator("#room-button").click()
    assert barriers(page) == []
    page.get_by_role("button", name="Open a room").click()
    expect(page.locator("#people")).to_be_visible()
    assert barriers(page) == []
    guest = open_page(speaker, page.url, viewport=size, color_scheme=scheme, locale="es-ES")
    expect(guest.locator("#room-join button")).to_be_enabled()
    assert barriers(guest) == []
    guest.locator("#room-join button").click()
    page.get_by_label("Read aloud").check()
    page.locator("#talk").click()
    expect(guest.locator("#rows li")).to_have_count(1)
    assert barriers(page) == []
    assert barriers(guest) == []
    stage = open_page(speaker, f"{page.url}/stage?lang=es", viewport=size, color_scheme=scheme)
    expect(stage.locator(".column li").first).to_be_visible()
    assert barriers(stage) == []
    page.context.set_offline(True)
    expect(page.locator("#status")).to_contain_text("Reconnecting")
    assert barriers(page) == []
    for one in (page, guest, stage):
        one.context.close()


def test_problems_are_told_without_barriers(scheduler: Running) -> None:
    with chromium(is_refused=True) as browser:
        for scheme in ("light", "dark"):
            page = open_page(browser, scheduler.url(), color_scheme=scheme)
            page.locator("#talk").click()
            expect(page.get_by_role("alert")).to_be_visible()
            assert barriers(page) == []
            page.context.close()
