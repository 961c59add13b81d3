"""Outcomes for listeners in the store: each gets each once and in order, despite crashes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import msgspec
import pytest

import servers
from lingua_scheduler.state.policy import HEAR_AT_ONCE
from lingua_scheduler.state.records import Claim, LaneFill, ListenerOutcome, ListenerPosition
from lingua_scheduler.state.reply import Reply
from state.audience import NOW_MS, Kept, Stage, play

pytestmark = pytest.mark.store

HERE, THERE, ELSEWHERE = "c0/bob", "c1/cid", "c2/dan"
RELAY_MS, ABSENT_MS = 1000, 5000


@pytest.fixture(scope="module", name="server")
def one_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Server]:
    with servers.start_server(tmp_path_factory.mktemp("audience")) as started:
        yield started


# In one cell


def test_listeners_of_the_cell_have_it_in_the_step_that_releases_it(server: servers.Server) -> None:
    async def scenario(s: Stage) -> None:
        await s.open("c0/bob", "c0/cid")
        placed = await s.submit(0, "c0/bob c0/cid")
        effects = await s.settle(placed, payload=b"with sound", text=b"text")
        epochs = [await s.field(where, "epoch") for where in ("c0/ann", "c0/bob", "c0/cid")]
        heard_id, head = f"ann|{epochs[0]}|1", f"0 es {placed.job} 1 -"
        assert effects.heard == (
            ListenerOutcome(
                heard_id, "completed", head, "c0",
                (
                    ListenerPosition("bob", "BOB", epochs[1], 1),
                    ListenerPosition("cid", "CID", epochs[2], 1),
                ),
                b"with sound",
            ),
        )  # fmt: skip
        (told,) = effects.released
        assert msgspec.structs.astuple(told)[:7] == (1, "completed", 0, "es", placed.job, 1, "-")
        # The speaker is told that it passed, with the text alone.
        assert (told.is_passed, told.payload) == (True, b"text")
        assert (await s.outbox("c0/ann")) == (told,)
        assert not effects.is_relaying
        for where in ("c0/bob", "c0/cid"):
            (entry,) = await s.outbox(where)
            assert msgspec.structs.astuple(entry)[:7] == (1, "heard", 0, "es", placed.job, 1, "-")
            assert entry.payload == f"completed {heard_id}".encode()
        assert await s.kept("c0", 1) == Kept(b"with sound", b"text", {"bob", "cid"})
        assert await s.store.outbox.read_result(s.home, heard_id) == b"with sound"
        assert (await s.relayed(), await s.timer()) == (0, None)

    play(server, scenario)


def test_what_has_no_result_is_told_without_one(server: servers.Server) -> None:
    async def scenario(s: Stage) -> None:
        await s.open(HERE)
        effects = await s.say(0, HERE, kind="failed")
        (item,) = effects.heard
        assert (item.id[0], item.kind) == ("!", "failed")
        assert await s.heard(HERE) == [(0, "es", "failed")]
        assert "heard" not in await s.keys("c0")
        assert await s.passed() == [(0, "es")]

    play(server, scenario)


def test_what_waits_for_its_turn_is_heard_in_its_turn(server: servers.Server) -> None:
    async def scenario(s: Stage) -> None:
        await s.open(HERE)
        first, second = await s.submit(0, HERE), await s.submit(1, HERE)
        effects = await s.settle(second)
        assert (effects.heard, effects.released) == ((), ())
        effects = await s.settle(first)
        assert [item.head.split(" ")[0] for item in effects.heard] == ["0", "1"]
        assert await s.indices(HERE) == [0, 1]
        assert await s.passed() == [(0, "es"), (1, "es")]

    play(server, scenario)


def test_a_report_that_is_repeated_is_heard_once(server: servers.Server) -> None:
    async def scenario(s: Stage) -> None:
        await s.open(HERE)
        placed = await s.submit(0, HERE)
        await s.settle(placed)
        again = await s.store.jobs.settle(s.home, placed.job, 1, "n", kind="completed")
        assert again.reply is Reply.ALREADY
        assert await s.indices(HERE) == [0]

    play(server, scenario)


def test_own_outcomes_and_those_of_others_share_a_listeners_positions(
    server: servers.Server,
) -> None:
    async def scenario(s: Stage) -> None:
        await s.open(HERE)
        await s.store.outbox.fill_lane(s.home, "bob", "es", index=0)
        await s.say(0, HERE)
        await s.store.outbox.fill_lane(s.home, "bob", "es", index=1)
        found = [(entry.seq, entry.kind) for entry in await s.outbox(HERE)]
        assert found == [(1, "missing"), (2, "heard"), (3, "missing")]

    play(server, scenario)


# Large rooms


def test_a_large_room_hears_in_several_steps_and_each_in_order(server: servers.Server) -> None:
    async def scenario(s: Stage) -> None:
        crowd = [f"c0/m{number}" for number in range(5 * HEAR_AT_ONCE + 3)]
        await s.open(*crowd)
        audience = " ".join(crowd)
        first = await s.say(0, audience)
        assert [row.session for row in first.heard[0].listeners] == [
            where[3:] for where in crowd[:HEAR_AT_ONCE]
        ]
        assert first.is_relaying
        # What comes meanwhile is not heard before it: the oldest goes on first.
        second = await s.say(1, audience)
        heard = [(item.head.split(" ")[0], len(item.listeners)) for item in second.heard]
        assert heard == [("0", HEAR_AT_ONCE)]
        assert await s.passed() == []
        steps = []
        while True:
            step = await s.store.outbox.relay(s.home, "ann")
            steps.append([len(item.listeners) for item in step.effects.heard])
            if not step.is_cut:
                break
        assert sum(map(sum, steps)) == 2 * len(crowd) - 2 * HEAR_AT_ONCE
        assert all(sum(given) <= 4 * HEAR_AT_ONCE for given in steps)
        for where in crowd:
            assert await s.indices(where) == [0, 1]
        assert await s.passed() == [(0, "es"), (1, "es")]
        assert "relay" not in await s.keys("c0")

    play(server, scenario)


def test_who_waited_for_its_turn_hears_it_though_the_instance_died(server: servers.Server) -> None:
    async def scenario(s: Stage) -> None:
        crowd = [f"c0/m{number}" for number in range(HEAR_AT_ONCE + 1)]
        await s.open(*crowd)
        await s.say(0, " ".join(crowd))
        assert await s.indices(crowd[-1]) == []
        assert await s.timer() is not None
        await s.bring_all()
        assert await s.indices(crowd[-1]) == [0]
        assert await s.passed() == [(0, "es")]

    play(server, scenario)


# In other cells


async def ask(s: Stage, done: list[str]) -> tuple:
    return (await s.store.outbox.relay(s.home, "ann", done))[1]


def test_what_is_for_other_cells_stands_in_a_list_until_they_have_it(
    server: servers.Server,
) -> None:
    async def scenario(s: Stage) -> None:
        await s.open(HERE, THERE, ELSEWHERE)
        effects = await s.say(0, f"{HERE} {THERE} {ELSEWHERE}", payload=b"sound")
        assert effects.is_relaying
        assert effects.released == ()
        assert await s.indices(HERE) == [0]
        assert (await s.relayed(), await s.timer()) == (1, NOW_MS + RELAY_MS)
        kept = await s.kept("c0", 1)
        assert kept is not None
        assert kept.holders == {"bob", "#"}
        (item,) = await ask(s, [])
        assert (item.listeners, item.payload, item.text) == ((THERE, ELSEWHERE), b"sound", b"t")
        done = await s.put((item,), "c1")
        assert await s.indices(THERE) == [0]
        (item,) = await ask(s, done)
        assert item.listeners == (ELSEWHERE,)
        assert await s.passed() == []
        done += await s.put((item,), "c2")
        assert await ask(s, done) == ()
        assert await s.passed() == [(0, "es")]
        assert (await s.relayed(), await s.timer()) == (0, None)
        kept = await s.kept("c0", 1)
        assert kept is not None
        assert kept.holders == {"bob"}
        for cell, name in (("c1", "cid"), ("c2", "dan")):
            assert await s.kept(cell, 1) == Kept(b"sound", b"t", {name})

    play(server, scenario)


def test_listeners_elsewhere_only_leave_nothing_in_the_speakers_cell(
    server: servers.Server,
) -> None:
    async def scenario(s: Stage) -> None:
        await s.open(THERE)
        await s.say(0, THERE)
        await s.bring_all()
        assert not {"heard", "relay"} & await s.keys("c0")
        assert await s.kept("c1", 1) is not None

    play(server, scenario)


def orders() -> list[str]:
    """Return the steps of two who bring the same things, in every order: `a` and `b`."""
    steps = range(8)
    return [
        "".join("a" if step in chosen else "b" for step in steps)
        for chosen in combinations(steps, 4)
    ]


class Bearer:
    """One who brings what ann said elsewhere, a step at a time."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._done: list[str] = []
        self._ahead: tuple = ()
        self._steps = iter((self._ask, self._first, self._second, self._ask))

    async def step(self) -> None:
        await next(self._steps)()

    async def _ask(self) -> None:
        self._ahead = await ask(self._stage, self._done)

    async def _first(self) -> None:
        self._done += await self._stage.put(self._ahead, "c1")

    async def _second(self) -> None:
        self._done += await self._stage.put(self._ahead, "c2")


