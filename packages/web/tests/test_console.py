"""The operators' page in a real browser, on real schedulers with simulated nodes."""

from __future__ import annotations

import json
import re
import urllib.request
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from browser_stage import installer, open_page, problems_of, service
from lingua_process import run, running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

    from lingua_process import Running

pytestmark = pytest.mark.browser

WIRE_BYTES_MAX = 150_000


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, Path]]:
    """Give a scheduler with one simulated node."""
    folder = tmp_path_factory.mktemp("console")
    with ExitStack() as stack:
        scheduler = stack.enter_context(service(folder, LINGUA_INSTANCE_ID="box"))
        sockets = scheduler.url().replace("http", "ws", 1)
        command = ["node", "--simulate", "--url", f"{sockets}/ws/node"]
        stack.enter_context(running(command, folder)).until("registered as")
        yield scheduler, folder


@pytest.fixture
def console(quiet_browser: Browser, stage: tuple[Running, Path]) -> Iterator[Page]:
    page = open_page(quiet_browser, f"{stage[0].url()}/console")
    expect(page.locator("#link")).to_have_text("live")
    yield page
    assert problems_of(page) == []
    page.context.close()


def nodes_of(url: str) -> list[str]:
    with urllib.request.urlopen(f"{url}/api/v1/nodes") as answer:
        return [node["id"] for node in json.load(answer)["nodes"]]


def test_it_shows_the_service_and_moves(console: Page, stage: tuple[Running, Path]) -> None:
    [node] = nodes_of(stage[0].url())
    expect(console.locator("#verdict")).to_have_attribute("data-state", "well")
    expect(console.locator("#sentence")).to_contain_text("All is well: 1 instance, 1 node")
    expect(console.locator("#service")).to_contain_text("box")
    row = console.locator("#nodes tbody tr")
    expect(row).to_contain_text(node)
    expect(row.locator(".badge")).to_have_text("ready")
    for chart in ("#chart-time", "#chart-rate", "#chart-refused"):
        expect(console.locator(f"{chart} svg")).to_have_attribute(
            "aria-label", re.compile("last 10 minutes")
        )


def test_a_node_is_drained_by_two_presses_and_resumed_by_one(
    console: Page, stage: tuple[Running, Path]
) -> None:
    [node] = nodes_of(stage[0].url())
    console.get_by_role("button", name=f"Drain {node}").click()
    console.get_by_role("button", name=f"Really drain {node}?").click()
    expect(console.locator("#action")).to_contain_text("gets no new work")
    expect(console.locator("#nodes .badge")).to_have_text("drained")
    expect(console.locator("#verdict")).to_have_attribute("data-state", "bad")
    console.get_by_role("button", name=f"Resume {node}").click()
    expect(console.locator("#nodes .badge")).to_have_text("ready")
    expect(console.locator("#verdict")).to_have_attribute("data-state", "well")


def test_a_job_is_explained_and_an_unknown_id_is_no_error(
    console: Page, stage: tuple[Running, Path]
) -> None:
    [node] = nodes_of(stage[0].url())
    console.get_by_role("button", name="Explain").click()
    expect(console.locator("#explanation")).to_contain_text(f"to {node}")
    console.get_by_label("From").fill("??")
    console.get_by_role("button", name="Explain").click()
    expect(console.locator("#explanation .bad")).to_be_visible()
    # Refused requests are told on the page, and the browser lists them too.
    expected = [text for text in problems_of(console) if "422" in text]
    problems_of(console)[:] = [text for text in problems_of(console) if text not in expected]
    assert expected
    console.locator("#story-id").fill("s-unknown:0")
    console.get_by_role("button", name="Show", exact=True).click()
    expect(console.locator("#story")).to_contain_text("Nothing is on record")
    problems_of(console)[:] = [text for text in problems_of(console) if "404" not in text]


def test_updates_change_what_they_name_and_nothing_else(page: Page) -> None:
    before = {
        "at_ms": 1, "queues": [1], "nodes": {"a": {"id": "a"}, "b": {"id": "b"}},
        "rates": {"of": "x", "rows": [{"at_ms": 10, "n": 1}, {"at_ms": 20, "n": 2}]},
    }  # fmt: skip
    update = {
        "at_ms": 2, "nodes": {"b": None, "c": {"id": "c"}},
        "rates": {"of": "x", "rows": [{"at_ms": 20, "n": 3}, {"at_ms": 30, "n": 4}]},
    }  # fmt: skip
    after = page.evaluate(
        """async ([before, update]) => {
            const { applied } = await import("/assets/console/state.js");
            return [applied(before, "update", update), before, applied(null, "update", update)];
        }""",
        [before, update],
    )
    rows = [{"at_ms": 10, "n": 1}, {"at_ms": 20, "n": 3}, {"at_ms": 30, "n": 4}]
    whole = {"at_ms": 2, "queues": [1], "nodes": {"a": {"id": "a"}, "c": {"id": "c"}}}
    assert after == [whole | {"rates": {"of": "x", "rows": rows}}, before, None]


