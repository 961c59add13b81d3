"""Languages and pauses on the command line are checked before anything is started."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from lingua_cli import language_arguments
from lingua_cli.main import build_parser, main
from lingua_scheduler.config import Settings
from lingua_scheduler.edge.openai.events import RealtimeSession
from lingua_scheduler.edge.realtime_socket import init_of
from lingua_scheduler.session.segmenter import SegmentRules
from lingua_translate import Order
from lingua_wire.errors import InvalidLanguage

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("typed", "code"),
    [("en", "en"), ("EN", "en"), ("pt_BR", "pt-br"), ("yue", "yue"), (" es ", "es")],
)
def test_a_code_is_taken_in_its_one_form(typed: str, code: str) -> None:
    assert language_arguments.parse_language(typed) == code


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("english", "english is not a language code; did you mean en?"),
        ("Spansh", "Spansh is not a language code; did you mean es?"),
        ("haitian creole", "haitian creole is not a language code; did you mean ht?"),
        ("klingon", "klingon is not a language code; give a code, like en, es or pt-br"),
        ("auto", "auto is not a language code; give a code, like en, es or pt-br"),
        ("", " is not a language code; give a code, like en, es or pt-br"),
    ],
)
def test_an_invalid_code_is_reported_with_the_probable_one(typed: str, message: str) -> None:
    with pytest.raises(InvalidLanguage) as refused:
        language_arguments.parse_language(typed)
    assert str(refused.value) == message


def test_only_the_source_language_may_be_auto() -> None:
    assert language_arguments.source_argument("AUTO") == "auto"
    with pytest.raises(argparse.ArgumentTypeError):
        language_arguments.language_argument("auto")


@pytest.mark.parametrize(
    "words",
    [
        ["translate", "talk.wav", "--from", "english", "--to", "es"],
        ["translate", "talk.wav", "--from", "en", "--to", "es", "--to", "english"],
        ["translate", "talk.wav", "--two-way", "es", "english"],
        ["explain", "--from", "english", "--to", "es"],
        ["explain", "--from", "es", "--to", "english"],
        ["node", "--simulate", "--pairs", "english:es"],
        ["token", "create", "--client", "--languages", "es,english"],
    ],
    ids=" ".join,
)
def test_every_command_reports_it_before_it_starts_anything(
    words: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    # Any file that a command looked for first would be missing here and be reported instead.
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LINGUA_DATA_DIR", str(tmp_path / "data"))
    try:
        code = main(words)
    except SystemExit as ended:
        code = int(str(ended.code))
    assert code == 2
    assert "english is not a language code; did you mean en?" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_how_much_silence_ends_an_utterance_has_one_default() -> None:
    silence_ms = Settings().segmentation.silence_ms
    assert SegmentRules().silence_ms == silence_ms
    # Without the option the scheduler's own setting applies: no second default is sent.
    args = build_parser(["translate"]).parse_args(["translate", "x", "--from", "en", "--to", "es"])
    assert args.silence_ms is None
    assert Order(urls=("ws://h",), source="en").silence_ms is None
    assert init_of(RealtimeSession.new("m", 0)).silence_ms is None
