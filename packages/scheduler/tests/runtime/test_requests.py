"""Named requests of a tenant whose sessions are in several cells: one job, wherever it is."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from lingua_scheduler.config.tree import Tenant
from lingua_scheduler.runtime.job_builder import job_of_request
from lingua_scheduler.runtime.requests import sound_of
from lingua_scheduler.state.records import request_scope
from lingua_wire.from_client import Utterance
from lingua_wire.to_client import TranslationResult
from runtime.bare_instances import CHUNK, BareInstance, Speaker, play, until

if TYPE_CHECKING:
    from servers import Server

pytestmark = pytest.mark.store

SPREAD = {"cells": 3, "tenants": (Tenant(id="acme", cells=3),)}


async def apart(instance: BareInstance, *others: Speaker) -> Speaker:
    """Open a session of the tenant in another cell than these."""
    homes = {other.record.home.name for other in others}
    while True:
        speaker = await instance.speaker(tenant="acme")
        if speaker.record.home.name not in homes:
            return speaker


def results(speaker: Speaker) -> list[tuple[int, str, str]]:
    sent: list[TranslationResult] = speaker.of(TranslationResult)
    return [(one.utterance_index, one.job_id, one.text_asr) for one in sent]


def test_a_request_that_is_repeated_in_another_cell_gets_the_answer_of_the_first(
    store: Server,
) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        worker = await here.node()
        first = await here.speaker(tenant="acme")
        second, third = await apart(there, first), await apart(here, first)
        first.say(0, request_id="r1")
        job = await worker.job()
        second.say(0, request_id="r1")
        await worker.report(job)
        await there.read_inbox()
        name = job_of_request(request_scope("acme", ""), "r1")
        await until(lambda: results(second) == [(0, name, "said 0")], "the same answer")
        assert results(first) == results(second)
        # And after it ended; other audio is still a conflict.
        third.say(0, request_id="r1")
        await until(lambda: results(third) == results(first), "the same answer again")
        third.say(1, request_id="r1", audio=CHUNK)
        await until(lambda: third.errors == ["REQUEST_CONFLICT"], "other audio")
        assert len(worker.assigned) == 1

    play(store, scenario, "AB", **SPREAD)


def test_a_request_is_repeated_in_its_own_session_after_a_move(store: Server) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        worker = await here.node()
        first = await here.speaker(tenant="acme")
        second = await apart(here, first)
        first.say(0, request_id="r1")
        await worker.report(await worker.job())
        second.say(0, request_id="r1")
        await until(lambda: results(second), "the same answer")
        back = await there.resume(second, last_seq=1)
        back.say(0, request_id="r1")
        await until(lambda: results(back) == results(second), "under the same index")
        assert len(worker.assigned) == 1
        assert back.session.admission.parts.indices.next == 1

    play(store, scenario, "AB", **SPREAD)


async def keep_reading(*instances: BareInstance) -> None:
    while True:
        for instance in instances:
            await instance.read_inbox()
        await asyncio.sleep(0.01)


def test_racing_sessions_in_three_cells_make_one_job(store: Server) -> None:
    async def scenario(here: BareInstance, there: BareInstance) -> None:
        worker = await here.node(max_jobs=64)
        first = await here.speaker(tenant="acme")
        second = await apart(there, first)
        third = await apart(here, first, second)
        speakers = (first, second, third)
        for number in range(8):
            for speaker in speakers:
                speaker.say(number, request_id=f"r{number}")
            await asyncio.sleep(0)
        # The push and the outcome of the first one may be messages to the other instance.
        reading = asyncio.create_task(keep_reading(here, there))
        for number in range(8):
            await worker.report(await worker.job(number))
        for speaker in speakers:
            await until(lambda speaker=speaker: len(results(speaker)) == 8, "all is answered")
        reading.cancel()
        assert len(worker.assigned) == 8
        answers = [sorted(job for _, job, _ in results(speaker)) for speaker in speakers]
        assert answers[0] == answers[1] == answers[2]

    play(store, scenario, "AB", **SPREAD)


def test_a_cell_that_was_named_and_never_got_the_job_loses_it(store: Server) -> None:
    async def scenario(here: BareInstance) -> None:
        worker = await here.node()
        first = await here.speaker(tenant="acme")
        second = await apart(here, first)
        # An instance died after it named the cell of the job and before it submitted the job.
        name = job_of_request(request_scope("acme", ""), "r1")
        cell = here.cells.home_of("acme", name, 3)
        here.store.requests._bind_patience_ms = 300
        await here.store.requests.bind(cell, name, first.record.home.name)
        second.say(0, request_id="r1")
        await worker.report(await worker.job())
        await until(lambda: results(second), "it is answered all the same")

    play(store, scenario, "A", **SPREAD)


# The sound of a request


def test_audio_and_languages_make_the_sound_and_nothing_else_does() -> None:
    given = {
        "session_id": "s",
        "utterance_index": 0,
        "src_lang": "zh",
        "tgt_lang": "en",
        "audio": CHUNK,
        "audio_format": "pcm16",
        "sample_rate": 16_000,
    }
    sound = sound_of(Utterance(**given))
    same = ({"utterance_index": 5}, {"trace_id": "t"}, {"session_id": "other"}, {"src_lang": "ZH"})
    for change in same:
        assert sound_of(Utterance(**given | change)) == sound
    others = (
        {"audio": CHUNK[:-2]},
        {"audio": CHUNK[:-1] + b"\1"},
        {"tgt_lang": "de"},
        {"src_lang": "ja"},
        {"audio_format": "opus"},
        {"sample_rate": 8000},
    )
    found = {sound_of(Utterance(**given | change)) for change in others}
    assert len(found) == len(others)
    assert sound not in found
