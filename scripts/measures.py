"""Measure the architecture: how much of the source departs from the shape it should have.

Every measure is a function from the source to its offences; its number is how many there are, and
LIMITS is the most that is allowed. A limit is a ratchet: it is lowered here when a number falls.

    python scripts/measures.py                       a table of all numbers
    python scripts/measures.py --list import_cycles  the offenders of one measure
    python scripts/measures.py --check               fail if a number is over its limit
    python scripts/measures.py --source src          measure another folder
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import tokenize
from collections import defaultdict
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

LIMITS: dict[str, int] = {
    "import_cycles": 0,
    "completed_later": 0,
    "large_classes": 0,
    "foreign_writes": 10,
    "positional_calls": 0,
    "format_skips": 5,
    "homonyms": 4,
    "undefined_nouns": 0,
}

SERVER = "lingua_scheduler"
# Of the server's package, but no part of the server when it runs.
NOT_RUNNING = ("lingua_scheduler/docs",)
# Between the edge and the rules; `live` is where all of it was before it was divided.
MIDDLE_FLOOR = (
    "lingua_scheduler/runtime",
    "lingua_scheduler/rooms",
    "lingua_scheduler/peers",
    "lingua_scheduler/live",
)
METHODS_MAX = 15
ATTRIBUTES_MAX = 20
POSITIONAL_MAX = 5
LONG_FUNCTION = 40

ROOT = Path(__file__).resolve().parents[1]
GLOSSARY = ROOT / "docs" / "glossary.md"

FORMAT_SKIP = re.compile(r"#\s*fmt:\s*(?:skip|off)\b")
HISSING_PLURAL = re.compile(r"(?:s|x|z|ch|sh)es$")
ENUMS = frozenset({"Enum", "IntEnum", "StrEnum", "Flag", "IntFlag", "ReprEnum"})
# Data and contracts. With their modules where others have a class of the same name: an
# `asyncio.Protocol` is neither.
DATA = frozenset(
    {"Struct", "msgspec.Struct", "NamedTuple", "typing.NamedTuple", "TypedDict", "typing.TypedDict"}
    | {"Protocol", "typing.Protocol", *ENUMS, *(f"enum.{name}" for name in ENUMS)}
)
# A class with one of these among its keywords has a Struct above it, whatever that is called.
STRUCT_KEYWORDS = frozenset(
    {"frozen", "kw_only", "array_like", "tag", "tag_field", "omit_defaults"}
    | {"forbid_unknown_fields", "rename", "eq", "order", "gc", "weakref", "dict", "cache_hash"}
)

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Module(NamedTuple):
    """One source file: its full name, its path below the source folder, and what it says."""

    name: str
    file: Path
    inside: PurePosixPath
    text: str
    tree: ast.Module

    @property
    def is_package(self) -> bool:
        """Tell whether it is the `__init__` of a package."""
        return self.file.stem == "__init__"

    @property
    def package(self) -> str:
        """Return the package from which its relative imports count."""
        return self.name if self.is_package else self.name.rpartition(".")[0]

    def is_below(self, folders: Iterable[str]) -> bool:
        """Tell whether it is in one of some folders, or is the one module of that name."""
        parts = self.inside.with_suffix("").parts
        return any(parts[: len(of)] == of for of in (PurePosixPath(f).parts for f in folders))


class Source(NamedTuple):
    """All that is measured: the modules of every source folder, and the glossary's text."""

    modules: Sequence[Module]
    glossary: str


class Offence(NamedTuple):
    """One thing that a measure counts."""

    file: Path
    line: int
    what: str

    def __str__(self) -> str:
        return f"{place(self.file, self.line)} {self.what}"


class Measure(NamedTuple):
    """What a measure counts, in words and as a function."""

    counts: str
    find: Callable[[Source], Iterable[Offence]]


