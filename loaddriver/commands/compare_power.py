"""`loaddriver compare-power` and `compare-pool`: how often sessions made of recorded pairs err."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from loaddriver.commands.common import say
from loaddriver.commands.compare import played_session
from loaddriver.compare.measures import ENDPOINTS
from loaddriver.compare.pool import (
    Rate,
    Shift,
    rate_of,
    read_large_pool,
    read_pool,
    surest_shift,
    together,
    write_pool,
)
from loaddriver.errors import ExitCode

_RELABELLINGS = 10_000


def add(commands: Any) -> None:
    """Register the commands."""
    power = commands.add_parser(
        "compare-power", help="how often sessions made of recorded pairs would err"
    )
    power.add_argument("pools", nargs="+", type=Path, metavar="POOL")
    power.add_argument("--relabellings", type=int, default=_RELABELLINGS, metavar="N")
    power.set_defaults(do=_power)
    pool = commands.add_parser("compare-pool", help="write the pairs of sessions as a pool")
    pool.add_argument(
        "sources",
        nargs="+",
        type=Path,
        metavar="SOURCE",
        help="the folder of a session, or the file of a pool that further pairs are added to",
    )
    pool.add_argument("--out", type=Path, required=True, metavar="POOL")
    pool.set_defaults(do=_pool)


def _pool(flags: argparse.Namespace) -> ExitCode:
    found = together(
        [
            played_session(each).pool() if each.is_dir() else read_pool(each)
            for each in flags.sources
        ]
    )
    write_pool(flags.out, found)
    say(f"{flags.out}: {len(found.pairs)} pairs, {found.injected or 'of equal systems'}")
    return ExitCode.PASS


def _power(flags: argparse.Namespace) -> ExitCode:
    rates = [rate_of(read_large_pool(path), flags.relabellings) for path in flags.pools]
    for path, found in zip(flags.pools, rates, strict=True):
        print(_rate_line(path, found))
        if not found.pool.injected:
            print(_shift_line(surest_shift(found.pool)))
    return ExitCode.PASS if all(found.passes for found in rates) else ExitCode.GATE_MISSED


def _rate_line(path: Path, found: Rate) -> str:
    what = f"{found.pool.injected} found" if found.pool.injected else "equal systems regress"
    low, high = found.interval
    return (
        f"{path}: {len(found.pool.pairs)} pairs: {what} in {100 * found.rate:.2f} % of sessions "
        f"({100 * low:.2f} to {100 * high:.2f} %, by the pool): "
        f"{'ok' if found.passes else 'MISSED'}"
    )


def _shift_line(shift: Shift) -> str:
    return (
        f"  its sides differ most surely in {shift.endpoint}, by {shift.percent:+.1f} %: as much "
        f"by chance in {100 * shift.tail:.1f} % of such pools, in one of {len(ENDPOINTS)}"
    )
