"""Ownership of sessions: one owner at a time, and the data for the next one.

Each answer of the scripts about ownership has a scenario of its own, on a real server; the model in
`tests/model` runs them in any order. Nodes that change instance, and jobs that are read by the
instance of their node, are here too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

import servers
from lingua_scheduler.state.link import LinkOptions
from lingua_scheduler.state.records import (
    Claim,
    JobSpec,
    NodeAbout,
    NodeReply,
    ResumedSession,
    SessionOpening,
    Speech,
)
from lingua_scheduler.state.reply import Reply
from lingua_scheduler.state.single import SingleConnection
from servers import Server
from state.test_replies_produced import CAN, WANTED, Scene, job

pytestmark = pytest.mark.store

FIELDS = ("token", "secret", "about", b"\x81\xff", "top", 0)
KEEP_MS = 5000


class Owned(Scene):
    """A scene whose session has a token and two instances that want it."""

    async def opened(self, owner: str = "one", **how: object) -> tuple[Reply, str, int]:
        opening = SessionOpening(**{"fields": FIELDS} | how)
        return await self.store.sessions.open(self.cell, "s", owner, opening=opening)

    async def back(
        self, owner: str = "two", token: str = "secret", tenant: str = "", **where: object
    ) -> ResumedSession:
        claim = Claim(token, **{"epoch": "", "last_seq": 0} | where)
        return await self.store.sessions.resume(
            self.cell, "s", owner, tenant=tenant, lease_ms=60_000, claim=claim
        )

    async def outcomes(self, count: int) -> None:
        for index in range(count):
            await self.store.outbox.fill_lane(self.cell, "s", "es", index=index)

    async def contents(self) -> list[object]:
        """Everything the cell holds but its clock."""
        names = await self.connection.command(self.cell.slot, "KEYS", self.cell.base + "*")
        held = sorted(set(names) - {self.cell.key("clock").encode()})
        return [await self.connection.command(self.cell.slot, "DUMP", key) for key in held]

    async def held(self, **spec: object) -> None:
        """A job on node `n`."""
        await self.opened()
        await self.node()
        words = {"session": "s", "index": 0, "lane": "es", "demand": WANTED, "audio": True} | spec
        answer = await self.store.jobs.submit(
            self.cell, job(0), JobSpec(**words), b"body", audio=b"\0\1"
        )
        assert answer.reply is Reply.PLACED

    async def register(
        self, boot: str = "b", conn: str = "other", instance: str = "two", *, again: bool = False
    ) -> NodeReply:
        about = NodeAbout(instance=instance, max=1, silence_ms=6000, again=again)
        return await self.store.nodes.register(
            self.cell, "n", boot, conn=conn, can=CAN.packed(), about=about
        )


Play = Callable[[Owned], Awaitable[None]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with servers.start_server(tmp_path_factory.mktemp("owners")) as started:
        yield started


def scene(play: Play) -> Callable[[Server], None]:
    """Make a test of a scenario on an empty server."""

    async def run(server: Server) -> None:
        connection = await SingleConnection.open(
            server.address, LinkOptions(call_timeout_ms=10_000)
        )
        try:
            await connection.every_master("FLUSHALL")
            await play(Owned(connection))
        finally:
            await connection.close()

    def test(server: Server) -> None:
        asyncio.run(run(server))

    test.__name__ = play.__name__
    return test


# Opening.


@scene
async def test_an_open_session_is_not_taken_over_by_opening_it(s: Owned) -> None:
    await s.opened()
    assert await s.opened("two") == (Reply.FENCED, "one", 0)
    assert await s.opened("two", fence=1) == (Reply.FENCED, "one", 0)


@scene
async def test_an_owner_whose_answer_was_lost_gets_it_again(s: Owned) -> None:
    first = await s.opened()
    assert first == (Reply.OPENED, "1000000", 1)
    assert await s.opened() == (Reply.RESUMED, "1000000", 1)


@scene
async def test_a_session_of_another_tenant_is_not_opened_even_when_closed(s: Owned) -> None:
    await s.opened()
    for _ in range(2):
        answer = await s.store.sessions.open(s.cell, "s", "one", tenant="acme")
        assert answer == (Reply.FENCED, "tenant", 0)
        await s.store.sessions.close(s.cell, "s", "bye")


@scene
async def test_an_owner_that_has_a_higher_fence_than_the_store_is_believed(s: Owned) -> None:
    """The store lost the take-over: who took over has the proof."""
    await s.opened()
    assert (await s.opened("two", fence=2))[::2] == (Reply.RESUMED, 2)
    assert (await s.opened("one", fence=1))[0] is Reply.FENCED


@scene
async def test_an_instance_that_lost_a_session_to_itself_has_lost_it(s: Owned) -> None:
    """Its client came back on another socket: what the old one still does is a former owner's."""
    await s.opened()
    await s.back("one")
    assert await s.opened(fence=1) == (Reply.FENCED, "one", 0)