class Result(NamedTuple):
    """A measure's name, what it counts, what it found, and how much of it is allowed."""

    name: str
    counts: str
    offences: Sequence[Offence]
    limit: int

    @property
    def number(self) -> int:
        """Return how much was found."""
        return len(self.offences)

    @property
    def is_over(self) -> bool:
        """Tell whether there is more than is allowed."""
        return self.number > self.limit


def place(file: Path, line: int) -> str:
    """Say where something is, from the repository's root if it is below it."""
    shown = file.relative_to(ROOT) if file.is_relative_to(ROOT) else file
    return f"{shown}:{line}"


def source_folders() -> list[Path]:
    """Return the source folder of every package of the workspace."""
    return sorted(ROOT.glob("packages/*/src"))


def load(folders: Iterable[Path], glossary: Path = GLOSSARY) -> Source:
    """Read and parse every module of some source folders.

    Without a folder, or without a module in one of them, there is nothing that a number could say.
    """
    found = [module for folder in folders for module in modules_below(folder.resolve())]
    if not found:
        raise FileNotFoundError("there is no source folder to measure")
    return Source(found, glossary.read_text(encoding="utf-8"))


def modules_below(folder: Path) -> list[Module]:
    """Read all modules of one source folder."""
    files = sorted(folder.rglob("*.py"))
    if not files:
        raise FileNotFoundError(f"there is no Python file in {folder}")
    return [module_at(file, folder) for file in files]


def module_at(file: Path, folder: Path) -> Module:
    """Read one module of a source folder."""
    inside = PurePosixPath(file.relative_to(folder).as_posix())
    parts = inside.with_suffix("").parts
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    text = file.read_text(encoding="utf-8")
    return Module(name, file, inside, text, ast.parse(text, filename=str(file)))


# Imports


def import_cycles(source: Source) -> Iterator[Offence]:
    """Find the groups of modules each of which imports all others of it, if by others."""
    modules = {module.name: module for module in source.modules}
    graph = {name: imports_of(module, modules) for name, module in modules.items()}
    reached = {name: reachable(name, graph) for name in graph}
    seen: set[str] = set()
    for name in sorted(graph):
        group = {other for other in reached[name] if name in reached[other]}
        if len(group) > 1 and name not in seen:
            seen |= group
            members = ", ".join(sorted(group))
            yield Offence(modules[name].file, 1, f"{len(group)} modules in a cycle: {members}")


def imports_of(module: Module, known: Iterable[str]) -> set[str]:
    """Return the known modules that a module names in its imports, wherever these are."""
    names = set(known)
    found: set[str] = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = imported_base(node, module.package)
            members = (f"{base}.{alias.name}" for alias in node.names)
            found.update(member if member in names else base for member in members)
    return (found & names) - {module.name}


def imported_base(node: ast.ImportFrom, package: str) -> str:
    """Return the full name of what stands after `from`."""
    if not node.level:
        return node.module or ""
    parts = package.split(".")
    above = parts[: len(parts) - node.level + 1]
    return ".".join([*above, *([node.module] if node.module else [])])


def reachable(start: str, graph: Mapping[str, set[str]]) -> set[str]:
    """Return a module and all that it imports, directly or not."""
    seen, waiting = {start}, [start]
    while waiting:
        fresh = graph[waiting.pop()] - seen
        seen |= fresh
        waiting.extend(fresh)
    return seen


# Writes to attributes


def completed_later(source: Source) -> Iterator[Offence]:
    """Find what a constructor sets in anything but its own object."""
    for module in source.modules:
        written = [
            node
            for kind in classes_of(module)
            for method in methods_of(kind)
            if method.name == "__init__"
            for node in written_attributes(method)
            if not is_named(node.value, {"self"})
        ]
        yield from offences_of(module, written)


def foreign_writes(source: Source) -> Iterator[Offence]:
    """Find what the middle floor sets in objects from outside of these."""
    for module in source.modules:
        if module.is_below(MIDDLE_FLOOR):
            written = written_attributes(module.tree)
            yield from offences_of(
                module, [node for node in written if not is_named(node.value, {"self", "cls"})]
            )


