"""`--voice`, which means the same wherever a node of the default engines is started."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_scheduler.speech.presets import VOICES

if TYPE_CHECKING:
    import argparse

    from lingua_scheduler.speech.presets import Voice


def add_voice(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Add the option."""
    parser.add_argument(
        "--voice", choices=VOICES,
        help="of the default engines: natural is Kokoro in the languages it has (lingua models "
        "install natural), fast is Pico and espeak-ng (default: fast; but Kokoro, if it is "
        "installed and quick enough here, for what those say much worse, as Portuguese)",
    )  # fmt: skip


def voice_words(voice: Voice | None) -> tuple[str, ...]:
    """Return the same for the command line of a node."""
    return () if voice is None else ("--voice", voice)
