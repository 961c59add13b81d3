"""Pico is built from source: where there was no C compiler it is not here, and not tested."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("ttspico") else ["test_pico.py"]