@pytest.mark.parametrize("dies_after", range(5))
def test_whoever_brings_it_and_dies_each_listener_has_it_once_and_in_order(
    server: servers.Server, dies_after: int
) -> None:
    async def scenario(s: Stage) -> None:
        for order in orders():
            await s.begin()
            await s.open(HERE, THERE, ELSEWHERE)
            for index in range(3):
                await s.say(index, f"{HERE} {THERE} {ELSEWHERE}")
            bearers, left = {"a": Bearer(s), "b": Bearer(s)}, {"a": dies_after, "b": 4}
            for who in order:
                if left[who]:
                    left[who] -= 1
                    await bearers[who].step()
                assert await s.indices(THERE) == list(range(len(await s.indices(THERE))))
                # It passed only when everybody has it.
                slowest = min([len(await s.indices(THERE)), len(await s.indices(ELSEWHERE))])
                assert len(await s.passed()) <= slowest
            await s.bring_all()
            await s.bring_all()
            for where in (HERE, THERE, ELSEWHERE):
                assert await s.indices(where) == [0, 1, 2], order
            assert await s.passed() == [(0, "es"), (1, "es"), (2, "es")]
            assert (await s.relayed(), await s.timer()) == (0, None)

    play(server, scenario)


def test_what_is_brought_late_or_again_is_known(server: servers.Server) -> None:
    async def scenario(s: Stage) -> None:
        await s.open(THERE)
        for index in range(2):
            await s.say(index, THERE)
        (first,) = await ask(s, [])
        done = await s.put((first,), "c1")
        (second,) = await ask(s, done)
        await s.put((second,), "c1")
        for late in (first, second, first):
            effects, absent = await s.store.outbox.put(s.cells.named("c1"), late, ["cid"])
            assert (effects.heard, absent) == ((), ())
        assert await s.indices(THERE) == [0, 1]
        # The same numbers of a later epoch are news; those of an earlier one are not.
        speaker, epoch, _ = first.id.split("|")
        for other, is_news in ((int(epoch) - 1, False), (int(epoch) + 1, True)):
            item = first._replace(id=f"{speaker}|{other}|1")
            effects, _ = await s.store.outbox.put(s.cells.named("c1"), item, ["cid"])
            assert bool(effects.heard) == is_news

    play(server, scenario)


