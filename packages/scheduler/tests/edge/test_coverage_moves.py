"""What became of speech, told exactly: over moves, kills, refusals and sessions others ended.

Every test knows the truth: what it said, and how each of it ended. What the client is told when the
session ends, and the sum of what all instances have counted, must be that.
"""

from __future__ import annotations

from typing import Any

import pytest

from edge.live_server import Message, opus, until
from edge.many_servers import Company, Traveller, heard_all, play
from edge.test_resume import voice

pytestmark = pytest.mark.store

FATES = ("delivered", "silent", "failed", "skipped")
PCM: dict[str, Any] = {"audio_format": "pcm16", "sample_rate": 16_000}


def counted(company: Company, names: str) -> dict[str, float]:
    """Return what the instances have counted together."""
    return {
        fate: sum(company[name].counted("coverage_ms_total", fate=fate) for name in names)
        for fate in FATES
    }


def check(company: Company, names: str, coverage: Message, **truth: int) -> None:
    """Compare what was told and counted with what the test knows."""
    known = dict.fromkeys(FATES, 0) | truth
    assert {fate: coverage[f"{fate}_ms"] for fate in FATES} == known
    assert coverage["admitted_ms"] == sum(known.values())
    assert coverage.get("earlier_ms", 0) == 0
    assert counted(company, names) == known


