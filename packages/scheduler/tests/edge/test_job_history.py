"""An operator finds out what happened to one utterance: over HTTP, and from the log."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from edge import many_servers
from edge.live_server import NewClient, NewNode, Stage, opus, play, until
from lingua_cli.logs import FIELDS

if TYPE_CHECKING:
    from edge.many_servers import Company

pytestmark = pytest.mark.store

Line = dict[str, Any]


async def history(stage: Stage, of: str) -> list[Line]:
    async with (
        aiohttp.ClientSession() as http,
        http.get(f"{stage.server.url}/api/v1/history", params={"of": of}) as answer,
    ):
        assert answer.status == 200, await answer.text()
        found: list[Line] = (await answer.json())["jobs"]
        return found


def lines(caplog: pytest.LogCaptureFixture) -> list[Line]:
    """Return what was logged of jobs: event and fields."""
    return [
        {"event": record.msg, **record.__dict__[FIELDS]}
        for record in caplog.records
        if record.name == "lingua.jobs"
    ]


def of(caplog: pytest.LogCaptureFixture, event: str) -> list[Line]:
    return [line for line in lines(caplog) if line["event"] == event]


async def moved_once(stage: Stage) -> tuple[NewClient, NewNode, NewNode, Line]:
    """An utterance that its first node returns and its second node has."""
    first = await stage.node("first")
    client = await stage.client(trace_id="trace-1")
    await client.utter(0)
    job = await first.job()
    second = await stage.node("second")
    await first.fail(job, "NMT_TIMEOUT", "the words 'good morning' took long", said="good morning")
    return client, first, second, await second.job()


def test_a_job_is_found_in_every_way_while_it_lives_and_after_its_end() -> None:
    async def scenario(stage: Stage) -> None:
        client, _, second, job = await moved_once(stage)
        ways = (job["job_id"], f"{client.id}:0", job["trace_id"])
        for way in ways:
            (shown,) = await history(stage, way)
            assert (shown["state"], shown["node"], shown["attempt"]) == ("assigned", "second", 2)
            assert (shown["outcome"], shown["ended_at_ms"]) == ("", None)
            assert shown["deadline_at_ms"] > shown["created_at_ms"]
            assert [one["reason"] for one in shown["attempts"]] == ["NMT_TIMEOUT", ""]
        await second.answer(job)
        await client.result(0)
        await client.bye()
        for way in ways:
            (shown,) = await history(stage, way)
            assert (shown["state"], shown["outcome"]) == ("completed", "completed")
            assert (shown["session"], shown["utterance_index"]) == (client.id, 0)
            assert (shown["lane"], shown["trace"]) == ("en", "trace-1")
            first, last = shown["attempts"]
            assert (first["node"], first["attempt"], first["reason"]) == ("first", 1, "NMT_TIMEOUT")
            assert (last["node"], last["attempt"], last["reason"]) == ("second", 2, "completed")
            assert first["left_at_ms"] == first["placed_at_ms"] + first["lasted_ms"]
            assert shown["created_at_ms"] <= first["left_at_ms"] <= last["placed_at_ms"]
            assert last["left_at_ms"] == shown["ended_at_ms"]
            parts = dict(shown["timeline"])
            assert parts.pop("total_ms") == sum(parts.values())
        assert await history(stage, "nothing-of-the-kind") == []
        assert await history(stage, "job-" + "0" * 32) == []

    play(scenario)


def test_each_language_of_an_utterance_is_a_job_of_its_own() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        client = await stage.client(tgt="", tgt_langs=["en", "ja"])
        await client.say(opus(600), is_final=True)
        jobs = [await node.job(), await node.job()]
        shown = await history(stage, f"{client.id}:0")
        assert {one["lane"] for one in shown} == {job["tgt_lang"] for job in jobs}

    play(scenario)


def test_any_instance_tells_of_a_job_by_its_id_also_after_its_end() -> None:
    async def scenario(company: Company) -> None:
        node = await company["A"].node("n1")
        client = await company["A"].client()
        await client.utter(0)
        job = await node.job()
        (shown,) = await history(company["B"], f"{client.id}:0")
        assert (shown["id"], shown["node"]) == (job["job_id"], "n1")
        await node.fail(job, "UNSUPPORTED_FEATURE")
        await client.expect("missing_result")
        (shown,) = await history(company["B"], job["job_id"])
        assert (shown["outcome"], shown["reason"]) == ("failed", "UNSUPPORTED_FEATURE")
        assert shown["timeline"] is None

    many_servers.play(scenario)


# The log.

WHO = ("session", "trace", "job", "utterance", "lane")


def test_the_usual_case_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        client = await stage.client()
        await client.utter(0)
        await node.answer(await node.job())
        await client.result(0)

    with caplog.at_level(logging.DEBUG):
        play(scenario)
    assert lines(caplog) == []


def test_a_move_and_an_end_without_result_are_lines_that_say_which_utterance(
    caplog: pytest.LogCaptureFixture,
) -> None:
    found: Line = {}

    async def scenario(stage: Stage) -> None:
        client, _, second, job = await moved_once(stage)
        await second.fail(job, "he said good morning")
        await client.expect("missing_result", utterance_index=0)
        found.update(session=client.id, trace="trace-1", job=job["job_id"], utterance=0, lane="en")

    with caplog.at_level(logging.INFO):
        play(scenario)
    for line in lines(caplog):
        assert {name: line[name] for name in WHO} == found
    (moved,) = of(caplog, "job.moved")
    assert (moved["node"], moved["to"], moved["attempt"]) == ("first", "second", 1)
    assert (moved["reason"], moved["becomes"]) == ("NMT_TIMEOUT", "placed")
    assert moved["held_ms"] >= 0
    codes = [(line["node"], line["code"]) for line in of(caplog, "job.node_error")]
    assert codes == [("first", "NMT_TIMEOUT"), ("second", "unreadable")]
    (ended,) = of(caplog, "job.ended")
    assert (ended["outcome"], ended["reason"], ended["attempt"]) == (
        "failed",
        "PROCESSING_ERROR",
        2,
    )
    assert ended["total_ms"] >= 0
    assert "good morning" not in json.dumps(lines(caplog))


def test_a_nodes_words_are_logged_only_if_asked_for_and_up_to_where_they_quote(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(stage: Stage) -> None:
        _, _, second, job = await moved_once(stage)
        await second.answer(job)

    with caplog.at_level(logging.INFO):
        play(scenario, log__node_errors="words")
    (error,) = of(caplog, "job.node_error")
    assert error["says"] == "the words"


def test_a_job_that_waits_in_vain_is_told_with_its_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.utter(0)
        await client.expect("missing_result", reason="expired")

    with caplog.at_level(logging.INFO):
        play(scenario, jobs__pending_ms=200, log__jobs="all")
    (queued,) = of(caplog, "job.queued")
    assert (queued["code"], queued["reason"]) == ("NO_POOL_FOR_LANG_PAIR", "no_nodes")
    (waited,) = of(caplog, "job.moved")
    assert (waited["node"], waited["reason"], waited["becomes"]) == ("", "pending_timeout", "ended")
    (ended,) = of(caplog, "job.ended")
    assert (ended["outcome"], ended["reason"]) == ("expired", "pending_timeout")


def test_a_job_that_is_not_taken_is_told_as_refused(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.utter(0)
        await client.expect("missing_result", utterance_index=0)

    with caplog.at_level(logging.INFO):
        play(scenario, jobs__refuse_unserved_pairs=True)
    (refused,) = of(caplog, "job.refused")
    assert (refused["code"], refused["reason"]) == ("NO_POOL_FOR_LANG_PAIR", "no_nodes")
    assert {refused[name] for name in ("utterance", "lane")} == {0, "en"}


def test_all_steps_are_told_where_that_is_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node("n1", max_jobs=1)
        client = await stage.client()
        await client.utter(0)
        job = await node.job()
        await client.utter(1)
        await until(lambda: of(caplog, "job.queued"), "the second one waits")
        await node.answer(job)
        await node.answer(await node.job())
        await client.result(1)

    with caplog.at_level(logging.INFO):
        play(scenario, log__jobs="all")
    first, second = of(caplog, "job.placed")
    assert (first["node"], first["how"], len(first["pool"])) == ("n1", "pool", 12)
    assert second["how"] == "was_waiting"
    looked = [(line["node"], line["why"]) for line in of(caplog, "job.looked")]
    assert looked == [("n1", "load_0"), ("n1", "full")]
    assert [line["outcome"] for line in of(caplog, "job.ended")] == ["completed", "completed"]
    assert all(line["total_ms"] >= line["node_ms"] for line in of(caplog, "job.ended"))


def test_who_moves_a_job_of_others_says_which_utterance_it_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(company: Company) -> None:
        first = await company["A"].node("first")
        client = await company["B"].client(trace_id="trace-2")
        await client.utter(0)
        await first.job()
        second = await company["B"].node("second")
        first.drop()
        await second.answer(await second.job())
        await client.result(0)
        await until(lambda: of(caplog, "job.moved"), "it is told")

    with caplog.at_level(logging.INFO):
        many_servers.play(scenario)
    moved = of(caplog, "job.moved")[0]
    assert (moved["trace"], moved["utterance"], moved["lane"]) == ("trace-2", 0, "en")
    assert (moved["node"], moved["to"], moved["reason"]) == ("first", "second", "node_lost")


def test_neither_speech_nor_its_text_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(stage: Stage) -> None:
        first = await stage.old_node("first")
        client = await stage.old_client(pairing_code=None, trace_id="t")
        await client.say(opus(600, b"SPEECH"), is_final=True)
        job = await first.job()
        second = await stage.old_node("second")
        await first.fail(job, "MODEL_NOT_AVAILABLE", "very private message", service_id="nmt-1")
        await second.answer(await second.job(), "very private words")
        await client.result(0)
        await client.send("unheard_of", text="very private nonsense")
        await client.expect("error", code="INVALID_MESSAGE")
        await first.send("node_error", node_id=first.id, code="X", message="very private error")
        await client.bye()

    with caplog.at_level(logging.DEBUG):
        play(scenario)
    assert "node.registered" in caplog.text
    lines = "\n".join(f"{record.getMessage()} {record.__dict__}" for record in caplog.records)
    for private in ("very private", "U1BFRUNI", "SPEECH"):
        assert private not in lines
