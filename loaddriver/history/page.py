"""A history as a self-contained page in the style of a run's report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loaddriver.compare.measures import ENDPOINTS, Endpoint
from loaddriver.history.files import History
from loaddriver.history.record import Line
from loaddriver.history.trend import Revision, by_revision, speeds
from loaddriver.report import formatting
from loaddriver.report.axes import Axis, Tick, quantities
from loaddriver.report.charts import Chart, Dot
from loaddriver.report.charts import Line as Curve
from loaddriver.report.page import render
from loaddriver.report.plots import PIXELS_PER_TICK, Plot, plot

_HEIGHT = 240
_MEDIANS, _RUNS = 1, 2
_HEADS = ("Due to bind, s", "Machines, s", "Scheduled, s", "BigFleet, ms", "Shard, ms", "API, ms")


@dataclass(frozen=True)
class Row:
    """A run in the table."""

    run: str
    started: str
    revision: str
    verdict: str
    cells: Sequence[str]


@dataclass(frozen=True)
class MachineView:
    """One machine's charts, by the endpoint's name, and its runs, newest first."""

    title: str
    note: str
    charts: Sequence[tuple[str, Plot]]
    rows: Sequence[Row]


def render_history(profile: str, history: History) -> str:
    """The page about all machines of a profile's history."""
    machines = dict.fromkeys(line.machine.id for line in history.lines)
    return render(
        "history.html.j2",
        profile=profile,
        machines=[_view(history.of_machine(each)) for each in machines],
        bad=history.bad,
        heads=_HEADS,
    )


def _view(lines: Sequence[Line]) -> MachineView:
    revisions, last = by_revision(lines), lines[-1].machine
    times = [f"{1000 * each[0].machine.calibration_seconds:.1f} ms" for each in speeds(lines)]
    found = ((each.name, _chart(each, revisions)) for each in ENDPOINTS)
    return MachineView(
        title=f"Machine {last.id}",
        note=(
            f"{last.processor or 'processor unknown'}, {last.cores or '?'} cores; the fixed task "
            f"took {' and '.join(times)} of CPU"
        ),
        charts=[(name, chart) for name, chart in found if chart is not None],
        rows=[_row(line) for line in reversed(lines)],
    )


def _chart(endpoint: Endpoint, revisions: Sequence[Revision]) -> Plot | None:
    """An endpoint over revisions; None if no run has it."""
    dots = [
        Dot(place, value, f"{each.label}: {value:.4g} {endpoint.unit}", _RUNS)
        for place, each in enumerate(revisions)
        for value in each.values(endpoint.key)
    ]
    if not dots:
        return None
    medians = [(place, each.median(endpoint.key)) for place, each in enumerate(revisions)]
    curve = Curve("median of a revision", [(x, y) for x, y in medians if y is not None], _MEDIANS)
    single = Curve("a run", [], _RUNS)

    def chart(width: int) -> Chart:
        return Chart(
            alt_text=f"{endpoint.name} over {len(revisions)} revisions",
            lines=[curve],
            x=_revisions_axis(revisions, max(2, width // (2 * PIXELS_PER_TICK))),
            y=quantities(max(dot.y for dot in dots), endpoint.unit),
            dots=dots,
        )

    return plot(chart, _HEIGHT, [curve, single])


def _revisions_axis(revisions: Sequence[Revision], most: int) -> Axis:
    """Revisions side by side, of which at most so many have a label."""
    apart = -(-len(revisions) // most)
    ticks = [Tick(place, revisions[place].label) for place in range(0, len(revisions), apart)]
    return Axis(0, max(1, len(revisions) - 1), tuple(ticks), "revisions, oldest first")


def _row(line: Line) -> Row:
    [revision] = by_revision([line])
    values = (line.endpoints.get(each.key) for each in ENDPOINTS)
    return Row(
        run=line.run,
        started=formatting.moment(line.started_unix_seconds),
        revision=revision.label,
        verdict=line.verdict,
        cells=[formatting.ABSENT if each is None else f"{each:.4g}" for each in values],
    )
