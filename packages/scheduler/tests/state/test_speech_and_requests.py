"""The account of a session's speech in the store, and named requests."""

from __future__ import annotations

import pytest

from lingua_scheduler.state.records import (
    JobSpec,
    LaneFill,
    SessionOpening,
    Speech,
    Unsettled,
    answered_by,
    job_id_of,
)
from lingua_scheduler.state.reply import Reply
from state.test_owners import FIELDS, Owned, scene, server
from state.test_replies_produced import UNSERVED, WANTED, job

__all__ = ["server"]
pytestmark = pytest.mark.store

SAID = {"ms": 600, "lanes": 1}
# Two languages of one utterance.
BOTH = {"ms": 1000, "lanes": 2}


async def say(s: Owned, index: int, lane: str = "es", **more: object) -> str:
    """Submit a job; return its id."""
    name = job_id_of("s", f"{index}/{lane}")
    spec = JobSpec(session="s", index=index, lane=lane, demand=WANTED, **more)
    answer = await s.store.jobs.submit(s.cell, name, spec, b"")
    assert answer.placement is not None
    return name


async def end(s: Owned, name: str, kind: str = "completed") -> None:
    answer = await s.store.jobs.settle(s.cell, name, 1, "n", kind=kind)
    assert answer.reply is Reply.SETTLED


async def speech(s: Owned) -> Speech:
    found = await s.store.sessions.speech(s.cell, "s")
    assert found is not None
    return found


# Fates.


@scene
async def test_the_end_of_a_job_is_counted_by_its_fate(s: Owned) -> None:
    await s.opened()
    await s.node(slots=3)
    for index, kind in enumerate(("completed", "completed_no_text", "failed", "completed")):
        await end(s, await say(s, index, **SAID), kind)
        await s.store.outbox.ack(s.cell, "s", str(s.store.runner.now_ms), index + 1)
    assert await speech(s) == Speech(delivered=1200, silent=600, failed=600)


@scene
async def test_what_waits_for_its_turn_is_counted_when_it_ends(s: Owned) -> None:
    await s.opened()
    await s.node(slots=3)
    first, second = await say(s, 0, **SAID), await say(s, 1, **SAID)
    await end(s, second)
    assert (await speech(s)).delivered == 600
    resumed = await s.back()
    # The first lives; the second waits for it and is in the sums.
    assert resumed.speech.delivered == 600
    assert resumed.unsettled == (Unsettled(0, 600, 1, 4, ()),)
    await end(s, first)
    assert (await speech(s)).delivered == 1200


@scene
async def test_refused_and_answered_places_are_counted_and_holes_are_not(s: Owned) -> None:
    await s.opened()
    await s.store.outbox.fill_lane(s.cell, "s", "es", index=0, answer=LaneFill(ms=300))
    again = LaneFill("completed", answered_by(job(7)), 1, "-", b"heard", 400, 1)
    await s.store.outbox.fill_lane(s.cell, "s", "es", index=1, answer=again)
    await s.store.outbox.fill_lane(s.cell, "s", "es", index=3, answer=LaneFill(ms=50))
    s.store.runner.now_ms += 20_000
    await s.store.outbox.fill_lane(s.cell, "s", "es")
    assert await speech(s) == Speech(delivered=400, failed=350)
    page = await s.store.outbox.read(s.cell, "s")
    kinds = [(entry.kind, entry.utterance, entry.job, entry.payload) for entry in page.entries]
    assert kinds[:2] == [("missing", 0, "-", b""), ("completed", 1, f"={job(7)}", b"heard")]
    assert [kind[:2] for kind in kinds[2:]] == [("missing", 2), ("missing", 3)]
    # The job whose answer it was has not become this session's.
    assert (await s.store.requests.find(s.cell, job(7), "s")).reply is Reply.NO_JOB


@scene
async def test_an_utterance_in_two_languages_counts_once_and_with_the_best(s: Owned) -> None:
    await s.opened()
    await s.node(slots=4)
    spanish, french = await say(s, 0, **BOTH), await say(s, 0, "fr", **BOTH)
    await end(s, spanish, "failed")
    assert sum((await speech(s))[:4]) == 0
    assert (await s.back()).unsettled == (Unsettled(0, 1000, 2, 4, ("es",)),)
    await end(s, french)
    assert await speech(s) == Speech(delivered=1000)
    assert (await s.back()).unsettled == ()


@scene
async def test_the_end_of_a_session_ends_every_account(s: Owned) -> None:
    await s.opened()
    await s.node(slots=4)
    await end(s, await say(s, 0, **BOTH))  # its other language was never submitted
    await say(s, 1, **SAID)
    fields = {"silent": 70, "passed": "30 20"}
    closed = await s.store.sessions.close(s.cell, "s", "bye", fields=fields)
    told = Speech(delivered=1000, skipped=600, passed=30, passed_in_stream=20, silence=70)
    assert closed.speech == await speech(s) == told


@scene
async def test_silence_follows_from_where_the_client_stands(s: Owned) -> None:
    await s.opened()
    await s.node(slots=2)
    heard = {"heard": 9, "heard_ms": 1000, "speech": 600, "top": 1, "fence": 1}
    await say(s, 0, **SAID, **heard)
    found = (await s.back()).speech
    assert (found.in_stream, found.heard_ms, found.silence_at(1000)) == (600, 1000, 400)
    assert found.silence_at(1700) == 1100
    assert found.silence_at(0) == 0


