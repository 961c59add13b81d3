"""Who may import whom, read from the source by `ast`.

    bench ──► translate ──► speech ──► node ───┐
      │           ├───────► client ────────────┼──► wire
      └───────────┴───────► scheduler ──► cli ─┘
                                └───────► web

    Inside the scheduler:

    commands ──► supervisor   docs   maintenance
        │            │         │
        └────────────┴─► edge ─┴► runtime ──► rooms, streams ──► jobs, peers ──► state ──► config
              └────► auth                    └──► session, nodes

The packages of the workspace come first; then the components of the scheduler, which are the
modules and folders directly below lingua_scheduler. A new one of either needs a row here.
"""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import lingua_wire
from workspace import PACKAGES, SCHEDULER, SOURCES

pytestmark = pytest.mark.unit

# Each package of the workspace and the others it may import.
PACKAGE_IMPORTS: dict[str, set[str]] = {
    "lingua_wire": set(),
    "lingua_client": {"lingua_wire"},
    "lingua_node": {"lingua_wire"},
    "lingua_cli": {"lingua_wire"},
    "lingua_web": set(),
    "lingua_scheduler": {"lingua_wire", "lingua_cli", "lingua_web"},
    "lingua_speech": {"lingua_wire", "lingua_node", "lingua_cli"},
}
PACKAGE_IMPORTS["lingua_translate"] = {*PACKAGE_IMPORTS}
PACKAGE_IMPORTS["lingua_bench"] = {*PACKAGE_IMPORTS}

# Each component of the scheduler and the others it may import; itself goes without saying.
COMPONENT_IMPORTS: dict[str, set[str]] = {
    "errors": set(),
    "secret": set(),
    "clock": set(),
    "transitions": set(),
    "metrics": set(),
    "steps": set(),
    "pending_writes": set(),
    "flag": set(),
    "tasks": {"errors", "steps"},
    "config": {"errors", "secret"},
    "session": {"errors"},
    "nodes": {"errors"},
    "state": {"errors", "config", "steps", "pending_writes"},
    "peers": {"errors", "config", "state"},
    "jobs": {"errors", "config", "session", "nodes", "state", "transitions"},
}
COMPONENT_IMPORTS["auth"] = {"errors", "secret", "config", "state", "jobs"}
COMPONENT_IMPORTS["rooms"] = {
    *("errors", "clock", "tasks", "config", "session", "state", "peers", "jobs"),
}
COMPONENT_IMPORTS["streams"] = {
    *("errors", "clock", "tasks", "config", "session", "state", "peers", "jobs", "metrics"),
    "transitions",
}
COMPONENT_IMPORTS["runtime"] = {*COMPONENT_IMPORTS} - {"auth", "secret"}
COMPONENT_IMPORTS["edge"] = {*COMPONENT_IMPORTS}
# What operators do to the store itself, with no instance.
COMPONENT_IMPORTS["maintenance"] = {"errors", "config", "state", "jobs", "peers"}
COMPONENT_IMPORTS["docs"] = {*COMPONENT_IMPORTS}
# Several processes behind one port; each of them is an instance.
COMPONENT_IMPORTS["supervisor"] = {*COMPONENT_IMPORTS} - {"docs", "maintenance"}
COMPONENT_IMPORTS["commands"] = {*COMPONENT_IMPORTS} - {"docs"}
COMPONENT_IMPORTS["__init__"] = set()

# Decisions without effects: their time, chance and input come as arguments.
PURE = (
    "session/*.py",
    "nodes/capability.py",
    "nodes/pressure.py",
    "jobs/job.py",
    "jobs/placement.py",
    "jobs/requirement.py",
)
IMPURE = {"asyncio", "hiredis", "socket", "time", "random", "os", "uvloop"}

MODULES = [
    (package, file) for package, root in SOURCES.items() for file in sorted(root.rglob("*.py"))
]


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


def forbidden_packages(package: str, text: str) -> set[str]:
    """Return the packages of ours that a module of this package must not import."""
    used = {name.partition(".")[0] for name in imported(text, package)}
    return (used & PACKAGES.keys()) - PACKAGE_IMPORTS[package] - {package}


