"""Every kind of damage in a deployment at work: found, reported, and repaired where possible."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from lingua_scheduler.maintenance.doctor import examine
from lingua_scheduler.maintenance.finding import KINDS
from lingua_scheduler.maintenance.scan import scan
from lingua_scheduler.maintenance.store_reader import StoreReader
from lingua_scheduler.peers.messages import PushJob, decode_entry
from lingua_scheduler.peers.stream import InboxStream
from lingua_scheduler.state.link import Address
from maintenance.damage import (
    CASES,
    GHOST,
    PAUSE_S,
    Case,
    Ward,
    a_job_without_a_timer,
    a_node_of_an_instance_that_is_not_known,
    a_session_without_a_timer,
    a_slot_of_a_job_that_does_not_exist,
    a_timer_of_no_known_kind,
    an_inbox_that_is_not_listed,
    an_instance_that_died,
    audio_that_would_outlive_its_last_job,
    found_in,
    is_found_and_repaired,
    letters_for_the_dead_while_nobody_lives,
    play,
    ward,
)
from servers import start_server

pytestmark = pytest.mark.store


@pytest.fixture(name="addresses", scope="module")
def one_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Address]]:
    with start_server(tmp_path_factory.mktemp("ward")) as server:
        yield [server.address]


def test_a_deployment_at_work_is_well(addresses: list[Address]) -> None:
    async def scenario(w: Ward) -> None:
        for repairs in (False, True):
            diagnosis = await w.examine(repairs=repairs)
            assert found_in(diagnosis) == {}
            assert diagnosis.is_well
        assert diagnosis.keys > 20
        assert diagnosis.instances_alive == 1

    play(addresses, scenario)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.damage.__name__)
def test_damage_is_found_and_repaired(addresses: list[Address], case: Case) -> None:
    play(addresses, lambda w: is_found_and_repaired(w, case))


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.heals], ids=lambda case: case.damage.__name__
)
def test_a_repair_leaves_every_utterance_its_one_outcome(
    addresses: list[Address], case: Case
) -> None:
    async def scenario(w: Ward) -> None:
        await case.damage(w)
        await w.examine(repairs=True)
        for placement in (w.near, w.far):
            await w.speaker.settle(placement)
        w.store.runner.now_ms = await w.now_ms()
        # Rooms are another story, told by instances.
        await w.ask(w.there, "ZREM", "due", "room|ABC123")
        if "no_lane_waits" not in case.damage.__name__:  # there the outcome itself was removed
            w.speaker.admit(3)
            await w.deployment.settle_down()

    play(addresses, scenario)


def test_every_kind_of_finding_has_a_case(addresses: list[Address]) -> None:
    kinds: set[str] = set()

    async def scenario(w: Ward) -> None:
        for damage in [*(case.damage for case in CASES), an_inbox_that_is_not_listed]:
            async with ward(*addresses) as another:
                kinds.update(await damage(another))

    play(addresses, scenario)
    assert kinds == KINDS.keys() - {"not_all_looked_at"}


# What a repair does.


def test_jobs_of_a_node_whose_instance_is_gone_move_on(addresses: list[Address]) -> None:
    async def scenario(w: Ward) -> None:
        await a_node_of_an_instance_that_is_not_known(w)
        second = await w.deployment.ready_node(w.here, slots=4)
        await w.examine(repairs=True)
        moved = await w.ask(w.here, "HMGET", f"job:{w.near.job}", "attempt", "node")
        assert moved == [b"2", second.encode()]
        assert await w.ask(w.here, "HGET", f"node:{w.node}", "status") == b"offline"
        # Its host gets a message to push it.
        entries = await InboxStream(w.connection, w.prefix, "i1").read_new(10)
        letters = [decode_entry(entry.id, entry.fields) for entry in entries]
        told = [each.message for each in letters if isinstance(each.message, PushJob)]
        assert (w.near.job, 2, second, "c0") in [(p.job, p.attempt, p.node, p.home) for p in told]
        assert {envelope.sender for envelope in letters} == {"doctor"}

    play(addresses, scenario)


def test_a_slot_that_is_given_back_serves_who_waits(addresses: list[Address]) -> None:
    async def scenario(w: Ward) -> None:
        await w.speaker.settle(w.near)
        w.near = msgspec.structs.replace(w.near, job=w.waiting)  # it took the slot
        await w.store.jobs.submit(w.here, w.speaker.job(4), w.speaker.spec(4), b"")
        # The slot of a job that is lost without a trace.
        lost = w.speaker.job(2)
        await w.ask(w.here, "DEL", f"job:{lost}")
        await w.ask(w.here, "ZREM", "due", f"j|{lost}")
        diagnosis = await w.examine(repairs=True)
        assert found_in(diagnosis) == {"lease_stale": [f"{w.node} {lost}|1"]}
        held = await w.ask(w.here, "HGET", f"job:{w.speaker.job(4)}", "node")
        assert held == w.node.encode()

    play(addresses, scenario)


def test_a_repaired_job_has_the_deadline_it_had(addresses: list[Address]) -> None:
    async def scenario(w: Ward) -> None:
        due_at = await w.ask(w.here, "HGET", f"job:{w.near.job}", "due_at")
        await a_job_without_a_timer(w)
        await w.examine(repairs=True)
        assert await w.ask(w.here, "ZSCORE", "due", f"j|{w.near.job}") == due_at

    play(addresses, scenario)


def test_audio_of_a_job_that_lives_is_kept(addresses: list[Address]) -> None:
    async def scenario(w: Ward) -> None:
        await audio_that_would_outlive_its_last_job(w)
        await w.examine(repairs=True)
        key = f"audio:{w.speaker.session}|3"
        assert set(await w.ask(w.here, "HKEYS", key)) == {b"audio", w.waiting.encode()}

    play(addresses, scenario)


def test_a_session_gets_its_lease_again(addresses: list[Address]) -> None:
    async def scenario(w: Ward) -> None:
        await a_session_without_a_timer(w)
        await w.examine(repairs=True)
        at_ms = int(await w.ask(w.here, "ZSCORE", "due", f"s|{w.speaker.session}"))
        assert abs(at_ms - await w.now_ms() - w.settings.sessions.lease_ms) < 10_000

    play(addresses, scenario)


def test_a_dead_instance_is_forgotten_with_its_inbox(addresses: list[Address]) -> None:
    async def scenario(w: Ward) -> None:
        await an_instance_that_died(w)
        await w.examine(repairs=True)
        assert await w.ask(w.here, "ZRANGE", "instances", 0, -1) == [b"i1"]
        assert set(await w.ask(w.here, "SMEMBERS", "inboxes")) == {b"i1"}
        assert await w.ask(w.here, "EXISTS", "instance:dead") == 0
        assert await w.ask_of("dead", "EXISTS", "inbox") == 0

    play(addresses, scenario)


def test_letters_are_not_removed_with_the_dead(addresses: list[Address]) -> None:
    async def scenario(w: Ward) -> None:
        await letters_for_the_dead_while_nobody_lives(w)
        diagnosis = await w.examine(repairs=True)
        left = {verdict.name: verdict.remedy for verdict in diagnosis.findings}
        assert left["dead"] == "its messages are read by the next instance that starts"
        states = {verdict.name: verdict.state for verdict in diagnosis.findings}
        assert states == {
            "dead": "left",
            "i1": "repaired",
            w.node: "repaired",
            w.other_node: "repaired",
        }
        assert await w.ask_of("dead", "XLEN", "inbox") == 1

    play(addresses, scenario)


def test_an_inbox_nobody_knew_of_is_listed_for_the_living(addresses: list[Address]) -> None:
    async def scenario(w: Ward) -> None:
        await an_inbox_that_is_not_listed(w)
        diagnosis = await w.examine(repairs=True)
        (verdict,) = diagnosis.findings
        assert (verdict.kind, verdict.state) == ("inbox_unlisted", "repaired")
        assert verdict.remedy == "listed; its messages are read by a live instance"
        # The instance of this test only beats: the message still exists, and is now listed.
        assert found_in(await w.examine()) == {"inbox_orphan": ["lost"]}
        assert await w.ask_of("lost", "XLEN", "inbox") == 1

    play(addresses, scenario)


# Findings of one scan that are not damage.


def test_what_one_look_saw_and_the_next_did_not_is_no_finding(addresses: list[Address]) -> None:
    async def scenario(w: Ward) -> None:
        await a_slot_of_a_job_that_does_not_exist(w)
        seen = await scan(w.connection, w.settings)
        assert len(seen.findings) == 1
        later = w.connection.command

        def command(slot: int, *words: object) -> object:
            # Between the scans, an instance corrects it.
            if words[:2] == ("SMEMBERS", inboxes) and next(times) == 1:
                later(w.here.slot, "ZREM", w.here.key("leases", w.node), f"{GHOST}|1")
            return later(slot, *words)  # type: ignore[arg-type]

        times, inboxes = iter(range(100)), w.here.key("inboxes")
        w.connection.command = command  # type: ignore[method-assign, assignment]
        diagnosis = await w.examine(repairs=True)
        assert diagnosis.findings == ()

    play(addresses, scenario)


def test_a_dead_instance_that_is_being_adopted_is_no_finding(addresses: list[Address]) -> None:
    async def scenario(w: Ward) -> None:
        await an_instance_that_died(w)
        await w.ask(w.here, "HSET", f"node:{w.node}", "instance", "dead")
        assert await InboxStream(w.connection, w.prefix, "dead").lease("i1", 60_000)
        assert found_in(await w.examine()) == {}

    play(addresses, scenario)


def test_an_instance_that_was_silent_for_a_moment_is_no_finding(addresses: list[Address]) -> None:
    async def scenario(w: Ward) -> None:
        await w.beat("slow")
        silent_ms = 2 * w.settings.instances.silence_ms
        await w.ask(w.here, "ZADD", "instances", await w.now_ms() - silent_ms, "slow")
        await w.ask(w.here, "HSET", f"node:{w.node}", "instance", "slow")
        assert found_in(await w.examine()) == {}

    play(addresses, scenario)


def test_a_repair_that_a_script_refuses_is_told_and_others_go_on(addresses: list[Address]) -> None:
    async def scenario(w: Ward) -> None:
        await a_job_without_a_timer(w)
        await w.ask(w.here, "HSET", f"job:{w.near.job}", "due_at", "nonsense")
        diagnosis = await w.examine(repairs=True)
        states = {verdict.name: verdict for verdict in diagnosis.findings}
        assert states[w.waiting].state == "repaired"
        assert states[w.near.job].state == "left"
        assert states[w.near.job].remedy.startswith("the store refused: ")

    play(addresses, scenario)


# Bounds.


def test_a_look_that_is_cut_short_says_so(addresses: list[Address]) -> None:
    async def scenario(w: Ward) -> None:
        for number in range(3000):
            w.connection.command(w.here.slot, "SET", f"{w.here.base}pair:{number}", "n", "EX", 60)
        await w.now_ms()
        seen = await scan(w.connection, w.settings, keys_max=1000)
        assert [finding.kind for finding in seen.findings.values()] == ["not_all_looked_at"]
        assert seen.context.reader.keys_seen < 3000
        assert not (await scan(w.connection, w.settings)).findings

    play(addresses, scenario)


def test_all_members_are_read_page_by_page_however_many_share_a_score(
    addresses: list[Address],
) -> None:
    async def scenario(w: Ward) -> None:
        key = w.here.key("pair", "sorted")
        scores = {f"m{n}": 0 if n < 1700 else n // 3 for n in range(4000)}
        for member, score in scores.items():
            w.connection.command(w.here.slot, "ZADD", key, score, member)
        reader = StoreReader(w.connection, w.prefix)
        pages = [page async for page in reader.scores(w.here.slot, key)]
        assert len(pages) >= 8
        assert sorted(row for page in pages for row in page) == sorted(scores.items())
        await w.connection.command(w.here.slot, "DEL", key)

    play(addresses, scenario)


def test_what_is_not_repaired_is_left_as_it_is(addresses: list[Address]) -> None:
    async def scenario(w: Ward) -> None:
        await a_timer_of_no_known_kind(w)
        diagnosis = await examine(w.connection, w.settings, repairs=True, pause_s=PAUSE_S)
        (verdict,) = diagnosis.findings
        assert (verdict.state, verdict.remedy) == ("left", "an operator must decide")
        assert await w.ask(w.here, "ZSCORE", "due", "q|1") == b"1"

    play(addresses, scenario)
