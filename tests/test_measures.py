"""The measures of `scripts/measures.py`: each is shown to object and to leave the lawful alone.

The last tests take them of the repository; a failure lists the offenders.
"""

import functools
import importlib.util
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, cast

import pytest

pytestmark = pytest.mark.unit

SCRIPT = Path(__file__).parents[1] / "scripts" / "measures.py"

Files = Mapping[str, str]


class Module(Protocol):
    def is_below(self, folders: Iterable[str]) -> bool: ...


class Source(Protocol):
    @property
    def modules(self) -> Sequence[Module]: ...


class Result(Protocol):
    @property
    def offences(self) -> Sequence[object]: ...
    @property
    def limit(self) -> int: ...
    @property
    def number(self) -> int: ...
    @property
    def is_over(self) -> bool: ...


class Script(Protocol):
    """What is used of the script; it is in no package, so it cannot be imported by name."""

    LIMITS: dict[str, int]
    MEASURES: Mapping[str, object]
    MIDDLE_FLOOR: Sequence[str]
    SERVER: str
    GLOSSARY: Path
    source_folders: Callable[[], list[Path]]
    load: Callable[[Iterable[Path], Path], Source]
    measure: Callable[[str, Source], Result]
    figures: Callable[[Source], dict[str, int]]
    main: Callable[[Sequence[str]], int]


