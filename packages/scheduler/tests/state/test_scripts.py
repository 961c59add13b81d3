"""The library of functions: includes, reply codes, heads, what is sent."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lingua_scheduler import state
from lingua_scheduler.state.reply import Reply
from lingua_scheduler.state.script import Script
from lingua_scheduler.state.scripts import (
    HEAD_SECTIONS,
    OF_INSTANCE,
    ScriptError,
    bind,
    build_scripts,
    check_head,
    collect,
    load_scripts,
    name_replies,
    slim,
)

pytestmark = pytest.mark.unit

LUA = Path(state.__path__[0]) / "lua"
TEXT = load_scripts()["job_submit"].library.source.decode()
LANGUAGE_OWN = {"assert", "function", "ipairs", "pairs", "pcall", "tonumber", "type", "unpack"}

HEAD = "-- Does a thing.\n" + "".join(f"{section}something\n" for section in HEAD_SECTIONS)


def folder_with(tmp_path: Path, **files: str) -> Path:
    """A folder of Lua files of these names."""
    for name, text in files.items():
        (tmp_path / f"{name}.lua").write_text(text)
    return tmp_path


def verb_of(name: str, *lines: str, includes: tuple[str, ...] = ()) -> str:
    """The text of a verb whose function has these lines."""
    needs = "".join(f'--- @include "{path}"\n' for path in includes)
    return (
        f"{HEAD}{needs}\nlocal function {name}(ARGV)\n"
        + "".join(f"  {x}\n" for x in lines)
        + "end\n"
    )


def collected(tmp_path: Path, source: str, **includes: str) -> list[str]:
    """The code of the includes of a source, in the order of the library."""
    parts: dict[str, str] = {}
    collect(folder_with(tmp_path, **includes), source, parts, ())
    return [text.strip() for text in parts.values()]


# Includes.


def test_a_source_without_includes_needs_nothing(tmp_path: Path) -> None:
    assert collected(tmp_path, "local a = 1\n\nreturn a") == []


def test_includes_are_in_the_order_of_their_lines(tmp_path: Path) -> None:
    source = '--- @include "b"\n--- @include "a"\nreturn'
    assert collected(tmp_path, source, a="in a", b="in b") == ["in b", "in a"]


def test_an_include_is_in_the_library_once(tmp_path: Path) -> None:
    assert collected(tmp_path, '--- @include "a"\n--- @include "a"', a="inside") == ["inside"]


def test_what_an_include_needs_comes_before_it(tmp_path: Path) -> None:
    parts = collected(tmp_path, '--- @include "a"', a='--- @include "b"\nin a', b="in b")
    assert parts == ["in b", "in a"]


def test_what_two_includes_need_is_in_the_library_once(tmp_path: Path) -> None:
    parts = collected(
        tmp_path,
        '--- @include "a"\n--- @include "b"\n--- @include "c"',
        a='--- @include "c"\nin a',
        b='--- @include "c"\nin b',
        c="in c",
    )
    assert parts == ["in c", "in a", "in b"]


def test_includes_that_need_each_other_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match="includes need each other: a, b, a"):
        collected(tmp_path, '--- @include "a"', a='--- @include "b"', b='--- @include "a"')


def test_includes_may_be_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "a.lua").write_text("inside")
    assert collected(tmp_path, '--- @include "inner/a"') == ["inside"]


def test_an_include_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match="no such include: includes/ghost"):
        collected(tmp_path, '--- @include "includes/ghost"')


@pytest.mark.parametrize(
    "line", ['--- @include "a" ', '--- @include "A"', "-- @include a", '  --- @include "a"']
)
def test_an_include_that_is_not_well_formed_or_inside_a_block_is_an_error(
    tmp_path: Path, line: str
) -> None:
    with pytest.raises(ScriptError, match="not an include"):
        collected(tmp_path, line, a="x")


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


# The library.


def test_comments_and_blank_lines_are_not_sent() -> None:
    source = "-- head\nlocal a = 1  \n\n  -- why\n  local b = 2 -- kept\n--- more\nreturn a\n"
    assert slim(source) == "local a = 1\n  local b = 2 -- kept\nreturn a\n"


def test_functions_of_the_server_become_locals_that_the_first_call_sets() -> None:
    assert bind("redis.call('GET', tonumber(x), string.sub(y))\nredis.register_function(z)\n") == (
        "local function globals()\nreturn redis.call, string.sub, tonumber\nend\n"
        "local redis_call, string_sub, tonumber\nlocal is_bound = false\n"
        "local function bind()\nredis_call, string_sub, tonumber = globals()\n"
        "is_bound = true\nend\n"
        "redis_call('GET', tonumber(x), string_sub(y))\nredis.register_function(z)\n"
    )


def test_a_library_has_its_includes_once_and_each_verb_in_a_block(tmp_path: Path) -> None:
    needs = ("a",)
    folder = folder_with(
        tmp_path,
        job_do=verb_of("job_do", "return { Reply.PLACED, f() }", includes=needs),
        inbox_do=verb_of("inbox_do", "return f()", includes=needs).replace(
            "KEYS: due", "KEYS: inbox"
        ),
        a="-- gives a reply\nlocal function f() return Reply.NO_NODE end",
    )
    scripts = build_scripts(folder, ["inbox_do", "job_do"])
    library = scripts["job_do"].library
    assert scripts["inbox_do"].library is library
    digits = library.name.removeprefix("lingua_")
    assert scripts["job_do"].name == "job_do"
    assert scripts["job_do"].function == f"job_do_{digits}".encode()
    text = library.source.decode()
    assert text.startswith(f"#!lua name={library.name}\n")
    assert text.count("local function f() return -17 end\n") == 1
    assert (
        "do\nlocal function job_do(ARGV)\n  return { 1, f() }\nend\nverbs.job_do = job_do\n"
        f"redis.register_function('job_do_{digits}', function(KEYS, ARGV)\n"
        "if not is_bound then bind() end\nbegin_cell(KEYS[1], ARGV[1])\nreturn job_do(ARGV)\n"
        "end)\nend\n"
    ) in text
    assert "begin_inbox(KEYS[1], ARGV[1])\nreturn inbox_do(ARGV)\n" in text


def test_a_library_is_named_by_its_content(tmp_path: Path) -> None:
    texts = ("return 1", "return 1", "return 2")
    names = [
        build_scripts(folder_with(tmp_path, x=verb_of("x", text)), ["x"])["x"].library.name
        for text in texts
    ]
    assert names[0] == names[1] != names[2]
    assert all(re.fullmatch("lingua_[0-9a-f]{12}", name) for name in names)


def test_a_single_function_can_be_a_library_of_its_own() -> None:
    script = Script.of("echo", "return ARGV[1]")
    digits = script.library.name.removeprefix("lingua_")
    assert script.library.source.decode() == (
        f"#!lua name=lingua_{digits}\nredis.register_function('echo_{digits}', "
        "function(KEYS, ARGV)\nreturn ARGV[1]\nend)\n"
    )


def test_an_unknown_reply_in_an_include_is_found_when_the_library_is_built(tmp_path: Path) -> None:
    folder = folder_with(
        tmp_path, job_do=verb_of("job_do", includes=("a",)), a="return Reply.PERHAPS"
    )
    with pytest.raises(ScriptError, match="a: no reply is called PERHAPS"):
        build_scripts(folder, ["job_do"])


def test_a_verb_without_a_head_is_not_built(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match="job_do: the head lacks"):
        build_scripts(folder_with(tmp_path, job_do="return 1"), ["job_do"])


def test_a_verb_without_a_function_of_its_name_is_not_built(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match=r"job_do: no `local function job_do\(ARGV\)`"):
        build_scripts(folder_with(tmp_path, job_do=verb_of("other")), ["job_do"])


# The library of the package.


def test_every_file_is_a_verb_and_includes_are_not() -> None:
    assert set(load_scripts()) == {file.stem for file in LUA.glob("*.lua")}
    assert "cell" not in load_scripts()
    assert len(load_scripts()) >= 31


def test_the_library_is_built_once_and_has_all_verbs() -> None:
    assert load_scripts() is load_scripts()
    assert len({script.library for script in load_scripts().values()}) == 1


def test_the_library_is_sent_ready_to_load() -> None:
    assert "@include" not in TEXT
    assert "@content@" not in TEXT
    assert not re.search(r"\bReply\b", TEXT)
    registered = re.findall(r"redis\.register_function\('(\w+)'", TEXT)
    assert registered == [script.function.decode() for script in load_scripts().values()]


@pytest.mark.parametrize("name", sorted(load_scripts()))
def test_a_verb_includes_every_function_that_it_calls(name: str) -> None:
    source = (LUA / f"{name}.lua").read_text()
    parts: dict[str, str] = {}
    collect(LUA, source, parts, ())
    assert "includes/inbox" in parts if name.startswith(OF_INSTANCE) else "includes/cell" in parts
    assert functions_called(source) <= functions_made("".join((*parts.values(), source)))


@pytest.mark.parametrize("name", sorted(file.stem for file in (LUA / "includes").glob("*.lua")))
def test_an_include_includes_every_function_that_it_calls(name: str) -> None:
    source = (LUA / "includes" / f"{name}.lua").read_text()
    parts: dict[str, str] = {}
    collect(LUA, source, parts, ())
    assert functions_called(source) <= functions_made("".join((*parts.values(), source)))


def functions_called(source: str) -> set[str]:
    text = re.sub(r"'[^']*'|--.*", "", source)
    return set(re.findall(r"(?<![\w.])([a-z_]+)\(", text)) - LANGUAGE_OWN


def functions_made(source: str) -> set[str]:
    return set(re.findall(r"\blocal function ([a-z_]+)\(", source))


def test_no_two_names_of_the_includes_are_the_same() -> None:
    names = shared_names()
    assert sorted(names) == sorted(set(names))


def test_the_names_of_the_library_are_below_the_limit_of_the_language() -> None:
    # 200 in one function; the library itself is one.
    assert len(shared_names()) < 190


def test_what_verbs_of_one_noun_need_is_in_a_block_around_them() -> None:
    assert "room_key" not in shared_names()
    _, block, rest = TEXT.partition("\ndo\nlocal function room_key(")
    assert block
    verbs = re.findall(r"'(\w+)_[0-9a-f]{12}', function", rest)
    assert verbs[0] == "room_captions"


def shared_names() -> list[str]:
    """The locals of the library outside of functions and of the blocks of verbs."""
    shared, _, _ = TEXT.partition("\ndo\n")
    functions = re.findall(r"^local function (\w+)\(", shared, re.MULTILINE)
    values = re.findall(r"^local (?!function )([\w, ]+)", shared, re.MULTILINE)
    return functions + [name.strip() for group in values for name in group.split(",")]


@pytest.mark.parametrize("file", sorted(LUA.rglob("*.lua")), ids=lambda file: file.stem)
def test_no_function_is_made_when_a_verb_is_called(file: Path) -> None:
    assert re.findall(r"^ +.*\bfunction\b.*", slim(file.read_text()), re.MULTILINE) == []


def test_every_include_is_used_by_some_verb() -> None:
    texts = [file.read_text() for file in LUA.rglob("*.lua")]
    used = {name for text in texts for name in re.findall(r'--- @include "includes/(\w+)"', text)}
    assert used == {file.stem for file in (LUA / "includes").glob("*.lua")}
