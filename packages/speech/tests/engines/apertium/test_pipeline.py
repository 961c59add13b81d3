"""A pipeline of programs that hang or do not exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from lingua_speech.engines.apertium.pipeline import PipelineLost, ProcessPipeline

pytestmark = pytest.mark.unit


def _is_gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"


def test_a_program_that_never_answers_is_given_up() -> None:
    pipeline = ProcessPipeline([("/bin/sleep", "60")], {}, 0.2)
    with pytest.raises(PipelineLost, match=r"no answer within 0\.2 s"):
        pipeline.ask(b"text")
    pids = pipeline.pids
    pipeline.close()
    assert all(_is_gone(pid) for pid in pids)


def test_a_program_that_is_not_there_is_told() -> None:
    with pytest.raises(PipelineLost, match="cannot start /nowhere/program"):
        ProcessPipeline([("/bin/cat",), ("/nowhere/program",)], {}, 1.0)
