"""Labels of nodes: the words by which operators name groups of them. Pure.

A node declares its labels when it registers (its token may limit them). A tenant may be pinned to
labels: its jobs then go only to nodes that have all of them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lingua_wire.errors import InvalidLabel

if TYPE_CHECKING:
    from collections.abc import Iterable

LABEL_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}\Z"
LABELS_MAX = 16
LABEL = re.compile(LABEL_PATTERN)


def checked_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """Return labels sorted, each once; raises `InvalidLabel`."""
    checked = tuple(sorted(set(labels)))
    for label in checked:
        if not LABEL.match(label):
            raise InvalidLabel(label)
    if len(checked) > LABELS_MAX:
        raise InvalidLabel(", ".join(checked), f"more than {LABELS_MAX} labels")
    return checked
