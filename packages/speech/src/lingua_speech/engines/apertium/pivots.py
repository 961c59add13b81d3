"""Directions that Apertium reaches through a pivot language. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lingua_wire.languages import base_of

if TYPE_CHECKING:
    from lingua_speech.engines.apertium.modes import Direction

# Pivot languages, the best first.
PIVOTS: Final = ("es", "en", "fr", "ca", "pt", "it")


def routes(direct: set[Direction]) -> dict[Direction, tuple[Direction, ...]]:
    """Return every direction that one direct direction or two of them make."""
    found: dict[Direction, tuple[Direction, ...]] = {pair: (pair,) for pair in sorted(direct)}
    for middle in PIVOTS:
        for into in (pair for pair in sorted(direct) if pair[1] == middle):
            for out in (pair for pair in sorted(direct) if pair[0] == middle):
                if base_of(out[1]) != into[0]:
                    found.setdefault((into[0], out[1]), (into, out))
    return found
