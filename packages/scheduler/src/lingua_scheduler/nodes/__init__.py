"""Compute nodes: what they can do and how they are."""
