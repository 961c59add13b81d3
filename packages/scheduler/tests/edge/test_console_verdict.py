from __future__ import annotations

from typing import Any

import pytest

from edge.console_states import instance, node, queue
from lingua_scheduler.edge.console.rates import RecentTraffic
from lingua_scheduler.edge.console.verdict import Observed, judge
from lingua_scheduler.metrics import MetricBucket

pytestmark = pytest.mark.unit


def traffic(lag_ms: float = 0, **counts: int) -> RecentTraffic:
    named = {name.replace("_", " ", 1): value for name, value in counts.items()}
    times = {"lag": (1, lag_ms / 1000)} if lag_ms else {}
    return RecentTraffic([MetricBucket(1, 10_000, dict(named), times, ())])


def seen(**more: Any) -> Observed:
    usual: dict[str, Any] = {
        "store_up": True, "draining": False, "instances": (instance(),), "nodes": (node(),),
        "queues": (queue(),), "dead_letters": 0, "sessions": 2, "traffic": traffic(),
    }  # fmt: skip
    return Observed(**(usual | more))


def test_all_is_well() -> None:
    verdict = judge(seen())
    assert (verdict.state, verdict.problems) == ("well", ())
    assert verdict.sentence == "all is well: 1 instance, 1 node, 2 sessions"


FULL = node(health="full", leased=4)


@pytest.mark.parametrize(
    ("what", "state", "codes"),
    [
        ({"store_up": False}, "bad", ["store"]),
        ({"draining": True}, "warn", ["draining"]),
        ({"nodes": ()}, "bad", ["no_nodes"]),
        ({"nodes": (node(health="offline"),)}, "bad", ["no_node_ready", "nodes_offline"]),
        ({"nodes": (node(), node("n2", "offline"))}, "warn", ["nodes_offline"]),
        ({"nodes": (node(), node("n2", "degraded"))}, "warn", ["nodes_degraded"]),
        ({"nodes": (node(), node("n2", "busy"))}, "warn", ["nodes_busy"]),
        ({"nodes": (node(), node("n2", "drained"))}, "warn", ["nodes_drained"]),
        ({"queues": (queue(2),)}, "warn", ["queue"]),
        ({"nodes": (FULL,), "queues": (queue(9),)}, "bad", ["queue"]),
        ({"nodes": (FULL,)}, "warn", ["full"]),
        ({"instances": (instance(), instance("i2", "dead"))}, "warn", ["instances_dead"]),
        ({"instances": (instance(), instance("i2", "orphan"))}, "warn", ["instances_orphan"]),
        ({"instances": (instance(inbox=101),)}, "warn", ["inboxes"]),
        ({"dead_letters": 2}, "warn", ["dead_letters"]),
        ({"traffic": traffic(lag_ms=30)}, "warn", ["lag"]),
        ({"traffic": traffic(lag_ms=300)}, "bad", ["lag"]),
        ({"traffic": traffic(outcome_failed=2, outcome_completed=2)}, "well", []),
        ({"traffic": traffic(outcome_failed=5, outcome_completed=95)}, "warn", ["lost"]),
        ({"traffic": traffic(outcome_expired=50, outcome_completed=50)}, "bad", ["lost"]),
        ({"traffic": traffic(**{"refused_no node: full": 3})}, "warn", ["no_node"]),
        ({"traffic": traffic(**{"refused_connection: x": 3})}, "warn", ["connections"]),
        ({"traffic": traffic(**{"refused_message: X": 3})}, "well", []),
    ],
)
def test_each_trouble_is_found(what: dict[str, Any], state: str, codes: list[str]) -> None:
    verdict = judge(seen(**what))
    assert (verdict.state, [problem.code for problem in verdict.problems]) == (state, codes)


def test_the_worst_comes_first_and_the_sentence_says_how_many_more() -> None:
    nodes = (FULL, node("n2", "offline"), node("n3", "offline"))
    verdict = judge(seen(nodes=nodes, queues=(queue(9), queue(3, "c1")), dead_letters=1))
    assert verdict.sentence == "12 jobs wait for a node: all 4 slots are taken, and 2 more"
    assert [problem.about for problem in verdict.problems] == [("c0", "c1"), ("n2", "n3"), ()]
    assert verdict.problems[1].text == "2 nodes are offline"
    assert verdict.problems[2].text == "1 dead letter (`lingua dlq ls`)"


def test_names_are_bounded() -> None:
    many = tuple(node(f"n{number}", "offline") for number in range(100))
    [_, offline] = judge(seen(nodes=many)).problems
    assert (offline.text, len(offline.about)) == ("100 nodes are offline", 8)
