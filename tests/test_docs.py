import argparse
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from lingua_cli.main import build_parser
from lingua_scheduler import docs
from lingua_scheduler.config import describe, load_settings
from workspace import ROOT

pytestmark = pytest.mark.unit


def commands(
    parser: argparse.ArgumentParser, words: str = "lingua"
) -> Iterator[tuple[str, str | None]]:
    """Give every command and action of the parser with its help text."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help for choice in action._choices_actions}
            for name, child in action.choices.items():
                yield f"{words} {name}", helps.get(name)
                yield from commands(child, f"{words} {name}")


COMMANDS = dict(commands(build_parser()))


def written_text() -> str:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
    return "\n".join(page.read_text(encoding="utf-8") for page in pages)


@pytest.mark.parametrize("path", docs.PAGES)
def test_a_generated_page_is_what_the_code_says_now(path: str) -> None:
    assert path not in docs.stale_pages(ROOT), f"run `make docs`: {path} is stale"


def test_check_names_stale_pages_and_writing_makes_them_fresh(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = f"--root={tmp_path}"
    assert docs.main([root, "--check"]) == 1
    assert "stale: docs/config.md" in capsys.readouterr().err
    assert not (tmp_path / "docs").exists()
    assert docs.main([root]) == 0
    assert docs.main([root, "--check"]) == 0
    page = tmp_path / "docs" / "config.md"
    page.write_text(page.read_text().replace("10000", "10001"))
    assert docs.main([root, "--check"]) == 1


BEGIN, END = "<!-- begin generated: cuts -->", "<!-- end generated -->"


def page_with(directory: Path, text: str) -> Path:
    """Write a page by hand beside fresh generated ones."""
    assert docs.main([f"--root={directory}"]) == 0
    page = directory / "docs" / "by_hand.md"
    page.write_text(text)
    return page


def test_a_block_of_a_page_written_by_hand_is_written_and_the_rest_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = page_with(tmp_path, f"# By hand\n\n{BEGIN}\nold\n{END}\n\nThe end.\n")
    assert docs.main([f"--root={tmp_path}", "--check"]) == 1
    assert "stale: docs/by_hand.md" in capsys.readouterr().err
    assert "old" in page.read_text()
    assert docs.main([f"--root={tmp_path}"]) == 0
    block = f"{BEGIN}\n\n{docs.cuts_block().strip()}\n\n{END}"
    assert page.read_text() == f"# By hand\n\n{block}\n\nThe end.\n"
    assert docs.main([f"--root={tmp_path}", "--check"]) == 0


def test_a_page_may_have_several_blocks(tmp_path: Path) -> None:
    second = "<!-- begin generated: close-codes -->"
    page = page_with(tmp_path, f"{BEGIN}\n{END}\nbetween\n{second}\n{END}\n")
    assert docs.main([f"--root={tmp_path}"]) == 0
    first, last = page.read_text().split("\nbetween\n")
    assert docs.cuts_block().strip() in first
    assert docs.closes_block().strip() in last


def test_a_page_without_blocks_is_not_touched(tmp_path: Path) -> None:
    page = page_with(tmp_path, "Nothing generated here, no line end either")
    assert docs.main([f"--root={tmp_path}", "--check"]) == 0
    assert page.read_text() == "Nothing generated here, no line end either"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f"<!-- begin generated: nonsense -->\n{END}\n", "no generated block 'nonsense'"),
        (f"{BEGIN}\nand nothing more\n", "has no begin or no end"),
        (f"{END}\n", "has no begin or no end"),
        (f"{BEGIN}\n{BEGIN}\n{END}\n", "'cuts' has no end"),
        ("<!-- begin generated: Wrong Name -->\n", "has no begin or no end"),
    ],
    ids=["unknown", "no end", "no begin", "one in another", "no name"],
)
def test_a_broken_block_is_named_and_nothing_is_written(
    text: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = page_with(tmp_path, text)
    (tmp_path / "docs" / "config.md").write_text("stale")
    assert docs.main([f"--root={tmp_path}"]) == 1
    told = capsys.readouterr().err
    assert "docs/by_hand.md" in told
    assert problem in told
    assert page.read_text() == text
    assert (tmp_path / "docs" / "config.md").read_text() == "stale"


def test_every_block_is_on_the_page_of_the_protocol_and_fresh() -> None:
    page = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
    for name in docs.BLOCKS:
        assert page.count(f"<!-- begin generated: {name} -->") == 1, name
    assert docs.with_fresh_blocks("docs/protocol.md", page) == page, "run `make docs`"


def test_every_link_inside_the_page_of_the_protocol_leads_somewhere() -> None:
    page = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
    titles = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
    assert set(re.findall(r"\]\(#([^)]+)\)", page)) <= anchors
    for file in set(re.findall(r"\]\(([a-z-]+\.md)\)", page)):
        assert (ROOT / "docs" / file).is_file(), file


def test_the_generator_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lingua_scheduler.docs", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_every_setting_is_on_the_settings_page() -> None:
    page = docs.config_page()
    for row in describe():
        assert f"| `{row.path}` |" in page
        assert row.description in page


def test_the_example_on_the_settings_page_is_a_valid_file(tmp_path: Path) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", docs.config_page(), re.DOTALL)
    file = tmp_path / "lingua.toml"
    file.write_text(example)
    settings = load_settings(file, {})
    assert settings.redis.url.reveal() == tomllib.loads(example)["redis"]["url"]
    assert [tenant.id for tenant in settings.tenants] == ["acme"]


def test_a_table_cell_cannot_break_its_table() -> None:
    assert docs.markdown_table(("a",), [("x|y",)]) == "| a |\n| --- |\n| x\\|y |\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_has_help_text_and_is_documented(command: str) -> None:
    assert COMMANDS[command], f"{command} has no help text"
    assert f"{command}" in written_text(), f"{command} is in neither README.md nor docs/"


def test_the_commands_are_found() -> None:
    assert {"lingua config", "lingua config print", "lingua config check"} <= set(COMMANDS)


BLOCK = re.compile(r"^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHELL_WORDS = {"|", "||", "&&", ";", ">", ">>", "<", "&"}


def command_lines() -> Iterator[tuple[str, list[str]]]:
    """Give every `lingua` command line of a block on a page, with its words."""
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for block in BLOCK.findall(page.read_text(encoding="utf-8")):
            for line in block.replace("\\\n", " ").splitlines():
                if words := words_of(line):
                    yield page.name, words


def words_of(line: str) -> list[str]:
    """Return the arguments of the `lingua` in a line, none if it has none."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        return []
    at = next((i for i, word in enumerate(words) if re.fullmatch(r"(.*bin/)?lingua", word)), None)
    # What a command prints may begin with its name, too.
    if at is None or len(words) < at + 2 or words[at + 1] not in TOP_COMMANDS:
        return []
    rest = words[at + 1 :]
    return rest[: next((i for i, word in enumerate(rest) if word in SHELL_WORDS), len(rest))]


TOP_COMMANDS = {command.split()[1] for command in COMMANDS}
COMMAND_LINES = list(command_lines())


def test_command_lines_are_found_on_the_pages() -> None:
    assert len(COMMAND_LINES) > 50
    assert {page for page, _ in COMMAND_LINES} >= {"README.md", "translate.md", "operations.md"}


@pytest.mark.parametrize(
    ("page", "words"), COMMAND_LINES, ids=[f"{p} {' '.join(w)}"[:90] for p, w in COMMAND_LINES]
)
def test_a_command_line_of_a_page_is_one_that_the_command_takes(
    page: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        build_parser((words[0],)).parse_args(words)
    except SystemExit:
        pytest.fail(f"{page}: lingua {' '.join(words)}\n{capsys.readouterr().err}")
