"""Named requests of a tenant whose sessions are in several cells: one job, wherever it is."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from lingua_scheduler.config.tree import Tenant
from lingua_scheduler.live.requests import job_of_request, sound_of
from lingua_scheduler.messages.from_client import Utterance
from lingua_scheduler.messages.to_client import TranslationResult
from live.offices import CHUNK, Office, Speaker, play, until

if TYPE_CHECKING:
    from servers import Server

pytestmark = pytest.mark.store

SPREAD = {"cells": 3, "tenants": (Tenant(id="acme", cells=3),)}


async def apart(office: Office, *others: Speaker) -> Speaker:
    """Open a session of the tenant in another cell than these."""
    homes = {other.session.home.name for other in others}
    while True:
        speaker = await office.speaker(tenant="acme")
        if speaker.session.home.name not in homes:
            return speaker


def results(speaker: Speaker) -> list[tuple[int, str, str]]:
    told: list[TranslationResult] = speaker.of(TranslationResult)
    return [(one.utterance_index, one.job_id, one.text_asr) for one in told]


def test_in_another_cell_it_gets_the_answer_of_the_first(store: Server) -> None:
    async def scenario(here: Office, there: Office) -> None:
        worker = await here.node()
        first = await here.speaker(tenant="acme")
        second, third = await apart(there, first), await apart(here, first)
        first.say(0, request_id="r1")
        job = await worker.job()
        second.say(0, request_id="r1")
        await worker.report(job)
        await there.read_mail()
        name = job_of_request("acme", "", "r1")
        await until(lambda: results(second) == [(0, name, "said 0")], "the same answer")
        assert results(first) == results(second)
        # And after it ended; other audio is still a conflict.
        third.say(0, request_id="r1")
        await until(lambda: results(third) == results(first), "the same answer again")
        third.say(1, request_id="r1", audio=CHUNK)
        await until(lambda: third.errors == ["REQUEST_CONFLICT"], "other audio")
        assert len(worker.assigned) == 1

    play(store, scenario, "AB", **SPREAD)


def test_it_is_repeated_in_its_own_session_after_a_move(store: Server) -> None:
    async def scenario(here: Office, there: Office) -> None:
        worker = await here.node()
        first = await here.speaker(tenant="acme")
        second = await apart(here, first)
        first.say(0, request_id="r1")
        await worker.report(await worker.job())
        second.say(0, request_id="r1")
        await until(lambda: results(second), "the same answer")
        back = await there.comes_back(second, last_seq=1)
        back.say(0, request_id="r1")
        await until(lambda: results(back) == results(second), "under the same index")
        assert len(worker.assigned) == 1
        assert back.session.admission.next_index == 1

    play(store, scenario, "AB", **SPREAD)


async def keep_reading(*offices: Office) -> None:
    while True:
        for office in offices:
            await office.read_mail()
        await asyncio.sleep(0.01)


def test_racing_sessions_in_three_cells_make_one_job(store: Server) -> None:
    async def scenario(here: Office, there: Office) -> None:
        worker = await here.node(max_jobs=64)
        first = await here.speaker(tenant="acme")
        second = await apart(there, first)
        third = await apart(here, first, second)
        speakers = (first, second, third)
        for number in range(8):
            for speaker in speakers:
                speaker.say(number, request_id=f"r{number}")
            await asyncio.sleep(0)
        # Whoever was first, its push and its outcome may be letters to the other.
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
    async def scenario(here: Office) -> None:
        worker = await here.node()
        first = await here.speaker(tenant="acme")
        second = await apart(here, first)
        # An instance died between saying where the job is to be and submitting it.
        name = job_of_request("acme", "", "r1")
        cell = here.board.cells.home_of("acme", name, 3)
        here.store._bind_patience_ms = 300
        await here.store.request_bind(cell, name, first.session.home.name)
        second.say(0, request_id="r1")
        await worker.report(await worker.job())
        await until(lambda: results(second), "it is answered all the same")

    play(store, scenario, "A", **SPREAD)


# What a request sounds like.


def test_audio_and_languages_make_the_sound_and_nothing_else_does() -> None:
    given = {
        "session_id": "s", "utterance_index": 0, "src_lang": "zh", "tgt_lang": "en",
        "audio": CHUNK, "audio_format": "pcm16", "sample_rate": 16_000,
    }  # fmt: skip
    sound = sound_of(Utterance(**given))
    same = ({"utterance_index": 5}, {"trace_id": "t"}, {"session_id": "other"}, {"src_lang": "ZH"})
    for change in same:
        assert sound_of(Utterance(**given | change)) == sound
    others = (
        {"audio": CHUNK[:-2]}, {"audio": CHUNK[:-1] + b"\1"}, {"tgt_lang": "de"},
        {"src_lang": "ja"}, {"audio_format": "opus"}, {"sample_rate": 8000},
    )  # fmt: skip
    found = {sound_of(Utterance(**given | change)) for change in others}
    assert len(found) == len(others)
    assert sound not in found