def test_a_repeated_put_leaves_nothing_that_nobody_refers_to(server: servers.Server) -> None:
    async def scenario(s: Stage) -> None:
        await s.open(THERE)
        await s.say(0, THERE)
        (item,) = await ask(s, [])
        await s.put((item,), "c1")
        cell, name = s.at(THERE)
        epoch = await s.field(THERE, "epoch")
        await s.store.outbox.ack(cell, name, epoch or "", 1)
        assert await s.kept("c1", 1) is None
        await s.put((item,), "c1")
        assert await s.kept("c1", 1) is None

    play(server, scenario)


# Who is not there


@pytest.mark.parametrize("where", [HERE, THERE])
def test_a_listener_that_is_missing_for_a_moment_still_hears_it_in_order(
    server: servers.Server, where: str
) -> None:
    async def scenario(s: Stage) -> None:
        await s.open("c0/eve")
        audience = f"{where} c0/eve"
        effects = await s.say(0, audience)
        assert effects.is_relaying
        await s.say(1, audience)
        await s.bring_all()
        # Nobody else waits for it.
        assert await s.indices("c0/eve") == [0, 1]
        assert await s.passed() == []
        s.advance(ABSENT_MS - 1)
        await s.open(where)
        await s.bring_all()
        assert await s.indices(where) == [0, 1]
        assert await s.indices("c0/eve") == [0, 1]
        assert await s.passed() == [(0, "es"), (1, "es")]
        assert await s.timer() is None

    play(server, scenario)


