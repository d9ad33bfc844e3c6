"""`make bench`: how long decisions on large fleets take, against targets."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bigfleet.bench.rows import ROWS, Measured, Row, measure
from bigfleet.engine.precompile import precompile

_FAILED = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the rows that were asked for; returns the exit code, 3 if a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m bigfleet.bench", description=__doc__)
    parser.add_argument("--cycles", type=int, default=20, help="decisions to time per row")
    parser.add_argument(
        "--rows", default="", metavar="TEXT", help="only rows with this in the name"
    )
    parser.add_argument(
        "--scale", type=float, default=1.0, help="multiplies machines, needs and clusters"
    )
    parser.add_argument(
        "--results", type=Path, default=Path("results/bench"), help="folder for latest.json"
    )
    given = parser.parse_args(arguments)
    precompile()
    rows = [_scaled(row, given.scale) for row in ROWS if given.rows in row.name]
    if not rows:
        names = "".join(f"\n  {row.name}" for row in ROWS)
        print(f'no row has "{given.rows}" in its name; the rows are{names}', file=sys.stderr)
        return 2
    found = []
    print(_line("row", "needs", "p50 ms", "p99 ms", "target", "orders", "short", ""))
    for row in rows:
        found.append(measured := measure(row, given.cycles))
        print(_report(measured), flush=True)
    given.results.mkdir(parents=True, exist_ok=True)
    (given.results / "latest.json").write_text(json.dumps([_record(m) for m in found], indent=1))
    return 0 if all(measured.passes for measured in found) else _FAILED


def _scaled(row: Row, scale: float) -> Row:
    spec = row.spec
    sizes = {
        name: max(1, int(getattr(spec, name) * scale)) for name in ("machines", "needs", "clusters")
    }
    return replace(row, spec=replace(spec, **sizes))


def _line(*cells: object) -> str:
    name, *others = (str(cell) for cell in cells)
    return f"{name:<48}" + "".join(f"{cell:>9}" for cell in others)


def _report(measured: Measured) -> str:
    target = measured.row.target_seconds
    return _line(
        measured.row.name,
        measured.needs,
        f"{measured.p50 * 1000:.1f}",
        f"{measured.p99 * 1000:.1f}",
        "-" if target is None else f"{target * 1000:.0f}",
        measured.orders,
        measured.short,
        "" if measured.passes else "MISSED",
    )


def _record(measured: Measured) -> dict[str, object]:
    return {
        "name": measured.row.name,
        "value": round(measured.p99 * 1000, 3),
        "unit": "ms of CPU, p99",
        "median": round(measured.p50 * 1000, 3),
        "target": measured.row.target_seconds and measured.row.target_seconds * 1000,
        "pass": measured.passes,
        "needs": measured.needs,
        "orders": measured.orders,
        "short": measured.short,
    }


if __name__ == "__main__":
    sys.exit(main())
