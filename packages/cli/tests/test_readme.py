"""The example of README.md: a verb of another package."""

from __future__ import annotations

import re
import sys
import types

import pytest

from lingua_cli import main as cli
from readme_example import python_example
from workspace import PACKAGES

pytestmark = pytest.mark.unit

README = PACKAGES["lingua_cli"] / "README.md"


def test_the_example_is_a_verb(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = README.read_text(encoding="utf-8")
    program = python_example(README)
    [(verb, name)] = re.findall(r'^(\w+) = "([\w.]+)"$', text, re.MULTILINE)
    module = types.ModuleType(name)
    exec(compile(program, str(README), "exec"), module.__dict__)
    monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(cli, "installed_verbs", lambda: {verb: name})
    assert cli.main([verb, "Ada"]) == 0
    assert capsys.readouterr().out == "Hello, Ada!\n"
    assert "greet somebody" in cli.build_parser().format_help()