def test_what_an_ended_session_said_is_not_told_in_a_new_one_of_its_name(
    server: servers.Server,
) -> None:
    async def scenario(s: Stage) -> None:
        assert (await s.say(0, "c1/bob")).is_relaying
        await s.close("c0/ann")
        s.advance(1)
        await s.open("c0/ann", "c1/bob")
        await s.bring_all()
        # Whoever had to hear it does; in the new session the index is another utterance.
        assert await s.indices("c1/bob") == [0]
        assert await s.passed() == []
        await s.say(0, "c1/bob", lane="fr")
        await s.bring_all()
        assert await s.passed() == [(0, "fr")]

    play(server, scenario)


def test_a_listener_that_is_missing_for_long_is_not_waited_for(server: servers.Server) -> None:
    async def scenario(s: Stage) -> None:
        effects = await s.say(0, HERE)
        assert effects.is_relaying
        s.advance(ABSENT_MS - 1)
        await s.say(1, HERE)
        await s.bring_all()
        assert await s.passed() == []
        assert await s.timer() == s.store.runner.now_ms + RELAY_MS
        s.advance(1)
        await s.bring_all()
        # For the second it is waited as long.
        assert await s.passed() == [(0, "es")]
        s.advance(ABSENT_MS)
        await s.bring_all()
        assert await s.passed() == [(0, "es"), (1, "es")]
        assert not {"heard", "relay"} & await s.keys("c0")
        await s.open(HERE)
        await s.bring_all()
        assert await s.outbox(HERE) == ()

    play(server, scenario)


def test_whoever_brings_it_knows_for_how_long_it_waits(server: servers.Server) -> None:
    async def scenario(s: Stage) -> None:
        await s.say(0, THERE)
        s.advance(1234)
        (item,) = await ask(s, [])
        assert item.age_ms == 1234
        effects, absent = await s.store.outbox.put(s.cells.named("c1"), item, ["cid", "x"])
        assert (effects.heard, absent) == ((), ("cid", "x"))
        assert "heard" not in await s.keys("c1")

    play(server, scenario)


@pytest.mark.parametrize("where", [HERE, THERE])
def test_a_listener_that_ended_is_not_waited_for_and_hears_nothing(
    server: servers.Server, where: str
) -> None:
    async def scenario(s: Stage) -> None:
        await s.open(where)
        await s.close(where)
        await s.say(0, where)
        await s.bring_all()
        assert await s.passed() == [(0, "es")]
        assert await s.outbox(where) == ()

    play(server, scenario)


# What is kept


