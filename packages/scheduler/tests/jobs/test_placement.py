"""The placement policy by named scenarios: filters, order of pools, choice, refusals, explain."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingua_scheduler.jobs.fleet import node_view, pool_view
from lingua_scheduler.jobs.placement import (
    FILTERS,
    NODE_LABELS,
    CellFleet,
    NodeView,
    PlacementRequest,
    PlacementVerdict,
    PoolView,
    choose,
    explain,
    furthest_filter,
    may_take,
    pool_refuses,
    rank_pools,
    serves_direction,
)
from lingua_scheduler.jobs.requirement import Demand, Languages, PipelineStages, demand
from lingua_scheduler.nodes.capability import Capability
from lingua_scheduler.state.records import NodeRow, PoolRow

pytestmark = pytest.mark.unit

CORE = ("asr", "nmt", "tts")
ZH_EN = demand(Languages("zh", "en"), PipelineStages())


def pool(
    name: str,
    *pairs: str,
    services: tuple[str, ...] = CORE,
    features: tuple[str, ...] = (),
    speech: tuple[str, ...] | None = None,
    owner: str = "",
    labels: tuple[str, ...] = (),
) -> PoolView:
    """A pool of these pairs, or of any language when none is given."""
    known = tuple(sorted(services))
    can = Capability(
        dict.fromkeys(known, ()), features, pairs or None, speech=speech, owner=owner,
        labels=labels,
    )  # fmt: skip
    return PoolView(name, can, frozenset(known))


def fleet_of(*parts: PoolView | NodeView) -> CellFleet:
    pools = {part.id: part for part in parts if isinstance(part, PoolView)}
    nodes = {part.id: part for part in parts if isinstance(part, NodeView)}
    return CellFleet(pools, nodes)


def product(sources: tuple[str, ...] | None, targets: tuple[str, ...] | None) -> Capability:
    return Capability({}, sources=sources, targets=targets)


# Directions a node serves.


def test_three_heard_languages_times_two_targets_are_six_pairs() -> None:
    can = product(("de", "en", "zh"), ("en", "zh"))
    every = ("de", "en", "ja", "zh")
    served = {f"{s}>{t}" for s in every for t in every if serves_direction(can, s, t)}
    assert served == {"de>en", "de>zh", "en>en", "en>zh", "zh>en", "zh>zh"}
    assert can.breadth == 6
    assert "de>de" not in served


def test_one_direction_does_not_mean_the_other() -> None:
    can = Capability({}, pairs=("zh>en",))
    assert serves_direction(can, "zh", "en")
    assert not serves_direction(can, "en", "zh")


def test_explicit_pairs_are_not_multiplied() -> None:
    can = Capability({}, pairs=("ja>ko", "zh>en"))
    assert not serves_direction(can, "zh", "ko")


@pytest.mark.parametrize(
    ("can", "source", "target", "served"),
    [
        (product(None, None), "xx", "yy", True),
        (product(None, None), "*", "yy", True),
        (Capability({}, pairs=("zh>en",)), "*", "en", True),
        (Capability({}, pairs=("zh>en",)), "*", "zh", False),
        (Capability({}, pairs=("zh>en",)), "zh", "", True),
        (Capability({}, pairs=("zh>en",)), "en", "", False),
        (Capability({}, pairs=()), "zh", "en", False),
        (product(("zh",), ("en",)), "*", "en", True),
        (product(("zh",), ("en",)), "*", "ja", False),
        (product(("zh",), ("en",)), "zh", "", True),
        (product(("zh",), ("en",)), "en", "", False),
        (product(None, ("en",)), "ja", "en", True),
        (product(None, ("en",)), "ja", "ko", False),
        (product(("zh",), None), "zh", "ko", True),
        (product(("zh",), None), "ja", "ko", False),
    ],
)
def test_a_direction_is_served(can: Capability, source: str, target: str, served: bool) -> None:
    assert serves_direction(can, source, target) is served


# Filters of a pool.


@pytest.mark.parametrize(
    ("offered", "wanted", "reason"),
    [
        (pool("p", "zh>en"), ZH_EN, None),
        (pool("p", "en>zh"), ZH_EN, "lang_pair_unsupported"),
        (pool("p", "zh>en", speech=("en", "ja")), ZH_EN, None),
        (pool("p", "zh>en", speech=("ja",)), ZH_EN, "tts_lang_unsupported"),
        (pool("p", "zh>en", services=("asr", "nmt")), ZH_EN, "model_not_available"),
        (pool("p", "zh>en"), replace(ZH_EN, features=("x",)), "feature_unsupported"),
        (pool("p", "zh>en", features=("x", "y")), replace(ZH_EN, features=("x",)), None),
        (pool("p", "zh>en", owner="acme"), ZH_EN, "not_in_public_pool"),
        (pool("p", "zh>en", owner="acme"), replace(ZH_EN, tenant="zeta"), "not_in_public_pool"),
        (pool("p", "zh>en", owner="acme"), replace(ZH_EN, tenant="acme"), None),
        (pool("p", "zh>en"), replace(ZH_EN, tenant="acme"), None),
        (pool("p", "zh>en", labels=("eu", "gpu", "x")), replace(ZH_EN, labels=("gpu", "eu")), None),
        (pool("p", "zh>en", labels=("eu",)), ZH_EN, None),
        (pool("p", "zh>en"), replace(ZH_EN, labels=("p",)), "not_in_pinned_pool"),
        (
            pool("p", "zh>en", labels=("eu",)),
            replace(ZH_EN, labels=("eu", "gpu")),
            "not_in_pinned_pool",
        ),
    ],
)
def test_a_pool_is_judged(offered: PoolView, wanted: Demand, reason: str | None) -> None:
    assert pool_refuses(offered, wanted) == reason


def test_the_first_filter_that_objects_is_named() -> None:
    hopeless = pool("p", "en>zh", services=(), speech=("ja",), owner="acme")
    wanted = replace(ZH_EN, features=("x",), labels=("q",))
    better = [
        replace(hopeless, can=replace(hopeless.can, pairs=("zh>en",))),
        pool("p", "zh>en", services=(), owner="acme"),
        pool("p", "zh>en", owner="acme"),
        pool("p", "zh>en", features=("x",), owner="acme"),
        pool("p", "zh>en", features=("x",)),
    ]
    reasons = [pool_refuses(offered, wanted) for offered in (hopeless, *better)]
    assert reasons == list(FILTERS)


def test_it_is_explained_which_labels_a_node_lacks() -> None:
    fleet = fleet_of(
        pool("p", "zh>en", labels=("eu",)), pool("q", "zh>en", labels=("eu", "gpu")),
        NodeView("bare", "p"), NodeView("busy", "q", over=True),
    )  # fmt: skip
    _, lines = explain(fleet, PlacementRequest(replace(ZH_EN, labels=("gpu", "eu", "quiet"))))
    assert {line.node: line.lacks for line in lines} == {
        "bare": ("gpu", "quiet"),
        "busy": ("quiet",),
    }
    _, lines = explain(fleet, PlacementRequest(replace(ZH_EN, labels=("gpu", "eu"))))
    assert {line.node: (line.removed_by, line.lacks) for line in lines} == {
        "bare": ("not_in_pinned_pool", ("gpu",)),
        "busy": ("resource_threshold_exceeded", ()),
    }


def test_a_service_that_is_marked_unavailable_is_not_there() -> None:
    can = Capability({"asr": (), "nmt": (), "tts": ()}, pairs=("zh>en",))
    assert pool_refuses(PoolView("p", can, frozenset(CORE)), ZH_EN) is None
    lacking = PoolView("p", can, frozenset({"asr", "tts"}))
    assert pool_refuses(lacking, ZH_EN) == "model_not_available"


def test_auto_with_auto_langs_needs_every_source() -> None:
    wanted = demand(Languages("auto", "en", auto=("zh", "ja")), PipelineStages())
    assert pool_refuses(pool("p", "zh>en"), wanted) == "lang_pair_unsupported"
    assert pool_refuses(pool("p", "ja>en", "zh>en"), wanted) is None


def test_auto_without_auto_langs_needs_any_source() -> None:
    wanted = demand(Languages("auto", "en"), PipelineStages())
    assert pool_refuses(pool("p", "ja>en"), wanted) is None
    assert pool_refuses(pool("p", "en>ja"), wanted) == "lang_pair_unsupported"


def test_two_way_needs_both_directions_and_both_voices() -> None:
    wanted = demand(Languages("auto", "en", two_way=("zh", "en")), PipelineStages())
    assert pool_refuses(pool("p", "zh>en"), wanted) == "lang_pair_unsupported"
    both = pool("p", "en>zh", "zh>en", speech=("en",))
    assert pool_refuses(both, wanted) == "tts_lang_unsupported"
    assert pool_refuses(pool("p", "en>zh", "zh>en", speech=("en", "zh")), wanted) is None


def test_spoken_languages_do_not_matter_to_who_wants_text() -> None:
    wanted = demand(Languages("zh", "en"), PipelineStages(use_tts=False))
    assert pool_refuses(pool("p", "zh>en", speech=("ja",)), wanted) is None


def test_pairing_opens_a_private_or_unpinned_pool_and_nothing_else() -> None:
    private = pool("p", "zh>en", owner="acme")
    assert pool_refuses(private, replace(ZH_EN, labels=("q",)), paired=True) is None
    assert pool_refuses(private, Demand(("en>zh",)), paired=True) == "lang_pair_unsupported"
    lacking = pool("p", "zh>en", services=("asr",), owner="acme")
    assert pool_refuses(lacking, ZH_EN, paired=True) == "model_not_available"


# The order of pools.


def test_specialists_come_before_polyglots_and_those_before_who_serves_anything() -> None:
    pools = [pool("any"), pool("poly", "en>zh", "ja>en", "zh>en"), pool("special", "zh>en")]
    assert [[p.id for p in g] for g in rank_pools(pools, ZH_EN)] == [["special"], ["poly"], ["any"]]


def test_fewer_services_then_fewer_features_make_a_specialist() -> None:
    pools = [
        pool("services", "zh>en", services=(*CORE, "tone")),
        pool("features", "zh>en", features=("x",)),
        pool("plain", "zh>en"),
    ]
    order = [p.id for group in rank_pools(pools, ZH_EN) for p in group]
    assert order == ["plain", "features", "services"]


def test_equally_broad_pools_are_one_group_in_order_of_their_ids() -> None:
    pools = [pool("b", "zh>en", speech=("en",)), pool("a", "zh>en"), pool("c", "ja>en", "zh>en")]
    assert [[p.id for p in g] for g in rank_pools(pools, ZH_EN)] == [["a", "b"], ["c"]]


def test_pools_that_do_not_serve_are_not_ranked() -> None:
    assert rank_pools([pool("p", "en>zh")], ZH_EN) == []


# The pool that served last.


def three_alike(*leased: int) -> CellFleet:
    """Three equally broad pools with one node of 16 slots each, so many of them taken."""
    pools = [pool(name, "zh>en") for name in "abc"]
    nodes = [
        NodeView(f"n-{name}", name, max_jobs=16, leased=taken)
        for name, taken in zip("abc", leased, strict=True)
    ]
    return CellFleet({one.id: one for one in pools}, {one.id: one for one in nodes})


@pytest.mark.parametrize("tie", [0.0, 0.4, 0.99])
@pytest.mark.parametrize("kept", ["a", "b", "c"])
def test_of_equally_broad_pools_the_one_that_served_last_is_preferred(
    kept: str, tie: float
) -> None:
    assert (
        choose(three_alike(0, 0, 0), PlacementRequest(ZH_EN, sticky=kept, tie=tie)).node
        == f"n-{kept}"
    )
    leased = {name: 3 if name == kept else 0 for name in "abc"}
    fleet = three_alike(*leased.values())
    assert choose(fleet, PlacementRequest(ZH_EN, sticky=kept, tie=tie)).node == f"n-{kept}"


@pytest.mark.parametrize("kept", ["a", "b", "c"])
def test_it_is_left_when_another_is_clearly_less_loaded_or_it_is_full(kept: str) -> None:
    for taken in (5, 16):
        leased = {name: taken if name == kept else 0 for name in "abc"}
        chosen = choose(three_alike(*leased.values()), PlacementRequest(ZH_EN, sticky=kept)).node
        assert chosen != f"n-{kept}"


def test_a_pool_that_does_not_serve_any_more_is_no_preference() -> None:
    fleet = three_alike(0, 0, 0)
    assert choose(fleet, PlacementRequest(ZH_EN, sticky="gone")) == choose(
        fleet, PlacementRequest(ZH_EN)
    )


def test_specialists_come_before_the_pool_that_served_last() -> None:
    fleet = three_alike(8, 0, 0)
    fleet.pools["broad"] = pool("broad", "zh>en", "ja>en")
    fleet.nodes["n-broad"] = NodeView("n-broad", "broad", max_jobs=16)
    assert choose(fleet, PlacementRequest(ZH_EN, sticky="broad")).node in ("n-b", "n-c")


# What keeps one node from work.


@pytest.mark.parametrize(
    ("node", "label"),
    [
        (NodeView("n", "p"), None),
        (NodeView("n", "p", status="offline", draining=True, over=True, leased=4), "offline"),
        (NodeView("n", "p", status="registering"), "status_not_ready"),
        (NodeView("n", "p", status="degraded", over=True, leased=4), "status_not_ready"),
        (NodeView("n", "p", draining=True, over=True, leased=4), "status_not_ready"),
        (NodeView("n", "p", over=True, leased=4), "resource_threshold_exceeded"),
        (NodeView("n", "p", leased=4), "capacity_exceeded"),
        (NodeView("n", "p", leased=2, extra=2), "capacity_exceeded"),
        (NodeView("n", "p", leased=9), "capacity_exceeded"),
        (NodeView("n", "p", leased=3), None),
        (NodeView("n", "p", max_jobs=1), None),
        (NodeView("n", "p", max_jobs=1, extra=1), "capacity_exceeded"),
    ],
)
def test_a_node_is_blocked_by_the_first_of_its_troubles(node: NodeView, label: str | None) -> None:
    assert node.blocked_by == label


def test_load_is_the_share_of_slots_with_the_tie_behind_the_point() -> None:
    assert NodeView("n", "p", leased=1, extra=1, max_jobs=8, tie=0.5).load == 250.5
    assert NodeView("n", "p", leased=1, max_jobs=3, tie=0.25).load == 333.25
    assert NodeView("n", "p", tie=0.75).load == 0.75
    assert NodeView("n", "p", leased=4).load == 1000


# The choice.


def test_the_least_loaded_node_of_a_pool_gets_the_job() -> None:
    fleet = fleet_of(pool("p"), NodeView("a", "p", leased=2), NodeView("b", "p", leased=1))
    assert choose(fleet, PlacementRequest(ZH_EN)) == PlacementVerdict("b")


def test_load_is_relative_to_what_a_node_can_take() -> None:
    large, small = NodeView("a", "p", max_jobs=10, leased=2), NodeView("b", "p", leased=1)
    assert choose(fleet_of(pool("p"), small, large), PlacementRequest(ZH_EN)).node == "a"


def test_equal_loads_are_decided_by_the_tie_and_then_by_the_id() -> None:
    ties = fleet_of(pool("p"), NodeView("a", "p", tie=0.9), NodeView("b", "p", tie=0.1))
    assert choose(ties, PlacementRequest(ZH_EN)).node == "b"
    same = fleet_of(pool("p"), NodeView("b", "p"), NodeView("a", "p"))
    assert choose(same, PlacementRequest(ZH_EN)).node == "a"


def test_the_second_choice_gets_it_when_the_first_is_full() -> None:
    fleet = fleet_of(pool("p"), NodeView("a", "p", leased=4), NodeView("b", "p", leased=3))
    assert choose(fleet, PlacementRequest(ZH_EN)).node == "b"


# Nodes of the session's own instance.


def placed_near(near: str, *nodes: NodeView) -> str:
    """Return the node that a job of a session of this instance gets."""
    return choose(fleet_of(pool("p"), *nodes), PlacementRequest(ZH_EN, near=near)).node


def on(instance: str, leased: int, max_jobs: int = 8, name: str = "", tie: float = 0.0) -> NodeView:
    name = name or f"of-{instance}"
    return NodeView(name, "p", max_jobs=max_jobs, leased=leased, instance=instance, tie=tie)


def test_of_equally_loaded_nodes_one_of_the_own_instance_gets_the_job() -> None:
    nodes = on("a", 2, tie=0.1), on("b", 2, tie=0.9)
    assert [placed_near(near, *nodes) for near in ("a", "b", "c", "")] == [
        "of-a", "of-b", "of-a", "of-a",
    ]  # fmt: skip


@pytest.mark.parametrize(("more", "chosen"), [(0, "of-b"), (1, "of-b"), (2, "of-a"), (3, "of-a")])
def test_a_node_elsewhere_wins_if_it_is_less_loaded_by_a_quarter_of_the_slots(
    more: int, chosen: str
) -> None:
    assert placed_near("b", on("a", 1, tie=0.1), on("b", 1 + more, tie=0.1)) == chosen


def test_the_least_loaded_of_the_own_instance_gets_the_job() -> None:
    nodes = on("a", 0), on("b", 1, name="second"), on("b", 0, name="first", tie=0.5)
    assert placed_near("b", *nodes) == "first"


def test_a_full_node_of_the_own_instance_is_not_waited_for() -> None:
    assert placed_near("b", on("a", 3, max_jobs=4), on("b", 4, max_jobs=4)) == "of-a"


def test_only_the_least_loaded_few_are_considered() -> None:
    others = [on("a", 0, name=f"other-{number}") for number in range(8)]
    assert placed_near("b", *others[:7], on("b", 0, tie=0.5)) == "of-b"
    assert placed_near("b", *others, on("b", 0, tie=0.5)) == "other-0"


def test_of_two_pools_the_one_with_a_node_of_the_own_instance_is_preferred() -> None:
    near = NodeView("near", "q", leased=1, max_jobs=8, instance="b")
    far = NodeView("far", "p", max_jobs=8, instance="a")
    fleet = fleet_of(pool("p"), pool("q"), near, far)
    assert choose(fleet, PlacementRequest(ZH_EN, near="b")).node == "near"
    assert choose(fleet, PlacementRequest(ZH_EN, near="a")).node == "far"


def test_a_registering_node_is_not_selectable_and_a_ready_one_is() -> None:
    node = NodeView("a", "p", status="registering")
    assert choose(fleet_of(pool("p"), node), PlacementRequest(ZH_EN)).node == ""
    assert (
        choose(fleet_of(pool("p"), replace(node, status="ready")), PlacementRequest(ZH_EN)).node
        == "a"
    )


def test_a_busy_specialist_comes_before_an_idle_polyglot() -> None:
    special, poly = pool("s", "zh>en"), pool("p", "en>zh", "zh>en")
    fleet = fleet_of(special, poly, NodeView("sn", "s", leased=3), NodeView("pn", "p"))
    assert choose(fleet, PlacementRequest(ZH_EN)).node == "sn"


def test_a_polyglot_helps_out_when_the_specialists_are_full() -> None:
    special, poly = pool("s", "zh>en"), pool("p", "en>zh", "zh>en")
    fleet = fleet_of(special, poly, NodeView("sn", "s", leased=4), NodeView("pn", "p"))
    assert choose(fleet, PlacementRequest(ZH_EN)).node == "pn"


def equal_pools(*loads: int) -> CellFleet:
    """Pools p0, p1... of equal breadth with one node each, n0, n1..., so much loaded."""
    pools = [pool(f"p{i}", "zh>en", speech=("en", f"x{i}")) for i in range(len(loads))]
    nodes = [NodeView(f"n{i}", f"p{i}", leased=leased) for i, leased in enumerate(loads)]
    return fleet_of(*pools, *nodes)


@pytest.mark.parametrize(
    ("loads", "tie", "chosen"),
    [
        ((2, 1, 0), 0.0, "n1"),
        ((2, 1, 0), 0.4, "n2"),
        ((1, 2, 2), 0.99, "n0"),
        ((1, 1, 0), 0.0, "n0"),
        ((4, 4, 2), 0.0, "n2"),
        ((4, 2, 1), 0.0, "n2"),
        ((2, 4, 4), 0.4, "n0"),
    ],
    ids=[
        "the first two are compared",
        "from where the chance says",
        "around the end",
        "the first of equals",
        "full ones are passed over",
        "and not counted",
        "one is enough",
    ],
)
def test_two_of_equally_broad_pools_are_compared(
    loads: tuple[int, ...], tie: float, chosen: str
) -> None:
    assert choose(equal_pools(*loads), PlacementRequest(ZH_EN, tie=tie)).node == chosen


def test_a_node_that_was_tried_is_left_out_but_its_next_process_is_not() -> None:
    fleet = fleet_of(pool("p"), NodeView("a", "p", boot="b1"), NodeView("b", "p", leased=1))
    tried = PlacementRequest(ZH_EN, tried=frozenset({("a", "b1")}))
    assert choose(fleet, tried).node == "b"
    assert choose(fleet, replace(tried, tried=frozenset({("a", "b0")}))).node == "a"


def test_a_node_to_avoid_is_avoided_if_another_can_take_the_job() -> None:
    fleet = fleet_of(pool("p"), NodeView("a", "p"), NodeView("b", "p", leased=3))
    assert choose(fleet, PlacementRequest(ZH_EN, avoid="a")).node == "b"
    fleet.nodes["b"] = replace(fleet.nodes["b"], leased=4)
    assert choose(fleet, PlacementRequest(ZH_EN, avoid="a")).node == "a"


def test_avoiding_goes_as_far_as_a_less_specialised_pool() -> None:
    special, poly = pool("s", "zh>en"), pool("p", "en>zh", "zh>en")
    fleet = fleet_of(special, poly, NodeView("sn", "s"), NodeView("pn", "p"))
    assert choose(fleet, PlacementRequest(ZH_EN, avoid="sn")).node == "pn"


# Named nodes.


def two_nodes(**named: Any) -> CellFleet:
    """An idle node and the one that is named, with what is said of it."""
    return fleet_of(
        pool("p", "zh>en"), NodeView("idle", "p"), replace(NodeView("named", "p", "b1"), **named)
    )


def wish_for(node: str, role: str) -> PlacementRequest:
    return (
        PlacementRequest(ZH_EN, affinity=node)
        if role == "affinity"
        else PlacementRequest(ZH_EN, preferred=node)
    )


@pytest.mark.parametrize("role", ["affinity", "preferred"])
def test_a_named_node_is_taken_though_another_is_less_loaded(role: str) -> None:
    wish = wish_for("named", role)
    assert choose(two_nodes(leased=3), wish).node == "named"


@pytest.mark.parametrize("role", ["affinity", "preferred"])
@pytest.mark.parametrize(
    "trouble",
    [{"leased": 4}, {"status": "degraded"}, {"draining": True}, {"over": True}],
    ids=["full", "not ready", "draining", "over"],
)
def test_a_named_node_that_is_not_fully_eligible_is_passed_over(
    role: str, trouble: dict[str, Any]
) -> None:
    wish = wish_for("named", role)
    assert choose(two_nodes(**trouble), wish).node == "idle"


def test_a_named_node_that_was_tried_is_passed_over() -> None:
    wish = PlacementRequest(ZH_EN, affinity="named", tried=frozenset({("named", "b1")}))
    assert choose(two_nodes(), wish).node == "idle"


def test_a_named_node_that_nobody_knows_is_passed_over() -> None:
    wish = PlacementRequest(ZH_EN, affinity="ghost", preferred="ghost")
    assert choose(two_nodes(), wish).node in {"idle", "named"}
    assert not may_take(two_nodes(), wish, "ghost")


def test_a_named_node_that_cannot_do_the_work_is_passed_over() -> None:
    fleet = fleet_of(pool("p", "zh>en"), pool("q", "en>zh"), NodeView("a", "p"), NodeView("b", "q"))
    assert choose(fleet, PlacementRequest(ZH_EN, preferred="b")).node == "a"


def test_affinity_comes_before_preference_and_preference_before_the_pools() -> None:
    fleet = fleet_of(pool("p"), *(NodeView(name, "p") for name in "abc"))
    assert choose(fleet, PlacementRequest(ZH_EN, affinity="c", preferred="b")).node == "c"
    fleet.nodes["c"] = replace(fleet.nodes["c"], leased=4)
    assert choose(fleet, PlacementRequest(ZH_EN, affinity="c", preferred="b")).node == "b"


def test_affinity_goes_before_avoidance() -> None:
    assert (
        choose(two_nodes(), PlacementRequest(ZH_EN, affinity="named", avoid="named")).node
        == "named"
    )


# Private nodes.


@pytest.fixture(name="private")
def private_fleet() -> CellFleet:
    return fleet_of(pool("p", "zh>en", owner="acme"), NodeView("n", "p"))


def test_a_private_node_takes_no_public_job(private: CellFleet) -> None:
    refused = PlacementVerdict(code="NO_AVAILABLE_NODE", label="not_in_public_pool")
    assert choose(private, PlacementRequest(ZH_EN)) == refused
    assert choose(private, PlacementRequest(ZH_EN, preferred="n")) == refused


def test_a_private_node_works_for_its_tenant(private: CellFleet) -> None:
    assert choose(private, PlacementRequest(replace(ZH_EN, tenant="acme"))).node == "n"
    assert choose(private, PlacementRequest(replace(ZH_EN, tenant="zeta"))).node == ""


def test_a_private_node_works_for_the_session_paired_with_it(private: CellFleet) -> None:
    assert choose(private, PlacementRequest(replace(ZH_EN, paired="n"), preferred="n")).node == "n"


def test_pairing_with_one_private_node_does_not_open_its_neighbour(private: CellFleet) -> None:
    private.nodes["other"] = NodeView("other", "p")
    private.nodes["n"] = replace(private.nodes["n"], leased=4)
    paired = replace(ZH_EN, paired="n")
    assert choose(private, PlacementRequest(paired, preferred="n")).node == ""
    assert choose(private, PlacementRequest(paired, preferred="other")).node == ""


# Refusals.


def test_with_no_pool_at_all_the_label_says_so() -> None:
    assert choose(CellFleet(), PlacementRequest(ZH_EN)) == PlacementVerdict(
        code="NO_POOL_FOR_LANG_PAIR", label="no_nodes"
    )


@pytest.mark.parametrize(
    ("offered", "wanted", "code", "label"),
    [
        (pool("p", "en>zh"), ZH_EN, "NO_POOL_FOR_LANG_PAIR", "lang_pair_unsupported"),
        (pool("p", speech=("ja",)), ZH_EN, "NO_POOL_FOR_LANG_PAIR", "tts_lang_unsupported"),
        (pool("p", services=("asr",)), ZH_EN, "NO_AVAILABLE_NODE", "model_not_available"),
        (pool("p"), Demand((), features=("x",)), "NO_AVAILABLE_NODE", "feature_unsupported"),
        (pool("p", owner="acme"), ZH_EN, "NO_AVAILABLE_NODE", "not_in_public_pool"),
        (pool("p"), Demand((), labels=("q",)), "NO_AVAILABLE_NODE", "not_in_pinned_pool"),
    ],
)
def test_a_refusal_by_a_pool_has_its_code_and_label(
    offered: PoolView, wanted: Demand, code: str, label: str
) -> None:
    fleet = fleet_of(offered, NodeView("n", "p"))
    assert choose(fleet, PlacementRequest(wanted)) == PlacementVerdict(code=code, label=label)


def test_the_reason_of_the_pool_that_came_furthest_is_told() -> None:
    pools = [pool("a", "en>zh"), pool("b", services=("asr",)), pool("c", speech=("ja",))]
    assert furthest_filter(pools, ZH_EN) == "model_not_available"
    assert furthest_filter([], ZH_EN) == "no_nodes"


@pytest.mark.parametrize(
    ("nodes", "code", "label"),
    [
        ([{"status": "offline"}, {"status": "offline"}], "EMPTY_POOL", "offline"),
        ([{"leased": 4}], "NO_AVAILABLE_NODE", "capacity_exceeded"),
        ([{"over": True}], "NO_AVAILABLE_NODE", "resource_threshold_exceeded"),
        ([{"draining": True}], "NO_AVAILABLE_NODE", "status_not_ready"),
        ([{"status": "degraded"}], "NO_AVAILABLE_NODE", "status_not_ready"),
        ([{"status": "offline"}, {"leased": 4}], "NO_AVAILABLE_NODE", "offline"),
        ([{"status": "offline"}, {"leased": 4}, {"leased": 5}], "NO_AVAILABLE_NODE",
         "capacity_exceeded"),
        ([{"over": True}, {"draining": True}], "NO_AVAILABLE_NODE", "status_not_ready"),
        ([{"over": True}, {"leased": 4}], "NO_AVAILABLE_NODE", "capacity_exceeded"),
    ],
    ids=[
        "all offline",
        "full",
        "over",
        "draining",
        "degraded",
        "a tie goes by order",
        "the most frequent",
        "not ready before over",
        "full before over",
    ],
)  # fmt: skip
def test_a_refusal_by_the_nodes_has_the_label_of_most_of_them(
    nodes: list[dict[str, Any]], code: str, label: str
) -> None:
    views = [replace(NodeView(f"n{i}", "p"), **about) for i, about in enumerate(nodes)]
    assert choose(fleet_of(pool("p"), *views), PlacementRequest(ZH_EN)) == PlacementVerdict(
        code=code, label=label
    )


def test_a_pool_whose_last_node_has_left_is_empty() -> None:
    assert choose(fleet_of(pool("p")), PlacementRequest(ZH_EN)).code == "EMPTY_POOL"


def test_only_nodes_that_could_serve_are_counted_in_a_refusal() -> None:
    fleet = fleet_of(
        pool("p", "zh>en"), pool("q", "en>zh"), NodeView("a", "p", leased=4),
        NodeView("b", "q", status="offline"), NodeView("c", "q", status="offline"),
    )  # fmt: skip
    assert choose(fleet, PlacementRequest(ZH_EN)).label == "capacity_exceeded"


def test_a_free_node_that_was_tried_leaves_the_label_excluded() -> None:
    fleet = fleet_of(pool("p"), NodeView("n", "p", boot="b"))
    refused = choose(fleet, PlacementRequest(ZH_EN, tried=frozenset({("n", "b")})))
    assert refused == PlacementVerdict(code="NO_AVAILABLE_NODE", label="excluded")


# Explaining.


def test_explain_gives_every_node_its_reason_or_its_load() -> None:
    fleet = fleet_of(
        pool("p", "zh>en"), pool("q", "en>zh"),
        NodeView("busy", "p", leased=1, tie=0.5), NodeView("full", "p", leased=4),
        NodeView("idle", "p"), NodeView("tried", "p", boot="b"), NodeView("wrong", "q"),
    )  # fmt: skip
    verdict, lines = explain(fleet, PlacementRequest(ZH_EN, tried=frozenset({("tried", "b")})))
    assert verdict == PlacementVerdict("idle")
    assert [(line.node, line.removed_by, line.chosen) for line in lines] == [
        ("idle", "", True),
        ("tried", "excluded", False),
        ("busy", "", False),
        ("full", "capacity_exceeded", False),
        ("wrong", "lang_pair_unsupported", False),
    ]
    assert lines[2].load == 250.5
    assert lines[4].pool == "q"


def test_explain_tells_the_filter_of_the_pool_before_the_trouble_of_the_node() -> None:
    fleet = fleet_of(pool("p", "en>zh"), NodeView("n", "p", boot="b", status="offline"))
    verdict, lines = explain(fleet, PlacementRequest(ZH_EN, tried=frozenset({("n", "b")})))
    assert verdict.code == "NO_POOL_FOR_LANG_PAIR"
    assert lines[0].removed_by == "lang_pair_unsupported"


def test_explain_shows_a_paired_private_node_as_chosen(private: CellFleet) -> None:
    wish = PlacementRequest(replace(ZH_EN, paired="n"), preferred="n")
    verdict, lines = explain(private, wish)
    assert verdict.node == "n"
    assert (lines[0].removed_by, lines[0].chosen) == ("", True)


def test_explain_does_not_call_a_node_private_to_the_session_paired_with_it(
    private: CellFleet,
) -> None:
    private.nodes |= {"n": NodeView("n", "p", leased=4), "other": NodeView("other", "p")}
    _, lines = explain(private, PlacementRequest(replace(ZH_EN, paired="n"), preferred="n"))
    reasons = {line.node: line.removed_by for line in lines}
    assert reasons == {"n": "capacity_exceeded", "other": "not_in_public_pool"}


def test_explaining_an_empty_fleet_has_no_lines() -> None:
    assert explain(CellFleet(), PlacementRequest(ZH_EN))[1] == []


# Any fleet.

POOLS = (
    pool("a", "zh>en"),
    pool("b", "en>zh", "zh>en"),
    pool("c"),
    pool("d", "zh>en", owner="acme"),
    pool("e", "en>zh"),
    pool("f", "zh>en", services=("asr", "nmt")),
)
nodes = st.builds(
    NodeView,
    id=st.sampled_from([f"n{i}" for i in range(8)]),
    pool=st.sampled_from([p.id for p in POOLS]),
    boot=st.sampled_from(["b0", "b1"]),
    status=st.sampled_from(["ready", "ready", "ready", "registering", "degraded", "offline"]),
    draining=st.sampled_from([False, False, True]),
    over=st.sampled_from([False, False, True]),
    max_jobs=st.integers(1, 3),
    leased=st.integers(0, 3),
    tie=st.floats(0, 1, exclude_max=True),
)
fleets = st.lists(nodes, max_size=8).map(lambda found: fleet_of(*POOLS, *found))
names = st.sampled_from(["", *(f"n{i}" for i in range(8))])
wishes = st.builds(
    PlacementRequest,
    st.builds(replace, st.just(ZH_EN), tenant=st.sampled_from(["", "acme"]), paired=names),
    affinity=names,
    preferred=names,
    tried=st.frozensets(
        st.tuples(st.sampled_from([f"n{i}" for i in range(8)]), st.sampled_from(["b0", "b1"])),
        max_size=3,
    ),
    avoid=names,
    tie=st.floats(0, 1, exclude_max=True),
)


@given(fleets, wishes)
def test_whoever_is_chosen_may_take_it_and_nobody_could_when_nobody_is(
    fleet: CellFleet, wish: PlacementRequest
) -> None:
    verdict, lines = explain(fleet, wish)
    assert len(lines) == len(fleet.nodes)
    if verdict.node:
        assert may_take(fleet, wish, verdict.node)
        assert [line.node for line in lines if line.chosen] == [verdict.node]
    else:
        assert verdict.code in {"NO_POOL_FOR_LANG_PAIR", "EMPTY_POOL", "NO_AVAILABLE_NODE"}
        assert verdict.label in {"no_nodes", "excluded", *FILTERS, *NODE_LABELS}
        public = replace(wish, demand=replace(wish.demand, paired=""))
        assert not any(may_take(fleet, public, name) for name in fleet.nodes)


@given(fleets, wishes)
def test_without_a_named_node_no_broader_pool_is_taken_than_needed(
    fleet: CellFleet, wish: PlacementRequest
) -> None:
    wish = replace(wish, affinity="", preferred="", avoid="")
    chosen = choose(fleet, wish).node
    public = replace(wish, demand=replace(wish.demand, paired=""))
    able = [name for name in fleet.nodes if may_take(fleet, public, name)]
    if chosen:
        mine = fleet.pools[fleet.nodes[chosen].pool].breadth
        assert mine == min(fleet.pools[fleet.nodes[name].pool].breadth for name in able)
        mates = [n for n in able if fleet.nodes[n].pool == fleet.nodes[chosen].pool]
        assert fleet.nodes[chosen].load == min(fleet.nodes[n].load for n in mates)
    else:
        assert able == []


# Reading rows of the store.


def test_a_row_of_the_store_is_the_pool_placement_sees() -> None:
    row = PoolRow(
        "abc",
        msgspec.json.encode(
            {
                "breadth": 2041,
                "any": False,
                "pairs": ["en>zh", "zh>en"],
                "tts": ["en"],
                "services": ["asr", "nmt"],
                "features": ["x"],
                "owner": "acme",
            }
        ),
        members=3,
        free=1,
    )
    view = pool_view(row)
    assert (view.id, view.can.owner) == ("abc", "acme")
    assert view.services == {"asr", "nmt"}
    assert view.can.pairs == ("en>zh", "zh>en")
    assert view.can.speech == ("en",)
    assert view.breadth == 2041


def test_a_row_of_the_store_is_the_node_placement_sees() -> None:
    row = NodeRow(
        node="n", status="ready", draining=True, over=True, max=4, extra=1, pool="p", boot="b",
        acks=True, instance="i", leased=2, score=500.25 * 2**20, beat_age_ms=7, info="",
    )  # fmt: skip
    expected = NodeView("n", "p", "b", "ready", True, True, 4, 2, 1, 0.25, "i")  # noqa: FBT003
    assert node_view(row) == expected
