"""A history in 80 columns: a table of revisions, and a line of bars for each endpoint. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from textwrap import wrap

from loaddriver.compare.measures import ENDPOINTS
from loaddriver.history.record import Line
from loaddriver.history.trend import Revision, by_revision, speeds

_BARS = "\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"
_GAP = "\u00b7"
_TABLE_ROWS, _TREND_COLUMNS = 15, 36
# Bars begin no higher than at this share of the largest value.
_FLOOR = 0.75
_HEADS = {
    "dueToBind": "due-bind",
    "machines": "machines",
    "scheduled": "sched.",
    "bigfleetCpu": "BigFleet",
    "shardCpu": "shard",
    "apiCpu": "API",
}
_UNITS = {"ms/decision": "ms/dec."}


def drawing(profile: str, machine: str, lines: Sequence[Line]) -> Iterator[str]:
    """All lines of one machine's history."""
    revisions = by_revision(lines)
    yield (
        f"{profile} on {machine}: {_counted(len(lines), 'run')} of "
        f"{_counted(len(revisions), 'revision')}"
    )
    yield from _speeds(lines)
    yield ""
    yield _row("DATE", "REVISION", "RUNS", [_HEADS[each.key] for each in ENDPOINTS])
    yield _row("", "", "", [_UNITS.get(each.unit, each.unit) for each in ENDPOINTS])
    if len(revisions) > _TABLE_ROWS:
        yield f"... {len(revisions) - _TABLE_ROWS} earlier ones"
    yield from map(_revision, revisions[-_TABLE_ROWS:])
    yield ""
    yield from _trends(revisions[-_TREND_COLUMNS:])


def _speeds(lines: Sequence[Line]) -> Iterator[str]:
    groups = speeds(lines)
    if len(groups) > 1:
        times = ", ".join(
            f"{1000 * each[0].machine.calibration_seconds:.1f} ms in {_counted(len(each), 'run')}"
            for each in groups
        )
        text = f"The machine's speed changed, so runs differ by it: a fixed task took {times}"
        yield from wrap(text, 80, initial_indent="  ", subsequent_indent="  ")


def _revision(each: Revision) -> str:
    day = datetime.fromtimestamp(each.began_unix_seconds, UTC).strftime("%Y-%m-%d")
    runs = f"{len(each.runs)}" + (f"-{each.invalid}" if each.invalid else "")
    return _row(day, each.label, runs, [_number(each.median(e.key)) for e in ENDPOINTS])


def _row(day: str, revision: str, runs: str, cells: Sequence[str]) -> str:
    numbers = "".join(f"{cell:>9}" for cell in cells)
    return f"{day:<10} {revision:<10}{runs:>5}{numbers}".rstrip()


def _trends(revisions: Sequence[Revision]) -> Iterator[str]:
    for endpoint in ENDPOINTS:
        medians = [each.median(endpoint.key) for each in revisions]
        known = [each for each in medians if each is not None]
        if known:
            low, high = min(known), max(known)
            bars = "".join(_GAP if each is None else _bar(each, low, high) for each in medians)
            ends = f"{_number(low)} to {_number(high)} {endpoint.unit}"
            yield f"{_HEADS[endpoint.key]:<10}{bars}  {ends}"


def _bar(value: float, low: float, high: float) -> str:
    """A bar between both; those of nearly equal values do not differ much either."""
    floor = min(low, _FLOOR * high)
    share = (value - floor) / (high - floor)
    return _BARS[min(len(_BARS) - 1, int(share * len(_BARS)))]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
