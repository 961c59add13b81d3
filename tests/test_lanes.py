"""`make test` runs every test once, says what failed, and leaves nothing behind when ended."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from pieces import (
    ALONE,
    FOLDERS,
    LONG_S,
    NOTHING,
    PATTERN,
    PIECE_S,
    Cost,
    Part,
    Piece,
    choose,
    divide,
    find_files,
    is_whole,
    read_durations,
    write_durations,
)
from servers import wait_until
from workspace import ROOT

pytestmark = pytest.mark.unit

BOUND_S = 60
PASSING = "def test_it() -> None: ..."
FAILING = "def test_it() -> None: assert 'seven' == 'eight'"
FAILING_AT_ITS_END = """
@pytest.fixture
def thing():
    yield
    raise OSError("left open")

def test_it(thing) -> None: ...
"""
# Says that it runs, and that it was ended in good order.
WAITING = """
import time
from pathlib import Path

def test_it() -> None:
    Path("runs").touch()
    try:
        time.sleep(60)
    finally:
        Path("ended").touch()
"""
# Ends when both have begun.
NOTING_ITS_PORTS = """
import os
import time
from pathlib import Path

def test_it() -> None:
    Path("{category}").write_text(os.environ["TEST_PORTS"])
    deadline = time.monotonic() + 30
    while not (Path("unit").exists() and Path("store").exists()):
        assert time.monotonic() < deadline, "they do not run beside each other"
        time.sleep(0.01)
"""
# Fails if the other begins before it has ended.
BY_ITSELF = """
import time
from pathlib import Path

def test_it() -> None:
    Path("{category}").touch()
    deadline = time.monotonic() + 1.1
    while time.monotonic() < deadline:
        assert not Path("{other}").exists() or Path("{other} has ended").exists()
        time.sleep(0.01)
    Path("{category} has ended").touch()
"""
PORTS_OF_BOTH = """
import os
import servers
from lingua_bench.chaos import process

def test_it() -> None:
    first, last = map(int, os.environ["TEST_PORTS"].split("-"))
    middle = (first + last) // 2
    assert all(first <= servers.free_port() < middle for _ in range(100))
    assert all(middle <= process.free_port() < last for _ in range(100))