@scene
async def test_an_emptied_store_takes_the_owners_fence(s: Owned) -> None:
    assert await s.opened("two", fence=7) == (Reply.OPENED, "1000000", 7)


@scene
async def test_whoever_had_a_closed_session_does_not_pass_for_its_next_owner(s: Owned) -> None:
    """Both once had the same fence, so the former owner's speech entered the new session."""
    _, _, former = await s.opened()
    await s.store.sessions.close(s.cell, "s", "lapsed")
    reply, _, fence = await s.opened("two")
    assert (reply, fence) == (Reply.OPENED, former + 1)
    assert (await s.submit(fence=former)).reply is Reply.FENCED
    assert (await s.opened("one", fence=former))[0] is Reply.FENCED


@scene
async def test_an_owner_opens_its_own_closed_session_again_and_may_ask_twice(s: Owned) -> None:
    _, epoch, fence = await s.opened()
    await s.store.sessions.close(s.cell, "s", "lapsed")
    first = await s.opened(fence=fence)
    assert first == (Reply.OPENED, str(int(epoch) + 1), fence)
    assert await s.opened(fence=fence) == (Reply.RESUMED, *first[1:])


@scene
async def test_positions_start_over_with_what_was_not_acknowledged(s: Owned) -> None:
    _, epoch, fence = await s.opened()
    await s.outcomes(3)
    await s.store.outbox.ack(s.cell, "s", epoch, 1)
    reply, new, _ = await s.opened(fence=fence, restart=True)
    assert (reply, int(new)) == (Reply.RESUMED, int(epoch) + 1)
    page = await s.store.outbox.read(s.cell, "s", epoch=new)
    assert [(row.seq, row.utterance) for row in page.entries] == [(1, 1), (2, 2)]
    await s.store.outbox.fill_lane(s.cell, "s", "es", index=3)
    page = await s.store.outbox.read(s.cell, "s", epoch=new, after_seq=2)
    assert [(row.seq, row.utterance) for row in page.entries] == [(3, 3)]


@scene
async def test_what_an_owner_says_when_it_opens_again_is_what_the_next_one_is_told(
    s: Owned,
) -> None:
    """The store went back: what it has of the speech is older than what was heard."""
    await s.opened()
    told = ("token", "secret", "top", 5, "heard", 40, "heard_ms", 800)
    await s.opened(fence=1, restart=True, fields=told)
    resumed = await s.back()
    assert (resumed.next_index, resumed.heard, resumed.heard_ms) == (5, 40, 800)


# Coming back.


@scene
async def test_a_client_comes_back_to_another_instance(s: Owned) -> None:
    _, epoch, _ = await s.opened()
    await s.node(slots=3)
    spoken = {"turn": "t", "is_slice": True, "fence": 1, "heard": 9, "heard_ms": 180}
    await s.submit(0, **spoken, top=1)
    await s.submit(1, **spoken | {"heard": 19}, top=2)
    await s.store.outbox.fill_lane(s.cell, "s", "fr", index=0)
    resumed = await s.back(epoch=epoch, last_seq=1)
    assert resumed == ResumedSession(
        Reply.RESUMED, epoch, 2, "one", b"\x81\xff", heard=19, heard_ms=180, next_index=2,
        last_seq=1, lanes=(("es", 2), ("fr", 1)), open=(0, 1), turns=("t",),
        speech=Speech(heard_ms=180),
    )  # fmt: skip


