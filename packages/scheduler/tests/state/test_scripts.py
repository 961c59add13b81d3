"""The loader of the Lua files: includes and their scopes, reply codes, heads, what is sent."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from lingua_scheduler import state
from lingua_scheduler.state.reply import Reply
from lingua_scheduler.state.scripts import (
    HEAD_SECTIONS,
    OF_INSTANCE,
    ScriptError,
    check_head,
    expand,
    load_script,
    load_scripts,
    name_replies,
    slim,
)

pytestmark = pytest.mark.unit

LUA = Path(state.__path__[0]) / "lua"
LANGUAGE_OWN = {"assert", "function", "ipairs", "pairs", "tonumber", "unpack"}

HEAD = "-- Does a thing.\n" + "".join(f"{section}something\n" for section in HEAD_SECTIONS)


def folder_with(tmp_path: Path, **includes: str) -> Path:
    """A folder of Lua files: each include is a file of that name."""
    for name, text in includes.items():
        (tmp_path / f"{name}.lua").write_text(text)
    return tmp_path


def expanded(tmp_path: Path, source: str, **includes: str) -> list[str]:
    """The lines a source has after expansion, without their indentation."""
    text = expand(folder_with(tmp_path, **includes), source, [])
    return [line.strip() for line in text.splitlines() if line.strip()]


# Includes at the top.


def test_a_source_without_includes_stays_as_it_is(tmp_path: Path) -> None:
    assert expand(tmp_path, "local a = 1\n\nreturn a", []) == "local a = 1\n\nreturn a"


def test_an_include_stands_where_its_line_was(tmp_path: Path) -> None:
    lines = expanded(tmp_path, 'before\n--- @include "a"\nafter', a="inside")
    assert lines == ["before", "inside", "after"]


def test_an_include_is_put_in_once(tmp_path: Path) -> None:
    lines = expanded(tmp_path, '--- @include "a"\n--- @include "a"\nreturn', a="inside")
    assert lines == ["inside", "return"]


def test_what_an_include_needs_comes_before_it(tmp_path: Path) -> None:
    lines = expanded(tmp_path, '--- @include "a"', a='--- @include "b"\nin a', b="in b")
    assert lines == ["in b", "in a"]


def test_what_two_includes_need_is_put_in_once(tmp_path: Path) -> None:
    lines = expanded(
        tmp_path,
        '--- @include "a"\n--- @include "b"\n--- @include "c"',
        a='--- @include "c"\nin a',
        b='--- @include "c"\nin b',
        c="in c",
    )
    assert lines == ["in c", "in a", "in b"]


def test_includes_that_need_each_other_end(tmp_path: Path) -> None:
    lines = expanded(
        tmp_path, '--- @include "a"', a='--- @include "b"\nin a', b='--- @include "a"\nin b'
    )
    assert lines == ["in b", "in a"]


def test_includes_may_be_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "a.lua").write_text("inside")
    assert expanded(tmp_path, '--- @include "inner/a"') == ["inside"]


@pytest.mark.parametrize("indent", ["", "  "])
def test_an_include_that_does_not_exist_is_named(tmp_path: Path, indent: str) -> None:
    with pytest.raises(ScriptError, match="no such include: includes/ghost"):
        expand(tmp_path, f'{indent}--- @include "includes/ghost"', [])


# Includes inside functions.


def test_an_indented_include_is_made_inside_its_function(tmp_path: Path) -> None:
    source = 'local function f()\n  --- @include "a"\n  use a\nend'
    lines = expanded(tmp_path, source, a="in a")
    assert lines == ["local function f()", "in a", "use a", "end"]


def test_within_one_function_an_include_is_put_in_once(tmp_path: Path) -> None:
    source = 'function f()\n  --- @include "a"\n\n  use\n  --- @include "a"\nend'
    assert expanded(tmp_path, source, a="in a") == ["function f()", "in a", "use", "end"]


def test_each_function_gets_its_own(tmp_path: Path) -> None:
    source = 'function f()\n  --- @include "a"\nend\nfunction g()\n  --- @include "a"\nend'
    lines = expanded(tmp_path, source, a="in a")
    assert lines == ["function f()", "in a", "end", "function g()", "in a", "end"]


def test_what_only_a_function_knows_is_still_put_in_at_the_top(tmp_path: Path) -> None:
    source = 'function f()\n  --- @include "a"\nend\n--- @include "a"\nreturn'
    lines = expanded(tmp_path, source, a="in a")
    assert lines == ["function f()", "in a", "end", "in a", "return"]


def test_what_the_top_knows_is_not_put_into_a_function(tmp_path: Path) -> None:
    source = '--- @include "a"\nfunction f()\n  --- @include "a"\nend'
    assert expanded(tmp_path, source, a="in a") == ["in a", "function f()", "end"]


def test_what_an_indented_include_needs_is_known_in_that_function_only(tmp_path: Path) -> None:
    source = (
        'function f()\n  --- @include "a"\n  --- @include "b"\nend\n'
        'function g()\n  --- @include "b"\nend'
    )
    lines = expanded(tmp_path, source, a='--- @include "b"\nin a', b="in b")
    assert lines == ["function f()", "in b", "in a", "end", "function g()", "in b", "end"]


def test_a_function_of_an_include_does_not_share_its_own_includes(tmp_path: Path) -> None:
    source = 'function f()\n  --- @include "a"\n  --- @include "b"\nend'
    lines = expanded(tmp_path, source, a='function g()\n  --- @include "b"\nend', b="in b")
    assert lines == ["function f()", "function g()", "in b", "end", "in b", "end"]


def test_a_function_sees_what_the_top_of_its_own_file_includes(tmp_path: Path) -> None:
    lines = expanded(
        tmp_path,
        'function f()\n  --- @include "a"\nend',
        a='--- @include "b"\nfunction g()\n  --- @include "b"\nend',
        b="in b",
    )
    assert lines == ["function f()", "in b", "function g()", "end", "end"]


def test_functions_that_include_each_other_end(tmp_path: Path) -> None:
    lines = expanded(
        tmp_path,
        'function f()\n  --- @include "a"\nend',
        a='function g()\n  --- @include "b"\nend',
        b='function h()\n  --- @include "a"\nend',
    )
    assert lines == ["function f()", "function g()", "function h()", "end", "end", "end"]


# Replies.


def test_names_of_replies_become_their_numbers() -> None:
    assert name_replies("x", "return { Reply.OK, Reply.NO_JOB }") == "return { 0, -12 }"


def test_every_reply_can_be_named() -> None:
    text = " ".join(f"Reply.{name}" for name in Reply.__members__)
    assert name_replies("x", text) == " ".join(str(int(reply)) for reply in Reply)


def test_an_unknown_reply_is_an_error_that_names_script_and_reply() -> None:
    with pytest.raises(ScriptError, match="job_do: no reply is called PERHAPS"):
        name_replies("job_do", "return { Reply.PERHAPS }")


def test_a_reply_whose_name_begins_like_another_is_not_mistaken_for_it() -> None:
    with pytest.raises(ScriptError, match="OKAY"):
        name_replies("x", "Reply.OKAY")
    assert name_replies("x", "MyReply.OK") == "MyReply.OK"


# Heads.


def test_a_whole_head_is_accepted() -> None:
    check_head("x", f"{HEAD}return 1")


def test_a_script_of_an_instance_is_given_its_inbox() -> None:
    check_head("inbox_do", HEAD.replace("-- KEYS: due", "-- KEYS: inbox"))
    with pytest.raises(ScriptError, match="KEYS: inbox"):
        check_head("inbox_do", HEAD)


@pytest.mark.parametrize("section", HEAD_SECTIONS)
def test_a_head_must_have_each_section(section: str) -> None:
    lacking = HEAD.replace(section, "-- ")
    with pytest.raises(ScriptError, match=re.escape(f"x: the head lacks `{section}`")):
        check_head("x", lacking)


def test_a_section_after_the_first_include_is_not_in_the_head() -> None:
    *before, last = HEAD.splitlines(keepends=True)
    with pytest.raises(ScriptError, match="Cost"):
        check_head("x", "".join(before) + '--- @include "a"\n' + last)


# What is sent.


def test_comments_and_blank_lines_are_not_sent() -> None:
    source = "-- head\nlocal a = 1  \n\n  -- why\n  local b = 2 -- kept\n--- more\nreturn a\n"
    sent = "local a = 1\n  local b = 2 -- kept\nreturn a\n"
    assert slim(source) == "local call = redis.call\n" + sent


def test_the_servers_function_is_looked_up_once() -> None:
    assert slim("redis.call('GET', k)") == "local call = redis.call\ncall('GET', k)\n"


@pytest.mark.parametrize("line", ['--- @include "a" ', '--- @include "A"', "-- @include a"])
def test_an_include_that_is_not_well_formed_is_an_error(tmp_path: Path, line: str) -> None:
    with pytest.raises(ScriptError, match="not an include"):
        expand(folder_with(tmp_path, a="x"), line, [])


def test_sibling_blocks_each_get_their_include(tmp_path: Path) -> None:
    block = 'if x then\n  --- @include "a"\nend\n'
    text = expand(folder_with(tmp_path, a="local y = 1"), f"if z then\n  {block}  {block}end", [])
    assert text.count("local y = 1") == 2


def test_a_script_is_expanded_numbered_slimmed_and_hashed(tmp_path: Path) -> None:
    source = f'{HEAD}--- @include "a"\nreturn {{ Reply.PLACED, f() }}\n'
    folder = folder_with(
        tmp_path, job_do=source, a="-- gives a reply\nlocal function f() return Reply.NO_NODE end"
    )
    script = load_script(folder, "job_do")
    assert script.name == "job_do"
    assert script.source == (
        b"local call = redis.call\nlocal function f() return -17 end\nreturn { 1, f() }\n"
    )
    assert script.sha == hashlib.sha1(script.source).hexdigest().encode()


def test_an_unknown_reply_in_an_include_is_found_when_the_script_is_loaded(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, job_do=f'{HEAD}--- @include "a"', a="return Reply.PERHAPS")
    with pytest.raises(ScriptError, match="job_do: no reply is called PERHAPS"):
        load_script(folder, "job_do")


def test_a_script_without_a_head_is_not_loaded(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match="job_do: the head lacks"):
        load_script(folder_with(tmp_path, job_do="return 1"), "job_do")


# The scripts of the package.


def test_every_file_is_a_script_and_includes_are_not() -> None:
    assert set(load_scripts()) == {file.stem for file in LUA.glob("*.lua")}
    assert "cell" not in load_scripts()
    assert len(load_scripts()) >= 31


def test_scripts_are_loaded_once() -> None:
    assert load_scripts() is load_scripts()


@pytest.mark.parametrize("name", sorted(load_scripts()))
def test_a_script_is_sent_ready_to_run(name: str) -> None:
    script = load_scripts()[name]
    text = script.source.decode()
    assert script.name == name
    assert script.sha == hashlib.sha1(script.source).hexdigest().encode()
    assert "@include" not in text
    assert not re.search(r"\bReply\b", text)
    ground = "INBOX" if name.startswith(OF_INSTANCE) else "DUE"
    assert text.startswith(f"local call = redis.call\nlocal {ground} = KEYS[1]\n")
    assert text.endswith("\n")
    assert len(re.findall(rf"^local {ground}\b", text, re.MULTILINE)) == 1


@pytest.mark.parametrize("name", sorted(load_scripts()))
def test_a_script_holds_every_function_it_calls(name: str) -> None:
    text = re.sub(r"'[^']*'|--.*", "", load_scripts()[name].source.decode())
    called = set(re.findall(r"(?<![\w.])([a-z_]+)\(", text))
    assert called - LANGUAGE_OWN - {"call"} <= set(
        re.findall(r"\blocal function ([a-z_]+)\(", text)
    )


def test_every_include_is_used_by_some_script() -> None:
    texts = [file.read_text() for file in LUA.rglob("*.lua")]
    used = {name for text in texts for name in re.findall(r'--- @include "includes/(\w+)"', text)}
    assert used == {file.stem for file in (LUA / "includes").glob("*.lua")}