async def say(client: Traveller, duration_ms: int) -> None:
    """Say one utterance in two chunks."""
    await client.say(opus(duration_ms // 2))
    await client.say(opus(duration_ms // 2), is_final=True)


async def last_words(company: Company, name: str, client: Traveller) -> Message:
    """Ask for the end of a session that was closed; returns the coverage."""
    socket = await company[name].newcomer()
    await socket.send("session_resume", **client.claim())
    ack = await socket.expect("session_close_ack")
    coverage: Message = ack["coverage"]
    return coverage


def test_delivered_failed_and_open_speech_is_whole_after_a_move() -> None:
    async def scenario(company: Company) -> None:
        node = await company["B"].node()
        client = await Traveller.at(company, "A")
        for index in range(4):
            await say(client, 600)
            job = await node.job(utterance_index=index)
            if index == 1:
                await node.fail(job, "ASR_FAILED")
            elif index < 3:
                await node.answer(job)
        await heard_all(client, 3)
        await client.come_back("B")
        await node.answer(job)
        await heard_all(client, 4)
        await say(client, 600)
        await node.answer(await node.job(utterance_index=4))
        await heard_all(client, 5)
        ack = await client.socket.bye()
        check(company, "AB", ack["coverage"], delivered=2400, failed=600)

    play(scenario)


@pytest.mark.parametrize("when", ["cut", "outcome", "waits"])
def test_whatever_the_moment_of_the_kill_every_utterance_is_in_the_account(when: str) -> None:
    async def scenario(company: Company) -> None:
        node = await company["B"].node()
        client = await Traveller.at(company, "A")
        await say(client, 600)
        await say(client, 400)
        first, second = await node.job(utterance_index=0), await node.job(utterance_index=1)
        await until(lambda: client.acknowledged[0] == 3, "both are accepted")
        if when == "waits":
            await node.answer(second)  # it is in the store, behind the first
            await until(lambda: company.field("job", second["job_id"], "outcome"), "it ended")
        await company["A"].crash()
        if when == "outcome":
            await node.answer(first)
            await until(lambda: company.field("job", first["job_id"], "outcome"), "it ended")
        await client.come_back("B")
        for job in (first, second):
            await node.answer(job)
        await heard_all(client, 2)
        check(company, "AB", (await client.socket.bye())["coverage"], delivered=1000)

    play(scenario, cells=1)


def test_there_and_back_again_counts_nothing_twice() -> None:
    async def scenario(company: Company) -> None:
        node = await company["C"].node()
        node.work()
        client = await Traveller.at(company, "A")
        for number, name in enumerate("BABCACB"):
            await say(client, 200 + 40 * number)
            if number % 2:
                await heard_all(client, number + 1)
            await client.come_back(name)
        await heard_all(client, 7)
        check(company, "ABC", (await client.socket.bye())["coverage"], delivered=2240)

    play(scenario, "ABC")


def test_refused_and_expired_speech_is_failed_speech_after_a_move() -> None:
    async def scenario(company: Company) -> None:
        client = await Traveller.at(company, "A")
        await client.socket.utter(0)
        await client.socket.expect("utterance_accepted")
        await client.socket.utter(1)
        await client.socket.expect("error", code="BUSY")
        await client.come_back("B")
        await heard_all(client, 2)
        assert client.outcomes() == [(0, "expired"), (1, "failed")]
        node = await company["A"].node()
        node.work()
        # Its place was filled: what comes next has the next one.
        await client.socket.utter(2)
        await client.socket.result(2)
        ack = await client.socket.bye()
        check(company, "AB", ack["coverage"], delivered=100, failed=200)

    play(scenario, jobs__pending_jobs_max=1, jobs__pending_ms=500)


@pytest.mark.parametrize("moves_after", [0, 1, 2, 3])
def test_several_languages_count_once_and_with_the_best(moves_after: int) -> None:
    async def scenario(company: Company) -> None:
        node = await company["B"].node()
        client = await Traveller.at(company, "A", tgt_langs=["en", "ja", "es"])
        for seq, duration_ms in ((1, 600), (3, 400)):
            await say(client, duration_ms)
            await until(lambda seq=seq: client.acknowledged[0] == seq, "it is accepted")
        jobs = [await node.job() for _ in range(6)]
        first = {job["tgt_lang"]: job for job in jobs if job["utterance_index"] == 0}
        second = {job["tgt_lang"]: job for job in jobs if job["utterance_index"] == 1}
        for number, language in enumerate(("ja", "en", "es")):
            if number == moves_after:
                await client.come_back("B")
            if language == "en":
                await node.answer(first[language])
            else:
                await node.fail(first[language], "ASR_FAILED")
            await node.fail(second[language], "ASR_FAILED")
            done = first[language]["job_id"]
            await until(lambda done=done: company.field("job", done, "outcome"), "it ended")
        if moves_after == 3:
            await client.come_back("B")
        await heard_all(client, 6)
        ack = await client.socket.bye()
        check(company, "AB", ack["coverage"], delivered=600, failed=400)

    play(scenario, cells=1)


def test_silence_that_the_client_was_told_of_is_in_the_account() -> None:
    async def scenario(company: Company) -> None:
        node = await company["B"].node()
        node.work()
        client = await Traveller.at(company, "A", **PCM)
        for said in (1, 2):
            for _ in range(15):
                await client.say(bytes(3200))
            for number in range(5):
                await client.say(voice(100, level=9000 + number), is_final=number == 4)
            await heard_all(client, said)
        for _ in range(15):
            await client.say(bytes(3200))
        await until(lambda: client.acknowledged[0] > 41, "some of it is told to be silence")
        await company["A"].crash()
        await client.come_back("B")
        for number in range(5):
            await client.say(voice(100, level=9000 + number), is_final=number == 4)
        await heard_all(client, 3)
        coverage = (await client.socket.bye())["coverage"]
        jobs = [m for m in client.heard if m["type"] == "utterance_accepted"]
        spoken = sum(m["end_ms"] - m["start_ms"] for m in jobs)
        whole = 100 * len(client.said)
        check(company, "AB", coverage, delivered=spoken, silent=whole - spoken)

    play(scenario, segmentation__pause_ms=5000)


def test_a_session_that_a_survivor_ended_is_told_and_counted_exactly() -> None:
    async def scenario(company: Company) -> None:
        node = await company["B"].node()
        client = await Traveller.at(company, "A")
        await say(client, 600)
        await node.answer(await node.job())
        await heard_all(client, 1)
        await say(client, 400)
        await node.job(utterance_index=1)
        await until(lambda: client.acknowledged[0] == 3, "both are accepted")
        await company["A"].crash()
        await until(lambda: company.field("session", client.id, "closed"), "a survivor closed it")
        coverage = await last_words(company, "B", client)
        check(company, "AB", coverage, delivered=600, skipped=400)

    play(scenario, cells=1, sessions__resume_ms=2000, sessions__lease_ms=1000)


def test_who_asks_again_after_the_end_is_told_the_same() -> None:
    async def scenario(company: Company) -> None:
        node = await company["B"].node()
        node.work()
        client = await Traveller.at(company, "A", **PCM)
        for _ in range(10):
            await client.say(bytes(3200))
        for number in range(5):
            await client.say(voice(100, level=9000 + number), is_final=number == 4)
        await heard_all(client, 1)
        await client.come_back("B")
        for _ in range(10):
            await client.say(bytes(3200))
        told = (await client.socket.bye())["coverage"]
        assert told["admitted_ms"] == 2500
        assert await last_words(company, "A", client) == told

    play(scenario, segmentation__pause_ms=5000)


def test_speech_that_needed_no_job_is_in_the_account_after_a_move() -> None:
    async def scenario(company: Company) -> None:
        node = await company["B"].node()
        node.work()
        client = await Traveller.at(company, "A")
        listener = await company["B"].client(src="zh", tgt="en")
        await say(client, 400)
        await heard_all(client, 1)
        await client.socket.ask("room_create", preferred_lang="zh")
        code = (await client.socket.expect("room_create_ack"))["room_code"]
        await listener.ask("room_join", room_code=code, preferred_lang="zh")
        await listener.expect("room_members")
        await until(
            lambda: len(client.socket.all("room_members")[-1]["members"]) == 2, "both are there"
        )
        # Who listens speaks this language: nothing is to be translated.
        await say(client, 600)
        await until(lambda: client.acknowledged[0] == 3, "it is accepted")
        await client.come_back("B")
        ack = await client.socket.bye()
        assert len(node.jobs) == 1
        await listener.bye()
        check(company, "AB", ack["coverage"], delivered=400, skipped=600)

    play(scenario)
