"""Where the store keeps audio until the outcome: in the record of the only job, or once for all.

Jobs of one language that were submitted by the release before this one share a copy with nobody.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
import pytest

from lingua_scheduler.state.records import JobSpec, Submitted
from lingua_scheduler.state.reply import Reply
from servers import Server
from state.test_owners import Owned, scene, server
from state.test_replies_produced import POLICY, UNSERVED, WANTED, job

__all__ = ["server"]
pytestmark = pytest.mark.store

SOUND = b"\0\1" * 100
OWN = JobSpec(session="s", index=0, lane="es", demand=WANTED, own_audio=True)
SHARED = msgspec.structs.replace(OWN, own_audio=False, audio=True)
COMMANDS = ("hset", "hdel", "hlen", "del", "hget", "hmget", "pexpire")


async def submit(
    s: Owned, spec: JobSpec = OWN, audio: bytes = SOUND, *, park: int = 0
) -> Submitted:
    name = job(spec.index)
    return await s.store.jobs.submit(s.cell, name, spec, b"body", audio=audio, park=park)


async def own_audio(s: Owned, index: int = 0) -> bytes | None:
    """The audio in a job's record."""
    key = s.cell.key("job", job(index))
    return await s.connection.command(s.cell.slot, "HGET", key, "audio")


async def shared_copies(s: Owned) -> list[bytes]:
    return await s.connection.command(s.cell.slot, "KEYS", s.cell.key("audio", "*"))


async def fetched(s: Owned, attempt: int = 1, node: str = "n") -> bytes:
    found = await s.store.jobs.fetch(s.cell, job(0), attempt, node)
    assert found.reply is Reply.OK
    bare = await s.store.jobs.fetch(s.cell, job(0), attempt, node, audio=False)
    assert bare == found._replace(audio=b"")
    return found.audio


async def commands(s: Owned) -> dict[str, int]:
    """How often the server ran some commands so far."""
    counts = dict.fromkeys(COMMANDS, 0)
    for line in (await s.connection.command(s.cell.slot, "INFO", "commandstats")).splitlines():
        name, found, rest = line.decode().removeprefix("cmdstat_").partition(":calls=")
        if found and name in counts:
            counts[name] = int(rest.split(",")[0])
    return counts


# Until the outcome.


@pytest.mark.parametrize(
    ("slots", "park", "reply"),
    [(1, 0, Reply.PLACED), (0, 0, Reply.QUEUED), (0, 1, Reply.PARKED)],
)
def test_the_audio_of_one_language_is_in_the_record(
    server: Server, slots: int, park: int, reply: Reply
) -> None:
    @scene
    async def play(s: Owned) -> None:
        await s.opened()
        if slots:
            await s.node()
        assert (await submit(s, park=park)).reply is reply
        assert await own_audio(s) == SOUND
        assert await shared_copies(s) == []

    play(server)


@scene
async def test_a_job_that_waited_and_one_that_moves_keep_their_audio(s: Owned) -> None:
    await s.opened()
    await submit(s)
    await s.node()  # takes what waits
    assert await fetched(s) == SOUND
    await s.node("second")
    moved = await s.store.jobs.failover(s.cell, job(0), 1, node="n", reason="PROCESSING_ERROR")
    assert moved.placement is not None
    assert await fetched(s, 2, "second") == SOUND


@scene
async def test_several_languages_share_one_copy_until_the_last_has_ended(s: Owned) -> None:
    await s.opened()
    await s.node(slots=2)
    spec = msgspec.structs.replace(SHARED, lanes=2)
    rows = [
        (job(at), msgspec.structs.replace(spec, lane=lane), b"body", 0)
        for at, lane in enumerate(("es", "xx"))
    ]
    await s.store.jobs.submit_all(s.cell, rows, SOUND)
    (key,) = await shared_copies(s)
    assert await s.connection.command(s.cell.slot, "HVALS", key) == [SOUND, b"", b""]
    for at, left in ((0, 1), (1, 0)):
        assert await own_audio(s, at) is None
        answer = await s.store.jobs.settle(s.cell, job(at), 1, "n", kind="completed")
        assert answer.reply is Reply.SETTLED
        assert await own_audio(s, at) is None
        assert len(await shared_copies(s)) == left


@scene
async def test_audio_in_the_record_takes_no_command(s: Owned) -> None:
    await s.opened()
    await s.node()
    await submit(s)
    await settled(s)  # everything is known from here on
    spent = []
    for index, spec in enumerate((msgspec.structs.replace(OWN, own_audio=False), OWN), 1):
        before = await commands(s)
        await submit(s, msgspec.structs.replace(spec, index=index), SOUND if index == 2 else b"")
        await settled(s, index)
        after = await commands(s)
        spent.append({name: after[name] - before[name] for name in COMMANDS})
    assert spent[0] == spent[1]
    assert (spent[0]["hlen"], spent[0]["del"]) == (0, 0)


# The end.


async def settled(s: Owned, index: int = 0) -> None:
    answer = await s.store.jobs.settle(s.cell, job(index), 1, "n", kind="completed", payload=b"x")
    assert answer.reply is Reply.SETTLED


async def settled_out_of_order(s: Owned) -> None:
    """An index before it has no outcome yet."""
    await settled(s)
    key = s.cell.key("job", job(0))
    assert await s.connection.command(s.cell.slot, "HGET", key, "state") == b"FINISHED"


async def cancelled(s: Owned) -> None:
    await s.store.jobs.cancel(s.cell, job(0), "unwanted")


