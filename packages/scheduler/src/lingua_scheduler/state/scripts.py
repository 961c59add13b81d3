"""Loads the Lua files: expands includes, inserts reply codes, checks the head of each.

One file in `lua/` is one operation; `lua/includes/` contains shared functions. A script is expanded
once per process and called by EVALSHA. This module does not connect to a server.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from lingua_scheduler.state.reply import Reply
from lingua_scheduler.state.script import Script

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

INCLUDE = re.compile(r'^(?P<indent> *)--- @include "(?P<path>[a-z0-9_/]+)"$')
REPLY = re.compile(r"\bReply\.(\w+)")
HEAD_SECTIONS = ("-- KEYS: due", "-- ARGV: now_ms", "-- Returns: ", "-- Writes: ", "-- Cost: ")
# Scripts with this prefix use the keys of an instance; all others use those of a cell.
OF_INSTANCE = "inbox_"


class ScriptError(Exception):
    """A Lua file is malformed: a bug, found when the scripts are loaded."""


@cache
def load_scripts() -> dict[str, Script]:
    """Return every script by name, expanded and ready to run."""
    folder = files(__package__).joinpath("lua")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".lua"))
    return {name[:-4]: load_script(folder, name[:-4]) for name in names}


def load_script(folder: Traversable, name: str) -> Script:
    """Expand one script: includes once each in order of need, reply names to numbers."""
    source = folder.joinpath(f"{name}.lua").read_text()
    check_head(name, source)
    return Script.of(name, slim(name_replies(name, expand(folder, source, []))))


def expand(folder: Traversable, source: str, seen: list[str]) -> str:
    """Replace each include line by the file's text, the first time it occurs in its scope.

    An indented include is inside a block: its functions are created only when that block runs and
    are not visible outside, so it counts as included only until the end of the block.
    """
    lines: list[str] = []
    inner: list[tuple[int, str]] = []
    for line in source.splitlines():
        indent = len(line) - len(line.lstrip(" "))
        inner = [entry for entry in inner if entry[0] <= indent or not line]
        match = INCLUDE.match(line)
        if match is None:
            if "@include" in line:
                raise ScriptError(f"not an include: {line.strip()}")
            lines.append(line)
            continue
        path = match["path"]
        known = [*seen, *(name for _, name in inner)]
        if path in known:
            continue
        scope = [*known, path]
        lines.append(expand(folder, read_include(folder, path), scope))
        if indent:
            inner += [(indent, name) for name in scope[len(known) :]]
        else:
            seen += scope[len(known) :]
    return "\n".join(lines)


def read_include(folder: Traversable, path: str) -> str:
    """Return the text of an include."""
    file = folder.joinpath(f"{path}.lua")
    if not file.is_file():
        raise ScriptError(f"no such include: {path}")
    return file.read_text()


def name_replies(name: str, source: str) -> str:
    """Replace each `Reply.NAME` by its number."""

    def number(match: re.Match[str]) -> str:
        if match[1] not in Reply.__members__:
            raise ScriptError(f"{name}: no reply is called {match[1]}")
        return str(int(Reply[match[1]]))

    return REPLY.sub(number, source)


def slim(source: str) -> str:
    """Drop comments and blank lines, and look `redis.call` up once instead of at every use."""
    lines = (line.rstrip() for line in source.splitlines())
    code = "\n".join(line for line in lines if line and not line.lstrip().startswith("--"))
    return f"local call = redis.call\n{code.replace('redis.call(', 'call(')}\n"


def check_head(name: str, source: str) -> None:
    """Check that a script states its arguments, answer, writes and cost before its code."""
    head = source.split("--- @include", 1)[0]
    keys = "-- KEYS: inbox" if name.startswith(OF_INSTANCE) else HEAD_SECTIONS[0]
    for section in (keys, *HEAD_SECTIONS[1:]):
        if section not in head:
            raise ScriptError(f"{name}: the head lacks `{section}`")
