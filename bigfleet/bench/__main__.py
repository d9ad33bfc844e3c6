"""`make bench`: how long decisions on large fleets take, against targets and another revision."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from time import process_time

from bigfleet.bench import base, table
from bigfleet.bench.measured import MAX_RATIO, Measured, Row
from bigfleet.bench.rows import GROWTH, ROWS
from bigfleet.engine.precompile import precompile
from bigfleet.model.errors import InvalidInput

_FAILED, _SLOWER, _BAD_REQUEST = 3, 4, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the rows that were asked for; returns the exit code: 3 if a target is missed, with a base
    4 if that was faster and 0 if not, whatever the targets.
    """
    given = _parser().parse_args(arguments)
    rows = [row for row in ROWS if given.rows in row.name]
    if not rows:
        names = "".join(f"\n  {row.name}" for row in ROWS)
        print(f'no row has "{given.rows}" in its name; the rows are{names}', file=sys.stderr)
        return _BAD_REQUEST
    precompile()
    try:
        found = _measure_all(rows, given)
    except InvalidInput as error:
        print(error, file=sys.stderr)
        return _BAD_REQUEST
    growing = {row.name for row in GROWTH}
    for line in table.growth([measured for measured in found if measured.row.name in growing]):
        print(line)
    given.results.mkdir(parents=True, exist_ok=True)
    (given.results / "latest.json").write_text(json.dumps([_record(m) for m in found], indent=1))
    if given.base:
        return _SLOWER if any(measured.is_slower for measured in found) else 0
    return 0 if all(measured.passes for measured in found) else _FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bigfleet.bench", description=__doc__)
    parser.add_argument("--cycles", type=int, default=20, help="times that each row is measured")
    parser.add_argument(
        "--rows", default="", metavar="TEXT", help="only rows with this in the name"
    )
    parser.add_argument(
        "--scale", type=float, default=1.0, help="multiplies machines, needs and clusters"
    )
    parser.add_argument(
        "--results", type=Path, default=Path("results/bench"), help="folder for latest.json"
    )
    parser.add_argument(
        "--base",
        metavar="REVISION",
        help=f"measure it in turns, and fail if this one takes {MAX_RATIO} times as long",
    )
    return parser


def _measure_all(rows: Sequence[Row], given: argparse.Namespace) -> list[Measured]:
    found = []
    with ExitStack() as stack:
        folder = stack.enter_context(base.checkout(given.base)) if given.base else None
        print(table.heading())
        for row in rows:
            scaled = row.scaled(given.scale)
            measured = Measured(scaled, scaled.measure(given.cycles, process_time))
            why = ""
            if folder is not None:
                compared, why = base.ratio(folder, row, given.cycles, given.scale)
                measured = replace(measured, ratio=compared)
            found.append(measured)
            print(table.line(measured), *([f"    {why}"] if why else []), sep="\n", flush=True)
    return found


def _record(measured: Measured) -> dict[str, object]:
    samples, target = measured.samples, measured.row.target_seconds
    return {
        "name": measured.row.name,
        "value": round(measured.p99 * 1000, 3),
        "unit": "ms of CPU, p99",
        "median": round(measured.p50 * 1000, 3),
        "parts": {name: round(seconds * 1000, 3) for name, seconds in measured.parts.items()},
        "target": target and target * 1000,
        "pass": measured.passes,
        "baselineRatio": measured.ratio and round(measured.ratio, 3),
        "needs": samples.needs,
        "orders": samples.orders,
        "short": samples.short,
    }


if __name__ == "__main__":
    sys.exit(main())
