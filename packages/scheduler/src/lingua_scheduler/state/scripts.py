"""Builds the library of functions from the Lua files: includes, reply codes, heads.

One file in `lua/` is one verb: a function of the file's name, which gets the arguments of the call.
`lua/includes/` contains what verbs share. The library has every include once, what it needs before
it, and then every verb in a block of its own, so that the helpers of one verb are not visible to
another. What only verbs of one noun need (`room_enter`, `room_leave`) is in a block around these:
Lua allows 200 names in one block. Nothing is created when a verb is called: all functions exist
once per server.

While a server loads a library, no function of Lua or of the server can be used. They are looked up
at the first call, and are then as fast to reach as our own functions: the sources write
`string.sub(...)` and the library has a local `string_sub`. This module does not connect to a
server.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from lingua_scheduler.state.reply import Reply
from lingua_scheduler.state.script import FunctionLibrary, Script, registered

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.resources.abc import Traversable

INCLUDE = re.compile(r'^--- @include "(?P<path>[a-z0-9_/]+)"$')
REPLY = re.compile(r"\bReply\.(\w+)")
HEAD_SECTIONS = ("-- KEYS: due", "-- ARGV: now_ms", "-- Returns: ", "-- Writes: ", "-- Cost: ")
# Verbs with this prefix use the keys of an instance; all others use those of a cell.
OF_INSTANCE = "inbox_"
# Verbs that need a session or a job of the cell and begin cheaper: `lua/includes/cell.lua`.
CALLED_MOST = ("batch", "job_submit", "job_settle")
# Functions of Lua and of the server: those of a table, and those without one.
OF_TABLE = re.compile(r"\b(cjson|cmsgpack|math|redis|string|table)\.(?!register_function)(\w+)")
BARE = re.compile(r"(?<![\w.'])(assert|error|ipairs|pairs|pcall|tonumber|tostring|type|unpack)\(")
# The verb that runs several calls at once finds the others here.
VERBS = "local verbs = {}\n"


# Named numbers, which the library has in place of their names: no call looks them up.
NUMBERS = re.compile(r"^local ([A-Z][A-Z0-9_, ]*) = (\d[\d, ]*)(?: --.*)?\n", re.MULTILINE)
NAME_OR_TEXT = re.compile(r"'[^'\n]*'|\b[A-Z][A-Z0-9_]*\b")


class ScriptError(Exception):
    """A Lua file is malformed: a bug, found when the library is built."""


@cache
def load_scripts() -> dict[str, Script]:
    """Return every verb of this release by name, all of one library."""
    folder = files(__package__).joinpath("lua")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".lua"))
    return build_scripts(folder, [name[:-4] for name in names])


def build_scripts(folder: Traversable, names: Sequence[str]) -> dict[str, Script]:
    """Build the library of these verbs."""
    parts: dict[str, str] = {}
    # Noun -> its verbs; include -> the nouns whose verbs need it.
    verbs: dict[str, list[str]] = {}
    nouns_of: dict[str, set[str]] = {}
    for name in names:
        source, noun = folder.joinpath(f"{name}.lua").read_text(), name.partition("_")[0]
        check_head(name, source)
        own: dict[str, str] = {}
        collect(folder, source, own, ())
        for path, text in own.items():
            parts.setdefault(path, text)
            nouns_of.setdefault(path, set()).add(noun)
        verbs.setdefault(noun, []).append(verb(name, source))
    shared = [text for path, text in parts.items() if len(nouns_of[path]) > 1]
    blocks = []
    for noun, code in verbs.items():
        private = [text for path, text in parts.items() if nouns_of[path] == {noun}]
        blocks += ["do\n", *private, *code, "end\n"] if private else code
    library = FunctionLibrary.of(bind(inline("".join([VERBS, *shared, *blocks]))))
    return {name: library.script(name) for name in names}


def collect(
    folder: Traversable, source: str, parts: dict[str, str], needed_by: tuple[str, ...]
) -> None:
    """Add the code of each include of the source to the parts, after what the include needs."""
    for path in includes_of(source):
        if path in needed_by:
            raise ScriptError(f"includes need each other: {', '.join((*needed_by, path))}")
        if path not in parts:
            text = read_include(folder, path)
            collect(folder, text, parts, (*needed_by, path))
            parts[path] = slim(name_replies(path, text))


def includes_of(source: str) -> list[str]:
    """Return the paths that a source includes; an include stands at the beginning of a line."""
    paths = []
    for line in source.splitlines():
        match = INCLUDE.match(line)
        if match is not None:
            paths.append(match["path"])
        elif "@include" in line:
            raise ScriptError(f"not an include: {line.strip()}")
    return paths


def read_include(folder: Traversable, path: str) -> str:
    """Return the text of an include."""
    file = folder.joinpath(f"{path}.lua")
    if not file.is_file():
        raise ScriptError(f"no such include: {path}")
    return file.read_text()


def verb(name: str, source: str) -> str:
    """Return the block of one verb: its code, and the function that the server calls."""
    if f"\nlocal function {name}(ARGV)\n" not in source:
        raise ScriptError(f"{name}: no `local function {name}(ARGV)`")
    begin = "begin_inbox" if name.startswith(OF_INSTANCE) else "begin_cell"
    if name in CALLED_MOST:
        begin = "begin_known"
    function = (
        "function(KEYS, ARGV)\nif not is_bound then bind() end\n"
        f"{begin}(KEYS[1], ARGV[1])\nreturn {name}(ARGV)\nend"
    )
    known = f"verbs.{name} = {name}\n"
    return f"do\n{slim(name_replies(name, source))}{known}{registered(name, function)}end\n"


def name_replies(name: str, source: str) -> str:
    """Replace each `Reply.NAME` by its number."""

    def number(match: re.Match[str]) -> str:
        if match[1] not in Reply.__members__:
            raise ScriptError(f"{name}: no reply is called {match[1]}")
        return str(int(Reply[match[1]]))

    return REPLY.sub(number, source)


def slim(source: str) -> str:
    """Drop comments and blank lines."""
    lines = (line.rstrip() for line in source.splitlines())
    return "".join(f"{line}\n" for line in lines if line and not line.lstrip().startswith("--"))


def inline(code: str) -> str:
    """Put named numbers in place of their names."""
    numbers: dict[str, str] = {}
    for names, values in NUMBERS.findall(code):
        for name, value in zip(names.split(", "), values.split(", "), strict=True):
            if name in numbers:
                raise ScriptError(f"two numbers have the name {name}")
            numbers[name] = value
    rest = NUMBERS.sub("", code)
    return NAME_OR_TEXT.sub(lambda found: numbers.get(found[0], found[0]), rest)


def bind(code: str) -> str:
    """Let the functions of Lua and of the server be locals, which the first call sets."""
    tables = {f"{table}_{name}": f"{table}.{name}" for table, name in OF_TABLE.findall(code)}
    bare = {name: name for name in BARE.findall(code)}
    found = dict(sorted((tables | bare).items()))
    ours, theirs = ", ".join(found), ", ".join(found.values())
    return (
        # Outside of the scope of our locals, which may have the names of theirs.
        f"local function globals()\nreturn {theirs}\nend\nlocal {ours}\nlocal is_bound = false\n"
        f"local function bind()\n{ours} = globals()\nis_bound = true\nend\n"
    ) + OF_TABLE.sub(r"\1_\2", code)


def check_head(name: str, source: str) -> None:
    """Check that a verb states its arguments, answer, writes and cost before its code."""
    head = source.split("--- @include", 1)[0]
    keys = "-- KEYS: inbox" if name.startswith(OF_INSTANCE) else HEAD_SECTIONS[0]
    for section in (keys, *HEAD_SECTIONS[1:]):
        if section not in head:
            raise ScriptError(f"{name}: the head lacks `{section}`")