@scene
async def test_a_session_of_which_nothing_was_heard_says_so(s: Owned) -> None:
    await s.opened(fields=("token", "secret"))
    resumed = await s.back()
    assert (resumed.about, resumed.heard, resumed.next_index, resumed.lanes) == (b"", -1, 0, ())


@scene
async def test_coming_back_keeps_the_session_from_lapsing(s: Owned) -> None:
    await s.opened()
    s.store.runner.now_ms += 50_000
    await s.back()
    s.store.runner.now_ms += 50_000
    closed, _, _ = await s.store.sessions.close(s.cell, "s", "lapsed", lapse_only=True)
    assert closed.reply is Reply.NOT_DUE


@scene
async def test_only_the_token_and_the_tenant_of_a_session_open_it(s: Owned) -> None:
    await s.opened()
    before = await s.contents()
    for wrong in ({"token": "guess"}, {"token": ""}, {"tenant": "acme"}):
        assert (await s.back(**wrong)).reply is Reply.FENCED
    # Not even that it is closed is told to others.
    assert await s.contents() == before
    await s.store.sessions.close(s.cell, "s", "bye")
    assert (await s.back(token="guess")).reply is Reply.FENCED
    assert (await s.back()).reply is Reply.SESSION_CLOSED


@scene
async def test_a_session_without_a_token_cannot_be_resumed(s: Owned) -> None:
    await s.session()
    assert (await s.back(token="")).reply is Reply.FENCED


@scene
async def test_nobody_comes_back_to_a_session_that_is_not_there(s: Owned) -> None:
    assert (await s.back()).reply is Reply.NO_SESSION


@scene
async def test_a_position_before_what_is_kept_is_refused(s: Owned) -> None:
    _, epoch, _ = await s.opened()
    await s.outcomes(2)
    await s.store.outbox.ack(s.cell, "s", epoch, 2)
    before = await s.contents()
    assert (await s.back(epoch=epoch, last_seq=1)).reply is Reply.TRIMMED
    assert await s.contents() == before
    assert (await s.back(epoch=epoch, last_seq=2)).reply is Reply.RESUMED


@scene
async def test_a_position_before_what_the_client_has_confirmed_is_no_loss(s: Owned) -> None:
    """It asked here first, and then received and confirmed more on its former socket."""
    _, epoch, fence = await s.opened()
    await s.outcomes(3)
    who = {"fence": fence, "is_confirmed": True}
    assert await s.store.outbox.ack(s.cell, "s", epoch, 2, **who) is Reply.OK
    resumed = await s.back(epoch=epoch, last_seq=1)
    assert (resumed.reply, resumed.epoch, resumed.last_seq) == (Reply.RESUMED, epoch, 3)
    # What it confirmed in a former epoch says nothing about the places of this one.
    anew = (await s.back(epoch=epoch, last_seq=9)).epoch
    assert anew != epoch
    assert await s.store.outbox.ack(s.cell, "s", anew, 1) is Reply.OK
    assert (await s.back(epoch=anew, last_seq=0)).reply is Reply.TRIMMED


@scene
async def test_a_position_ahead_of_the_store_starts_a_new_epoch(s: Owned) -> None:
    """The client has outcomes that the store lost: the same numbers must not be given again."""
    _, epoch, _ = await s.opened()
    await s.outcomes(2)
    await s.store.outbox.ack(s.cell, "s", epoch, 1)
    resumed = await s.back(epoch=epoch, last_seq=3)
    assert (int(resumed.epoch), resumed.last_seq) == (int(epoch) + 1, 1)
    page = await s.store.outbox.read(s.cell, "s", epoch=resumed.epoch)
    assert [(row.seq, row.utterance) for row in page.entries] == [(1, 1)]
    again = await s.back(epoch=epoch, last_seq=3)
    assert (again.reply, again.epoch) == (Reply.RESUMED, resumed.epoch)


@scene
async def test_every_take_over_has_another_fence_even_by_the_same_instance(s: Owned) -> None:
    await s.opened()
    assert [(await s.back(owner)).fence for owner in ("two", "two", "one")] == [2, 3, 4]


# What was heard.