def test_events_are_read_from_text_in_pieces(page: Page) -> None:
    text = 'event: snapshot\ndata: {"a": 1}\n\n: a comment\n\nevent: update\ndata: {"b"'
    read = page.evaluate(
        """async (text) => (await import("/assets/console/state.js")).parsed(text)""", text
    )
    assert read == [[["snapshot", {"a": 1}]], 'event: update\ndata: {"b"']


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1366])
def test_no_barriers_and_nothing_wider_than_the_screen(
    quiet_browser: Browser, stage: tuple[Running, Path], scheme: Any, width: int
) -> None:
    page = open_page(
        quiet_browser, f"{stage[0].url()}/console", color_scheme=scheme,
        viewport={"width": width, "height": 844}, bypass_csp=True,
    )  # fmt: skip
    expect(page.locator("#sentence")).not_to_be_empty()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.add_script_tag(path=str(installer.installed().axe))
    found = page.evaluate("axe.run().then(({violations}) => violations)")
    serious = [
        (one["id"], [node["target"] for node in one["nodes"]])
        for one in found
        if one["impact"] in ("serious", "critical")
    ]
    assert serious == []
    page.context.close()


def test_it_asks_nobody_else_and_is_small(
    quiet_browser: Browser, stage: tuple[Running, Path]
) -> None:
    url = stage[0].url()
    page = open_page(quiet_browser)
    sizes: dict[str, int] = {}
    foreign: list[str] = []

    def note(response: Any) -> None:
        if not response.url.startswith(url):
            foreign.append(response.url)
        elif "/api/" not in response.url:
            sizes[response.url] = response.request.sizes()["responseBodySize"]

    page.on("requestfinished", lambda request: note(request.response()))
    page.goto(f"{url}/console")
    expect(page.locator("#link")).to_have_text("live")
    assert foreign == []
    assert 0 < sum(sizes.values()) <= WIRE_BYTES_MAX
    page.context.close()


def test_with_keys_it_asks_for_a_token_and_keeps_it_in_the_tab(
    quiet_browser: Browser, tmp_path: Path
) -> None:
    keys = {
        "LINGUA_AUTH__CLIENT_KEYS": json.dumps(["client-key-" * 4]),
        "LINGUA_AUTH__NODE_KEYS": json.dumps(["node-key-" * 4]),
    }
    words = ["token", "create", "--client", "--scopes"]
    admin = run([*words, "admin"], tmp_path, **keys).stdout.split()[0]
    speaker = run([*words, "speak"], tmp_path, **keys).stdout.split()[0]
    with service(tmp_path, **keys) as scheduler:
        page = open_page(quiet_browser, f"{scheduler.url()}/console")
        expect(page.locator("#door")).to_be_visible()
        expect(page.locator("#board")).to_be_hidden()
        page.get_by_label("Admin token").fill(speaker)
        page.keyboard.press("Enter")
        expect(page.locator("#door-why")).to_contain_text("lacks the scope")
        page.get_by_label("Admin token").fill(admin)
        page.keyboard.press("Enter")
        expect(page.locator("#link")).to_have_text("live")
        expect(page.locator("#sentence")).to_contain_text("No node is registered")
        page.reload()
        expect(page.locator("#link")).to_have_text("live")
        page.get_by_role("button", name="Forget token").click()
        expect(page.locator("#door")).to_be_visible()
        page.context.close()


def test_a_lost_service_is_told_and_found_again(quiet_browser: Browser, tmp_path: Path) -> None:
    with service(tmp_path) as scheduler:
        url = scheduler.url()
        page = open_page(quiet_browser, f"{url}/console")
        expect(page.locator("#link")).to_have_text("live")
    expect(page.locator("#link")).to_contain_text("connection lost")
    expect(page.locator("body")).to_have_class(re.compile("stale"))
    port = url.rpartition(":")[2]
    with service(tmp_path, "--port", port):
        expect(page.locator("#link")).to_have_text("live")
    page.context.close()
