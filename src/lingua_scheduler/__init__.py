"""Lingua Scheduler: the control plane for live speech translation."""

__version__ = "0.1.0"
