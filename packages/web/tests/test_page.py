"""The page for people in a real browser: a real microphone stream, simulated nodes."""

from __future__ import annotations

import re
import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

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
from lingua_scheduler.auth.tokens import TokenKeys
from lingua_scheduler.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

    from lingua_process import Running

pytestmark = pytest.mark.browser

FIRST_PAINT_BYTES_MAX = 150_000
NODE = ("--pairs", "en>es,en>de,es>en", "--delay-ms", "200")
# What the speaker plays goes through its gain; this hears it.
HEAR = """() => {
    window.heard = [];
    const connect = AudioNode.prototype.connect;
    AudioNode.prototype.connect = function (target, ...more) {
        if (target instanceof AudioDestinationNode) {
            const ear = this.context.createAnalyser();
            connect.call(this, ear);
            const samples = new Float32Array(ear.fftSize);
            setInterval(() => {
                ear.getFloatTimeDomainData(samples);
                window.heard.push(Math.max(...samples.map(Math.abs)));
            }, 20);
        }
        return connect.call(this, target, ...more);
    };
}"""


@pytest.fixture(scope="module")
def speaker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Run a browser whose microphone says four short sentences, then is silent."""
    folder = tmp_path_factory.mktemp("microphone")
    file = spoken_file(folder / "speech.wav", [sentence(1500)] * 4, pause_s=0.9)
    with chromium(file) as browser:
        yield browser


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("service")
    with service(folder) as running, simulated_node(running, folder, *NODE):
        yield running


@pytest.fixture
def visit(speaker: Browser, scheduler: Running) -> Iterator[Page]:
    """Give a first visit on a phone; nothing may go wrong in its scripts."""
    page = open_page(speaker, scheduler.url(), viewport={"width": 390, "height": 844})
    expect(page.locator("#talk")).to_be_enabled()
    yield page
    assert problems_of(page) == []
    page.context.close()


def test_a_person_presses_one_button_and_reads_and_hears_the_translation(visit: Page) -> None:
    visit.evaluate(HEAR)
    visit.get_by_label("Read aloud").check()
    visit.get_by_role("button", name="Speak", exact=True).click()
    expect(visit.locator("#status")).to_have_text("Listening. Speak now.")
    visit.wait_for_function("() => Number(document.getElementById('meter').ariaValueNow) > 20")
    rows = visit.locator("#rows li")
    expect(rows.first.locator(".original")).to_contain_text("simulated speech of")
    expect(rows.first.locator(".translation")).to_contain_text("[es] simulated speech of")
    expect(rows.first.locator(".translation")).to_have_attribute("lang", "es")
    # The node says each translation with a tone of 8000 of 32768.
    visit.wait_for_function("() => window.heard.some((level) => level > 0.2 && level < 0.3)")
    expect(rows).to_have_count(4)
    visit.get_by_role("button", name="Stop").click()
    expect(visit.locator("#status")).to_have_text("Stopped.")
    expect(visit.locator("#talk")).to_have_attribute("aria-pressed", "false")


def test_the_words_can_be_saved_as_text_and_as_subtitles(visit: Page) -> None:
    visit.locator("#talk").click()
    expect(visit.locator("#rows li")).to_have_count(2)
    visit.locator("#talk").click()
    visit.get_by_role("button", name="Settings").click()
    for format_, pattern in (
        ("Text", r"simulated speech of \d+ ms: .+\n    \[es\] simulated"),
        ("Subtitles (SRT)", r"^1\n00:00:0\d,\d{3} --> 00:00:0\d,\d{3}\n\[es\] simulated"),
        ("Subtitles (WebVTT)", r"^WEBVTT\n\n1\n00:00:0\d\.\d{3} --> "),
    ):
        with visit.expect_download() as saved:
            visit.get_by_role("button", name=format_, exact=True).click()
        assert re.search(pattern, saved.value.path().read_text(encoding="utf-8"))


def test_first_paint_is_small_and_asks_nobody_else(speaker: Browser, scheduler: Running) -> None:
    page = open_page(speaker)
    sizes: dict[str, int] = {}
    page.on(
        "requestfinished",
        lambda request: sizes.__setitem__(
            request.url,
            request.sizes()["responseBodySize"] + request.sizes()["responseHeadersSize"],
        ),
    )
    page.goto(scheduler.url())
    expect(page.locator("#talk")).to_be_enabled()
    page.wait_for_load_state("networkidle")
    assert sum(sizes.values()) <= FIRST_PAINT_BYTES_MAX, sizes
    assert {urlsplit(url).netloc for url in sizes} == {urlsplit(scheduler.url()).netloc}
    assert problems_of(page) == []
    print(f"first paint: {sum(sizes.values())} bytes in {len(sizes)} requests")
    page.context.close()


# Languages


def test_a_language_is_found_by_keyboard_and_remembered(visit: Page) -> None:
    visit.locator("#target").focus()
    visit.keyboard.press("Enter")
    search = visit.get_by_role("combobox", name="Search languages")
    expect(search).to_be_focused()
    expect(visit.get_by_role("option")).to_have_count(2)
    search.fill("deut")
    expect(visit.get_by_role("option", name="German")).to_have_attribute("aria-selected", "true")
    visit.keyboard.press("Enter")
    expect(visit.locator("#target")).to_have_text("German")
    visit.reload()
    expect(visit.locator("#target")).to_have_text("German")
    visit.locator("#swap").click()
    expect(visit.locator("#source")).to_have_text("German")
    expect(visit.locator("#target")).to_have_text("English")


@pytest.mark.parametrize(
    ("locale", "button", "source", "target"),
    [
        ("en-US", "Speak", "English", "Spanish"),
        ("es-MX", "Hablar", "Español", "Inglés"),
        ("fr-FR", "Parler", "Anglais", "Espagnol"),
        ("de-AT", "Sprechen", "Englisch", "Deutsch"),
    ],
)
def test_the_page_speaks_the_visitors_language_and_guesses_theirs(
    speaker: Browser, scheduler: Running, locale: str, button: str, source: str, target: str
) -> None:
    page = open_page(speaker, scheduler.url(), locale=locale)
    expect(page.get_by_role("button", name=button, exact=True)).to_be_enabled()
    expect(page.locator("html")).to_have_attribute("lang", locale[:2])
    expect(page.locator("#source")).to_have_text(source)
    expect(page.locator("#target")).to_have_text(target)
    assert problems_of(page) == []
    page.context.close()


def test_every_dictionary_has_every_text(visit: Page) -> None:
    keys = visit.evaluate("""async () => Promise.all(["en", "es", "fr", "de"].map(async (code) => {
        const texts = (await import(`/assets/app/texts/${code}.js`)).default;
        const names = (text) => [...text.matchAll(/\\{\\w+\\}/g)].map(String).sort().join();
        return Object.entries(texts).map(([key, text]) => `${key} ${names(text)}`).sort();
    }))""")
    assert keys[0]
    assert all(one == keys[0] for one in keys)


# What goes wrong, as a person is told


def test_a_refused_microphone_is_explained(scheduler: Running) -> None:
    with chromium(is_refused=True) as browser:
        page = open_page(browser, scheduler.url())
        page.locator("#talk").click()
        expect(page.get_by_role("alert")).to_contain_text("The microphone is not allowed.")
        expect(page.locator("#talk")).to_have_attribute("aria-pressed", "false")
        assert problems_of(page) == []


def test_for_a_pair_that_nobody_translates_it_says_what_there_is(visit: Page) -> None:
    visit.locator("#target").click()
    visit.get_by_role("combobox").fill("German")
    visit.keyboard.press("Enter")
    visit.locator("#swap").click()
    visit.locator("#talk").click()
    alert = visit.get_by_role("alert")
    expect(alert).to_contain_text("Nobody translates from German into English at the moment.")
    alert.get_by_role("button", name="English").click()
    expect(visit.locator("#status")).to_have_text("Listening. Speak now.")
    expect(visit.locator("#rows li .translation").first).to_contain_text("simulated")


def test_without_any_node_it_says_so(page: Page, address: str) -> None:
    page.goto(address)
    expect(page.get_by_role("alert")).to_contain_text("No translator is connected at the moment.")
    page.locator("#talk").click()
    expect(page.get_by_role("alert")).to_contain_text("No translator is connected at the moment.")


def test_a_node_that_comes_is_noticed_by_a_page_that_waits(
    speaker: Browser, tmp_path: Path
) -> None:
    with service(tmp_path) as scheduler:
        page = open_page(speaker, scheduler.url())
        expect(page.get_by_role("alert")).to_contain_text("No translator is connected")
        with simulated_node(scheduler, tmp_path, "--pairs", "en>de"):
            expect(page.get_by_role("alert")).to_be_hidden()
            expect(page.locator("#target")).to_have_text("German")
            page.locator("#talk").click()
            expect(page.locator("#rows li .translation").first).to_contain_text("[de]")
        assert problems_of(page) == []
        page.context.close()


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ("CONNECTIONS_MAX", "The service is full: it takes no more connections now."),
        ("CONNECTIONS_PER_IP_MAX", "Too many connections come from your network."),
    ],
)
def test_a_full_service_says_why_and_when_to_try_again_and_does_it(
    speaker: Browser, tmp_path: Path, limit: str, said: str
) -> None:
    full = {f"LINGUA_SERVER__{limit}": "20"}
    with service(tmp_path, **full) as scheduler, simulated_node(scheduler, tmp_path, *NODE):
        page = open_page(speaker, scheduler.url())
        expect(page.locator("#talk")).to_be_enabled()
        where = urlsplit(scheduler.url())
        crowd: list[socket.socket] = []
        for _ in range(20):
            one = socket.create_connection((where.hostname, where.port))
            one.sendall(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            one.recv(100)
            crowd.append(one)
        page.locator("#talk").click()
        alert = page.get_by_role("alert")
        try:
            expect(alert).to_contain_text(re.compile(rf"{re.escape(said)} Trying again in \d s\."))
        finally:
            for one in crowd:
                one.close()
        expect(page.locator("#status")).to_have_text("Listening. Speak now.")
        page.context.close()


def test_a_page_that_may_open_no_socket_is_told_what_the_operator_must_do(
    speaker: Browser, tmp_path: Path
) -> None:
    other = {"LINGUA_SERVER__ORIGINS": '["https://lingua.example"]'}
    with service(tmp_path, **other) as scheduler, simulated_node(scheduler, tmp_path, *NODE):
        page = open_page(speaker, f"{scheduler.url().replace('127.0.0.1', 'localhost')}/")
        page.locator("#talk").click()
        alert = page.get_by_role("alert")
        expect(alert).to_contain_text("This service does not accept pages from http://localhost:")
        expect(alert).to_contain_text("server.origins")
        page.context.close()


def test_a_lost_connection_is_said_and_healed_and_nothing_is_lost(
    speaker: Browser, tmp_path: Path
) -> None:
    with service(tmp_path) as scheduler, simulated_node(scheduler, tmp_path, "--any", "--echo"):
        page = open_page(speaker, scheduler.url())
        page.locator("#talk").click()
        expect(page.locator("#rows li")).to_have_count(1)
        page.context.set_offline(True)
        expect(page.locator("#status")).to_contain_text("Reconnecting; nothing you say is lost.")
        page.wait_for_timeout(1500)
        page.context.set_offline(False)
        expect(page.locator("#status")).to_have_text("Listening. Speak now.")
        expect(page.locator("#rows li")).to_have_count(4)
        said = page.locator("#rows li .original").all_inner_texts()
        assert said == [f"utterance {number}" for number in range(4)]
        page.context.close()


# Tokens


CLIENT_KEY, NODE_KEY = "client-key-" + "c" * 32, "node-key-" + "n" * 32
KEYS = TokenKeys([Secret(CLIENT_KEY)], [Secret(NODE_KEY)])


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Run a scheduler that asks for tokens, with a node."""
    folder = tmp_path_factory.mktemp("locked")
    keys = {
        "LINGUA_AUTH__CLIENT_KEYS": f'["{CLIENT_KEY}"]',
        "LINGUA_AUTH__NODE_KEYS": f'["{NODE_KEY}"]',
    }
    token = KEYS.issue_node("n").reveal()
    with (
        service(folder, **keys) as running,
        simulated_node(running, folder, *NODE, "--node-id", "n", "--token", token),
    ):
        yield running


