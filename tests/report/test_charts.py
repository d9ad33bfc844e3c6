"""Charts put values where they belong, and axes are marked at round values."""

from __future__ import annotations

from itertools import pairwise
from xml.etree import ElementTree as Xml

from hypothesis import given
from hypothesis import strategies as st

from loaddriver.report import axes, formatting
from loaddriver.report.charts import Chart, Line, Marker, PlotBand, Size, draw
from loaddriver.report.plots import thinned

LATENCIES = st.floats(min_value=0, max_value=5000)


@given(LATENCIES, LATENCIES)
def test_a_latency_axis_holds_its_data(one: float, other: float) -> None:
    """Low to high in at least a decade, marked in order at round values within."""
    low, high = sorted((one, other))
    axis = axes.latencies(low, high, "wait", 12)
    assert axis.low <= max(low, 0.001)
    assert axis.high >= high
    assert 0 <= axis.fraction(low) <= axis.fraction(high) <= 1
    values = [tick.value for tick in axis.ticks]
    assert values == sorted(set(values))
    assert 1 <= len(values) <= 12
    assert all(axis.low <= value <= axis.high for value in values)


@given(st.integers(min_value=0, max_value=10**7))
def test_an_amount_axis_ends_on_a_mark(highest: int) -> None:
    """The top of the chart is a round number that the data do not exceed."""
    axis = axes.amounts(highest, "pods")
    assert axis.ticks[0].value == 0
    assert axis.ticks[-1].value == axis.high >= highest
    assert len(axis.ticks) <= 8
    assert len({tick.label for tick in axis.ticks}) == len(axis.ticks)


@given(st.floats(min_value=1, max_value=90_000), st.integers(min_value=2, max_value=12))
def test_a_clock_axis_is_marked_evenly(length: float, ticks: int) -> None:
    """From the start on, in one step, not crowded."""
    values = [tick.value for tick in axes.clock(length, "time", ticks).ticks]
    assert values[0] == 0
    assert len({later - earlier for earlier, later in pairwise(values)}) <= 1
    assert len(values) <= ticks + 1


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=300), st.integers(1, 60))
def test_thinning_keeps_peaks(values: list[int], most: int) -> None:
    """A long run is drawn with few points, and its worst second is among them."""
    points = thinned(values, most)
    assert len(points) <= most
    assert max(y for _, y in points) == max(values)


def test_a_chart_is_well_formed_and_stays_inside() -> None:
    """Values beyond the axis are held at its end; names are text."""
    chart = Chart(
        alt_text="a <test>",
        lines=[Line("a", [(0, 0), (5, 20)], 1, filled=True), Line("none", [], 2)],
        x=axes.clock(10, "time", 4),
        y=axes.amounts(10, "pods & co"),
        marks=[Marker(9.9, 9, "p99 of everything")],
        bands=[PlotBand(4, 10, "soak")],
        stepped=True,
    )
    root = Xml.fromstring(str(draw(chart, Size(350, 200))))
    assert root.get("aria-label") == "a <test>"
    for element in root.iter():
        for key in ("x", "x1", "x2", "cx"):
            assert 0 <= float(element.get(key, 0)) <= 350
        for key in ("y", "y1", "y2", "cy"):
            assert 0 <= float(element.get(key, 0)) <= 200


def test_figures_read_well() -> None:
    """Units suit sizes, and all is said only of all."""
    assert [formatting.seconds(v) for v in (0.0042, 0.9996, 4.236, 42.11, 146.08, 754)] == [
        "4\u202fms",
        "1.00\u202fs",
        "4.24\u202fs",
        "42.1\u202fs",
        "146.1\u202fs",
        "12:34",
    ]
    assert [formatting.share(part, 5000) for part in (0, 1, 2500, 4999, 5000)] == [
        "0\u202f%",
        "0.1\u202f%",
        "50\u202f%",
        "99.9\u202f%",
        "100\u202f%",
    ]
    assert formatting.clock(3723) == "1:02:03"
    assert formatting.words("rollupSendSeconds.p99") == "rollup send seconds, p99"
