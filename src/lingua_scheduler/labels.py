"""Labels of nodes: the words by which operators name groups of them. Pure.

A node says its labels when it registers (its token may limit them), and a tenant may be pinned to
labels: its jobs go only to nodes that have all of them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lingua_scheduler.errors import InvalidLabel

if TYPE_CHECKING:
    from collections.abc import Iterable

LABEL_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}\Z"
LABELS_MAX = 16
LABEL = re.compile(LABEL_PATTERN)


def checked_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """Return labels in their one order, each once; or raise `InvalidLabel`."""
    checked = tuple(sorted(set(labels)))
    for label in checked:
        if not LABEL.match(label):
            raise InvalidLabel(label)
    if len(checked) > LABELS_MAX:
        raise InvalidLabel(", ".join(checked), f"more than {LABELS_MAX} labels")
    return checked
