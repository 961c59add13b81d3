"""Rules on the shape of the tree that linters do not know; each failure lists the offenders.

Every rule is a function from a file to its offences, so that each is also shown to object.
"""

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from workspace import ROOT, SOURCES

pytestmark = pytest.mark.unit

SOURCE = [file for root in SOURCES.values() for file in sorted(root.rglob("*.py"))]
LUA = sorted((ROOT / "packages").glob("*/src/**/*.lua"))
TESTS = sorted([*(ROOT / "tests").rglob("*.py"), *(ROOT / "packages").glob("*/tests/**/*.py")])

COLUMNS_MAX = 100
FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
PARAMETERS_MAX = 7
BANNED_NAMES = frozenset({"utils", "helpers", "manager", "common", "misc", "phase", "legacy"})
# Written in two parts, so that this file does not offend itself.
UNFINISHED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
ISSUE = re.compile(r"#\d+|https?://")

Function = ast.FunctionDef | ast.AsyncFunctionDef
Rule = Callable[[Path, str], Iterable[str]]


def long_lines(_: Path, text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > COLUMNS_MAX:
            yield f"line {number} has {len(line)} columns"


def long_file(_: Path, text: str) -> Iterator[str]:
    lines = len(text.splitlines())
    if lines > FILE_LINES_MAX:
        yield f"{lines} lines"


def unfinished_work(_: Path, text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), 1):
        if UNFINISHED.search(line) and not ISSUE.search(line):
            yield f"line {number} leaves work without an issue"


def banned_name(file: Path, _: str) -> Iterator[str]:
    inside = file.relative_to(ROOT) if file.is_relative_to(ROOT) else file
    for part in inside.with_suffix("").parts:
        if BANNED_NAMES & set(part.lower().split("_")):
            yield f"the name {part} says nothing"


def broad_except(_: Path, text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ExceptHandler) and not is_cleanup(node):
            caught = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
            names = {ast.unparse(kind).rpartition(".")[2] if kind else "" for kind in caught}
            if names & {"", "Exception", "BaseException"}:
                yield f"line {node.lineno} catches everything"


def is_cleanup(handler: ast.ExceptHandler) -> bool:
    """Tell whether a handler undoes something on any end, cancellation too, and hides none."""
    last = handler.body[-1]
    catches_all = isinstance(handler.type, ast.Name) and handler.type.id == "BaseException"
    return catches_all and isinstance(last, ast.Raise) and last.exc is None


def large_function(_: Path, text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, Function):
            lines, parameters = code_lines(node), len(parameter_names(node))
            if lines > FUNCTION_LINES_MAX:
                yield f"{node.name} has {lines} lines"
            if parameters > PARAMETERS_MAX:
                yield f"{node.name} takes {parameters} parameters"


def code_lines(node: Function) -> int:
    """Count the lines of a function, its docstring and decorators left out."""
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    first = node.body[0]
    if ast.get_docstring(node) is not None and first.end_lineno is not None:
        lines -= first.end_lineno - first.lineno + 1
    return lines


def parameter_names(node: Function) -> list[str]:
    args = node.args
    named = [arg.arg for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs)]
    rest = [arg.arg for arg in (args.vararg, args.kwarg) if arg is not None]
    return [name for name in (*named, *rest) if name not in {"self", "cls"}]


# The process that runs other people's engines: whatever they raise becomes a failed job. And steps:
# whatever they raise is reported to their owner, as asyncio does with the error of a task.
FOREIGN = {
    SOURCES["lingua_speech"] / "host" / "child.py",
    SOURCES["lingua_scheduler"] / "steps.py",
}
RULES: list[tuple[Rule, list[Path]]] = [
    (long_lines, [*SOURCE, *LUA, *TESTS]),
    (long_file, [*SOURCE, *LUA]),
    (unfinished_work, [*SOURCE, *LUA, *TESTS]),
    (banned_name, [*SOURCE, *LUA, *TESTS]),
    (broad_except, [file for file in SOURCE if file not in FOREIGN]),
    (large_function, SOURCE),
]

