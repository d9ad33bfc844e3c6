"""pods.csv.gz: one line per created pod."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Sequence
from dataclasses import fields
from operator import attrgetter
from pathlib import Path

import msgspec

from loaddriver.record.rows import PodRow

_COLUMNS = tuple(field.name for field in fields(PodRow))
# `dataclasses.astuple` copies each value, which takes seconds for the rows of a large run.
_cells = attrgetter(*_COLUMNS)


def write_rows(path: Path, rows: Sequence[PodRow]) -> None:
    """Write all rows; unknown values are empty. The output is deterministic."""
    with (
        path.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as packed,
        io.TextIOWrapper(packed, encoding="utf-8", newline="") as text,
    ):
        writer = csv.writer(text)
        writer.writerow(_COLUMNS)
        writer.writerows(map(_cells, rows))


def read_rows(path: Path) -> list[PodRow]:
    """Read the rows of a file. Raises msgspec.ValidationError if its format differs."""
    with gzip.open(path, "rt", encoding="utf-8", newline="") as text:
        lines = [
            {key: _parsed_cell(key, value) for key, value in line.items()}
            for line in csv.DictReader(text)
        ]
    return msgspec.convert(lines, list[PodRow], strict=False)


def _parsed_cell(key: str, value: str) -> str | None:
    """An empty cell is None for numbers and booleans, and "" for strings."""
    return None if value == "" and key not in _TEXTS else value


_TEXTS = frozenset(field.name for field in fields(PodRow) if field.type == "str")