def test_a_result_goes_with_the_last_outbox_that_refers_to_it(server: servers.Server) -> None:
    async def scenario(s: Stage) -> None:
        await s.open("c0/bob", "c0/cid")
        for index in range(3):
            await s.say(index, "c0/bob c0/cid")
        for name, left in (("bob", {"cid"}), ("cid", None)):
            epoch = await s.field(f"c0/{name}", "epoch") or ""
            await s.store.outbox.ack(s.home, name, epoch, 2)
            for number in (1, 2):
                kept = await s.kept("c0", number)
                assert (kept.holders if kept is not None else None) == left
        kept = await s.kept("c0", 3)
        assert kept is not None
        assert kept.holders == {"bob", "cid"}
        # The rest of the outbox is as it was, and own outcomes are not taken for references.
        assert await s.indices("c0/bob") == [2]

    play(server, scenario)


def test_a_confirmation_that_is_repeated_or_of_another_epoch_drops_nothing(
    server: servers.Server,
) -> None:
    async def scenario(s: Stage) -> None:
        await s.open("c0/bob", "c0/cid")
        await s.say(0, "c0/bob c0/cid")
        for epoch, seq in (("1", 1), (await s.field(HERE, "epoch") or "", 0)):
            await s.store.outbox.ack(s.home, "bob", epoch, seq)
        kept = await s.kept("c0", 1)
        assert kept is not None
        assert kept.holders == {"bob", "cid"}

    play(server, scenario)


@pytest.mark.parametrize("where", [HERE, THERE])
def test_beyond_its_bound_in_bytes_the_oldest_lose_their_sound_and_keep_their_text(
    server: servers.Server, where: str
) -> None:
    async def scenario(s: Stage) -> None:
        await s.open(where)
        for index in range(4):
            await s.say(index, where, payload=b"x" * 400)
            await s.bring_all()
        cell = where[:2]
        found = [await s.kept(cell, number) for number in range(1, 5)]
        assert [len(kept.payload) for kept in found if kept is not None] == [0, 0, 400, 400]
        assert [kept.text for kept in found if kept is not None] == [b"t"] * 4
        epoch = await s.field("c0/ann", "epoch")
        assert await s.store.outbox.read_result(s.cells.named(cell), f"ann|{epoch}|1") == b"t"
        # One that is larger by itself is kept until the next.
        await s.say(4, where, payload=b"x" * 5000)
        await s.bring_all()
        sizes = [await s.kept(cell, number) for number in (3, 4, 5)]
        assert [len(kept.payload) for kept in sizes if kept is not None] == [0, 0, 5000]
        assert await s.indices(where) == [0, 1, 2, 3, 4]

    play(server, scenario, kept_bytes_max=1000)


def test_the_outbox_of_a_listener_is_bounded_and_never_holds_others_up(
    server: servers.Server,
) -> None:
    async def scenario(s: Stage) -> None:
        await s.open("c0/bob", "c0/cid")
        for index in range(5):
            await s.say(index, "c0/bob c0/cid")
            epoch = await s.field("c0/cid", "epoch") or ""
            await s.store.outbox.ack(s.home, "cid", epoch, index + 1)
            ann = await s.field("c0/ann", "epoch") or ""
            await s.store.outbox.ack(s.home, "ann", ann, index + 1)
        assert await s.indices("c0/bob") == [2, 3, 4]
        assert (await s.field(HERE, "trimmed"), await s.field(HERE, "seq")) == ("2", "5")
        page = await s.store.outbox.read(s.home, "bob", after_seq=1)
        assert (page.reply, page.trimmed) == (Reply.TRIMMED, 2)
        # What went out of it is not kept for it.
        found = [await s.kept("c0", number) for number in range(1, 6)]
        assert [kept is not None for kept in found] == [False, False, True, True, True]

    play(server, scenario, outbox_max=3)


def test_what_is_kept_is_forgotten_after_all_could_have_come_back(server: servers.Server) -> None:
    async def scenario(s: Stage) -> None:
        await s.open(HERE, THERE)
        await s.say(0, f"{HERE} {THERE}")
        await s.bring_all()
        epoch = await s.field("c0/ann", "epoch")
        for name in ("c0", "c1"):
            cell = s.cells.named(name)
            for key in (cell.key("heard", f"ann|{epoch}|1"), cell.key("said", "ann")):
                left_ms = await s.connection.command(cell.slot, "PTTL", key)
                assert 150_000 < left_ms <= 200_000

    play(server, scenario, resume_ms=100_000)


