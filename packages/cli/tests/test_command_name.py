"""The name of the command in messages: as it was called, as short as it works."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lingua_cli.command_name import command_name

pytestmark = pytest.mark.unit


def test_a_command_below_this_folder_is_named_from_here(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(tmp_path / ".venv" / "bin" / "lingua")])
    assert command_name() == ".venv/bin/lingua"


def test_a_command_elsewhere_keeps_its_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["/opt/lingua/bin/lingua"])
    assert command_name() == "/opt/lingua/bin/lingua"


def test_another_program_names_the_command_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/pytest"])
    assert command_name() == "lingua"
