"""Collection rule: every test module carries exactly one category marker.

`make test` and CI select by category, so a module without one would silently never run there.
Also the one cluster with replicas that all tests of a run share, `replicated_cluster`, SIGINT for
the processes that tests start, and the pieces in which `make test` runs (tests/lanes.py).
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

# A busy machine may stall any example: no random test has a time limit.
settings.register_profile("lingua", deadline=None)
settings.load_profile("lingua")

# Before they are imported, so that their assertions show the compared values.
pytest.register_assert_rewrite("maintenance.damage", "jobs.deployment")

if TYPE_CHECKING:
    from collections.abc import Iterator

    from servers import Cluster

CATEGORIES = frozenset({"unit", "store", "model", "cluster", "stress", "speech", "browser"})

# Long enough for a busy machine not to take a slow master for a dead one.
NODE_TIMEOUT_MS = 1500


@pytest.fixture(name="six_nodes", scope="session")
def three_masters_and_three_replicas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Run the shared cluster; tests take `replicated_cluster`, which is it in good order."""
    # Here, because the rule above is also tried in a folder that has this file alone.
    from servers import start_cluster  # noqa: PLC0415

    directory = tmp_path_factory.mktemp("six")
    with start_cluster(directory, replicas=3, node_timeout_ms=NODE_TIMEOUT_MS) as cluster:
        yield cluster


@pytest.fixture
def replicated_cluster(six_nodes: Cluster) -> Cluster:
    """Return the shared cluster, empty, with 3 masters and a replica of each, whoever is which."""
    six_nodes.heal()
    six_nodes.empty()
    return six_nodes


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option with which lanes.py runs a part of the tests."""
    parser.addoption("--piece", type=Path, help="run the files that this one lists (lanes.py)")


def pytest_configure(config: pytest.Config) -> None:
    """Let SIGINT end the processes that tests start, also when the tests run in the background.

    A script's shell ignores SIGINT in its background jobs, and processes inherit that from their
    parent; a handler is not inherited, so that they start with the default.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if plan := config.getoption("piece"):
        from piece_plugin import PiecePlugin  # noqa: PLC0415 - as above

        config.pluginmanager.register(PiecePlugin(plan, config.rootpath))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse to run anything while a module has no category, or more than one."""
    problems = sorted({problem for item in items if (problem := _problem(item))})
    if problems:
        raise pytest.UsageError(*problems)


def _problem(item: pytest.Item) -> str:
    module = item.getparent(pytest.Module)
    of_module = {mark.name for mark in module.own_markers} & CATEGORIES if module else set()
    of_item = {mark.name for mark in item.iter_markers()} & CATEGORIES
    if len(of_module) == 1 and of_item == of_module:
        return ""
    where = item.nodeid.partition("::")[0]
    expected = ", ".join(sorted(CATEGORIES))
    found = ", ".join(sorted(of_item)) or "none"
    return f"{where}: pytestmark must be exactly one of {expected}; found: {found}"