def test_an_answer_is_bounded_in_bytes_and_has_one_entry_at_least(server: servers.Server) -> None:
    async def scenario(s: Stage) -> None:
        for index in range(4):
            await s.store.outbox.fill_lane(s.home, "ann", "es", index=index)
        key = s.home.key("outbox", "ann")
        large = b"completed 9 es j 1 -\n" + b"x" * 700_000
        for at in (1, 2):
            await s.connection.command(s.home.slot, "LSET", key, at, large)
        pages = []
        after = 0
        while after < 4:
            page = await s.store.outbox.read(s.home, "ann", after_seq=after)
            pages.append([entry.seq for entry in page.entries])
            after = pages[-1][-1]
        assert pages == [[1, 2], [3, 4]]
        await s.connection.command(s.home.slot, "LSET", key, 0, large + large)
        page = await s.store.outbox.read(s.home, "ann", after_seq=0)
        assert [entry.seq for entry in page.entries] == [1]

    play(server, scenario)


# As it was spoken


READER = "c0/eve"


async def spoken(s: Stage, index: int, *lanes: str, readers_from: int = -1) -> list:
    """Have ann say something into some languages, that eve reads as it was spoken."""
    return [
        await s.submit(
            index, HERE, lane, readers=READER, readers_from=readers_from, lanes=len(lanes)
        )
        for lane in lanes
    ]


async def read(s: Stage) -> list[tuple[int, str, bytes]]:
    """Return what eve read: index, kind, text."""
    found = []
    for entry in await s.outbox(READER):
        assert entry.lane == "~"
        kind, heard_id = entry.payload.decode().split(" ")
        found.append((entry.utterance, kind, await s.store.outbox.read_result(s.home, heard_id)))
    return found


def test_readers_get_the_text_of_the_first_language_that_has_any(server: servers.Server) -> None:
    async def scenario(s: Stage) -> None:
        await s.open(HERE, READER)
        es, fr, de = await spoken(s, 0, "es", "fr", "de")
        await s.settle(fr, "failed")
        assert await read(s) == []
        effects = await s.settle(de, payload=b"de sound", text=b"de text")
        assert await read(s) == [(0, "completed", b"de text")]
        # Whoever settled it has the text at hand for them.
        assert {item.head.split(" ")[1]: item.payload for item in effects.heard} == {
            "de": b"de sound", "~": b"de text",
        }  # fmt: skip
        await s.settle(es, payload=b"es sound", text=b"es text")
        assert len(await read(s)) == 1
        # The speaker is told of its languages, not of the readers.
        assert sorted(await s.passed()) == [(0, "de"), (0, "es"), (0, "fr")]

    play(server, scenario)


def test_if_no_language_has_text_readers_are_told_so_once(server: servers.Server) -> None:
    async def scenario(s: Stage) -> None:
        await s.open(HERE, READER)
        es, fr = await spoken(s, 0, "es", "fr")
        await s.settle(es, "completed_no_text")
        assert await read(s) == []
        await s.settle(fr, "failed")
        assert await read(s) == [(0, "failed", b"")]

    play(server, scenario)


@pytest.mark.parametrize("first", [True, False])
def test_a_language_that_is_refused_is_one_that_has_no_text(
    server: servers.Server, first: bool
) -> None:
    async def scenario(s: Stage) -> None:
        await s.open(HERE, READER)
        others = msgspec.msgpack.encode(
            {"audience": HERE, "readers": READER, "readers_from": -1, "lanes": 2}
        )
        refuse = s.store.outbox.fill_lane(
            s.home, "ann", "fr", index=0, answer=LaneFill(others=others)
        )
        if first:
            await refuse
            (es,) = await spoken(s, 0, "es")
        else:
            es = await s.submit(0, HERE, readers=READER, lanes=2)
            await refuse
        assert await read(s) == []
        await s.settle(es, payload=b"sound", text=b"text")
        assert await read(s) == [(0, "completed", b"text")]
        assert sorted(await s.heard(HERE)) == [(0, "es", "completed"), (0, "fr", "missing")]

    play(server, scenario)