"""


def waits(category: str, seconds: float) -> Piece:
    return Piece(category, (f"test_{seconds}.py",), Cost(seconds, 0.0))


def computes(cores: float) -> Piece:
    return Piece("unit", (f"test_{cores}.py",), Cost(10.0, 10.0 * cores))


def test_every_test_file_is_in_exactly_one_piece() -> None:
    files = find_files(ROOT)
    pieces = divide(files, read_durations((ROOT / "tests/durations.txt").read_text("utf-8")))
    times = Counter((file, piece.part) for piece in pieces for file in piece.files)
    parts = {file: piece.parts for piece in pieces for file in piece.files}
    assert set(times) == {(file, part) for file in files for part in range(parts[file])}
    assert set(times.values()) == {1}
    assert "tests/test_lanes.py" in files


def test_pytest_looks_for_the_same_files() -> None:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["pytest"]
    assert options["ini_options"]["python_files"] == [PATTERN]
    assert options["ini_options"]["testpaths"] == list(FOLDERS)


def test_a_long_file_is_a_piece_and_short_ones_are_put_together() -> None:
    files = {f"test_{name}.py": "store" for name in "abcdef"}
    recorded = {file: Cost(PIECE_S / 2, 1.0) for file in files}
    recorded["test_c.py"] = Cost(LONG_S, 2.0)
    pieces = [piece.files for piece in divide(files, recorded)]
    together = [("test_a.py", "test_b.py"), ("test_d.py", "test_e.py")]
    assert pieces == [("test_c.py",), *together, ("test_f.py",)]


def test_a_file_that_takes_very_long_is_divided() -> None:
    pieces = divide({"test_a.py": "model"}, {"test_a.py": Cost(LONG_S * 2.5, LONG_S)})
    assert [(piece.files, piece.part, piece.parts) for piece in pieces] == [
        (("test_a.py",), part, 3) for part in range(3)
    ]
    assert sum((piece.cost for piece in pieces), NOTHING).cpu_s == pytest.approx(LONG_S)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([Part(3, ("a", "c")), Part(3, ("b",))], True),
        ([Part(1, ("a",)), Part(1, ())], True),
        ([Part(0, ()), Part(0, ())], True),
        ([Part(3, ("a", "c")), Part(3, ("a",))], False),
        ([Part(3, ("a", "c")), Part(2, ("b",))], False),
        ([Part(3, ("a", "c"))], False),
    ],
)
def test_it_is_noticed_if_parts_do_not_run_every_test_once(
    parts: list[Part], expected: bool
) -> None:
    assert is_whole(parts) is expected


def test_pieces_have_one_category() -> None:
    files = {"test_a.py": "store", "test_b.py": "unit", "test_c.py": "store"}
    assert {piece.files for piece in divide(files, {})} == {
        ("test_a.py", "test_c.py"),
        ("test_b.py",),
    }


@pytest.mark.parametrize("category", ["", "browser"])
def test_files_of_an_unknown_category_and_without_one_run_too(category: str) -> None:
    assert [piece.files for piece in divide({"test_a.py": category}, {})] == [("test_a.py",)]


def test_what_runs_one_at_a_time_begins_first_then_the_longest() -> None:
    files = {"test_a.py": "unit", "test_b.py": "stress", "test_c.py": "speech"}
    recorded = {"test_a.py": Cost(40.0, 1.0), "test_b.py": Cost(50.0, 1.0)}
    order = [piece.category for piece in divide(files, recorded)]
    assert order == ["speech", "stress", "unit"]


def test_pieces_that_wait_run_beside_each_other_and_those_that_compute_have_a_core_each() -> None:
    waiting = [computes(1.0), waits("store", 5)]
    assert choose(waiting, [waits("store", 1)] * 5, 2) == computes(1.0)
    assert choose(waiting, [computes(1.0)] * 2, 2) == waits("store", 5)
    assert choose([computes(1.0)], [computes(1.0)] * 2, 2) is None


def test_speech_runs_one_at_a_time() -> None:
    waiting = [waits("speech", 9), waits("store", 5)]
    assert choose(waiting, [], 2) == waits("speech", 9)
    assert choose(waiting, [waits("speech", 8)], 2) == waits("store", 5)


def test_the_next_of_speech_waits_for_no_core() -> None:
    speech = Piece("speech", ("test_a.py",), Cost(10.0, 10.0))
    assert choose([speech, waits("store", 5)], [computes(1.5)], 2) == speech
    assert choose([speech, waits("store", 5)], [computes(1.5), waits("speech", 1)], 2) != speech


def test_what_needs_more_cores_than_there_are_runs_alone() -> None:
    waiting = [computes(3.0)]
    assert choose(waiting, [waits("store", 1)], 2) is None
    assert choose(waiting, [], 2) == computes(3.0)


def test_what_measures_time_comes_last_and_runs_alone() -> None:
    *_, measures = divide({"test_a.py": "unit", "test_b.py": "unit"}, {}, ["test_a.py"])
    assert (measures.files, measures.is_alone) == (("test_a.py",), True)
    assert choose([measures], [waits("store", 1)], 8) is None
    assert choose([measures], [], 8) == measures
    assert choose([waits("store", 1)], [measures], 8) is None


def test_durations_are_read_as_they_were_written() -> None:
    costs = {"b/test_long.py": Cost(12.5, 3.0), "a/test_long.py": Cost(100.0, 99.5)}
    assert read_durations(write_durations({**costs, "test_short.py": NOTHING})) == costs


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder with the runner, and no tests."""
    tests = tmp_path / "tests"
    tests.mkdir()
    for name in ("lanes.py", "pieces.py", "piece_plugin.py"):
        shutil.copy(ROOT / "tests" / name, tests)
    shutil.copy(ROOT / "conftest.py", tmp_path)
    (tests / "durations.txt").touch()
    options = (
        '[tool.pytest.ini_options]\npythonpath = ["tests"]\nmarkers = ["unit", "store", "alone"]\n'
    )
    (tmp_path / "pyproject.toml").write_text(options)
    return tmp_path


