"""Streams in the store: who hears an utterance while it is being spoken, and until when."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import servers
from lingua_scheduler.nodes.capability import Declared, capability
from lingua_scheduler.state.link import LinkOptions
from lingua_scheduler.state.packing import pack
from lingua_scheduler.state.records import JobSpec, NodeAbout, NodeBeat
from lingua_scheduler.state.reply import Reply
from lingua_scheduler.state.single import SingleConnection
from lingua_scheduler.state.stream_scripts import (
    RENEWED_AT_ONCE,
    STREAM_LEASE_MS,
    StreamAnswer,
    StreamSpec,
)
from state.test_replies_produced import CAN, UNSERVED, WANTED, Scene, job

pytestmark = pytest.mark.store

BROADER = capability(
    Declared(services={"asr": (), "nmt": (), "tts": ()}, pairs=(("en", "es"), ("en", "fr")))
)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with servers.start_server(tmp_path_factory.mktemp("streams")) as started:
        yield started


@pytest.fixture
def play(server):
    def played(story: Callable[[Listening], Awaitable[None]]) -> None:
        asyncio.run(told(story))

    async def told(story: Callable[[Listening], Awaitable[None]]) -> None:
        connection = await SingleConnection.open(
            server.address, LinkOptions(call_timeout_ms=10_000)
        )
        try:
            await connection.every_master("FLUSHALL")
            scene = Listening(connection)
            await scene.session()
            await story(scene)
        finally:
            await connection.close()

    return played


class Listening(Scene):
    """A scene whose nodes hear streams."""

    async def hearer(
        self, name: str = "n", streams: int = 2, slots: int = 1, boot: str = "b", **more: object
    ) -> None:
        """Add a node; `can`, `conn` and `instance` may differ."""
        known = {"can": CAN, "conn": f"conn-{name}", "instance": "i", **more}
        about = NodeAbout(
            instance=str(known["instance"]), max=slots, silence_ms=6000, streams=streams
        )
        await self.store.nodes.register(
            self.cell, name, boot, conn=known["conn"], can=known["can"].packed(), about=about
        )
        await self.beat(name, boot)

    async def beat(self, name: str = "n", boot: str = "b", **more: object) -> None:
        await self.store.nodes.beat(self.cell, name, boot, NodeBeat(**more))

    async def open(self, stream: str = "str-0", park: int = 0, **more: object) -> StreamAnswer:
        spec = {"session": "s", "lane": "es", "demand": WANTED, **more}
        return await self.store.streams.open(self.cell, stream, StreamSpec(**spec), park=park)

    async def heard_by(self, stream: str = "str-0", **more: object) -> str:
        answer = await self.open(stream, **more)
        return answer.stream.node if answer.stream is not None else answer.label

    async def renew(self, *streams: tuple[str, str]) -> list[str]:
        return await self.store.streams.renew(self.cell, streams)

    async def close(self, stream: str = "str-0", node: str = "n") -> bool:
        return await self.store.streams.close(self.cell, node, stream)

    async def say(self, stream: str = "str-0", node: str = "n", index: int = 0, **more: object):
        return await self.submit(index, stream=stream, stream_node=f"c0/{node}", **more)

    def pass_ms(self, ms: int) -> None:
        self.store.runner.now_ms += ms

    async def used(self, node: str = "n") -> tuple[int, int]:
        rows = await self.store.cells.nodes(self.cell)
        return next((row.streams, row.streams_max) for row in rows if row.node == node)

    async def leased(self, node: str = "n") -> int:
        rows = await self.store.cells.nodes(self.cell)
        return next(row.leased for row in rows if row.node == node)

    async def pool(self, node: str = "n") -> str:
        rows = await self.store.cells.nodes(self.cell)
        return next(row.pool for row in rows if row.node == node)

    async def keys(self) -> set[str]:
        """Return the keys about streams, without the base."""
        found = await self.connection.command(self.cell.slot, "KEYS", f"{self.cell.base}stream*")
        return {key.decode().removeprefix(self.cell.base) for key in found}


# Opening.


def test_a_stream_is_heard_by_a_node_and_takes_no_slot(play) -> None:
    async def story(s: Listening) -> None:
        await s.hearer()
        answer = await s.open()
        assert answer.reply is Reply.STREAM_OPENED
        opened = answer.stream
        assert opened.holder == "c0/n"
        assert opened.instance == "i"
        assert opened.expires_at_ms == s.store.runner.now_ms + STREAM_LEASE_MS
        assert await s.used() == (1, 2)
        assert await s.leased() == 0

    play(story)


def test_a_repeated_opening_has_the_same_answer(play) -> None:
    async def story(s: Listening) -> None:
        await s.hearer()
        await s.hearer("m")
        first = await s.open()
        s.pass_ms(100)
        assert await s.open() == first
        assert sum([(await s.used(node))[0] for node in "nm"]) == 1

    play(story)


def test_a_node_that_declares_no_streams_hears_none(play) -> None:
    async def story(s: Listening) -> None:
        await s.hearer(streams=0)
        answer = await s.open()
        assert (answer.reply, answer.label) == (Reply.NO_AVAILABLE_NODE, "no_free_stream")
        assert not await s.keys()

    play(story)


def test_a_node_full_of_jobs_hears_streams_and_one_full_of_streams_takes_jobs(play) -> None:
    async def story(s: Listening) -> None:
        await s.hearer(streams=1)
        await s.submit(0)
        assert await s.heard_by() == "n"
        assert await s.heard_by("str-1") == "no_free_stream"
        await s.settle(0)
        assert (await s.submit(1)).placement.node == "n"

    play(story)


def test_streams_go_to_the_node_with_the_lowest_share_of_its_streams(play) -> None:
    async def story(s: Listening) -> None:
        await s.hearer("n", streams=4)
        await s.hearer("m", streams=2)
        heard = [await s.heard_by(f"str-{number}") for number in range(6)]
        assert {node: heard.count(node) for node in "nm"} == {"n": 4, "m": 2}
        assert await s.heard_by("str-6") == "no_free_stream"
        await s.close("str-1", heard[1])
        assert await s.heard_by("str-7") == heard[1]

    play(story)


def test_narrow_pools_and_nodes_of_the_own_instance_come_first(play) -> None:
    async def story(s: Listening) -> None:
        await s.hearer("broad", streams=9, can=BROADER)
        await s.hearer("far", streams=4, instance="j")
        await s.hearer("near", streams=4)
        assert [await s.heard_by(f"str-{n}") for n in range(3)] == ["near", "far", "near"]
        for number in range(3, 8):
            assert await s.heard_by(f"str-{number}") in ("near", "far")
        assert await s.heard_by("str-8") == "broad"

    play(story)


@pytest.mark.parametrize("state", ["over", "draining", "offline", "not ready"])
def test_a_node_that_gets_no_work_gets_no_stream(play, state: str) -> None:
    async def story(s: Listening) -> None:
        await s.hearer()
        if state == "over":
            await s.beat(over=True)
        elif state == "draining":
            await s.store.nodes.drain(s.cell, "n", drain=True)
        elif state == "offline":
            await s.store.nodes.offline(s.cell, "n", "conn-n")
        else:
            for _ in range(3):
                await s.beat(good=False)
        assert await s.heard_by() == "no_free_stream"
        assert await s.heard_by(preferred="n") == "no_free_stream"

    play(story)


def test_the_turns_node_comes_first_then_the_preferred_one(play) -> None:
    async def story(s: Listening) -> None:
        for node in ("k", "m", "n"):
            await s.hearer(node, streams=1, slots=2)
        await s.submit(0, turn="t", preferred="m")
        assert await s.heard_by("str-0", turn="t", preferred="n") == "m"
        assert await s.heard_by("str-1", turn="t", preferred="n") == "n"
        assert await s.heard_by("str-2", turn="t", preferred="n") == "k"

    play(story)


def test_a_preferred_node_must_be_able_to_do_the_work(play) -> None:
    async def story(s: Listening) -> None:
        await s.hearer()
        answer = await s.open(preferred="n", demand=UNSERVED)
        assert answer.reply is Reply.NO_POOL_FOR_LANG_PAIR
        assert await s.heard_by(preferred="nobody") == "n"

    play(story)


def test_only_the_preferred_node_is_asked_if_so_wanted(play) -> None:
    async def story(s: Listening) -> None:
        await s.hearer()
        await s.hearer("m")
        elsewhere = {"session": "", "preferred": "m", "only": True}
        assert await s.heard_by("str-0", **elsewhere) == "m"
        assert await s.heard_by("str-1", **elsewhere) == "m"
        assert await s.heard_by("str-2", **elsewhere) == "no_free_stream"

    play(story)


def test_a_spread_session_is_heard_by_another_node_than_its_last(play) -> None:
    async def story(s: Listening) -> None:
        s.under(spread=True)
        await s.hearer("m", slots=2)
        await s.hearer("n", slots=2)
        last = (await s.submit(0)).placement.node
        other = "n" if last == "m" else "m"
        assert [await s.heard_by("str-0"), await s.heard_by("str-1")] == [other, other]
        assert await s.heard_by("str-2") == last

    play(story)


def test_nodes_of_other_cells_are_asked_first(play) -> None:
    async def story(s: Listening) -> None:
        await s.hearer()
        turn = f"{s.cell.base}session:s"
        await s.connection.command(s.cell.slot, "HSET", turn, "turn:t", "c7/far")
        answer = await s.open(turn="t", park=1)
        assert (answer.label, answer.affinity) == ("affinity_elsewhere", "c7/far")
        assert (await s.open(park=2)).label == "affinity_elsewhere"
        assert await s.heard_by(turn="t") == "n"

    play(story)


def test_refusals_name_what_is_wrong_with_the_session(play) -> None:
    async def story(s: Listening) -> None:
        await s.hearer()
        assert (await s.open(session="nobody")).reply is Reply.NO_SESSION
        assert (await s.open(fence=9)).reply is Reply.FENCED
        assert (await s.open(fence=1)).reply is Reply.STREAM_OPENED
        await s.store.sessions.close(s.cell, "s", "bye")
        assert (await s.open("str-1")).reply is Reply.SESSION_CLOSED

    play(story)


# Renewal and end.


def test_a_stream_lives_as_long_as_it_is_renewed(play) -> None:
    async def story(s: Listening) -> None:
        await s.hearer(streams=1)
        await s.open()
        for _ in range(4):
            s.pass_ms(STREAM_LEASE_MS - 2000)
            assert await s.renew(("n", "str-0")) == []
            await s.beat()
            assert await s.heard_by("str-1") == "no_free_stream"
        s.pass_ms(STREAM_LEASE_MS)
        assert await s.renew(("n", "str-0"), ("nobody", "str-9")) == ["str-0", "str-9"]

    play(story)


def test_many_streams_are_renewed_in_several_calls(play) -> None:
    async def story(s: Listening) -> None:
        await s.hearer(streams=1)
        await s.open()
        strangers = [("n", f"no-{number}") for number in range(RENEWED_AT_ONCE)]
        assert await s.renew(*strangers, ("n", "str-0")) == [stream for _, stream in strangers]

    play(story)


def test_an_expired_stream_does_not_count(play) -> None:
    async def story(s: Listening) -> None:
        await s.hearer(streams=1)
        await s.open()
        s.pass_ms(STREAM_LEASE_MS)
        assert await s.used() == (0, 1)
        # By name at once, by rank after the node's next beat.
        assert await s.heard_by("str-1", preferred="n") == "n"
        s.pass_ms(STREAM_LEASE_MS)
        await s.beat()
        assert await s.keys() == {"streaming:" + (await s.pool()), "stream:str-0", "stream:str-1"}
        assert await s.heard_by("str-2") == "n"

    play(story)


def test_a_closed_stream_is_closed_once_and_leaves_nothing(play) -> None:
    async def story(s: Listening) -> None:
        await s.hearer(streams=1)
        await s.open()
        assert [await s.close(), await s.close()] == [True, False]
        assert await s.keys() == {"streaming:" + (await s.pool())}
        assert await s.heard_by("str-1") == "n"

    play(story)


# The job that follows.


def test_a_late_end_for_a_former_node_does_not_touch_the_present_one(play) -> None:
    async def story(s: Listening) -> None:
        await s.hearer("a", streams=1)
        assert await s.heard_by() == "a"
        await s.store.nodes.offline(s.cell, "a", "conn-a")
        await s.hearer("b", streams=2)
        assert await s.heard_by() == "b"
        await s.hearer("c", streams=2)
        assert not await s.close(node="a")
        # It is still open, and found again instead of being opened twice.
        assert await s.heard_by() == "b"
        assert [await s.used(node) for node in "bc"] == [(1, 2), (0, 2)]

    play(story)


def test_a_job_goes_to_the_node_that_heard_it_and_ends_its_stream(play) -> None:
    async def story(s: Listening) -> None:
        await s.hearer("m", slots=4)
        await s.hearer("n", slots=4)
        for index, node in enumerate("nmn"):
            stream = f"str-{index}"
            await s.open(stream, preferred=node)
            placed = (await s.say(stream, node, index)).placement
            assert (placed.node, placed.how) == (node, "stream")
            assert await s.used(node) == (0, 2)
            assert await s.close(stream, node) is False

    play(story)


def test_the_turns_node_comes_before_the_stream_and_the_stream_before_the_preferred_one(
    play,
) -> None:
    async def story(s: Listening) -> None:
        await s.hearer("turns", slots=2)
        await s.hearer("hears", slots=1)
        await s.hearer("liked", slots=1)
        await s.submit(0, turn="t", preferred="turns")
        more = {"turn": "t", "preferred": "liked"}
        placed = [(await s.say("str-0", "hears", index, **more)).placement for index in (1, 2, 3)]
        assert [p.node for p in placed] == ["turns", "hears", "liked"]
        assert [p.how for p in placed] == ["turn", "stream", "preferred"]

    play(story)


def test_a_node_that_heard_but_is_full_or_gone_loses_only_the_head_start(play) -> None:
    async def story(s: Listening) -> None:
        await s.hearer("n", slots=1)
        await s.hearer("m", slots=2)
        await s.open("str-0", preferred="n")
        await s.open("str-1", preferred="n")
        await s.submit(0, preferred="n")
        assert (await s.say("str-0", "n", 1)).placement.node == "m"
        await s.store.nodes.offline(s.cell, "n", "conn-n")
        assert (await s.say("str-1", "n", 2)).placement.node == "m"

    play(story)


@pytest.mark.parametrize(
    ("answer", "more"),
    [
        (Reply.NO_SESSION, {"session": "nobody"}),
        (Reply.FENCED, {"fence": 9}),
        (Reply.IN_FLIGHT_LIMIT, {"index": 9}),
        (Reply.QUEUED, {"demand": UNSERVED}),
        (Reply.PARKED, {"demand": UNSERVED, "park": 1}),
        (Reply.DUPLICATE, {"number": 3}),
    ],
    ids=lambda value: value.name if isinstance(value, Reply) else "",
)
def test_a_submit_ends_its_stream_whatever_the_answer(play, answer: Reply, more: dict) -> None:
    async def story(s: Listening) -> None:
        await s.hearer()
        await s.submit(3)
        await s.open()
        spec = {"session": "s", "index": 0, "lane": "es", "demand": WANTED, **more}
        park, number = spec.pop("park", 0), spec.pop("number", 5)
        told = JobSpec(**spec, stream="str-0", stream_node="c0/n")
        submitted = await s.store.jobs.submit(s.cell, job(number), told, b"", park=park)
        assert submitted.reply is answer
        assert await s.used() == (0, 2)
        assert await s.keys() == {"streaming:" + (await s.pool())}

    play(story)


def test_all_languages_of_an_utterance_go_to_the_node_that_heard_it(play) -> None:
    async def story(s: Listening) -> None:
        await s.hearer("m", slots=9)
        await s.hearer("n", slots=2)
        await s.open(preferred="n")
        told = [
            (
                job(number),
                JobSpec(
                    session="s", index=0, lane=lane, demand=WANTED, stream="str-0",
                    stream_node="c0/n",
                ),
                b"",
                0,
            )
            for number, lane in enumerate(("es", "es-419"))
        ]  # fmt: skip
        answers = await s.store.jobs.submit_all(s.cell, told)
        assert [answer.placement.node for answer in answers] == ["n", "n"]
        assert await s.used() == (0, 2)

    play(story)


def test_a_job_without_a_stream_packs_as_before() -> None:
    plain = JobSpec(session="s", index=0, lane="es", demand=WANTED)
    assert b"stream" not in pack(plain)


# Nodes.


def test_a_lost_socket_ends_the_streams_of_the_node(play) -> None:
    async def story(s: Listening) -> None:
        await s.hearer()
        await s.open()
        await s.store.nodes.offline(s.cell, "n", "conn-n", keep_ms=3000)
        assert await s.keys() == {"stream:str-0"}
        assert await s.renew(("n", "str-0")) == ["str-0"]

    play(story)


@pytest.mark.parametrize("boot", ["b", "b2"])
def test_another_socket_of_a_node_has_none_of_its_streams(play, boot: str) -> None:
    async def story(s: Listening) -> None:
        await s.hearer()
        await s.open()
        await s.hearer(boot=boot, conn="another")
        assert await s.used() == (0, 2)
        assert await s.renew(("n", "str-0")) == ["str-0"]

    play(story)


def test_the_same_socket_keeps_its_streams_and_may_take_fewer(play) -> None:
    async def story(s: Listening) -> None:
        await s.hearer(streams=2)
        await s.open("str-0")
        await s.open("str-1")
        await s.hearer(streams=1)
        assert await s.used() == (2, 1)
        await s.close("str-0")
        assert await s.heard_by("str-2") == "no_free_stream"
        await s.hearer(streams=0)
        assert await s.keys() == {"stream:str-1"}

    play(story)


def test_a_silent_node_loses_its_streams_and_one_that_is_forgotten_leaves_nothing(play) -> None:
    async def story(s: Listening) -> None:
        await s.hearer()
        await s.open()
        s.pass_ms(6000)
        assert (await s.store.nodes.check(s.cell, "n")).status == "offline"
        assert await s.keys() == {"stream:str-0"}
        s.pass_ms(600_000)
        assert (await s.store.nodes.check(s.cell, "n")).reply is Reply.GONE
        assert await s.keys() == {"stream:str-0"}
        assert await s.connection.command(s.cell.slot, "PTTL", s.cell.key("stream", "str-0")) > 0

    play(story)


def test_a_node_ranks_in_the_pool_of_its_present_abilities(play) -> None:
    async def story(s: Listening) -> None:
        await s.hearer()
        before = await s.pool()
        await s.store.nodes.beat(s.cell, "n", "b", NodeBeat(), BROADER.packed())
        assert await s.keys() == {"streaming:" + (await s.pool())}
        assert await s.pool() != before
        await s.store.nodes.mark(s.cell, "n", "nmt")
        assert await s.heard_by() == "model_not_available"

    play(story)


def test_a_draining_node_forgets_what_expired(play) -> None:
    async def story(s: Listening) -> None:
        await s.hearer()
        await s.open()
        await s.store.nodes.drain(s.cell, "n", drain=True)
        assert await s.renew(("n", "str-0")) == []
        s.pass_ms(STREAM_LEASE_MS)
        await s.beat()
        assert await s.keys() == {"stream:str-0"}
        await s.store.nodes.drain(s.cell, "n", drain=False)
        assert await s.heard_by("str-1") == "n"

    play(story)


# Another release, which does not know of streams, on the same store.


def test_what_a_node_declared_over_another_socket_does_not_count(play) -> None:
    """An instance of such a release has written the node's record, except for its streams."""

    async def story(s: Listening) -> None:
        await s.hearer()
        await s.connection.command(s.cell.slot, "HSET", s.cell.key("node", "n"), "conn", "old")
        assert await s.used() == (0, 0)
        assert await s.heard_by(preferred="n") == "no_free_stream"
        assert await s.keys() == set()

    play(story)