def forbidden_components(component: str, text: str, package: str = "lingua_scheduler") -> set[str]:
    """Return the components of the scheduler that a module of this one must not import."""
    names = (name.split(".") for name in imported(text, package))
    used = {name[1] for name in names if name[0] == "lingua_scheduler" and len(name) > 1}
    return (used & COMPONENT_IMPORTS.keys()) - COMPONENT_IMPORTS[component] - {component}


def impure_imports(text: str) -> set[str]:
    return {name.partition(".")[0] for name in imported(text, "lingua_scheduler")} & IMPURE


def module_of(file: Path) -> str:
    return str(file.relative_to(SCHEDULER))


def component_at(file: Path) -> str:
    return file.relative_to(SCHEDULER).with_suffix("").parts[0]


def test_every_package_has_a_row() -> None:
    assert PACKAGES.keys() == PACKAGE_IMPORTS.keys()


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_only_the_packages_it_may(package: str) -> None:
    found = {
        str(file): forbidden
        for file in sorted(SOURCES[package].rglob("*.py"))
        if (forbidden := forbidden_packages(package, file.read_text()))
    }
    assert found == {}


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_declares_what_it_imports_and_the_one_version(package: str) -> None:
    project = tomllib.loads((PACKAGES[package] / "pyproject.toml").read_text())["project"]
    assert project["version"] == lingua_wire.__version__
    declared = {need.partition("==")[0] for need in project["dependencies"] if "lingua-" in need}
    used = {
        name.partition(".")[0]
        for file in SOURCES[package].rglob("*.py")
        for name in imported(file.read_text(), package)
    }
    ours = {name.replace("_", "-") for name in used & PACKAGES.keys() - {package}}
    assert declared == ours


@pytest.mark.parametrize("file", sorted(SCHEDULER.rglob("*.py")), ids=module_of)
def test_a_module_imports_only_what_its_component_may(file: Path) -> None:
    component = component_at(file)
    assert component in COMPONENT_IMPORTS, f"{component} is new: say what it may import"
    package = ".".join(["lingua_scheduler", *file.relative_to(SCHEDULER).parent.parts])
    assert forbidden_components(component, file.read_text(), package) == set()


@pytest.mark.parametrize(
    "file", [file for pattern in PURE for file in sorted(SCHEDULER.glob(pattern))], ids=module_of
)
def test_a_pure_module_imports_nothing_with_effects(file: Path) -> None:
    assert impure_imports(file.read_text()) == set()


@pytest.mark.parametrize(
    ("component", "text", "found"),
    [
        ("session", "import lingua_scheduler.state.store", {"state"}),
        ("session", "from lingua_scheduler import config", {"config"}),
        ("session", "from lingua_wire.errors import LinguaError", set()),
        ("session", "from ..jobs import job", {"jobs"}),
        ("session", "from . import ordering", set()),
        ("config", "if TYPE_CHECKING:\n    from lingua_scheduler.state import x", {"state"}),
        ("state", "def f():\n    import lingua_scheduler.jobs", {"jobs"}),
        ("jobs", "import asyncio, msgspec", set()),
    ],
)
def test_a_forbidden_component_is_found(component: str, text: str, found: set[str]) -> None:
    assert forbidden_components(component, text, f"lingua_scheduler.{component}") == found


@pytest.mark.parametrize(
    ("package", "text", "found"),
    [
        ("lingua_client", "from lingua_scheduler.state import keys", {"lingua_scheduler"}),
        ("lingua_node", "def f():\n    import lingua_client", {"lingua_client"}),
        ("lingua_bench", "import lingua_client, lingua_speech.models", set()),
    ],
)
def test_a_forbidden_package_is_found(package: str, text: str, found: set[str]) -> None:
    assert forbidden_packages(package, text) == found


def test_an_impure_import_is_found() -> None:
    text = "import os.path\nfrom time import monotonic\nimport msgspec\nimport timeit"
    assert impure_imports(text) == {"os", "time"}


def test_the_rules_look_at_real_modules() -> None:
    assert (SOURCES["lingua_wire"] / "errors.py").is_file()
    assert "state/binary.py" in {module_of(file) for file in SCHEDULER.rglob("*.py")}
