"""The deployment at one moment: instances, cells, and the summary."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lingua_scheduler.maintenance import overview as module
from lingua_scheduler.maintenance.overview import InstanceView, Overview, overview
from lingua_scheduler.peers.messages import RoomChanged
from lingua_scheduler.peers.presence import InstanceInfo, Presence
from lingua_scheduler.peers.sender import PeerSender
from lingua_scheduler.peers.stream import InboxStream
from lingua_scheduler.state.link import Address
from maintenance.damage import Ward, dies, play
from servers import start_server

pytestmark = pytest.mark.store


@pytest.fixture(name="addresses", scope="module")
def one_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Address]]:
    with start_server(tmp_path_factory.mktemp("overview")) as server:
        yield [server.address]


async def look(w: Ward) -> tuple[Overview, dict[str, InstanceView]]:
    seen = await overview(w.connection, w.settings)
    return seen, {view.instance: view for view in seen.instances}


def test_a_deployment_at_work_is_counted(addresses: list[Address]) -> None:
    async def scenario(w: Ward) -> None:
        seen, instances = await look(w)
        one = instances["i1"]
        assert (one.state, one.host, one.pid, one.version, one.url) == ("alive", "h", 1, "v", "u")
        assert (one.sessions, one.nodes, one.inbox, one.pending, one.dead_letters) == (
            4,
            2,
            0,
            0,
            0,
        )
        assert 0 <= one.beat_age_ms < 5000
        here, there = seen.cells
        assert (here.cell, here.nodes, here.waiting, here.due) == ("c0", 1, 1, 0)
        assert here.timers > 4
        assert (there.cell, there.nodes, there.waiting) == ("c1", 1, 0)
        assert seen.sentence == "not well: 1 job waiting for a node"
        await w.deployment.dispatcher.cancel(w.here, w.waiting, "unwanted")
        seen, _ = await look(w)
        assert (seen.well, seen.sentence) == (True, "all is well: 1 instance, 2 nodes, 4 sessions")

    play(addresses, scenario)


def test_instances_are_alive_draining_dead_orphaned_or_gone(addresses: list[Address]) -> None:
    async def scenario(w: Ward) -> None:
        await w.deployment.dispatcher.cancel(w.here, w.waiting, "unwanted")
        leaving = Presence(
            w.connection, w.prefix, "leaving", InstanceInfo(), is_draining=lambda: True
        )
        await leaving.beat()
        await dies(w, "dead")
        orphan = InboxStream(w.connection, w.prefix, "orphan")
        await orphan.create()
        for _ in range(3):
            await PeerSender(w.connection, w.prefix, "x").send("orphan", RoomChanged("ABC"))
        first, *_ = await orphan.read_new(2)
        assert await orphan.bury(first.id, "too_slow")
        await w.ask_of("gone", "XADD", "dlq", "*", "kind", "push")
        await w.ask(w.here, "SADD", "dlqs", "gone")
        seen, instances = await look(w)
        states = {name: view.state for name, view in instances.items()}
        assert states == {
            "i1": "alive", "leaving": "draining", "dead": "dead", "orphan": "orphan",
            "gone": "gone",
        }  # fmt: skip
        view = instances["orphan"]
        assert (view.inbox, view.pending, view.dead_letters, view.uptime_ms) == (2, 1, 1, -1)
        assert seen.sentence == (
            "not well: dead is dead; orphan left an inbox without an owner; "
            "2 dead letters (`lingua dlq ls`)"
        )

    play(addresses, scenario)


def test_where_nobody_lives_that_comes_first(addresses: list[Address]) -> None:
    async def scenario(w: Ward) -> None:
        await dies(w, "i1")
        await w.ask(w.here, "ZADD", "due", await w.now_ms() - 6000, f"s|{w.speaker.session}")
        await w.ask(w.here, "HSET", f"node:{w.node}", "instance", "ghost")
        await w.ask(w.here, "HSET", f"session:{w.speaker.session}", "owner", "ghost")
        seen, _ = await look(w)
        assert (seen.sessions_of_nobody, seen.nodes_of_nobody) == (1, 1)
        assert (seen.cells[0].due, seen.cells[0].overdue) == (1, 1)
        assert seen.sentence == (
            "not well: no instance is alive (`lingua serve` starts one); i1 is dead; timers are "
            "overdue in c0; 1 node of unknown instances; 1 session of unknown "
            "instances; 1 job waiting for a node"
        )

    play(addresses, scenario)


def test_sessions_are_counted_page_by_page_up_to_a_bound(
    addresses: list[Address], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(w: Ward) -> None:
        for number in range(1200):
            await w.store.sessions.open(w.there, f"many-{number}", f"i{number % 3}")
        seen, instances = await look(w)
        assert (instances["i1"].sessions, seen.sessions_of_nobody) == (4 + 400, 800)
        assert not seen.is_cut
        monkeypatch.setattr(module, "TIMERS_MAX", 600)
        seen, instances = await look(w)
        assert seen.is_cut
        assert instances["i1"].sessions < 404

    play(addresses, scenario)


def test_a_damaged_list_of_nodes_does_not_end_the_look(addresses: list[Address]) -> None:
    async def scenario(w: Ward) -> None:
        await w.ask(w.here, "ZADD", "nodes", 0, "ghost")
        _, instances = await look(w)
        assert instances["i1"].nodes == 2

    play(addresses, scenario)
