"""The page's section on a federated HPA: key figures, phases, and a chart per cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from loaddriver.judge.federation.section import FederationSection, Phase, ScalingResponse
from loaddriver.judge.federation.series import ClusterSeries
from loaddriver.report import axes, formatting
from loaddriver.report.charts import Chart, Line, PlotBand, Points, Range
from loaddriver.report.plots import PIXELS_PER_POINT, PIXELS_PER_TICK, Plot, plot

_HEIGHT = 210
_UNIT = "replicas"


@dataclass(frozen=True)
class Fact:
    """A key figure with its reference."""

    name: str
    value: str
    note: str
    bad: bool = False


@dataclass(frozen=True)
class PhaseRow:
    """A row of the table of phases."""

    name: str
    what: str
    texts: Sequence[str]


def facts(section: FederationSection) -> Iterator[Fact]:
    """The key figures."""
    broken = section.max_breaches + section.min_breaches
    limits = f"max {section.max_replicas}, min {section.min_replicas}"
    yield Fact(
        "Sums broken",
        formatting.count(broken),
        f"by {formatting.count(section.observed_writes)} changes of a share; {limits}",
        broken > 0,
    )
    yield _response_fact("Followed more load", section.up)
    yield _response_fact("Followed less load", section.down)
    yield Fact(
        "On premise, at most",
        f"{section.on_premise_most_ready} of {section.on_premise_places}",
        f"places in {section.on_premise}; elsewhere at most {section.elsewhere_most_ready}",
    )


def _response_fact(name: str, response: ScalingResponse) -> Fact:
    slowest = formatting.ABSENT
    if response.max_seconds is not None:
        slowest = formatting.seconds(response.max_seconds)
    left = f", {response.never_reached} never" if response.never_reached else ""
    note = f"the slowest of {response.changes} changes{left}"
    return Fact(name, slowest, note, response.never_reached > 0)


def phase_rows(section: FederationSection) -> Iterator[PhaseRow]:
    """The phases in order of time."""
    for name, phase in section.phases.items():
        length = phase.end_seconds - phase.begin_seconds
        yield PhaseRow(
            name=name,
            what=_what(phase),
            texts=[
                formatting.clock(length),
                _spoken(phase.up),
                _spoken(phase.down),
                formatting.count(phase.under_replica_seconds),
                formatting.count(phase.over_replica_seconds),
                formatting.count(phase.scalings),
                formatting.count(phase.moves),
                f"{phase.sum_min} / {phase.sum_max}",
            ],
        )


def _what(phase: Phase) -> str:
    if phase.federation_down:
        return "the federation's API server is killed"
    return f"{phase.partitioned} is cut off from the federation" if phase.partitioned else ""


def _spoken(response: ScalingResponse) -> str:
    if response.max_seconds is None:
        return f"never ({response.changes})" if response.changes else formatting.ABSENT
    return formatting.seconds(response.max_seconds)


def plots(section: FederationSection) -> Iterator[tuple[str, str, Plot]]:
    """Name, note and chart of each cluster, all on one scale."""
    highest = max(
        max([*each.max, *each.ready, *each.desired, *each.load])
        for each in section.clusters.values()
    )
    for name, series in section.clusters.items():
        own = f"on premise, {section.on_premise_places} places"
        note = own if name == section.on_premise else "machines from BigFleet"
        yield name, note, _plot(name, series, section, highest)


def _plot(name: str, series: ClusterSeries, section: FederationSection, highest: float) -> Plot:
    length = max(1, len(series.load) - 1)

    def lines(most: int) -> list[Line]:
        return [
            Line("load, in replicas needed", _held(series.load, most), 0),
            Line("desired", _held(series.desired, most), 2),
            Line("running", _held(series.ready, most), 1),
        ]

    def allowed(most: int) -> Range:
        low, high = _held(series.min, most), _held(series.max, most)
        return Range("allowed, min to max", low, high, 3)

    def chart(width: int) -> Chart:
        most = width // PIXELS_PER_POINT
        return Chart(
            alt_text=f"replicas in {name} over time, at most {max(series.ready)} running",
            lines=lines(most),
            x=axes.clock(
                length, "time since the start of the first phase", width // PIXELS_PER_TICK
            ),
            y=axes.amounts(highest, _UNIT, 4),
            bands=list(_bands(section)),
            stepped=True,
            ranges=[allowed(most)],
        )

    return plot(chart, _HEIGHT, [*lines(1), allowed(1)])


def _bands(section: FederationSection) -> Iterator[PlotBand]:
    for position, (name, phase) in enumerate(section.phases.items()):
        yield PlotBand(phase.begin_seconds, phase.end_seconds, name, shaded=bool(position % 2))


def _held(values: Sequence[float], most: int) -> Points:
    """The points of a stepped line: changes only, the last one of each invisible interval."""
    stretch = -(-len(values) // most)
    ends = range(stretch - 1, len(values), stretch)
    seen = [(float(end - stretch + 1), float(values[end])) for end in ends]
    last = (float(len(values) - 1), float(values[-1]))
    changed = [p for n, p in enumerate(seen) if n == 0 or p[1] != seen[n - 1][1]]
    return [*changed, last]
