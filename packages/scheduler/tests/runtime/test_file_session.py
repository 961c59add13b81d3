"""A recording's session without a socket: against a real instance, a real store and real nodes."""

from __future__ import annotations

import asyncio
import gc
import itertools
import tracemalloc
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from edge.live_server import Stage, play, registration, until
from edge.many_servers import Company
from edge.many_servers import play as play_company
from edge.openai_stage import RATE, heard, node, silence, spoken, tone, understand
from lingua_node import Job, JobFailed, Result
from lingua_node.simulate import echo
from lingua_scheduler.runtime import file_session as module
from lingua_scheduler.runtime.file_session import (
    FileInterrupted,
    FileSession,
    FileUtterance,
    LanguagesUnserved,
    PartLost,
)
from lingua_wire.errors import InvalidLanguage
from lingua_wire.from_client import SessionInit
from lingua_wire.shared import PipelineConfig

pytestmark = pytest.mark.store

TRANSCRIBE = PipelineConfig(use_asr=True, use_nmt=False, use_tts=False)
WORDS = ("alpha", "bravo", "charlie", "delta", "echo", "foxtrot")
ACK_MS = 300
Handler = Callable[[Job], Coroutine[Any, Any, Result]]


def init(**more: Any) -> SessionInit:
    given = {"src_lang": "es", "tgt_lang": "es", "pipeline": TRANSCRIBE, **more}
    return SessionInit(audio_format="pcm16", sample_rate=RATE, **given)


async def in_blocks(pcm: bytes, size: int = 7001) -> AsyncIterator[bytes]:
    """Give audio in blocks that fall in the middle of chunks and of samples."""
    for at in range(0, len(pcm), size):
        yield pcm[at : at + size]


async def open_file(
    stage: Stage, give_out: Callable[[FileUtterance], None] = lambda _: None, **more: Any
) -> FileSession:
    """Open a session for a recording."""
    files = stage.server.instance.client_parts.files
    return await files.open(init(**more), give_out, tenant="")


async def process(stage: Stage, pcm: bytes, **more: Any) -> tuple[FileSession, list[FileUtterance]]:
    """Process a whole recording; return its session and what was found."""
    found: list[FileUtterance] = []
    file = await open_file(stage, found.append, **more)
    await file.process(in_blocks(pcm))
    return file, found


def is_store_available(stage: Stage) -> bool:
    """Tell whether no step of the instance waits for its store."""
    return stage.server.instance.effects.retry.is_store_available


def test_everything_said_has_one_outcome_in_order_and_every_millisecond_a_place() -> None:
    async def scenario(stage: Stage) -> None:
        async with node(stage):
            pcm = silence(3000) + spoken(*WORDS)
            file, found = await process(stage, pcm)
            assert [part.text_asr for part in found] == list(WORDS)
            assert all(one.end_ms <= two.start_ms for one, two in itertools.pairwise(found))
            coverage = file.session.admission.parts.ledger.summary()
            assert coverage.admitted_ms == len(pcm) // 32
            assert coverage.delivered_ms + coverage.silent_ms == coverage.admitted_ms
            file.end()
            sessions = stage.server.instance.sessions
            await until(lambda: not sessions, "the session ended")

    play(scenario)


