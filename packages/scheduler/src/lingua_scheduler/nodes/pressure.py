"""Whether a node's machine is too busy for new work, and which resources are the reason. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NodeUsage:
    """Percentages of a heartbeat; a missing GPU counts as idle."""

    cpu: float
    memory: float
    gpu: float = 0.0


def over_threshold(usage: NodeUsage, percent_max: float) -> bool:
    """Tell whether a node's machine is too busy for new work."""
    return max(usage.cpu, usage.memory, usage.gpu) > percent_max


@dataclass(frozen=True, slots=True)
class Excess:
    """One resource of a machine that exceeds its threshold, both in percent."""

    resource: str
    percent: float
    percent_max: float


def pressure_text(usage: NodeUsage, percent_max: float) -> str:
    """Return the exceeded thresholds as the store keeps them: `cpu 97.2 90, gpu 95.0 90`."""
    return ", ".join(
        f"{name} {percent:.1f} {percent_max:g}"
        for name in ("cpu", "memory", "gpu")
        if (percent := getattr(usage, name)) > percent_max
    )


def read_pressure(text: str) -> tuple[Excess, ...]:
    """Read the text of `pressure_text`."""
    parts = (part.split() for part in text.split(", ") if part)
    return tuple(Excess(name, float(percent), float(most)) for name, percent, most in parts)
