"""Each fault that is planted into real schedulers is found, and nothing without a fault.

A harness that accepts a broken scheduler proves nothing about a correct one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import uvloop

from lingua_bench.chaos.planted import NotPlanted, Planter, plant
from lingua_bench.chaos.planted_faults import PLANTED_FAULTS, PlantedFault
from lingua_bench.chaos.report import Run, notes
from lingua_bench.chaos.run import run_in
from lingua_bench.chaos.scenarios import with_fault
from lingua_scheduler.state import scripts

pytestmark = pytest.mark.stress


@pytest.fixture
def scripts_as_they_are() -> Iterator[None]:
    read = scripts.read_include
    yield
    scripts.read_include = read
    scripts.load_scripts.cache_clear()


@pytest.mark.usefixtures("scripts_as_they_are")
@pytest.mark.parametrize("name", PLANTED_FAULTS)
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