async def expired(s: Owned) -> None:
    await s.store.nodes.offline(s.cell, "n", "c")
    await s.store.jobs.failover(s.cell, job(0), 1, node="n", reason="node_lost")
    s.store.runner.now_ms += POLICY.pending_ms
    moved = await s.store.jobs.failover(s.cell, job(0), 1, reason="deadline")
    assert moved.reply is Reply.SETTLED


async def tried_too_often(s: Owned) -> None:
    await s.node("second")
    await s.store.jobs.failover(s.cell, job(0), 1, node="n", reason="PROCESSING_ERROR")
    moved = await s.store.jobs.failover(s.cell, job(0), 2, node="second", reason="PROCESSING_ERROR")
    assert moved.reply is Reply.SETTLED


async def closed(s: Owned) -> None:
    await s.store.sessions.close(s.cell, "s", "bye")


End = Callable[[Owned], Awaitable[None]]
ENDS: tuple[End, ...] = (
    settled,
    settled_out_of_order,
    cancelled,
    expired,
    tried_too_often,
    closed,
)
LAYOUTS = {
    "own": OWN,
    "own and named": msgspec.structs.replace(OWN, sound="a digest"),
    "former": SHARED,
}


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
@pytest.mark.parametrize("spec", LAYOUTS.values(), ids=LAYOUTS)
def test_audio_is_gone_when_its_job_has_ended(server: Server, end: End, spec: JobSpec) -> None:
    """Also that of the release before, which has a key of its own."""

    @scene
    async def play(s: Owned) -> None:
        await s.opened()
        await s.node()
        if end is settled_out_of_order:
            spec_later = msgspec.structs.replace(spec, index=1)
            answer = await s.store.jobs.submit(s.cell, job(0), spec_later, b"body", audio=SOUND)
        else:
            answer = await submit(s, spec)
        assert answer.reply is Reply.PLACED
        assert await fetched(s) == SOUND
        assert len(await shared_copies(s)) == spec.audio
        await end(s)
        key = s.cell.key("job", job(0))
        state, answer = await s.connection.command(s.cell.slot, "HMGET", key, "state", "answer")
        assert state in (b"RELEASED", b"FINISHED")
        if spec.sound and end in (settled, settled_out_of_order):
            assert answer == b"x"
        assert await own_audio(s) == (b"" if spec.own_audio else None)
        assert await shared_copies(s) == []

    play(server)


@pytest.mark.parametrize("spec", LAYOUTS.values(), ids=LAYOUTS)
def test_audio_of_a_job_that_nobody_may_wait_for_is_gone(server: Server, spec: JobSpec) -> None:
    @scene
    async def play(s: Owned) -> None:
        s.under(refuse_unserved_pairs=True)
        await s.opened()
        await submit(s, msgspec.structs.replace(spec, demand=UNSERVED), park=1)
        assert (await s.store.jobs.place(s.cell, job(0))).reply is Reply.SETTLED
        assert not await own_audio(s)
        assert await shared_copies(s) == []

    play(server)


# The same request again.


@pytest.mark.parametrize("audio", [b"other", b""])
@pytest.mark.parametrize("has_node", [True, False])
@pytest.mark.parametrize("is_left", [True, False])
def test_a_request_that_is_tried_anew_has_the_audio_it_came_with(
    server: Server, audio: bytes, has_node: bool, is_left: bool
) -> None:
    """`is_left`: the release before ended the job, and left the audio in its record."""

    @scene
    async def play(s: Owned) -> None:
        await s.opened()
        await s.node(slots=2)
        spec = msgspec.structs.replace(OWN, sound="a digest")
        await submit(s, spec)
        await s.store.sessions.close(s.cell, "s", "lapsed")
        key = s.cell.key("job", job(0))
        if is_left:
            await s.connection.command(s.cell.slot, "HSET", key, "audio", "left")
        if not has_node:
            await s.store.nodes.offline(s.cell, "n", "c")
        await s.store.sessions.open(s.cell, "t", "one")
        answer = await submit(s, msgspec.structs.replace(spec, session="t"), audio)
        assert answer.reply is (Reply.PLACED if has_node else Reply.QUEUED)
        assert await own_audio(s) == audio
        if has_node:
            assert await fetched(s, 2) == audio

    play(server)


@pytest.mark.parametrize("has_node", [True, False])
def test_a_request_that_is_tried_anew_without_own_audio_has_none(
    server: Server, has_node: bool
) -> None:
    @scene
    async def play(s: Owned) -> None:
        await s.opened()
        await s.node()
        await submit(s, msgspec.structs.replace(OWN, sound="a digest"))
        await s.store.sessions.close(s.cell, "s", "lapsed")
        key = s.cell.key("job", job(0))
        await s.connection.command(s.cell.slot, "HSET", key, "audio", "left")
        if not has_node:
            await s.store.nodes.offline(s.cell, "n", "c")
        await s.store.sessions.open(s.cell, "t", "one")
        again = msgspec.structs.replace(SHARED, session="t", sound="a digest")
        await submit(s, again, b"other")
        assert await own_audio(s) is None
        if has_node:
            assert await fetched(s, 2) == b"other"

    play(server)


# The release before.


@scene
async def test_audio_that_the_release_before_stored_is_found_and_removed(s: Owned) -> None:
    """Written by hand, as it did: a key for the utterance, whatever the number of languages."""
    await s.opened()
    await s.node()
    await submit(s, SHARED, b"")
    key = s.cell.key("audio", "s|0")
    await s.connection.command(s.cell.slot, "HSET", key, "audio", SOUND, job(0), "")
    assert await fetched(s) == SOUND
    await settled(s)
    assert await shared_copies(s) == []
