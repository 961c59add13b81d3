"""Applies one rule to readings that are written as a text, for tests."""

from __future__ import annotations

from types import ModuleType

from lingua_speech.engines.apertium import stream


def corrected(rules: ModuleType, rule: str, readings: str) -> str:
    """Apply a rule to units that are written with a space between them."""
    units = stream.read(" ".join(f"^{reading}$" for reading in readings.split(" ")))
    return " ".join(unit.parts[0] for unit in getattr(rules, rule)(units) if unit.parts)
