"""The pairs of languages under which an engine may know a direction. Pure."""

from __future__ import annotations

from lingua_wire.languages import base_of


def matching_pairs(source: str, target: str) -> tuple[tuple[str, str], ...]:
    """Return a direction and the ones without its regions, the most specific first."""
    return (
        (source, target),
        (base_of(source), target),
        (source, base_of(target)),
        (base_of(source), base_of(target)),
    )