def test_nodes_that_such_a_release_removed_or_moved_leave_the_ranks(play) -> None:
    async def story(s: Listening) -> None:
        await s.hearer("n")
        pool = await s.pool()
        ranks = s.cell.key("streaming", pool)
        for number in range(5):
            await s.connection.command(s.cell.slot, "ZADD", ranks, 0, f"a-ghost-{number}")
        await s.hearer("moved", can=BROADER)
        await s.connection.command(s.cell.slot, "ZADD", ranks, 0, "moved")
        assert await s.heard_by(session="", demand=WANTED) in ("n", "moved")
        left = await s.connection.command(s.cell.slot, "ZRANGE", ranks, 0, -1)
        assert not any(name.startswith(b"a-ghost") for name in left)

    play(story)


def test_streams_of_a_node_that_such_a_release_removed_expire_by_themselves(play) -> None:
    async def story(s: Listening) -> None:
        await s.hearer()
        await s.open()
        key = s.cell.key("streams", "n")
        assert await s.connection.command(s.cell.slot, "PTTL", key) > 0
        await s.connection.command(s.cell.slot, "PERSIST", key)
        await s.renew(("n", "str-0"))
        assert await s.connection.command(s.cell.slot, "PTTL", key) > 0

    play(story)


@pytest.mark.parametrize("prefix", ["sess-12ab3", "abc", "ab:cd-ffff", "s.0x1f-h1.", "x" * 100])
def test_any_id_of_a_stream_leaves_the_rest_of_a_node_free(play, prefix: str) -> None:
    async def story(s: Listening) -> None:
        await s.hearer(streams=3)
        heard = [await s.heard_by(f"{prefix}{number}") for number in range(4)]
        assert heard == ["n", "n", "n", "no_free_stream"]

    play(story)