def test_a_token_in_the_link_is_used_and_taken_out_of_the_address(
    speaker: Browser, locked: Running
) -> None:
    token = KEYS.issue_client().reveal()
    page = open_page(speaker, f"{locked.url()}/#token={token}")
    page.locator("#talk").click()
    expect(page.locator("#rows li").first).to_contain_text("simulated")
    assert page.url == f"{locked.url()}/"
    assert problems_of(page) == []
    page.context.close()


def test_without_a_token_it_asks_for_one_and_refuses_a_wrong_one(
    speaker: Browser, locked: Running
) -> None:
    page = open_page(speaker, locked.url())
    expect(page.get_by_role("heading", name="An access token is needed")).to_be_visible()
    expect(page.locator("#talk")).to_be_disabled()
    page.get_by_label("Token", exact=True).fill("not.a.token")
    page.get_by_role("button", name="Use this token").click()
    page.locator("#talk").click()
    expect(page.get_by_role("alert")).to_contain_text("The token is not valid, or has expired.")
    page.get_by_label("Token", exact=True).fill(KEYS.issue_client().reveal())
    page.get_by_role("button", name="Use this token").click()
    page.locator("#talk").click()
    expect(page.locator("#rows li").first).to_contain_text("simulated")
    page.context.close()


def test_a_guest_of_a_room_needs_only_the_link_and_may_do_nothing_else(
    speaker: Browser, locked: Running
) -> None:
    host = open_page(speaker, f"{locked.url()}/#token={KEYS.issue_client().reveal()}")
    expect(host.locator("#talk")).to_be_enabled()
    host.locator("#room-button").click()
    host.get_by_role("button", name="Open a room").click()
    expect(host.locator("#room-link-note")).to_contain_text("The link is valid until")
    host.context.grant_permissions(["clipboard-read", "clipboard-write"])
    host.get_by_role("button", name="Copy link").click()
    link = host.evaluate("() => navigator.clipboard.readText()")
    assert "#token=" in link
    guest = open_page(speaker, link, locale="es-ES")
    guest.locator("#room-join button").click()
    expect(host.locator("#members li")).to_have_count(2)
    expect(guest.locator("#people")).to_be_visible()
    # What its token allows is this room.
    guest.locator("#room-button").click()
    guest.get_by_role("button", name="Salir de la sala").click()
    expect(guest.locator("#people")).to_be_hidden()
    guest.get_by_role("button", name="Abrir una sala").click()
    expect(guest.get_by_role("alert")).to_have_text("Este token no lo permite.")
    screen = open_page(speaker)
    screen.goto(locked.url() + str(host.locator("#room-stage").get_attribute("href")))
    expect(screen.locator("body")).to_have_attribute("data-state", "open")
    assert problems_of(host) == problems_of(screen) == []
    for page in (host, guest, screen):
        page.context.close()
