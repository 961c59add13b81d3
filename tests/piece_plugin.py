"""What `pytest --piece FILE` does: runs the test files that FILE names, and records what happened.

FILE is made by `lanes.py`. Beside it, FILE with `.done` for `.json` is written at the end.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator


class PiecePlugin:
    """Leaves out all other files, counts results and sums up the time of each file."""

    def __init__(self, plan: Path, root: Path) -> None:
        self._done = plan.with_suffix(".done")
        wanted = json.loads(plan.read_text("utf-8"))
        self._files = frozenset(root / name for name in wanted["files"])
        self._part, self._parts = wanted["part"], wanted["parts"]
        self._is_alone = wanted["is_alone"]
        self._root = root
        self._collected = 0
        self._ours: list[str] = []
        self._results: Counter[str] = Counter()
        self._failed: list[str] = []
        self._costs: dict[str, tuple[float, float]] = {}

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Leave out what is not named. Others, as collect_ignore, may leave out more."""
        return True if collection_path.is_file() and collection_path not in self._files else None

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Leave out the tests of other parts, and those that measure time or those that do not."""
        kind = [i for i in items if (i.get_closest_marker("alone") is not None) == self._is_alone]
        self._collected = len(kind)
        ours = kind[self._part :: self._parts]
        _give_ports_to_bench()
        config.hook.pytest_deselected(items=[item for item in items if item not in ours])
        items[:] = ours
        self._ours = [item.nodeid for item in ours]

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        began_s, began_cpu_s = time.monotonic(), _cpu_s()
        result = yield
        file = str(item.path.relative_to(self._root))
        seconds, cpu_s = self._costs.get(file, (0.0, 0.0))
        took_s, took_cpu_s = time.monotonic() - began_s, _cpu_s() - began_cpu_s
        self._costs[file] = seconds + took_s, cpu_s + took_cpu_s
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a test once: as failed if any part of it failed."""
        if report.failed:
            self._fail(report.nodeid)
        elif report.when == "call" or report.skipped:
            self._results[report.outcome] += 1

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._fail(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        record = {
            "passed": self._results["passed"],
            "skipped": self._results["skipped"],
            "failed": self._failed,
            "costs": self._costs,
            "collected": self._collected,
            "ran": self._ours,
        }
        self._done.write_text(json.dumps(record), "utf-8")

    def _fail(self, name: str) -> None:
        if name not in self._failed:
            self._failed.append(name)


def _give_ports_to_bench() -> None:
    """Let the bench, if these tests use it, take ports of our lane only, in the second half."""
    if bench := sys.modules.get("lingua_bench.chaos.process"):
        first, last = map(int, os.environ["TEST_PORTS"].split("-"))
        assert hasattr(bench, "FIRST_PORT")
        assert hasattr(bench, "LAST_PORT")
        bench.FIRST_PORT, bench.LAST_PORT = (first + last) // 2, last


def _cpu_s() -> float:
    """Return what this process and its children that have ended have used."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)
