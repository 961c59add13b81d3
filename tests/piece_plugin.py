"""What `pytest --piece FILE` does: runs the test files that FILE names, and records what happened.

FILE is made by `lanes.py`. Beside it, FILE with `.done` for `.json` is written at the end.
"""

from __future__ import annotations

import json
import resource
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pieces import part_of

if TYPE_CHECKING:
    from collections.abc import Generator


class PiecePlugin:
    """Leaves out all other files, counts results and sums up the time of each file."""

    def __init__(self, plan: Path, root: Path) -> None:
        self._done = plan.with_suffix(".done")
        wanted = json.loads(plan.read_text("utf-8"))
        self._files = frozenset(root / name for name in wanted["files"])
        self._part, self._parts = wanted["part"], wanted["parts"]
        self._root = root
        self._results: Counter[str] = Counter()
        self._failed: list[str] = []
        self._costs: dict[str, tuple[float, float]] = {}

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Leave out what is not named. Others, as collect_ignore, may leave out more."""
        return True if collection_path.is_file() and collection_path not in self._files else None

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Leave out the tests of other parts."""
        ours = part_of((item.nodeid for item in items), self._part, self._parts)
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in ours])
        items[:] = [item for item in items if item.nodeid in ours]

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
        passed = self._results["passed"]
        record = {"passed": passed, "skipped": self._results["skipped"]}
        text = json.dumps({**record, "failed": self._failed, "costs": self._costs})
        self._done.write_text(text, "utf-8")

    def _fail(self, name: str) -> None:
        if name not in self._failed:
            self._failed.append(name)


def _cpu_s() -> float:
    """Return what this process and its children that have ended have used."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)
