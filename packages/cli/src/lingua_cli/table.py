"""A plain text table for terminals: aligned columns, numbers to the right, no borders.

Not for output that programs read: such commands have `--json`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

Cell: TypeAlias = str | int | float | None

GAP = "  "


def render_table(headers: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """Return headers and rows as aligned lines; None is an empty cell."""
    for row in rows:
        if len(row) != len(headers):
            raise ValueError(f"{len(headers)} headers, but a row of {len(row)}: {row}")
    columns = [
        _column(header, [row[index] for row in rows]) for index, header in enumerate(headers)
    ]
    return "\n".join(GAP.join(line).rstrip() for line in zip(*columns, strict=True))


def _column(header: str, cells: Sequence[Cell]) -> list[str]:
    texts = [header, *("" if cell is None else str(cell) for cell in cells)]
    width = max(len(text) for text in texts)
    given = [cell for cell in cells if cell is not None]
    is_numeric = bool(given) and all(isinstance(cell, int | float) for cell in given)
    return [text.rjust(width) if is_numeric else text.ljust(width) for text in texts]