def test_an_utterance_that_is_refused_in_all_languages_is_told_its_readers(
    server: servers.Server,
) -> None:
    async def scenario(s: Stage) -> None:
        await s.open(HERE, READER)
        others = msgspec.msgpack.encode(
            {"audience": HERE, "readers": READER, "readers_from": -1, "lanes": 2}
        )
        for lane in ("es", "fr"):
            answer = await s.store.outbox.fill_lane(
                s.home, "ann", lane, index=0, answer=LaneFill(others=others)
            )
            assert answer.reply is Reply.SETTLED
        assert await read(s) == [(0, "missing", b"")]
        assert await s.heard(HERE) == [(0, "es", "missing"), (0, "fr", "missing")]
        assert await s.passed() == [(0, "es"), (0, "fr")]

    play(server, scenario)


def test_texts_are_read_in_the_order_they_were_spoken(server: servers.Server) -> None:
    async def scenario(s: Stage) -> None:
        await s.open(HERE, READER)
        placed = [(await spoken(s, index, "es", "fr")) for index in range(3)]
        for es, _ in reversed(placed):
            await s.settle(es, payload=b"sound", text=es.job.encode())
        texts = [(index, "completed", es.job.encode()) for index, (es, _) in enumerate(placed)]
        assert await read(s) == texts
        # A language that is late holds nothing back.
        for _, fr in reversed(placed):
            await s.settle(fr)
        assert await read(s) == texts

    play(server, scenario)


def test_utterances_that_nobody_was_to_read_hold_nothing_back(server: servers.Server) -> None:
    async def scenario(s: Stage) -> None:
        await s.open(HERE, READER)
        for index in range(3):
            await s.say(index, HERE)
        (es,) = await spoken(s, 3, "es", readers_from=0)
        await s.settle(es, text=b"text", payload=b"sound")
        assert await read(s) == [(3, "completed", b"text")]

    play(server, scenario)


def test_an_utterance_that_may_still_come_is_waited_for(server: servers.Server) -> None:
    async def scenario(s: Stage) -> None:
        await s.open(HERE, READER)
        (third,) = await spoken(s, 1, "es")
        await s.settle(third, payload=b"sound", text=b"1")
        assert await read(s) == []
        (first,) = await spoken(s, 0, "es")
        await s.settle(first, payload=b"sound", text=b"0")
        assert await read(s) == [(0, "completed", b"0"), (1, "completed", b"1")]

    play(server, scenario)


@pytest.mark.parametrize("ends", ["its time is up", "the session is closed"])
def test_an_utterance_that_never_came_holds_texts_up_no_longer_than_its_own_language(
    server: servers.Server, ends: str
) -> None:
    async def scenario(s: Stage) -> None:
        await s.open(HERE, READER)
        (second,) = await spoken(s, 1, "es")
        await s.settle(second, payload=b"sound", text=b"1")
        due = await s.timer("g|ann|~")
        assert due is not None
        assert due == await s.timer("g|ann|es")
        if ends == "its time is up":
            s.advance(due - s.store.runner.now_ms)
            for lane in ("es", "~"):
                await s.store.outbox.fill_lane(s.home, "ann", lane)
        else:
            await s.close("c0/ann")
        assert await read(s) == [(1, "completed", b"1")]
        # The speaker is told once that nothing came, in the language it speaks into.
        told = [(e.utterance, e.lane, e.kind, e.is_passed) for e in await s.outbox("c0/ann")]
        assert told == [(0, "es", "missing", False), (1, "es", "completed", True)]
        assert await s.timer("g|ann|~") is None

    play(server, scenario)


# The end of a speaker