OFFENDERS: list[tuple[Rule, str, str]] = [
    (long_lines, "x.py", "x" * (COLUMNS_MAX + 1)),
    (long_file, "x.py", "\n" * (FILE_LINES_MAX + 1)),
    (unfinished_work, "x.lua", "-- TO" + "DO: later"),
    (banned_name, "src/string_utils.py", ""),
    (banned_name, "src/common/x.py", ""),
    (broad_except, "x.py", "try: ...\nexcept: ..."),
    (broad_except, "x.py", "try: ...\nexcept Exception: ..."),
    (broad_except, "x.py", "try: ...\nexcept (OSError, BaseException): ..."),
    (broad_except, "x.py", "try: ...\nexcept BaseException: ..."),
    (broad_except, "x.py", "try: ...\nexcept Exception:\n    f()\n    raise"),
    (broad_except, "x.py", "try: ...\nexcept builtins.Exception: ..."),
    (large_function, "x.py", "def f():\n" + "    1\n" * FUNCTION_LINES_MAX),
    (large_function, "x.py", "async def f(a, b, c, /, d, *e, f, g, **h): ..."),
]

LAWFUL: list[tuple[Rule, str, str]] = [
    (long_lines, "x.py", "x" * COLUMNS_MAX),
    (long_file, "x.py", "\n" * FILE_LINES_MAX),
    (unfinished_work, "x.py", "# TO" + "DO(#12): later"),
    (banned_name, "src/uncommon.py", ""),
    (broad_except, "x.py", "try: ...\nexcept (OSError, ValueError): ..."),
    (broad_except, "x.py", "try: ...\nexcept BaseException:\n    f()\n    raise"),
    (large_function, "x.py", 'def f():\n    """a\n    b"""\n' + "    1\n" * 69),
    (large_function, "x.py", "def f(self, a, b, c, d, e, f, g): ..."),
]


def rule_name(value: object) -> str | None:
    return getattr(value, "__name__", None)


@pytest.mark.parametrize(("rule", "files"), RULES, ids=rule_name)
def test_the_tree_keeps_the_rule(rule: Rule, files: list[Path]) -> None:
    offences = [
        f"{file.relative_to(ROOT)}: {offence}"
        for file in files
        for offence in rule(file, file.read_text(encoding="utf-8"))
    ]
    assert not offences, "\n".join(offences)


@pytest.mark.parametrize(("rule", "name", "text"), OFFENDERS, ids=rule_name)
def test_the_rule_finds_an_offender(rule: Rule, name: str, text: str) -> None:
    assert list(rule(Path(name), text))


@pytest.mark.parametrize(("rule", "name", "text"), LAWFUL, ids=rule_name)
def test_the_rule_leaves_the_lawful_alone(rule: Rule, name: str, text: str) -> None:
    assert list(rule(Path(name), text)) == []


def test_the_rules_look_at_real_files() -> None:
    assert SOURCES["lingua_scheduler"] / "errors.py" in SOURCE
    assert Path(__file__).resolve() in TESTS


@pytest.mark.parametrize(
    ("head", "is_taken"),
    [
        ("", False),
        ("pytestmark = pytest.mark.unit", True),
        ("pytestmark = [pytest.mark.unit, pytest.mark.store]", False),
        ("pytestmark = pytest.mark.skipif(False, reason='')", False),
    ],
    ids=["none", "one", "two", "another"],
)
def test_a_test_module_without_exactly_one_category_fails_collection(
    head: str, is_taken: bool, tmp_path: Path
) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    tests = tmp_path / "tests"
    tests.mkdir()
    shutil.copy(ROOT / "conftest.py", tmp_path)
    (tests / "test_x.py").write_text(f"import pytest\n{head}\ndef test_x(): pass\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", "not cluster"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode == pytest.ExitCode.OK) is is_taken, done.stdout
    assert ("pytestmark must be exactly one of" in done.stderr) is not is_taken