def written_attributes(within: ast.AST) -> Iterator[ast.Attribute]:
    """Give every attribute that is assigned, one by one where an assignment has several."""
    for node in ast.walk(within):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node


def is_named(node: ast.expr, names: set[str]) -> bool:
    """Tell whether an expression is nothing but one of some names."""
    return isinstance(node, ast.Name) and node.id in names


def offences_of(module: Module, nodes: Iterable[ast.expr]) -> Iterator[Offence]:
    """Give each expression once, as it is written, in the order of the text."""
    for line, _, text in sorted({(n.lineno, n.col_offset, ast.unparse(n)) for n in nodes}):
        yield Offence(module.file, line, text)


# Classes


def large_classes(source: Source) -> Iterator[Offence]:
    """Find the classes of the running server with too many public methods or attributes."""
    for module in source.modules:
        if not module.is_below([SERVER]) or module.is_below(NOT_RUNNING):
            continue
        for kind in classes_of(module):
            methods, attributes = len(public_methods(kind)), len(attributes_of(kind))
            is_large = methods > METHODS_MAX or attributes > ATTRIBUTES_MAX
            if is_large and not is_data(kind):
                what = f"{kind.name} has {methods} public methods and {attributes} attributes"
                yield Offence(module.file, kind.lineno, what)


def homonyms(source: Source) -> Iterator[Offence]:
    """Find the class names that are given more than once."""
    places: dict[str, list[tuple[Path, int]]] = defaultdict(list)
    for module in source.modules:
        for kind in classes_of(module):
            if not kind.name.startswith("_"):
                places[kind.name].append((module.file, kind.lineno))
    for name, (first, *others) in sorted(places.items()):
        if others:
            also = ", ".join(place(*other) for other in others)
            yield Offence(*first, f"{name}, also at {also}")


def classes_of(module: Module) -> list[ast.ClassDef]:
    """Return the classes of a module, nested ones too, in the order of the text."""
    found = (node for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef))
    return sorted(found, key=lambda kind: kind.lineno)


def methods_of(kind: ast.ClassDef) -> list[Function]:
    """Return what is defined by `def` in a class's body."""
    return [node for node in kind.body if isinstance(node, Function)]


def public_methods(kind: ast.ClassDef) -> set[str]:
    """Return the names of a class's public methods and properties."""
    return {method.name for method in methods_of(kind) if not method.name.startswith("_")}


def attributes_of(kind: ast.ClassDef) -> set[str]:
    """Return what a class's methods set in `self`, and its fields if it is a dataclass."""
    written = {
        node.attr
        for method in methods_of(kind)
        for node in written_attributes(method)
        if is_named(node.value, {"self"})
    }
    return written | (set(fields_of(kind)) if dataclass_decorator(kind) else set())


def fields_of(kind: ast.ClassDef) -> Iterator[str]:
    """Give the names that are annotated in a class's body, those of the class itself left out."""
    for node in kind.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            annotation = bare_name(node.annotation).rpartition(".")[2]
            if annotation not in {"ClassVar", "KW_ONLY"}:
                yield node.target.id


def dataclass_decorator(kind: ast.ClassDef) -> ast.expr | None:
    """Return the decorator that makes a class a dataclass."""
    names = {"dataclass", "dataclasses.dataclass"}
    return next((node for node in kind.decorator_list if bare_name(node) in names), None)


def is_data(kind: ast.ClassDef) -> bool:
    """Tell whether a class is plain data or a contract, of which size says little."""
    decorator = dataclass_decorator(kind)
    keywords = decorator.keywords if isinstance(decorator, ast.Call) else []
    is_frozen = any(
        keyword.arg == "frozen" and ast.unparse(keyword.value) == "True" for keyword in keywords
    )
    bases = {bare_name(base) for base in kind.bases}
    return is_frozen or bool(bases & DATA) or any(k.arg in STRUCT_KEYWORDS for k in kind.keywords)


