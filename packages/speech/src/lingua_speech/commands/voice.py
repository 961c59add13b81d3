"""The option `--voice` of all commands that start a node of the default engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_speech.presets import VOICES

if TYPE_CHECKING:
    import argparse

    from lingua_speech.presets import Voice


def add_voice(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Add the option to a parser."""
    parser.add_argument(
        "--voice",
        choices=VOICES,
        help="voices of the default engines: natural is Kokoro in its languages (lingua models "
        "install natural), fast is Pico and espeak-ng (default: fast; Kokoro, if it is installed "
        "and fast enough here, for languages in which those are much worse, such as Portuguese)",
    )


def voice_words(voice: Voice | None) -> tuple[str, ...]:
    """Return the option as words for the command line of a node."""
    return () if voice is None else ("--voice", voice)
