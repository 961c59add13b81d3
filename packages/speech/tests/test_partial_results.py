"""Partial texts of a job: the newest at a limited rate, the final one always."""

from __future__ import annotations

import asyncio

import pytest

from engine_node import JobSource, run
from lingua_speech.partial_results import PartialResults

pytestmark = pytest.mark.unit


def test_the_newest_text_is_sent_once_per_interval_and_the_final_one_at_once() -> None:
    async def scenario() -> None:
        source = JobSource()
        partials = PartialResults(source.job(partial_update_interval_ms=60_000))
        async with partials:
            partials.update("one")
            partials.update("one two")
            await asyncio.sleep(0.01)
            partials.update("one two three")
            await asyncio.sleep(0.01)
        await partials.send_final("One two three.")
        assert source.partials() == [("one two", False), ("One two three.", True)]

    run(scenario())


def test_an_empty_or_unchanged_text_is_not_sent() -> None:
    async def scenario() -> None:
        source = JobSource()
        partials = PartialResults(source.job(partial_update_interval_ms=1))
        async with partials:
            for text in ("", "one", "one"):
                partials.update(text)
                await asyncio.sleep(0.02)
        assert source.partials() == [("one", False)]

    run(scenario())


def test_nothing_is_sent_for_a_job_without_streaming() -> None:
    async def scenario() -> None:
        source = JobSource()
        partials = PartialResults(source.job(enable_streaming_asr=False))
        async with partials:
            partials.update("one")
            await asyncio.sleep(0.01)
        await partials.send_final("One.")
        assert source.partials() == []

    run(scenario())
