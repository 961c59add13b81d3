"""Each fault that is planted into real schedulers is found, and nothing without a fault.

A harness that accepts a broken scheduler proves nothing about a correct one.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvloop

from lingua_bench.chaos.planted import PACKAGE, NotPlanted, Planter, plant
from lingua_bench.chaos.planted_faults import PLANTED_FAULTS, PlantedFault
from lingua_bench.chaos.report import Run, notes
from lingua_bench.chaos.run import run_in
from lingua_bench.chaos.scenarios import with_fault
from lingua_scheduler.state import scripts

pytestmark = pytest.mark.stress

IN_MODULES = [name for name, fault in PLANTED_FAULTS.items() if fault.include.startswith(PACKAGE)]


@pytest.fixture
def scripts_as_they_are() -> Iterator[None]:
    read = scripts.read_include
    yield
    scripts.read_include = read
    scripts.load_scripts.cache_clear()


@pytest.mark.parametrize("name", IN_MODULES)
def test_every_fault_in_a_module_finds_its_place(name: str) -> None:
    # In another process: a module that was changed stays so.
    program = (
        "import inspect, sys\n"
        "from lingua_bench.chaos.planted import plant\n"
        "from lingua_bench.chaos.planted_faults import PLANTED_FAULTS\n"
        f"plant({name!r})\n"
        f"module = sys.modules[PLANTED_FAULTS[{name!r}].include]\n"
        "from lingua_scheduler.streams import partial_router\n"
        "assert partial_router is module\n"
        "names = partial_router.PartialRouter.publish.__code__.co_names\n"
        "assert '_sessions' in names, names\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("scripts_as_they_are")
@pytest.mark.parametrize("name", sorted(set(PLANTED_FAULTS) - set(IN_MODULES)))
def test_every_fault_finds_its_place(name: str) -> None:
    before = {script.library for script in scripts.load_scripts().values()}
    plant(name)
    assert {script.library for script in scripts.load_scripts().values()} != before


@pytest.mark.usefixtures("scripts_as_they_are")
@pytest.mark.parametrize(
    ("include", "before", "why"),
    [
        ("includes/hear", "never written", "has 0 times"),
        ("includes/none", "", "no script includes"),
        ("lingua_scheduler.streams.partial_router", "never written", "has 0 times"),
    ],
)
def test_a_fault_without_its_place_is_not_planted(
    include: str, before: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PLANTED_FAULTS, "lost", PlantedFault("", (), include, before, ""))
    with pytest.raises(NotPlanted, match=why):
        plant("lost")


def test_only_the_place_is_changed(tmp_path: Path) -> None:
    (tmp_path / "a.lua").write_text("one\ntwo\n")
    (tmp_path / "b.lua").write_text("one\n")
    planter = Planter(PlantedFault("", (), "a", "one", "three"))
    assert planter.read_include(tmp_path, "b") == "one\n"
    assert not planter.is_done
    assert planter.read_include(tmp_path, "a") == "three\ntwo\n"
    assert planter.is_done


def played(planted: str, place: Path) -> Run:
    run = uvloop.run(run_in(place, with_fault(planted), lambda *_: None))
    print("\n".join(notes(run)))
    return run


@pytest.mark.parametrize("name", PLANTED_FAULTS)
def test_a_planted_fault_is_found(name: str, tmp_path: Path) -> None:
    run = played(name, tmp_path)
    assert any(getattr(run.findings, count) for count in PLANTED_FAULTS[name].found_as)
    assert run.verdict == "VIOLATED"


def test_nothing_is_found_where_nothing_was_planted(tmp_path: Path) -> None:
    run = played("", tmp_path)
    assert run.findings.violations(run.scenario.rules) == []
    assert run.findings.had_to_hear > 100
