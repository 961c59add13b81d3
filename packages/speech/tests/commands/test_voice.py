"""The option `--voice`: parsed, and passed on to the command line of a node."""

from __future__ import annotations

import argparse

import pytest

from lingua_speech.commands.voice import add_voice, voice_words

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("words", [[], ["--voice", "natural"], ["--voice", "fast"]])
def test_the_words_of_a_parsed_option_are_the_option(words: list[str]) -> None:
    parser = argparse.ArgumentParser()
    add_voice(parser)
    assert list(voice_words(parser.parse_args(words).voice)) == words


def test_another_voice_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_voice(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(["--voice", "loud"])
    assert "natural" in capsys.readouterr().err
