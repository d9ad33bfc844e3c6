"""The benchmark's results as text: a table, and how the work grows with the fleet."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from bigfleet.bench.decisions import Decisions
from bigfleet.bench.measured import Measured

_NAME_WIDTH, _BAR_WIDTH = 48, 40
_PARTS_SHOWN = 6


def heading() -> str:
    """The first line of the table."""
    return _line("row", "needs", "p50 ms", "p99 ms", "target", "orders", "short", "of base", "")


def line(measured: Measured) -> str:
    """A row of the table, and below it where its time goes."""
    target, samples = measured.row.target_seconds, measured.samples
    first = _line(
        measured.row.name,
        samples.needs,
        _ms(measured.p50),
        _ms(measured.p99),
        "-" if target is None else _ms(target),
        samples.orders,
        samples.short,
        "-" if measured.ratio is None else f"{measured.ratio:.2f}",
        "SLOWER" if measured.is_slower else "" if measured.passes else "MISSED",
    )
    notes = [f"    {samples.invalid}"] if samples.invalid else []
    parts = [f"{name} {_ms(seconds)}" for name, seconds in measured.parts.items()][:_PARTS_SHOWN]
    return "\n".join([first, *notes, *(["    " + ", ".join(parts)] if parts else [])])


def growth(found: Sequence[Measured]) -> Iterator[str]:
    """For each kind of change, how the median grows with the fleet: a bar for each size on a
    logarithmic scale, and the exponent between two of them. 1 is linear.
    """
    kinds: dict[str, list[tuple[int, float]]] = {}
    for measured in found:
        if isinstance(measured.row, Decisions):
            kind = measured.row.name.rpartition(", ")[2]
            kinds.setdefault(kind, []).append((measured.row.spec.machines, measured.p50))
    seconds = [each for points in kinds.values() for _, each in points]
    for kind, points in kinds.items():
        yield f"growth, {kind}"
        for number, (machines, median) in enumerate(points):
            share = _share(median, min(seconds), max(seconds))
            bar = "#" * max(1, round(share * _BAR_WIDTH))
            power = f"  ^{_exponent(points[number - 1], points[number]):.2f}" if number else ""
            yield f"{machines:>10,} machines {_ms(median):>9} ms  {bar}{power}"


def _exponent(one: tuple[int, float], other: tuple[int, float]) -> float:
    return math.log(other[1] / one[1]) / math.log(other[0] / one[0])


def _share(value: float, least: float, most: float) -> float:
    """Where `value` lies between both, by its logarithm."""
    return math.log(value / least) / math.log(most / least) if most > least else 1.0


def _ms(seconds: float) -> str:
    milliseconds = seconds * 1000
    return f"{milliseconds:.1f}" if milliseconds >= 1 else f"{milliseconds:.3f}"


def _line(*cells: object) -> str:
    name, *others = (str(cell) for cell in cells)
    return (f"{name:<{_NAME_WIDTH}}" + "".join(f"{cell:>9}" for cell in others)).rstrip()