def test_a_speaker_that_says_goodbye_has_its_jobs_ended_for_those_who_wait(
    server: servers.Server,
) -> None:
    async def scenario(s: Stage) -> None:
        await s.open(HERE, THERE, READER)
        await s.submit(0, f"{HERE} {THERE}", readers=READER)
        answer = await s.close("c0/ann")
        assert answer.effects.is_relaying
        assert await s.heard(HERE) == [(0, "es", "cancelled")]
        assert await read(s) == [(0, "cancelled", b"")]
        await s.bring_all()
        assert await s.heard(THERE) == [(0, "es", "cancelled")]
        assert await s.passed() == [(0, "es")]

    play(server, scenario)


def test_what_listeners_of_other_cells_wait_for_outlives_its_speaker(
    server: servers.Server,
) -> None:
    async def scenario(s: Stage) -> None:
        await s.open(THERE)
        await s.say(0, THERE, payload=b"sound")
        await s.close("c0/ann")
        # All that a closed session leaves is forgotten in the end.
        for family in ("session", "outbox"):
            await s.connection.command(s.home.slot, "DEL", s.home.key(family, "ann"))
        await s.bring_all()
        assert await s.indices(THERE) == [0]
        assert await s.timer() is None
        assert not {"session", "relay", "heard"} & await s.keys("c0")

    play(server, scenario)


def test_a_session_that_lapses_waits_for_the_jobs_that_others_wait_for(
    server: servers.Server,
) -> None:
    async def scenario(s: Stage) -> None:
        await s.open(HERE)
        placed = await s.submit(0, HERE)
        s.advance(60_000)
        assert (await s.close("c0/ann", lapse_only=True)).reply is Reply.NOT_DUE
        later = await s.timer("s|ann")
        assert later is not None
        assert later > s.store.runner.now_ms
        await s.settle(placed)
        assert await s.heard(HERE) == [(0, "es", "completed")]
        s.advance(later - s.store.runner.now_ms)
        assert (await s.close("c0/ann", lapse_only=True)).reply is Reply.SETTLED

    play(server, scenario)


def test_a_session_that_lapses_does_not_wait_for_jobs_of_its_own(server: servers.Server) -> None:
    async def scenario(s: Stage) -> None:
        await s.submit(0, "")
        s.advance(60_000)
        assert (await s.close("c0/ann", lapse_only=True)).reply is Reply.SETTLED

    play(server, scenario)


def test_who_comes_back_knows_what_it_was_not_told_to_have_passed(server: servers.Server) -> None:
    async def scenario(s: Stage) -> None:
        await s.open(HERE, READER)
        key = s.home.key("session", "ann")
        await s.connection.command(s.home.slot, "HSET", key, "token", "t", "tenant", "")
        await s.say(0, HERE, readers=READER)
        await s.say(1, THERE, readers=READER)
        await s.submit(2, HERE, readers=f"{READER} {THERE}")
        claim = Claim("t", "", 0)
        found = await s.store.sessions.resume(
            s.home, "ann", "J", tenant="", lease_ms=60_000, claim=claim
        )
        # Once each: nobody waits for an answer about what is read.
        assert sorted(found.open) == [1, 2]
        assert found.lanes == (("es", 3), ("~", 3))

    play(server, scenario)


def test_nothing_that_somebody_waits_for_is_forgotten_however_long_it_takes(
    server: servers.Server,
) -> None:
    async def scenario(s: Stage) -> None:
        await s.open(THERE)
        for index in range(3):
            await s.say(index, THERE)
        epoch = await s.field("c0/ann", "epoch")
        keys = [s.home.key("heard", f"ann|{epoch}|{number}") for number in (1, 2, 3)]
        for key in keys:
            await s.connection.command(s.home.slot, "PEXPIRE", key, 10_000)
        # The timer asks, and its cell cannot be reached: the second waits behind the first.
        (first,) = await ask(s, [])
        assert first.id.endswith("|1")
        for key in keys:
            assert await s.connection.command(s.home.slot, "PTTL", key) > 10_000
        await s.bring_all()
        assert await s.indices(THERE) == [0, 1, 2]

    play(server, scenario)