def bare_name(node: ast.expr) -> str:
    """Return the name of what is called or subscripted: `a.b` for `a.b[c]` and `a.b(c)`."""
    while isinstance(node, ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return ast.unparse(node)


# Calls, format and words


def positional_calls(source: Source) -> Iterator[Offence]:
    """Find the calls whose arguments have to be counted to be understood."""
    for module in source.modules:
        calls = (node for node in ast.walk(module.tree) if isinstance(node, ast.Call))
        many = (call for call in calls if len(call.args) > POSITIONAL_MAX)
        for call in sorted(many, key=lambda call: (call.lineno, call.col_offset)):
            what = f"{called_name(call)} with {len(call.args)} positional arguments"
            yield Offence(module.file, call.lineno, what)


def called_name(call: ast.Call) -> str:
    """Return what is called, on one line."""
    return " ".join(ast.unparse(call.func).split())


def format_skips(source: Source) -> Iterator[Offence]:
    """Find the comments that keep the formatter away."""
    for module in source.modules:
        for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
            if token.type == tokenize.COMMENT and FORMAT_SKIP.search(token.string):
                yield Offence(module.file, token.start[0], token.line.strip())


def undefined_nouns(source: Source) -> Iterator[Offence]:
    """Find the modules and packages of the server that have a name without a meaning."""
    for module in source.modules:
        noun = module.file.parent.name if module.is_package else module.file.stem
        is_named_by_us = module.name != SERVER and noun != "__main__"
        if module.is_below([SERVER]) and is_named_by_us and not is_explained(noun, source.glossary):
            yield Offence(module.file, 1, noun)


def is_explained(noun: str, glossary: str) -> bool:
    """Tell whether the glossary has a noun in some form, or the name itself as code."""
    if f"`{noun}`" in glossary:
        return True
    forms = forms_of(noun.strip("_").replace("_", " "))
    # Two words of a module's name may be one with a hyphen in English.
    wanted = "|".join(re.escape(form).replace(r"\ ", r"[\s-]+") for form in sorted(forms))
    return re.search(rf"\b(?:{wanted})\b", glossary, re.IGNORECASE) is not None


def forms_of(noun: str) -> set[str]:
    """Return a noun with its plurals, and what it is the plural of."""
    forms = {noun, f"{noun}s", f"{noun}es"}
    if noun.endswith("y"):
        forms.add(noun.removesuffix("y") + "ies")
    if noun.endswith("ies"):
        forms.add(noun.removesuffix("ies") + "y")
    if HISSING_PLURAL.search(noun):
        forms.add(noun.removesuffix("es"))
    if noun.endswith("s") and not noun.endswith("ss"):
        forms.add(noun.removesuffix("s"))
    return forms


MEASURES: dict[str, Measure] = {
    "import_cycles": Measure("groups of modules that import each other", import_cycles),
    "completed_later": Measure("attributes of others set in a constructor", completed_later),
    "large_classes": Measure(
        f"server classes over {METHODS_MAX} public methods or {ATTRIBUTES_MAX} attributes",
        large_classes,
    ),
    "foreign_writes": Measure("attributes of others set in the middle floor", foreign_writes),
    "positional_calls": Measure(
        f"calls with more than {POSITIONAL_MAX} positional arguments", positional_calls
    ),
    "format_skips": Measure("comments that switch the formatter off", format_skips),
    "homonyms": Measure("public class names defined more than once", homonyms),
    "undefined_nouns": Measure("server modules whose name the glossary lacks", undefined_nouns),
}


# Figures without a limit


def figures(source: Source) -> dict[str, int]:
    """Return sizes for information."""
    functions = [
        node
        for module in source.modules
        for node in ast.walk(module.tree)
        if isinstance(node, Function)
    ]
    files = [len(module.text.splitlines()) for module in source.modules]
    lines = [code_lines(node) for node in functions]
    arguments = [argument_count(node) for node in functions]
    return {
        "files": len(files),
        "lines": sum(files),
        **{f"file_lines_{name}": number for name, number in spread(files).items()},
        "functions": len(functions),
        **{f"function_lines_{name}": number for name, number in spread(lines).items()},
        f"functions_over_{LONG_FUNCTION}_lines": sum(n > LONG_FUNCTION for n in lines),
        "arguments_p95": percentile(arguments, 95),
        "arguments_max": max(arguments, default=0),
    }


def spread(numbers: Sequence[int]) -> dict[str, int]:
    """Return the middle, the 95th percentile and the largest of some numbers."""
    return {
        "median": percentile(numbers, 50),
        "p95": percentile(numbers, 95),
        "max": max(numbers, default=0),
    }


def percentile(numbers: Sequence[int], percent: int) -> int:
    """Return the smallest number that at least so many percent do not exceed; 0 of none."""
    rank = -(-len(numbers) * percent // 100)
    return sorted(numbers)[rank - 1] if numbers else 0


def code_lines(node: Function) -> int:
    """Count the lines of a function, its docstring and decorators left out."""
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    first = node.body[0]
    if ast.get_docstring(node, clean=False) is not None and first.end_lineno is not None:
        lines -= first.end_lineno - first.lineno + 1
    return lines


def argument_count(node: Function) -> int:
    """Count what a function takes, its own object or class left out."""
    args = node.args
    named = [arg.arg for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs)]
    rest = [arg for arg in (args.vararg, args.kwarg) if arg is not None]
    return len([name for name in named if name not in {"self", "cls"}]) + len(rest)


# Command line


def measure(name: str, source: Source) -> Result:
    """Take one measure."""
    return Result(name, MEASURES[name].counts, list(MEASURES[name].find(source)), LIMITS[name])


def table(results: Iterable[Result], sizes: Mapping[str, int]) -> str:
    """Show all numbers, those with a limit first."""
    rows = [
        (r.name, str(r.number), str(r.limit), "over" if r.is_over else "ok", r.counts)
        for r in results
    ]
    rows.extend((name, str(number), "", "", "") for name, number in sizes.items())
    width = max(len(row[0]) for row in rows)
    lines = (f"{a:<{width}}  {b:>6}  {c:>5}  {d:<4}  {e}".rstrip() for a, b, c, d, e in rows)
    heading = f"{'measure':<{width}}  number  limit"
    return "\n".join([heading, *lines])


def as_json(results: Iterable[Result], sizes: Mapping[str, int]) -> str:
    """Give all numbers and offenders in a form for other programs."""
    measures = {
        r.name: {
            "counts": r.counts,
            "number": r.number,
            "limit": r.limit,
            "is_over": r.is_over,
            "offences": [str(offence) for offence in r.offences],
        }
        for r in results
    }
    return json.dumps({"measures": measures, "figures": dict(sizes)}, indent=2)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and return 1 if a check was asked for and a number is over its limit."""
    parser = argparse.ArgumentParser(description="Measure the architecture of the source.")
    parser.add_argument(
        "--source",
        action="append",
        type=Path,
        metavar="DIR",
        help="measure this folder instead of packages/*/src; may be repeated",
    )
    parser.add_argument("--list", choices=MEASURES, help="print the offenders of one measure")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--check", action="store_true", help="fail if a number is over its limit")
    options = parser.parse_args(arguments)
    try:
        source = load(options.source or source_folders())
    except FileNotFoundError as error:
        parser.error(str(error))
    results = [measure(name, source) for name in ([options.list] if options.list else MEASURES)]
    if options.json:
        print(as_json(results, figures(source)))
    elif options.list:
        print("\n".join(str(offence) for result in results for offence in result.offences))
    else:
        print(table(results, figures(source)))
    return int(options.check and any(result.is_over for result in results))


if __name__ == "__main__":
    raise SystemExit(main())
