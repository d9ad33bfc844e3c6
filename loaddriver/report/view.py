"""What the head of the report's page shows, as texts ready to be put in place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loaddriver.judge.gates import GateResult, Reading, figure
from loaddriver.judge.percentiles import AtLeast, Interval, Quantile
from loaddriver.judge.schema import Summary
from loaddriver.report import figures

_OPERATORS = {"<=": "\u2264", ">=": "\u2265", "==": "="}
_VERDICTS = {
    "pass": "Pass",
    "fail": "Fail",
    "invalid": "Invalid",
    "error": "Error",
}


@dataclass(frozen=True)
class Tile:
    """A key figure; `note` puts it in proportion, `alarming` paints it as a problem."""

    label: str
    value: str
    note: str = ""
    alarming: bool = False


@dataclass(frozen=True)
class GateRow:
    """A gate as the table shows it; `each` are the readings of a gate that holds for several."""

    name: str
    value: str
    limit: str
    unit: str
    verdict: str
    origin: str
    note: str
    each: Sequence[tuple[str, str, bool]]


def verdict_word(summary: Summary) -> str:
    """The verdict as a title."""
    return _VERDICTS[summary.verdict]


def subject(summary: Summary) -> str:
    """What kind of run this is."""
    return "Bare run, without BigFleet, of profile" if summary.run.bare else "Scale test of profile"


def identity(summary: Summary) -> list[str]:
    """Which run this is, piece by piece."""
    run = summary.run
    return [
        f"Run {run.id}",
        *([f"bare run of {run.bare_of}"] if run.bare_of else []),
        f"seed {run.seed}",
        run.substrate,
        *([f"anchors {run.anchors}"] if run.anchors else []),
        figures.moment(run.started_unix_seconds),
        f"exit code {summary.exit_code}",
    ]


def tiles(summary: Summary) -> list[Tile]:
    """The figures that most readers come for."""
    if summary.requests is not None and not summary.pods.planned:
        return [*_request_tiles(summary), *_fleet_tiles(summary)]
    pods, latency = summary.pods, summary.bind_latency_seconds
    return [
        Tile(
            "Pods bound",
            figures.count(pods.bound),
            f"of {figures.count(pods.created)} created, {figures.count(pods.planned)} planned",
            pods.never_bound > 0,
        ),
        latency_tile("Bound within, p50", latency.p50, latency.p50_interval),
        latency_tile("Bound within, p99", latency.p99, latency.p99_interval),
        latency_tile("Slowest pod", latency.max, None),
        Tile(
            "Backlog at worst",
            figures.count(summary.backlog.max),
            f"unbound pods; {figures.count(summary.backlog.at_end)} at the end",
        ),
        _gang_tile(summary),
        *_fleet_tiles(summary),
    ]


def gate_rows(gates: Sequence[GateResult]) -> list[GateRow]:
    """Missed gates first, each group in the order of the file."""
    ordered = sorted(gates, key=lambda gate: gate.passed)
    return [
        GateRow(
            name=gate.name,
            value=_value(gate.value),
            limit=f"{_OPERATORS[gate.op]} {figure(gate.limit)}",
            unit=gate.unit,
            verdict=gate.verdict,
            origin=gate.origin,
            note=gate.note,
            each=[_reading(each) for each in gate.each],
        )
        for gate in ordered
    ]


def latency_tile(label: str, value: Quantile, interval: Interval | None) -> Tile:
    """A quantile with its interval, or why it is only a bound."""
    note = f"95\u202f% interval {figures.interval(interval)}" if interval else "since its creation"
    if isinstance(value, AtLeast):
        few = f"worth {value.has} draws, too few: it takes {figures.count(value.needs)}"
        note = few if value.needs else "some never came to it"
    open_ended = isinstance(value, AtLeast) and not value.needs
    return Tile(label, figures.spoken_quantile(value), note, open_ended)


def _value(value: float | None) -> str:
    return figures.ABSENT if value is None else figure(value)


def _reading(reading: Reading) -> tuple[str, str, bool]:
    return reading.name, reading.note or _value(reading.value), reading.passed


def _request_tiles(summary: Summary) -> list[Tile]:
    requests = summary.requests
    assert requests is not None
    latency = requests.ack_latency_seconds
    return [
        Tile(
            "Requests acknowledged",
            figures.count(requests.acknowledged),
            f"of {figures.count(requests.created)} created, "
            f"{figures.count(requests.planned)} planned",
            requests.never_acknowledged > 0,
        ),
        latency_tile("Acknowledged within, p50", latency.p50, latency.p50_interval),
        latency_tile("Acknowledged within, p99", latency.p99, latency.p99_interval),
        latency_tile("Slowest request", latency.max, None),
    ]


def _fleet_tiles(summary: Summary) -> list[Tile]:
    return [
        Tile(
            "Machines joined",
            figures.count(summary.machines.configured),
            f"{figures.count(summary.nodes.ready_max)} nodes ready at most",
        ),
        Tile("Run time", figures.clock(summary.run.duration_seconds), _phase_note(summary)),
    ]


def _gang_tile(summary: Summary) -> Tile:
    gangs = summary.gangs
    if not gangs.count:
        return Tile("Gangs complete", figures.ABSENT, "this load has no gangs")
    note = f"of {figures.count(gangs.count)}; {figures.count(gangs.rack_pure)} in one rack"
    short = gangs.complete < gangs.count
    return Tile("Gangs complete", figures.count(gangs.complete), note, short)


def _phase_note(summary: Summary) -> str:
    if summary.soak is None:
        return "ended before the soak"
    ramp, soak = figures.clock(summary.ramp.seconds), figures.clock(summary.soak.seconds)
    return f"ramp {ramp}, soak {soak}"
