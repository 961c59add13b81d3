"""Texts while somebody still speaks: listeners see them, and reports and captions do not."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from client_peer import Caller, ScriptedService, result, scripted_service
from early_messages import partial
from lingua_translate import NullListener, Order, interpret
from lingua_translate.outputs import as_json, captions_of
from lingua_wire.from_client import SessionClose
from lingua_wire.shared import PartialTranslation
from lingua_wire.to_client import SessionCloseAck
from node_peer import run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lingua_translate import InterpretationReport, Rendition, TranslatedUtterance

pytestmark = pytest.mark.unit


class Watcher(NullListener):
    """Keeps the texts so far and the outcomes, in order."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def partial(self, utterance: TranslatedUtterance, text: str) -> None:
        so_far = utterance.so_far
        assert so_far is not None
        spanish = so_far.translations["es"].text if so_far.translations else ""
        self.told.append(f"{utterance.start_ms:.0f} {text} > {spanish}")

    def rendered(self, utterance: TranslatedUtterance, rendition: Rendition) -> None:
        assert utterance.so_far is None
        self.told.append(f"{utterance.start_ms:.0f} = {rendition.text}")


class QuietSource:
    """A source that has nothing to say until it is told to end."""

    sample_rate, is_live = 16_000, True

    def __init__(self) -> None:
        self.over = asyncio.Event()

    async def chunks(self) -> AsyncIterator[bytes]:
        for _ in range(20):
            yield bytes(3200)
        await self.over.wait()


async def serve(service: ScriptedService, source: QuietSource) -> bool | None:
    """Open the session, tell what is heard, answer one utterance and close."""
    caller: Caller = await service.caller()
    init = await caller.greet()
    await caller.chunks(20)
    spanish = PartialTranslation(tgt_lang="es", stable="Buenos", unstable=" dí")
    caller.send(partial(0, "", "Good", start_ms=300))
    caller.send(partial(0, "Good", " mor", start_ms=300, translations=(spanish,)))
    caller.accept(0, 3, 9)
    caller.send(result(1, text_translated="Buenos días."))
    # Of a noise, which is never accepted.
    caller.send(partial(1, "", "hm", start_ms=1500))
    source.over.set()
    await caller.expect(SessionClose)
    caller.send(SessionCloseAck(session_id="s1"))
    return init.partials


def told_and_report(*, partials: bool | None) -> tuple[list[str], InterpretationReport]:
    async def scenario() -> tuple[list[str], InterpretationReport]:
        async with scripted_service() as service:
            source, watcher = QuietSource(), Watcher()
            serving = asyncio.create_task(serve(service, source))
            order = Order(urls=(service.url,), source="en", targets=("es",), partials=partials)
            report = await interpret(source, order, watcher)
            assert await serving is partials
            return watcher.told, report

    found: list[tuple[list[str], InterpretationReport]] = []

    async def keep() -> None:
        found.append(await scenario())

    run(keep())
    return found[0]


def test_listeners_see_words_that_grow_and_then_the_outcome() -> None:
    told, _ = told_and_report(partials=True)
    # A reader that is late sees only the newest text of an utterance.
    assert [line for line in told if line != "300 Good > "] == [
        "300 Good mor > Buenos dí",
        "300 = Buenos días.",
        "1500 hm > ",
    ]


def test_reports_and_captions_have_final_texts_only() -> None:
    _, report = told_and_report(partials=None)
    assert [(said.index, said.start_ms) for said in report.utterances] == [(0, 300)]
    assert [caption.text for caption in captions_of(report, "es")] == ["Buenos días."]
    assert "mor" not in as_json(report, "talk.wav")
    assert "hm" not in as_json(report, "talk.wav")
