"""Tenants that no known node may serve, and the reports of changes."""

import pytest

from lingua_scheduler.config import Settings
from lingua_scheduler.config.tree import Tenant
from lingua_scheduler.jobs.pinning import Pins, old_names
from lingua_scheduler.jobs.placement import PoolView
from lingua_scheduler.nodes.capability import Capability

pytestmark = pytest.mark.unit

SETTINGS = Settings(
    tenants=(
        Tenant(id="acme", labels=("gpu", "eu")),
        Tenant(id="old", pools=("en-de",)),
        Tenant(id="free", cells=1),
    )
)


def pool(*labels: str) -> PoolView:
    return PoolView("-".join(labels), Capability({}, labels=labels), frozenset())


def test_a_tenant_is_named_with_what_is_missing() -> None:
    pins = Pins(SETTINGS)
    assert pins.problems([pool("eu", "gpu", "x"), pool("en-de")]) == {}
    assert pins.problems([pool("eu"), pool()]) == {
        "acme": "tenant acme is pinned to eu, gpu, but no known node has gpu",
        "old": "tenant old is pinned to en-de, but no known node has en-de",
    }
    apart = pins.problems([pool("eu"), pool("gpu"), pool("en-de")])
    assert apart == {"acme": "tenant acme is pinned to eu, gpu, but no known node has all of them"}


def test_only_changes_are_news() -> None:
    pins = Pins(SETTINGS)
    assert [len(part) for part in pins.changes([])] == [2, 0]
    assert pins.changes([]) == ([], [])
    assert pins.changes([pool("en-de")]) == ([], ["old"])
    assert pins.changes([pool("en-de"), pool("eu", "gpu")]) == ([], ["acme"])
    assert [len(part) for part in pins.changes([pool("en-de")])] == [1, 0]


def test_where_nobody_is_pinned_nothing_is_wrong() -> None:
    assert Pins(Settings()).changes([]) == ([], [])


def test_an_old_name_is_told() -> None:
    (sentence,) = old_names(SETTINGS)
    assert sentence.startswith("tenants[1].pools of old is an old name")
