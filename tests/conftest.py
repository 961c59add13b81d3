"""Collection rule: every test module carries exactly one category marker.

`make test` and CI select by category, so a module without one would silently never run there.
"""

from __future__ import annotations

import pytest

CATEGORIES = frozenset({"unit", "store", "model", "cluster", "stress"})


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
