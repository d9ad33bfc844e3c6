"""Text tables. Pure."""

from __future__ import annotations

from collections.abc import Sequence

Cell = str | int


def table(headers: Sequence[str], rows: Sequence[Sequence[Cell]]) -> list[str]:
    """Aligned columns, or "(none)"."""
    return aligned(headers, rows) if rows else ["(none)"]


def aligned(headers: Sequence[str], rows: Sequence[Sequence[Cell]]) -> list[str]:
    """A header and one line per row, in aligned columns; numbers are right-aligned."""
    texts = [[_text(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headers, *texts, strict=True)]
    right = [all(isinstance(row[i], int) for row in rows) for i in range(len(headers))]
    return [_line(cells, widths, right) for cells in (headers, *texts)]


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    parts = (
        cell.rjust(width) if flush else cell.ljust(width)
        for cell, width, flush in zip(cells, widths, right, strict=True)
    )
    return "  ".join(parts).rstrip()


def _text(cell: Cell) -> str:
    return f"{cell:,}" if isinstance(cell, int) else cell


def ago(seconds: float) -> str:
    """A time span in its natural unit."""
    for limit, unit_seconds, unit in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / unit_seconds:.0f} {unit}"
    return f"{seconds / 86_400:.0f} days"


def count(number: int, one: str, many: str = "") -> str:
    """`1 shard`, `2 shards`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