def add(clone: Path, name: str, test: str, category: str = "unit") -> None:
    head = f"import pytest\npytestmark = pytest.mark.{category}\n"
    (clone / "tests" / f"test_{name}.py").write_text(head + test)


def start(clone: Path, *commands: str, **options: bool) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "tests/lanes.py", *commands],
        cwd=clone, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options,
    )  # fmt: skip


def result(process: subprocess.Popen[str]) -> tuple[int, str]:
    output, _ = process.communicate(timeout=BOUND_S)
    return process.returncode, output


def test_all_pass(clone: Path) -> None:
    add(clone, "a", PASSING)
    add(clone, "b", PASSING, "store")
    code, output = result(start(clone, "true"))
    assert code == 0, output
    assert re.match(r"2 passed, 0 failed in 0:\d\d ", output.splitlines()[-1])
    assert len(output.splitlines()) == 4  # one for each piece, the command and the sum


def test_the_parts_of_a_file_run_each_of_its_tests_once(clone: Path) -> None:
    add(clone, "a", "@pytest.mark.parametrize('n', range(5))\ndef test_it(n) -> None: ...")
    (clone / "tests" / "durations.txt").write_text(f"{LONG_S * 2} 1.0 tests/test_a.py\n")
    code, output = result(start(clone))
    assert code == 0, output
    assert re.search(r"3 passed .*part 1 of 2", output)
    assert re.search(r"2 passed .*part 2 of 2", output)
    assert "5 passed, 0 failed" in output


def test_with_no_cores_one_piece_runs_at_a_time(clone: Path) -> None:
    """So that what is recorded is not slowed down by others."""
    for category in ("unit", "store"):
        other = {"unit": "store", "store": "unit"}[category]
        test = BY_ITSELF.format(category=category, other=other)
        add(clone, category, test, category)
    code, output = result(start(clone, "--cores=0"))
    assert code == 0, output
    assert "2 passed, 0 failed" in output
    recorded = read_durations((clone / "build/tests/durations.txt").read_text())
    assert [cost.seconds >= 1.0 for cost in recorded.values()] == [True, True]


def test_a_divided_file_whose_tests_are_in_another_order_each_time_fails(clone: Path) -> None:
    """Else a test could be in no part of it. Here the order depends on the lane."""
    order = "import os\nnames = 'ab' if os.environ['TEST_PORTS'].startswith('20000-') else 'ba'\n"
    mark = "@pytest.mark.parametrize('name', names)\n"
    add(clone, "a", f"{order}{mark}def test_it(name) -> None: ...")
    (clone / "tests" / "durations.txt").write_text(f"{LONG_S * 2} 1.0 tests/test_a.py\n")
    code, output = result(start(clone, "--cores=2"))
    assert code == 1
    assert "FAILED tests/test_a.py: its tests differ each time it is imported" in output


def test_tests_that_measure_time_run_once_when_all_others_have_ended(clone: Path) -> None:
    note = "from pathlib import Path\ndef test_note() -> None: Path('note').touch()\n"
    measure = f"@{ALONE}\ndef test_it() -> None: assert Path('note').exists()"
    add(clone, "a", note + measure)
    code, output = result(start(clone))
    assert code == 0, output
    first, second, last = output.splitlines()
    assert re.search(r"1 passed .*test_a.py$", first)
    assert re.search(r"1 passed .*test_a.py, alone$", second)
    assert last.startswith("2 passed, 0 failed")


