"""Who may import whom, read from the source by `ast`.

                     cli    docs
                      │      │        (anything but cli)
  bench, demo ────────┤      │
                      ▼      ▼
        edge ──► live ──► jobs ──► session   nodes   state ──► config ──► errors, secret, languages
                                      └──► messages      node (the SDK) ──► messages
   speech (engines) ──► node, models        interpret ──► client (the SDK), captions, recording

A component is a module or package directly below lingua_scheduler. A new one needs a row here.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

PACKAGE = "lingua_scheduler"
ROOT = Path(__file__).parents[1] / "src" / PACKAGE

# Each component and the others it may import; itself and the package's version go without saying.
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "secret": set(),
    "extras": set(),
    "languages": {"errors"},
    "labels": {"errors"},
    "config": {"errors", "secret", "labels"},
    "messages": {"errors"},
    "glossary": {"errors", "languages", "messages"},
    "tokens": {"errors", "secret", "languages", "labels"},
    "metrics": set(),
    "logs": {"errors"},
    "session": {"errors", "languages", "messages"},
    "nodes": {"errors", "languages", "labels"},
    "state": {"errors", "config"},
    "between": {"errors", "config", "state", "logs"},
    "jobs": {"errors", "config", "languages", "session", "nodes", "state"},
    # Audio files and captions: for both sides.
    "recording": {"errors"},
    "captions": {"errors"},
}
ALLOWED["live"] = {*ALLOWED} - {"tokens"}
ALLOWED["edge"] = {*ALLOWED}
# The SDKs of nodes and clients need the wire and nothing of the server.
ALLOWED["dial"] = {"errors", "messages"}
ALLOWED["node"] = {"errors", "languages", "labels", "messages", "logs", "dial"}
ALLOWED["client"] = {"errors", "messages", "glossary", "dial"}
# Real speech: a node made of engines, and the weights they need; nothing of the server.
ALLOWED["models"] = {"errors", "extras"}
ALLOWED["speech"] = {
    "errors", "languages", "messages", "logs", "metrics", "node", "models", "recording", "extras",
}  # fmt: skip
# A private scheduler and node as child processes, and a client that shows what it hears.
ALLOWED["local"] = {"errors", "config", "models"}
ALLOWED["interpret"] = {
    "errors", "languages", "messages", "client", "captions", "recording", "local",
}  # fmt: skip
# What operators do to the store itself, with no instance.
ALLOWED["care"] = {"errors", "config", "state", "jobs", "between"}
ALLOWED["bench"] = {*ALLOWED}
ALLOWED["demo"] = {*ALLOWED} - {"bench"}
ALLOWED["docs"] = {*ALLOWED}
ALLOWED["cli"] = {*ALLOWED}
ALLOWED["__main__"] = {"cli"}
ALLOWED["__init__"] = set()

# Decisions without effects: their time, chance and input come as arguments.
PURE = (
    "languages.py",
    "labels.py",
    "session/*.py",
    "nodes/capability.py",
    "nodes/health.py",
    "jobs/job.py",
    "jobs/placement.py",
    "jobs/requirement.py",
)
IMPURE = {"asyncio", "hiredis", "socket", "time", "random", "os", "uvloop"}

MODULES = sorted(ROOT.rglob("*.py"))


def imported(text: str, package: str) -> Iterator[str]:
    """Give the full name of everything a module imports, also under TYPE_CHECKING."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*above, *([node.module] if node.module else [])])
            source = base if node.level else node.module or ""
            yield from (f"{source}.{alias.name}" for alias in node.names)


def component_of(name: str) -> str | None:
    """Return the component a full name is in, or None for what is not ours."""
    top, _, rest = name.partition(".")
    if top != PACKAGE:
        return None
    first = rest.partition(".")[0]
    return first if first in ALLOWED else "__init__"


def package_of(file: Path) -> str:
    return ".".join([PACKAGE, *file.relative_to(ROOT).parent.parts])


def forbidden_components(component: str, text: str, package: str = PACKAGE) -> set[str]:
    used = {component_of(name) for name in imported(text, package)}
    return {name for name in used if name} - ALLOWED[component] - {component, "__init__"}


def impure_imports(text: str) -> set[str]:
    return {name.partition(".")[0] for name in imported(text, PACKAGE)} & IMPURE


def name_of(file: Path) -> str:
    return str(file.relative_to(ROOT))


def component_at(file: Path) -> str:
    return file.relative_to(ROOT).with_suffix("").parts[0]


@pytest.mark.parametrize("file", MODULES, ids=name_of)
def test_a_module_imports_only_what_its_component_may(file: Path) -> None:
    component = component_at(file)
    assert component in ALLOWED, f"{component} is new: say in ALLOWED what it may import"
    assert forbidden_components(component, file.read_text(), package_of(file)) == set()


@pytest.mark.parametrize(
    "file", [file for pattern in PURE for file in sorted(ROOT.glob(pattern))], ids=name_of
)
def test_a_pure_module_imports_nothing_with_effects(file: Path) -> None:
    assert impure_imports(file.read_text()) == set()


@pytest.mark.parametrize(
    ("component", "text", "found"),
    [
        ("session", "import lingua_scheduler.state.store", {"state"}),
        ("session", "from lingua_scheduler import config", {"config"}),
        ("session", "from lingua_scheduler.errors import LinguaError", set()),
        ("session", "from ..jobs import job", {"jobs"}),
        ("session", "from . import ordering", set()),
        ("config", "if TYPE_CHECKING:\n    from lingua_scheduler.state import x", {"state"}),
        ("state", "def f():\n    import lingua_scheduler.jobs", {"jobs"}),
        ("bench", "from lingua_scheduler.cli.main import main", {"cli"}),
        ("cli", "from lingua_scheduler import __version__, bench", set()),
        ("jobs", "import asyncio, msgspec", set()),
    ],
)
def test_a_forbidden_import_is_found(component: str, text: str, found: set[str]) -> None:
    package = f"{PACKAGE}.{component}"
    assert forbidden_components(component, text, package) == found


def test_an_impure_import_is_found() -> None:
    text = "import os.path\nfrom time import monotonic\nimport msgspec\nimport timeit"
    assert impure_imports(text) == {"os", "time"}


def test_the_rules_look_at_real_modules() -> None:
    assert {"errors.py", "cli/main.py", "state/binary.py"} <= {name_of(file) for file in MODULES}
