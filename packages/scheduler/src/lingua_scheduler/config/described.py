"""How a setting is described: its bounds, its unit, and a text for operators."""

from __future__ import annotations

from msgspec import Meta

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS


def whole(low: int, high: int, about: str, unit: str = "") -> Meta:
    """Describe a whole number."""
    return Meta(ge=low, le=high, description=about, extra={"unit": unit})


def milliseconds(low: int, high: int, about: str) -> Meta:
    """Describe a duration."""
    return whole(low, high, about, "ms")


def text(about: str, *, allowed: str = "", pattern: str | None = None) -> Meta:
    """Describe anything else."""
    return Meta(pattern=pattern, description=about, extra={"allowed": allowed})