@scene
async def test_an_owner_brings_its_sums_to_a_store_that_forgot_them(s: Owned) -> None:
    opening = SessionOpening(5, fields=FIELDS, ended="600 0 0 100")
    await s.store.sessions.open(s.cell, "s", "one", opening=opening)
    assert await speech(s) == Speech(delivered=600, failed=100)
    # One that went back has less of some and more of others.
    await s.store.outbox.fill_lane(s.cell, "s", "es", index=0, answer=LaneFill(ms=300))
    again = SessionOpening(5, restart=True, fields=FIELDS, ended="900 0 0 100")
    await s.store.sessions.open(s.cell, "s", "one", opening=again)
    assert await speech(s) == Speech(delivered=900, failed=400)


@scene
async def test_nothing_is_known_of_the_speech_of_no_session(s: Owned) -> None:
    assert await s.store.sessions.speech(s.cell, "s") is None


# Requests.


@scene
async def test_a_named_request_keeps_its_answer_and_another_does_not(s: Owned) -> None:
    _, epoch, _ = await s.opened()
    await s.node(slots=4)
    await s.submit(0, sound="abc", also=("fr",))
    await s.submit(1)
    living = await s.store.requests.find(s.cell, job(0), "s")
    assert (living.outcome, living.spec.also) == ("", ("fr",))
    for index in (0, 1):
        await s.store.jobs.settle(s.cell, job(index), 1, "n", kind="completed", payload=b"hello")
    await s.store.outbox.ack(s.cell, "s", epoch, 2)
    found = await s.store.requests.find(s.cell, job(0), "s")
    assert (found.state, found.outcome, found.seq, found.answer) == (
        "RELEASED", "completed", 1, b"hello",
    )  # fmt: skip
    assert (await s.store.requests.find(s.cell, job(1), "s")).answer == b""


@scene
async def test_a_duplicate_says_whose_it_is(s: Owned) -> None:
    await s.opened()
    await s.node()
    await s.submit(0, sound="abc")
    again = await s.submit(0, sound="other")
    assert again.reply is Reply.DUPLICATE
    assert (again.known.session, again.known.index, again.known.sound) == ("s", 0, "abc")


@scene
async def test_a_request_that_was_cancelled_with_its_session_is_tried_anew(s: Owned) -> None:
    await s.opened()
    await s.node(slots=2)
    await s.submit(0, sound="abc")
    await s.store.sessions.close(s.cell, "s", "lapsed")
    assert (await s.store.requests.find(s.cell, job(0), "s")).reply is Reply.NO_JOB
    await s.store.sessions.open(s.cell, "t", "one")
    spec = JobSpec(session="t", index=0, lane="es", demand=WANTED, sound="abc")
    answer = await s.store.jobs.submit(s.cell, job(0), spec, b"")
    # Not under an attempt that a node may still work on.
    assert (answer.reply, answer.placement.attempt) == (Reply.PLACED, 2)
    late = await s.store.jobs.settle(s.cell, job(0), 1, "n", kind="completed")
    assert late.reply is Reply.STALE_ATTEMPT
    ended = await s.store.jobs.settle(s.cell, job(0), 2, "n", kind="completed", payload=b"x")
    assert ended.reply is Reply.SETTLED
    assert (await s.store.requests.find(s.cell, job(0), "s")).answer == b"x"
    left = await s.connection.command(s.cell.slot, "PTTL", s.cell.key("job", job(0)))
    assert left > 0


@scene
async def test_a_living_job_that_is_tried_anew_has_no_time_to_live(s: Owned) -> None:
    await s.opened()
    await s.node()
    await s.submit(0, sound="abc")
    await s.store.sessions.close(s.cell, "s", "lapsed")
    await s.store.nodes.offline(s.cell, "n", "c")
    await s.store.sessions.open(s.cell, "t", "one")
    spec = JobSpec(session="t", index=0, lane="es", demand=WANTED, sound="abc")
    assert (await s.store.jobs.submit(s.cell, job(0), spec, b"")).reply is Reply.QUEUED
    key = s.cell.key("job", job(0))
    assert await s.connection.command(s.cell.slot, "PTTL", key) == -1
    assert await s.connection.command(s.cell.slot, "HMGET", key, "outcome", "node") == [None, None]


@scene
async def test_a_request_that_was_refused_in_the_end_is_tried_anew(s: Owned) -> None:
    s.under(refuse_unserved_pairs=True)
    await s.opened()
    await s.submit(0, UNSERVED, park=1, sound="abc")
    refused = await s.store.jobs.place(s.cell, job(0))
    assert refused.reply is Reply.SETTLED
    assert (await s.store.requests.find(s.cell, job(0), "s")).reply is Reply.NO_JOB
    # But an utterance that nobody named keeps its one outcome.
    await s.submit(1, UNSERVED, park=1)
    await s.store.jobs.place(s.cell, job(1))
    assert (await s.submit(1, UNSERVED)).reply is Reply.DUPLICATE


@scene
async def test_the_first_cell_that_asks_for_a_request_has_it(s: Owned) -> None:
    bind = s.store.requests.bind
    assert await bind(s.cell, job(0)) == ("", 0)
    assert await bind(s.cell, job(0), "c1") == ("c1", 0)
    s.store.runner.now_ms += 4000
    assert await bind(s.cell, job(0), "c2") == ("c1", 4000)
    # Asked for it, c1 has no such job; it has a while to get it.
    assert await bind(s.cell, job(0), "c2", instead_of="c1") == ("c1", 4000)
    s.store.runner.now_ms += 1000
    assert await bind(s.cell, job(0), "c2", instead_of="c3") == ("c1", 5000)
    assert await bind(s.cell, job(0), "c2", instead_of="c1") == ("c2", 0)
    assert await bind(s.cell, job(0)) == ("c2", 0)
