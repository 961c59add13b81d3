"""Lingua Scheduler: the control plane for live speech translation."""
