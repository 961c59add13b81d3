"""Pico is built from source: without a C compiler it is not installed, and not tested."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("ttspico") else ["test_pico.py"]