@scene
async def test_speech_that_ends_at_the_very_start_of_the_audio_is_noted(s: Owned) -> None:
    """A zero is not sent; the submit must not fail half-way when it is missing."""
    await s.opened()
    answer = await s.submit(0, fence=1, top=1, heard=0, heard_ms=0)
    assert answer.reply is Reply.QUEUED
    resumed = await s.back()
    assert (resumed.heard, resumed.heard_ms, resumed.next_index) == (0, 0, 1)


@scene
async def test_a_late_language_does_not_put_back_what_was_heard(s: Owned) -> None:
    await s.opened()
    s.under(pending_jobs_max=4)
    await s.submit(1, top=2, heard=19, heard_ms=380)
    late = JobSpec(session="s", index=0, lane="fr", demand=WANTED, top=1, heard=9, heard_ms=180)
    assert (await s.store.jobs.submit(s.cell, job(9), late, b"")).reply is Reply.QUEUED
    resumed = await s.back()
    assert (resumed.heard, resumed.heard_ms, resumed.next_index) == (19, 380, 2)


# Former owners.


async def submits(s: Owned, fence: int) -> Reply:
    return (await s.submit(1, fence=fence)).reply


async def fills(s: Owned, fence: int) -> Reply:
    return (await s.store.outbox.fill_lane(s.cell, "s", "es", index=1, fence=fence)).reply


async def acknowledges(s: Owned, fence: int) -> Reply:
    epoch = (await s.store.outbox.read(s.cell, "s")).epoch
    return await s.store.outbox.ack(s.cell, "s", epoch, 1, fence=fence)


async def closes(s: Owned, fence: int) -> Reply:
    return (await s.store.sessions.close(s.cell, "s", "bye", fence=fence))[0].reply


async def ends_a_turn(s: Owned, fence: int) -> Reply:
    return (await s.store.sessions.end_turn(s.cell, "s", "t", fence=fence)).reply


async def notes(s: Owned, fence: int) -> Reply:
    return await s.store.sessions.note(s.cell, "s", fence, {"about": b"mine"})


DONE = {
    submits: Reply.PLACED,
    fills: Reply.SETTLED,
    acknowledges: Reply.OK,
    closes: Reply.SETTLED,
    ends_a_turn: Reply.SETTLED,
    notes: Reply.OK,
}


@pytest.mark.parametrize("act", DONE, ids=lambda act: act.__name__)
def test_a_former_owner_is_refused_changes_nothing_and_the_owner_may(server: Server, act) -> None:
    @scene
    async def play(s: Owned) -> None:
        await s.opened()
        await s.node(slots=2)
        await s.store.outbox.fill_lane(s.cell, "s", "es", index=0)
        await s.submit(2, turn="t", is_slice=True)
        resumed = await s.back()
        before = await s.contents()
        for fence in (resumed.fence - 1, resumed.fence + 1):
            assert await act(s, fence) is Reply.FENCED
        assert await s.contents() == before
        assert await act(s, resumed.fence) is DONE[act]

    play(server)


@scene
async def test_a_note_about_no_session_makes_none(s: Owned) -> None:
    assert await notes(s, 1) is Reply.NO_SESSION
    assert await s.contents() == []


@scene
async def test_a_note_is_what_the_next_owner_is_told(s: Owned) -> None:
    await s.opened()
    await notes(s, 1)
    assert (await s.back()).about == b"mine"


# Jobs that the instance of their node reads.


@scene
async def test_a_job_is_read_with_its_audio_and_the_owner_of_its_session(s: Owned) -> None:
    await s.held(turn="t", is_slice=True)
    await s.back()
    got = await s.store.jobs.fetch(s.cell, job(0), 1, "n")
    assert (got.reply, got.body, got.audio, got.owner) == (Reply.OK, b"body", b"\0\1", "two")
    assert got.spec == JobSpec(
        session="s", index=0, lane="es", demand=WANTED, audio=True, turn="t", is_slice=True
    )
    bare = await s.store.jobs.fetch(s.cell, job(0), 1, "n", audio=False)
    assert bare == got._replace(audio=b"")


