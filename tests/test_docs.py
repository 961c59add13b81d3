import argparse
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from lingua_scheduler import docs
from lingua_scheduler.cli.main import build_parser
from lingua_scheduler.config import describe, load_settings

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[1]


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
