"""comparison.html: both sides beside each other, every run as a dot; no scripts, one file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loaddriver.compare import wording
from loaddriver.compare.comparison import Comparison, EndpointResult, PartChange
from loaddriver.report import formatting
from loaddriver.report.page import render

_WIDTH, _MARGIN, _ROW_HEIGHT, _RADIUS = 720.0, 16.0, 26.0, 4.5
_LABEL_WIDTH = 64.0
_CLASSES = {
    "regression": "fail",
    "not worse": "pass",
    "same": "pass",
    "improvement": "pass",
    "not enough data": "invalid",
    "not measured": "invalid",
    "too many voids": "error",
}


@dataclass(frozen=True)
class Dot:
    """A run of a side, and the line to the other run of its pair."""

    x: float
    other_x: float
    title: str


@dataclass(frozen=True)
class Dots:
    """All runs of an endpoint, on one scale: BASE above, HEAD below."""

    base: Sequence[Dot]
    head: Sequence[Dot]
    ticks: Sequence[tuple[float, str]]
    width: float = _WIDTH
    height: float = 3.4 * _ROW_HEIGHT
    base_y: float = _ROW_HEIGHT
    head_y: float = 2 * _ROW_HEIGHT
    radius: float = _RADIUS


def render_compare_page(found: Comparison) -> str:
    """The page."""
    return render(
        "comparison.html.j2",
        found=found,
        dots={each.key: dots(each) for each in found.endpoints},
        bars=_bars(found.parts),
        kind=lambda verdict: _CLASSES[verdict],
        number=_number,
        wording=wording,
    )


def dots(result: EndpointResult) -> Dots | None:
    """Where each run of an endpoint is drawn; None without any."""
    values = [*result.base_runs, *result.head_runs]
    if not values:
        return None
    low, high = min(values), max(values)
    spread = (high - low) or abs(high) or 1.0
    low, high = low - 0.05 * spread, high + 0.05 * spread

    def at(value: float) -> float:
        inner = _WIDTH - _LABEL_WIDTH - 2 * _MARGIN
        return round(_LABEL_WIDTH + _MARGIN + inner * (value - low) / (high - low), 1)

    def side(name: str, own: Sequence[float], other: Sequence[float]) -> list[Dot]:
        paired = len(own) == len(other)
        return [
            Dot(
                at(value),
                at(other[pair]) if paired else at(value),
                _title(name, pair, value, result),
            )
            for pair, value in enumerate(own)
        ]

    middle = (min(values) + max(values)) / 2
    marks = dict.fromkeys((min(values), middle, max(values)))
    return Dots(
        base=side("BASE", result.base_runs, result.head_runs),
        head=side("HEAD", result.head_runs, result.base_runs),
        ticks=[(at(value), _number(value)) for value in marks],
    )


def _title(side: str, pair: int, value: float, result: EndpointResult) -> str:
    return f"{side}, pair {pair + 1}: {_number(value)} {result.unit}"


def _bars(parts: Sequence[PartChange]) -> list[tuple[str, list[tuple[PartChange, float, float]]]]:
    """The parts by unit, with the length of each side's bar as a share of the largest, 0 to 1."""
    units = {each.unit: None for each in parts}
    grouped = [(unit, [each for each in parts if each.unit == unit]) for unit in units]
    return [
        (unit, [(each, each.base / most, each.head / most) for each in members])
        for unit, members in grouped
        if (most := max(max(each.base, each.head) for each in members)) > 0
    ]


def _number(value: float | None) -> str:
    if value is None:
        return formatting.ABSENT
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