def test_a_recording_is_cut_as_the_same_speech_is_live() -> None:
    """However fast it is fed: a clock of its own counts hangovers and pauses."""

    async def scenario(stage: Stage) -> None:
        lengths_ms: list[int] = []

        async def note(job: Job) -> Result:
            lengths_ms.append(len(job.audio) // 32)
            return Result(text_asr="x")

        async with node(stage, note):
            pcm = tone(300, 25_000)
            file, _ = await process(stage, pcm)
            file.end()
            # A slice takes audio for its hangover of 20 ms, which the next chunk of 100 ms ends.
            longest = 10_000 + module.CHUNK_MS
            assert sum(lengths_ms) == 25_000
            assert max(lengths_ms) <= longest
            assert len(lengths_ms) <= 4

    play(scenario)


def test_few_parts_are_in_flight_and_only_one_waits_for_a_node() -> None:
    async def scenario(stage: Stage) -> None:
        jobs = stage.server.instance.jobs
        waiting: list[int] = []

        async def slowly(job: Job) -> Result:
            await asyncio.sleep(0.05)
            waiting.append(sum(1 for other in jobs if not other.node))
            return await understand(job)

        async with node(stage, slowly, max_jobs=2):
            file, found = await process(stage, spoken(*WORDS, *WORDS))
            file.end()
            assert [part.text_asr for part in found] == list(WORDS * 2)
            assert max(waiting) <= 1

    play(scenario)


def test_outcomes_are_given_out_while_the_rest_of_the_recording_is_awaited() -> None:
    async def scenario(stage: Stage) -> None:
        found: list[FileUtterance] = []

        async def slow_upload() -> AsyncIterator[bytes]:
            yield spoken("alpha") + silence(3000)
            await until(lambda: found, "the first outcome is given out")
            yield spoken("bravo")

        async with node(stage):
            file = await open_file(stage, found.append)
            await file.process(slow_upload())
            file.end()
        assert [part.text_asr for part in found] == ["alpha", "bravo"]

    play(scenario)


def test_a_part_that_no_node_was_free_for_is_submitted_again() -> None:
    async def scenario(stage: Stage) -> None:
        begun = asyncio.Event()
        expired = stage.server.instance.metrics.jobs.jobs_total.labels(outcome="expired")

        async def block(_: Job) -> Result:
            begun.set()
            await until(lambda: expired.value >= 1, "a job expired")
            return Result(text_asr="other")

        async def both(job: Job) -> Result:
            if job.tgt_lang == "fr":
                return await block(job)
            return await understand(job)

        async with node(stage, both, max_jobs=1):
            other = await open_file(stage, tgt_lang="fr")
            task = asyncio.create_task(other.process(in_blocks(spoken("alpha"))))
            await begun.wait()
            file, found = await process(stage, spoken("bravo"))
            assert [part.text_asr for part in found] == ["bravo"]
            assert expired.value >= 1
            file.end()
            await task
            other.end()

    play(scenario, jobs__pending_ms=400, jobs__sweep_interval_ms=20)


def test_without_a_node_nothing_is_begun_and_no_session_stays() -> None:
    async def scenario(stage: Stage) -> None:
        instance = stage.server.instance
        with pytest.raises(LanguagesUnserved, match="no node serves es"):
            await open_file(stage)
        with pytest.raises(InvalidLanguage):
            await open_file(stage, src_lang="?")
        await until(lambda: not instance.sessions, "no session is left")

    play(scenario)


def test_an_abandoned_session_cancels_its_jobs() -> None:
    async def scenario(stage: Stage) -> None:
        instance, begun, ended = stage.server.instance, asyncio.Event(), asyncio.Event()

        async def never(_: Job) -> Result:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
            raise AssertionError

        async with node(stage, never):
            file = await open_file(stage)
            task = asyncio.create_task(file.process(in_blocks(spoken(*WORDS))))
            await begun.wait()
            task.cancel()
            await asyncio.wait([task])
            file.abandon()
            await ended.wait()
            await until(lambda: not instance.sessions, "it ended")
            assert not len(instance.jobs)

    play(scenario)


def test_a_stopping_instance_interrupts_a_recording_and_settles_what_was_submitted() -> None:
    async def scenario(stage: Stage) -> None:
        begun, found = asyncio.Event(), []

        async def slowly(job: Job) -> Result:
            begun.set()
            await asyncio.sleep(0.2)
            return await understand(job)

        async with node(stage, slowly, max_jobs=1):
            file = await open_file(stage, found.append)
            task = asyncio.create_task(file.process(in_blocks(spoken(*WORDS))))
            await begun.wait()
            draining = asyncio.create_task(stage.server.drain())
            with pytest.raises(FileInterrupted, match="the instance stops"):
                await task
            assert await draining
            coverage = file.session.admission.parts.ledger.summary()
            assert coverage.failed_ms == 0
            assert [part.text_asr for part in found] == list(WORDS[: len(found)])
            assert found

    play(scenario, server__drain_ms=5000)


def test_a_recording_that_was_submitted_whole_before_the_stop_is_finished() -> None:
    async def scenario(stage: Stage) -> None:
        begun = asyncio.Event()

        async def slowly(job: Job) -> Result:
            begun.set()
            await asyncio.sleep(0.3)
            return await understand(job)

        async with node(stage, slowly):
            task = asyncio.create_task(process(stage, spoken("alpha")))
            await begun.wait()
            draining = asyncio.create_task(stage.server.drain())
            _, found = await task
            assert [part.text_asr for part in found] == ["alpha"]
            assert await draining

    play(scenario, server__drain_ms=5000)


def test_a_node_that_dies_costs_a_recording_nothing() -> None:
    async def scenario(stage: Stage) -> None:
        begun = asyncio.Event()

        async def hang(job: Job) -> Result:
            if heard(job.audio, job.sample_rate) == "alpha":
                return await understand(job)
            begun.set()
            await asyncio.Event().wait()
            raise AssertionError

        async with node(stage, hang, "doomed") as doomed:
            task = asyncio.create_task(process(stage, spoken(*WORDS)))
            await begun.wait()
            async with node(stage, understand, "healthy"):
                doomed.stop()
                _, found = await task
                assert [part.text_asr for part in found] == list(WORDS)

    play(scenario)


def test_an_hour_goes_through_in_bounded_memory_and_others_get_their_turn() -> None:
    block = spoken("alpha") + silence(8200)
    blocks = 3600 * 1000 // (len(block) // 32)

    async def hour() -> AsyncIterator[bytes]:
        for _ in range(blocks):
            yield block

    async def scenario(stage: Stage) -> None:
        starts: list[int] = []
        turns = 0

        async def take_turns() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        async with node(stage, echo, max_jobs=8):
            file = await open_file(stage, lambda part: starts.append(part.start_ms))
            gc.collect()
            tracemalloc.start(1)
            others = asyncio.create_task(take_turns())
            await file.process(hour())
            others.cancel()
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            file.end()
        assert blocks == 360
        assert len(starts) == blocks
        assert starts == sorted(starts)
        # All of it would be 115 MB.
        assert peak < 20e6
        # Others had a turn at least after every few chunks, of which there are 36000.
        assert turns > 36_000 // module.CHUNKS_AT_ONCE

    play(scenario)


def test_a_store_that_is_unavailable_for_a_while_costs_a_recording_nothing() -> None:
    async def scenario(company: Company) -> None:
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def wait(job: Job) -> Result:
            begun.set()
            await go_on.wait()
            return await understand(job)

        stage = company["A"]
        async with node(stage, wait):
            task = asyncio.create_task(process(stage, spoken(*WORDS)))
            await begun.wait()
            company.store.kill()
            go_on.set()
            await until(lambda: not is_store_available(stage), "a step waits for the store")
            assert not task.done()
            company.store.start()
            _, found = await task
            assert [(part.text_asr, part.missing) for part in found] == [(w, "") for w in WORDS]

    play_company(scenario, keeps=True)


def test_a_node_of_another_instance_does_a_recording() -> None:
    async def scenario(company: Company) -> None:
        async with node(company["B"]):
            file, found = await process(company["A"], spoken(*WORDS))
            assert [part.text_asr for part in found] == list(WORDS)
            file.end()

    play_company(scenario)


# What is submitted again, and what is not

IMPATIENT = {"jobs__pending_ms": 200, "jobs__sweep_interval_ms": 20}


def refusing(word: str, code: str, times: int) -> tuple[Handler, list[str]]:
    """Return a handler that refuses a word so many times, and the words it received."""
    asked: list[str] = []

    async def handler(job: Job) -> Result:
        said = heard(job.audio, job.sample_rate)
        asked.append(said)
        if said == word and asked.count(word) <= times:
            raise JobFailed(code, "for the test")
        return await understand(job)

    return handler, asked


@pytest.mark.parametrize("code", ["NODE_OVERLOADED", "NODE_UNAVAILABLE", "INTERNAL_ERROR"])
def test_a_part_that_the_only_node_had_no_room_for_is_submitted_again_and_given_out_once(
    code: str,
) -> None:
    async def scenario(stage: Stage) -> None:
        handler, asked = refusing("bravo", code, times=3)
        async with node(stage, handler):
            file, found = await process(stage, spoken(*WORDS))
            file.end()
        assert [(part.text_asr, part.missing) for part in found] == [(w, "") for w in WORDS]
        assert asked.count("bravo") == 4
        assert len(asked) == len(WORDS) + 3

    play(scenario, **IMPATIENT)


def test_a_part_that_no_node_ever_has_room_for_ends_the_recording_after_a_few_tries() -> None:
    async def scenario(stage: Stage) -> None:
        handler, asked = refusing("bravo", "NODE_OVERLOADED", times=1000)
        async with node(stage, handler):
            with pytest.raises(PartLost, match=r"the part from 1\.\d to [23]\.\d s could not be"):
                await process(stage, spoken(*WORDS))
        assert asked.count("bravo") == module.FAILURES_MAX

    play(scenario, **IMPATIENT)


@pytest.mark.parametrize(
    ("code", "told_code"),
    [
        ("UNSUPPORTED_LANGUAGE", "UNSUPPORTED_LANGUAGE"),
        ("UNSUPPORTED_FEATURE", "UNSUPPORTED_FEATURE"),
        ("ASR_REFUSED", "PROCESSING_ERROR"),
    ],
)
def test_a_part_that_no_node_can_process_is_submitted_once(code: str, told_code: str) -> None:
    async def scenario(stage: Stage) -> None:
        handler, asked = refusing("bravo", code, times=1000)
        async with node(stage, handler):
            file, found = await process(stage, spoken("alpha", "bravo", "charlie"))
            file.end()
        told = [(part.text_asr, part.missing) for part in found]
        assert told == [("alpha", ""), ("", told_code), ("charlie", "")]
        assert asked.count("bravo") == 1

    play(scenario, **IMPATIENT)


def test_a_service_that_its_only_node_has_lost_is_not_requested_again() -> None:
    async def scenario(stage: Stage) -> None:
        asked: list[str] = []

        async def lost(job: Job) -> Result:
            asked.append(job.job_id)
            raise JobFailed("MODEL_NOT_AVAILABLE", "it is gone", {"service_id": "asr"})

        async with node(stage, lost):
            with pytest.raises(PartLost):
                await process(stage, spoken("alpha"))
        assert len(asked) == 1

    play(scenario, jobs__pending_ms=1500, jobs__sweep_interval_ms=20)


def test_a_part_whose_every_attempt_was_lost_with_its_node_is_submitted_again() -> None:
    async def scenario(stage: Stage) -> None:
        doomed = await stage.node("doomed", **registration(asr=("es",), to=("es",)))
        task = asyncio.create_task(process(stage, spoken(*WORDS)))
        await doomed.take(await doomed.job())
        async with node(stage, understand, "healthy"):
            doomed.drop()
            _, found = await task
        assert [(part.text_asr, part.missing) for part in found] == [(w, "") for w in WORDS]

    play(scenario, jobs__attempts_max=1)


def test_a_store_that_is_unavailable_longer_than_a_node_may_be_silent_costs_nothing() -> None:
    """When it is available again, attempts have expired whose results are on their way."""

    async def scenario(company: Company) -> None:
        begun, go_on, asked = asyncio.Event(), asyncio.Event(), []

        async def wait(job: Job) -> Result:
            asked.append(heard(job.audio, job.sample_rate))
            begun.set()
            await go_on.wait()
            return await understand(job)

        stage = company["A"]
        async with node(stage, wait):
            task = asyncio.create_task(process(stage, spoken(*WORDS)))
            await begun.wait()
            company.store.kill()
            go_on.set()
            await until(lambda: not is_store_available(stage), "a step waits for the store")
            # Long enough for the store to count every attempt as unanswered later.
            await asyncio.sleep(2 * ACK_MS / 1000)
            company.store.start()
            _, found = await task
            assert [(part.text_asr, part.missing) for part in found] == [(w, "") for w in WORDS]

    play_company(
        scenario,
        keeps=True,
        jobs__ack_ms=ACK_MS,
        jobs__pending_ms=300,
        jobs__sweep_interval_ms=20,
    )


def test_a_busy_node_is_waited_for_longer_than_a_few_tries() -> None:
    async def scenario(stage: Stage) -> None:
        begun, done = asyncio.Event(), asyncio.Event()
        expired = stage.server.instance.metrics.jobs.jobs_total.labels(outcome="expired")

        async def both(job: Job) -> Result:
            if job.tgt_lang == "fr":
                begun.set()
                await done.wait()
            return await understand(job)

        async with node(stage, both, max_jobs=1):
            other = asyncio.create_task(process(stage, spoken("alpha"), tgt_lang="fr"))
            await begun.wait()
            task = asyncio.create_task(process(stage, spoken("bravo")))
            await until(lambda: expired.value > module.FAILURES_MAX, "it waited often")
            done.set()
            assert [part.text_asr for part in (await task)[1]] == ["bravo"]
            await other

    play(scenario, jobs__pending_ms=100, jobs__sweep_interval_ms=20)


def test_a_part_that_somebody_cancelled_is_an_interruption_and_no_missing_text() -> None:
    async def scenario(stage: Stage) -> None:
        begun, found, instance = asyncio.Event(), [], stage.server.instance

        async def hang(_: Job) -> Result:
            begun.set()
            await asyncio.Event().wait()
            raise AssertionError

        async with node(stage, hang):
            file = await open_file(stage, found.append)
            task = asyncio.create_task(file.process(in_blocks(spoken("alpha"))))
            await begun.wait()
            (job,) = instance.jobs
            _, work = await instance.effects.dispatcher.cancel(job.home, job.id, "by_hand")
            instance.effects.perform(work)
            with pytest.raises(FileInterrupted, match="the session was ended"):
                await task
        assert not found

    play(scenario)
