"""The browser SDK as a program uses it: events in order, exact coverage, clear refusals."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest

from browser_stage import open_page, problems_of, sentence, service, simulated_node

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

SDK = """const { connect, Session, LinguaError } = await import("/sdk/lingua-client.js");
    const speech = (text) => {
        const bytes = Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
        return new Int16Array(bytes.buffer);
    };"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("service")
    with (
        service(folder) as running,
        simulated_node(running, folder, "--any", "--echo"),
    ):
        yield running.url()


@pytest.fixture
def program(quiet_browser: Browser, url: str) -> Iterator[Page]:
    page = open_page(quiet_browser, f"{url}/assets/icon.svg")
    yield page
    assert problems_of(page) == []
    page.context.close()


def run(page: Page, source: str, given: object = None) -> Any:
    """Run statements of a program that has the SDK."""
    return page.evaluate(f"async (given) => {{ {SDK} {source} }}", given)


def test_speech_goes_in_and_outcomes_come_out_in_order_with_exact_coverage(program: Page) -> None:
    said = run(
        program,
        """const session = await connect({ source: "en", targets: ["es", "de"] });
        const events = [];
        const reading = (async () => { for await (const event of session) events.push(event); })();
        for (let count = 0; count < 3; count++) {
            const accepted = new Promise((resolve) =>
                session.addEventListener("accepted", resolve, { once: true }));
            session.sendAudio(speech(given));
            session.cut();
            await accepted;
        }
        const coverage = await session.finish();
        await reading;
        return { coverage, duplicates: session.duplicates, state: session.state,
            kinds: [...new Set(events.map((event) => event.type))],
            outcomes: events.filter((event) => event.type === "outcome")
                .map(({ detail }) => [detail.lang, detail.index, detail.text]) };""",
        base64.b64encode(sentence(1000)).decode(),
    )
    for lang in ("es", "de"):
        mine = [(index, text) for code, index, text in said["outcomes"] if code == lang]
        assert mine == [(index, f"[{lang}] utterance {index}") for index in range(3)]
    coverage = said["coverage"]
    assert coverage["admitted_ms"] == coverage["delivered_ms"] + coverage["silent_ms"] == 3000
    assert (said["duplicates"], said["state"]) == (0, "closed")
    assert {"accepted", "outcome", "state"} <= set(said["kinds"])


def test_two_programs_meet_in_a_room(program: Page) -> None:
    said = run(
        program,
        """const ann = await connect({ source: "en", targets: ["es"], name: "Ann" });
        const room = await ann.createRoom();
        const eva = await connect({ source: "es", targets: ["en"], room, name: "Eva" });
        eva.update({ preferredLang: "fr" });
        await new Promise((resolve) => ann.addEventListener("members", ({ detail }) => {
            if (detail.members.some((one) => one.lang === "fr")) resolve();
        }));
        const heard = new Promise((resolve) => eva.addEventListener("outcome", (event) =>
            resolve(event.detail)));
        ann.sendAudio(speech(given));
        ann.cut();
        const { text, speaker, isOwn } = await heard;
        await eva.leaveRoom();
        const refusal = await eva.joinRoom("000000").catch((error) => error.code);
        const same = speaker === ann.id;
        ann.close();
        eva.close();
        return [text, same, isOwn, refusal, eva.room];""",
        base64.b64encode(sentence(1000)).decode(),
    )
    assert said == ["[fr] utterance 0", True, False, "ROOM_NOT_FOUND", ""]


def test_a_refusal_has_a_code(program: Page) -> None:
    said = run(
        program,
        """const open = (options) => connect(options).then(() => "open", (error) =>
            [error instanceof LinguaError, error.code]);
        const session = new Session({ source: "en", targets: ["es"] });
        let early;
        try { session.cut(); } catch (error) { early = error.code; }
        await session.open();
        session.close();
        let late;
        try { session.sendAudio(new Int16Array(10)); } catch (error) { late = error.code; }
        return [await open({ source: "not a language!", targets: ["es"] }), early, late];""",
    )
    assert said == [[True, "UNSUPPORTED_LANGUAGE"], "SESSION_OVER", "SESSION_OVER"]


def test_an_address_where_nobody_answers_is_given_up_in_time(program: Page) -> None:
    said = run(
        program,
        """const states = [];
        const session = new Session(
            { url: given, source: "en", targets: ["es"], openMs: 1000 });
        session.addEventListener("state", ({ detail }) => states.push(detail.state));
        const code = await session.open().catch((error) => error.code);
        return [code, states.at(-1), new Set(states).has("connecting")];""",
        "ws://127.0.0.1:9/ws/session",
    )
    assert said == ["CONNECTION_LOST", "closed", True]
    # The browser itself writes of each attempt.
    problems_of(program).clear()