@scene
async def test_only_the_holder_of_a_job_reads_it(s: Owned) -> None:
    async def fetch(attempt: int, node: str, of: int = 0, boot: str = "") -> Reply:
        return (await s.store.jobs.fetch(s.cell, job(of), attempt, node, boot)).reply

    await s.held()
    assert await fetch(1, "n", of=5) is Reply.NO_JOB
    assert await fetch(2, "n") is Reply.STALE_ATTEMPT
    assert await fetch(1, "thief") is Reply.NODE_MISMATCH
    # A process that came after the holder under its name is another node.
    assert await fetch(1, "n", boot="b2") is Reply.NODE_MISMATCH
    assert await fetch(1, "n", boot="b") is Reply.OK
    await s.fail()
    # Nobody holds it now.
    assert await fetch(1, "") is Reply.STALE_ATTEMPT
    await s.store.jobs.cancel(s.cell, job(0), "unwanted")
    assert await fetch(1, "n") is Reply.JOB_ENDED


# Nodes that change instance.


@scene
async def test_whoever_finds_an_instance_dead_takes_its_nodes_offline(s: Owned) -> None:
    await s.held()
    assert (await s.store.nodes.offline(s.cell, "n", instance="two")).reply is Reply.FENCED
    gone = await s.store.nodes.offline(s.cell, "n", instance="i")
    assert [lease.job for lease in gone.lost] == [job(0)]
    # It is said once: the timer sees to the rest.
    assert (await s.store.nodes.offline(s.cell, "n", instance="i")).reply is Reply.FENCED


@scene
async def test_a_node_that_has_come_back_elsewhere_is_not_its_dead_instances(s: Owned) -> None:
    await s.held()
    await s.register(instance="two")
    assert (await s.store.nodes.offline(s.cell, "n", instance="i")).reply is Reply.FENCED
    assert (await s.store.nodes.offline(s.cell, "n", "c")).reply is Reply.FENCED


@scene
async def test_nobody_is_taken_offline_who_is_not_known(s: Owned) -> None:
    assert (await s.store.nodes.offline(s.cell, "n", instance="i")).reply is Reply.NO_NODE


@scene
async def test_a_node_that_was_asked_to_go_elsewhere_keeps_its_jobs_for_a_while(s: Owned) -> None:
    await s.held()
    asked = await s.store.nodes.offline(s.cell, "n", "c", keep_ms=KEEP_MS)
    assert (asked.reply, asked.lost) == (Reply.OK, ())
    s.store.runner.now_ms += KEEP_MS - 1
    assert "n|n" not in await s.store.cells.due(s.cell)
    back = await s.register()
    assert (back.reply, back.lost) == (Reply.RESUMED, ())
    assert [lease.job for lease in back.held] == [job(0)]
    assert (await s.settle()).reply is Reply.SETTLED


@scene
async def test_a_node_that_does_not_come_back_in_time_loses_its_jobs(s: Owned) -> None:
    await s.held()
    await s.store.nodes.offline(s.cell, "n", "c", keep_ms=KEEP_MS)
    s.store.runner.now_ms += KEEP_MS
    assert "n|n" in await s.store.cells.due(s.cell)
    assert [lease.job for lease in (await s.store.nodes.check(s.cell, "n")).lost] == [job(0)]


@scene
async def test_what_a_fenced_process_left_is_not_told_as_held_by_its_successor(s: Owned) -> None:
    await s.held()
    fresh = await s.register("b2")
    assert (fresh.reply, fresh.held) == (Reply.REGISTERED, ())
    again = await s.register("b2", conn="a third")
    assert (again.reply, again.held) == (Reply.RESUMED, ())
    assert [lease.job for lease in again.lost] == [job(0)]


@scene
async def test_a_socket_that_registers_again_does_not_take_the_place_of_a_newer_one(
    s: Owned,
) -> None:
    await s.held()
    await s.register(conn="newer")
    before = await s.contents()
    assert (await s.register(conn="c", instance="i", again=True)).reply is Reply.FENCED
    assert await s.contents() == before
    assert (await s.register(conn="newer", again=True)).reply is Reply.RESUMED


@scene
async def test_a_socket_registers_again_in_a_store_that_has_forgotten_its_node(s: Owned) -> None:
    assert (await s.register(again=True)).reply is Reply.REGISTERED