def load_script() -> Script:
    spec = importlib.util.spec_from_file_location("measures", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return cast("Script", module)


measures = load_script()

GLOSSARY = "| **dead letter** | A letter kept. |\n| **take-over** | Of `up_state`, by entries. |\n"


def source_of(files: Files, folder: Path) -> Source:
    write(files, folder / "src")
    glossary = folder / "glossary.md"
    glossary.write_text(GLOSSARY)
    return measures.load([folder / "src"], glossary)


def write(files: Files, folder: Path) -> None:
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def server(text: str, name: str = "letter") -> Files:
    return {f"lingua_scheduler/{name}.py": text}


def class_of(
    methods: int = 0, attributes: int = 0, head: str = "class A:", method: str = "m"
) -> str:
    public = "".join(f"    def {method}{n}(self): ...\n" for n in range(methods))
    written = "".join(f"        self.a{n} = 0\n" for n in range(attributes))
    return f"{head}\n{public}    def __init__(self):\n{written}        self.a0 = 1\n"


def fields(count: int, head: str, annotation: str = "int") -> str:
    return f"{head}\nclass A:\n" + "".join(f"    a{n}: {annotation}\n" for n in range(count))


def calling(arguments: str) -> Files:
    return {"a.py": f"f({arguments})\n"}


LIVE = "lingua_scheduler/live/letter.py"
FOREIGN = {"lingua_scheduler/rooms/letter.py": "def f(job):\n    job.state = 1\n"}

# Each with the number that is found.
OFFENDERS: list[tuple[str, Files, int]] = [
    ("import_cycles", {"a.py": "import b", "b.py": "import a"}, 1),
    ("import_cycles", {"a.py": "import b", "b.py": "import c", "c.py": "import a"}, 1),
    ("import_cycles", {"a.py": "if TYPE_CHECKING:\n    import b", "b.py": "from a import X"}, 1),
    ("import_cycles", {"a.py": "def f():\n    import b", "b.py": "from a import *"}, 1),
    (
        "import_cycles",
        {"p/__init__.py": "", "p/a.py": "from . import b", "p/b.py": "import p.a"},
        1,
    ),
    ("import_cycles", {"p/__init__.py": "from .a import X", "p/a.py": "from p import Y"}, 1),
    ("import_cycles", {"p/q/a.py": "from ..b import X", "p/b.py": "from p.q import a"}, 1),
    (
        "import_cycles",
        {"a.py": "import b", "b.py": "import a", "c.py": "import d, a", "d.py": "import c"},
        2,
    ),
    ("completed_later", server("class A:\n  def __init__(self, b):\n    b.on_x = 1\n"), 1),
    (
        "completed_later",
        server("class A:\n  def __init__(self, b):\n    self.b.x = self.c = 1\n"),
        1,
    ),
    ("completed_later", server("class A:\n  def __init__(s, b, c):\n    b.x, (c.y, d) = 1\n"), 2),
    (
        "completed_later",
        server("class A:\n  def __init__(s, b):\n    b.x: int = 1\n    b.y += 1\n"),
        2,
    ),
    ("completed_later", server("class A:\n  def __init__(s, b):\n    if b:\n      b.x = 1\n"), 1),
    ("large_classes", server(class_of(methods=16)), 1),
    ("large_classes", server(class_of(attributes=21)), 1),
    ("large_classes", server(class_of(methods=16, head="class A(asyncio.Protocol):")), 1),
    ("large_classes", server(fields(21, "@dataclass(slots=True)")), 1),
    ("large_classes", server(fields(21, "@dataclasses.dataclass")), 1),
    (
        "large_classes",
        server("class A:\n" + "".join(f"  @property\n  def m{n}(self): ...\n" for n in range(16))),
        1,
    ),
    ("foreign_writes", FOREIGN, 1),
    ("foreign_writes", {LIVE: "def f(self):\n    self.a.b = 1\n    self.a.c += 1\n"}, 2),
    ("foreign_writes", {LIVE: "job.state = job.node = x.y[0].z = 1\n"}, 3),
    ("foreign_writes", {LIVE: "job.state, (job.node, *job.rest), a = 1\n"}, 3),
    ("positional_calls", calling("1, 2, 3, 4, 5, 6"), 1),
    ("positional_calls", calling("1, 2, 3, 4, 5, *rest"), 1),
    ("positional_calls", calling("g(1, 2, 3, 4, 5, 6), 2, 3, 4, 5, 6"), 2),
    ("format_skips", {"a.py": "a  = 1  # fmt: skip\n"}, 1),
    ("format_skips", {"a.py": "#fmt:off\na  = 1  # noqa: X  # fmt: skip\n# fmt: on\n"}, 2),
    ("homonyms", {"a.py": "class A: ...\n", "b.py": "class A: ...\n"}, 1),
    ("homonyms", {"a.py": "class A:\n  class B: ...\n", "b.py": "def f():\n  class B: ...\n"}, 1),
    ("homonyms", {f"{name}.py": "class A: ...\n" for name in "abc"}, 1),
    ("undefined_nouns", server("", "grammar"), 1),
    ("undefined_nouns", server("", "lett"), 1),
    ("undefined_nouns", server("", "letter_state"), 1),
    ("undefined_nouns", {"lingua_scheduler/x/__init__.py": "", "lingua_scheduler/x/y.py": ""}, 2),
]

LAWFUL: list[tuple[str, Files]] = [
    ("import_cycles", {"a.py": "import b", "b.py": "import c", "c.py": "import os"}),
    # A module's import does not name the package around it, nor does a package name itself.
    ("import_cycles", {"p/__init__.py": "from p import a", "p/a.py": "import p.b", "p/b.py": ""}),
    ("import_cycles", {"p/__init__.py": "from . import a, X", "p/a.py": "from p import b",
                       "p/b.py": "from .c.d import X", "p/c/d.py": ""}),
    ("completed_later", server("class A:\n  def __init__(self):\n    self.x = self.y = 1\n")),
    ("completed_later", server("class A:\n  def __init__(self, b):\n    self.b[b.c] = b.d\n")),
    ("completed_later", server("class A:\n  def start(self, b):\n    b.x = 1\n")),
    ("completed_later", server("def __init__(self, b):\n    b.x = 1\n")),
    ("large_classes", server(class_of(methods=15, attributes=20))),
    ("large_classes", server(class_of(methods=16, method="_m"))),
    ("large_classes", server("class A:\n" + "  @overload\n  def m(self): ...\n" * 16)),
    ("large_classes", server(class_of(methods=16), "docs")),
    ("large_classes", {"lingua_client/letter.py": class_of(methods=16)}),
    ("large_classes", server(class_of(methods=16, head="class A(Protocol):"))),
    ("large_classes", server(class_of(methods=16, head="class A(Engine, typing.Protocol[T]):"))),
    ("large_classes", server(class_of(methods=16, head="class A(NamedTuple):"))),
    ("large_classes", server(class_of(methods=16, head="class A(enum.StrEnum):"))),
    ("large_classes", server(class_of(methods=16, head="class A(msgspec.Struct):"))),
    ("large_classes", server(class_of(methods=16, head="class A(Line, frozen=True):"))),
    ("large_classes", server(fields(21, "@dataclass(frozen=True, slots=True)"))),
    ("large_classes", server(fields(21, "@dataclass", "ClassVar[int]"))),
    ("large_classes", server(fields(21, "@final"))),
    ("foreign_writes", {LIVE: "def f(self):\n    self.a = 1\ndef g(cls):\n    cls.a += 1\n"}),
    ("foreign_writes", {LIVE: "self.jobs[0] = job.state\njob.close()\n"}),
    ("foreign_writes", {"lingua_scheduler/edge/letter.py": "job.state = 1\n"}),
    ("foreign_writes", {"lingua_scheduler/lively/letter.py": "job.state = 1\n"}),
    ("foreign_writes", {"lingua_bench/live/letter.py": "job.state = 1\n"}),
    ("positional_calls", calling("1, 2, 3, 4, 5, a=6, **rest")),
    ("positional_calls", calling("1, 2, 3, 4, *rest")),
    ("format_skips", {"a.py": "a = '# fmt: skip'\n# fmt: on\n# fmt: skipping\n"}),
    ("homonyms", {"a.py": "class A: ...\n", "b.py": "class B: ...\n"}),
    ("homonyms", {"a.py": "class _A: ...\n", "b.py": "class _A: ...\n"}),
    ("undefined_nouns", server("", "Letters")),
    ("undefined_nouns", server("", "dead_letters")),
    ("undefined_nouns", server("", "take_over")),
    ("undefined_nouns", server("", "up_state")),
    ("undefined_nouns", server("", "entry")),
    ("undefined_nouns", {"lingua_scheduler/__init__.py": "", "lingua_scheduler/__main__.py": ""}),
    ("undefined_nouns", {"lingua_client/grammar.py": ""}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "files", "number"), OFFENDERS)
def test_the_measure_counts_offenders(name: str, files: Files, number: int, tmp_path: Path) -> None:
    assert measures.measure(name, source_of(files, tmp_path)).number == number


@pytest.mark.parametrize(("name", "files"), LAWFUL)
def test_the_measure_leaves_the_lawful_alone(name: str, files: Files, tmp_path: Path) -> None:
    assert list(measures.measure(name, source_of(files, tmp_path)).offences) == []


def test_every_measure_has_a_limit_and_is_shown_to_object_and_to_agree() -> None:
    names = set(measures.MEASURES)
    assert set(measures.LIMITS) == names
    assert {name for name, *_ in OFFENDERS} == names
    assert {name for name, *_ in LAWFUL} == names


def test_several_folders_are_one_source(tmp_path: Path) -> None:
    write({"one/a.py": "import b", "two/b.py": "import a"}, tmp_path)
    (tmp_path / "glossary.md").touch()
    source = measures.load([tmp_path / "one", tmp_path / "two"], tmp_path / "glossary.md")
    assert measures.measure("import_cycles", source).number == 1


def test_the_figures_are_those_of_files_and_functions(tmp_path: Path) -> None:
    long = "async def g(self, a, *b, c, **d):\n" + "    1\n" * 40
    short = 'def f(a):\n    """a\n\n    b"""\n    return 1\n'
    found = measures.figures(source_of({"a.py": long, "b.py": short, "c.py": ""}, tmp_path))
    assert found == {
        "files": 3, "lines": 46, "file_lines_median": 5, "file_lines_p95": 41, "file_lines_max": 41,
        "functions": 2, "function_lines_median": 2, "function_lines_p95": 41,
        "function_lines_max": 41, "functions_over_40_lines": 1,
        "arguments_p95": 4, "arguments_max": 4,
    }  # fmt: skip


def test_a_check_fails_only_over_a_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(FOREIGN, tmp_path / "within")
    write({"a.py": "import b", "b.py": "import a"}, tmp_path / "over")
    of_within = ["--source", str(tmp_path / "within"), "--list", "foreign_writes"]
    assert measures.main([*of_within, "--check"]) == 0
    assert capsys.readouterr().out.endswith("rooms/letter.py:2 job.state\n")
    assert measures.main(["--source", str(tmp_path / "over")]) == 0
    assert measures.main(["--source", str(tmp_path / "over"), "--check"]) == 1
    assert "import_cycles                 1      0  over" in capsys.readouterr().out


def test_the_numbers_are_also_given_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write({"a.py": "import b", "b.py": "import a"}, tmp_path)
    measures.main(["--source", str(tmp_path), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert set(told["measures"]) == set(measures.MEASURES)
    cycles = told["measures"]["import_cycles"]
    assert (cycles["number"], cycles["limit"], cycles["is_over"]) == (1, 0, True)
    assert cycles["offences"] == [f"{tmp_path}/a.py:1 2 modules in a cycle: a, b"]
    assert told["figures"]["files"] == 2


def test_a_folder_without_source_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="2"):
        measures.main(["--source", str(tmp_path)])


@functools.cache
def repository() -> Source:
    return measures.load(measures.source_folders(), measures.GLOSSARY)


def test_the_measures_look_at_real_modules() -> None:
    modules = repository().modules
    assert any(module.is_below([measures.SERVER]) for module in modules)
    assert any(module.is_below(measures.MIDDLE_FLOOR) for module in modules)


@pytest.mark.parametrize("name", measures.MEASURES)
def test_the_repository_is_within_the_limit(name: str) -> None:
    result = measures.measure(name, repository())
    listed = "\n".join(str(offence) for offence in result.offences)
    assert not result.is_over, f"{result.number} {name}, at most {result.limit}:\n{listed}"