def test_one_category_runs_alone(clone: Path) -> None:
    add(clone, "a", PASSING)
    add(clone, "b", FAILING, "store")
    code, output = result(start(clone, "--only=unit"))
    assert (code, "1 passed, 0 failed" in output) == (0, True)


@pytest.mark.parametrize(
    ("test", "name", "reason"),
    [
        (FAILING, "tests/test_bad.py::test_it", "assert 'seven' == 'eight'"),
        (FAILING_AT_ITS_END, "tests/test_bad.py::test_it", "left open"),
        ("import nothing_of_that_name", "tests/test_bad.py", "nothing_of_that_name"),
    ],
)
def test_a_failure_is_shown_whole_and_named_at_the_end(
    clone: Path, test: str, name: str, reason: str
) -> None:
    add(clone, "bad", test)
    add(clone, "good", PASSING, "store")
    code, output = result(start(clone))
    assert code == 1
    assert reason in output
    *_, named, last = output.splitlines()
    assert named == f"FAILED {name}"
    assert re.search(r"^\d passed, 1 failed in ", last)


def test_a_module_without_a_category_fails(clone: Path) -> None:
    (clone / "tests" / "test_bad.py").write_text(PASSING)
    code, output = result(start(clone))
    assert code == 1
    assert "tests/test_bad.py: pytestmark must be exactly one of" in output
    assert "0 passed, 1 failed" in output


def test_tests_that_kill_their_process_fail(clone: Path) -> None:
    add(clone, "bad", "import os\ndef test_it() -> None: os.abort()")
    code, output = result(start(clone))
    assert code == 1
    assert "0 passed, 1 failed" in output
    assert f"exit status {-signal.SIGABRT}" in output


def test_a_command_that_fails_is_shown_and_fails_all(clone: Path) -> None:
    add(clone, "a", PASSING)
    code, output = result(start(clone, "sh -c 'echo unused import; exit 3'"))
    assert code == 1
    assert "unused import" in output
    assert "1 passed, 1 failed" in output


def test_pieces_beside_each_other_have_ports_of_their_own(clone: Path) -> None:
    for category in ("unit", "store"):
        add(clone, category, NOTING_ITS_PORTS.format(category=category), category)
    code, output = result(start(clone, "--cores=2"))
    assert code == 0, output
    texts = [(clone / name).read_text() for name in ("unit", "store")]
    (_, end), (begin, _) = sorted(tuple(map(int, text.split("-"))) for text in texts)
    assert end <= begin


def test_servers_and_the_bench_take_ports_of_their_lane_only(clone: Path) -> None:
    shutil.copy(ROOT / "tests" / "servers.py", clone / "tests")
    add(clone, "a", PORTS_OF_BOTH)
    code, output = result(start(clone))
    assert code == 0, output


def interrupt(process: subprocess.Popen[str]) -> None:
    """As a terminal does: everything that it started hears it."""
    os.killpg(process.pid, signal.SIGINT)


@pytest.mark.parametrize(
    ("end", "code"), [(interrupt, 130), (subprocess.Popen.terminate, 128 + signal.SIGTERM)]
)
def test_when_it_is_ended_so_are_its_tests(
    clone: Path, end: Callable[[subprocess.Popen[str]], None], code: int
) -> None:
    add(clone, "a", WAITING)
    process = start(clone, start_new_session=True)
    wait_until((clone / "runs").exists, BOUND_S, "a test runs")
    end(process)
    assert result(process)[0] == code
    assert (clone / "ended").exists()


def test_it_runs_in_the_background_of_a_script_where_sigint_is_ignored(clone: Path) -> None:
    check = "import signal\ndef test_it() -> None:\n"
    check += "    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler"
    add(clone, "a", check)
    command = f"{sys.executable} tests/lanes.py & wait $!"
    done = subprocess.run(
        ["sh", "-c", command], cwd=clone, capture_output=True, text=True, timeout=BOUND_S,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "1 passed, 0 failed" in done.stdout
