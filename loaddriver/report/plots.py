"""The report's charts, each drawn for wide, medium and narrow screens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from loaddriver.judge.schema import OVERALL, Summary
from loaddriver.report import axes, formatting
from loaddriver.report.charts import Chart, Line, Marker, PlotBand, Points, Range, Size, draw

_WIDTHS = {"wide": 1020, "middling": 640, "narrow": 350}
PIXELS_PER_TICK = 82
PIXELS_PER_POINT = 2


@dataclass(frozen=True)
class Plot:
    """A chart at every width, and its legend."""

    drawings: Markup
    legend: Sequence[tuple[str, int]]


def latency_plot(summary: Summary) -> Plot | None:
    """The share of bound pods by time since they were due; None if no pod was bound."""
    names = [name for name, points in summary.curves.items() if points]
    if OVERALL not in names:
        return None
    lines = [Line(_shown(name), summary.curves[name], tone) for tone, name in enumerate(names)]
    times = [x for line in lines for x, _ in line.points]
    marks = _percentile_marks(summary)

    def chart(width: int) -> Chart:
        return Chart(
            alt_text=f"Share of pods bound by time since they were due: {_marker_texts(marks)}",
            lines=lines,
            x=axes.latencies(min(times), max(times), "time from due time to binding", width // 62),
            y=axes.percents("share of pods bound"),
            marks=marks,
        )

    return plot(chart, 340, lines)


def demand_plot(summary: Summary) -> Plot:
    """Pods that were due, created and bound, cumulative."""
    line = summary.timeline
    return _over_time(
        summary,
        "pods",
        [
            ("due", line.due, 4, False),
            ("created", line.created, 8, False),
            ("bound", line.bound, 1, False),
        ],
        240,
    )


def backlog_plot(summary: Summary) -> Plot:
    """Pods without a node."""
    series = [("waiting for a node", summary.timeline.backlog, 2, True)]
    return _over_time(summary, "pods without a node", series, 180)


def nodes_plot(summary: Summary) -> Plot:
    """Ready nodes."""
    series = [("ready nodes", summary.timeline.nodes_ready, 3, True)]
    return _over_time(summary, "ready nodes", series, 180)


def _over_time(
    summary: Summary, unit: str, series: Sequence[tuple[str, list[int], int, bool]], height: int
) -> Plot:
    length = max(1, len(summary.timeline.created) - 1)
    highest = max(max(values) for _, values, _, _ in series)

    def chart(width: int) -> Chart:
        lines = [
            Line(name, thinned(values, width // PIXELS_PER_POINT), tone, filled)
            for name, values, tone, filled in series
        ]
        return Chart(
            alt_text=f"{unit} over time, at most {formatting.count(highest)}",
            lines=lines,
            x=axes.clock(length, "time since the first pod was due", width // PIXELS_PER_TICK),
            y=axes.amounts(highest, unit, 4 if height > 200 else 3),
            bands=_soak(summary, length),
            stepped=True,
        )

    return plot(chart, height, chart(_WIDTHS["wide"]).lines)


def thinned(values: Sequence[int], most: int) -> Points:
    """Thin out points, keeping the maximum of each interval."""
    stretch = -(-len(values) // most)
    starts = range(0, len(values), stretch)
    return [(start, max(values[start : start + stretch])) for start in starts]


def plot(chart: Callable[[int], Chart], height: int, lines: Sequence[Line | Range]) -> Plot:
    """The chart at every width; `lines` are those of the legend."""
    drawings = Markup("").join(
        Markup('<div class="{}">{}</div>').format(kind, draw(chart(width), Size(width, height)))
        for kind, width in _WIDTHS.items()
    )
    return Plot(drawings, [(line.name, line.tone) for line in lines])


def _shown(name: str) -> str:
    return "all pods" if name == OVERALL else name


def _percentile_marks(summary: Summary) -> list[Marker]:
    latency = summary.due_to_bind_seconds
    known = (("p50", 0.5, latency.p50), ("p99", 0.99, latency.p99))
    return [
        Marker(value, level, f"{name} {formatting.seconds(value)}")
        for name, level, value in known
        if isinstance(value, float)
    ]


def _marker_texts(marks: Sequence[Marker]) -> str:
    return ", ".join(mark.text for mark in marks) or "too few pods for a percentile"


def _soak(summary: Summary, length: float) -> list[PlotBand]:
    began = summary.run.soak_started_unix_seconds
    if began is None:
        return []
    return [PlotBand(max(0, began - summary.timeline.start_unix_seconds), length, "soak")]
