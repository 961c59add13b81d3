"""The example of README.md, executed."""

from __future__ import annotations

import pytest

from readme_example import python_example
from workspace import PACKAGES

pytestmark = pytest.mark.unit

README = PACKAGES["lingua_wire"] / "README.md"


def test_the_example_decodes_and_encodes(capsys: pytest.CaptureFixture[str]) -> None:
    program = python_example(README)
    exec(compile(program, str(README), "exec"), {})
    assert capsys.readouterr().out.splitlines() == [
        "en es",
        "True",
        '{"type":"error","code":"BUSY","message":"wait"}',
    ]
