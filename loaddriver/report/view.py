"""Texts for the head of the report's page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loaddriver.judge.audit_section import Audit
from loaddriver.judge.gates import GateResult, Reading, format_number
from loaddriver.judge.interruptions import Interruptions
from loaddriver.judge.percentiles import AtLeast, Interval, Quantile
from loaddriver.judge.price_following import PriceFollowing
from loaddriver.judge.schema import Summary
from loaddriver.report import formatting, provenance

_OPERATORS = {"<=": "\u2264", ">=": "\u2265", "==": "="}
_VERDICTS = {
    "pass": "Pass",
    "fail": "Fail",
    "invalid": "Invalid",
    "error": "Error",
}

_SUBJECTS = {
    "karpenter": "Scale test of Karpenter with profile",
    "command": "Scale test of another autoscaler with profile",
    "none": "Scale test without an autoscaler, of profile",
}


@dataclass(frozen=True)
class Tile:
    """A key figure; `note` gives context, `is_problem` highlights it."""

    label: str
    value: str
    note: str = ""
    is_problem: bool = False


@dataclass(frozen=True)
class GateRow:
    """A row of the table of gates; `each` are the readings of a gate with a wildcard."""

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
    """The type of run."""
    if summary.run.bare:
        return "Bare run, without BigFleet, of profile"
    return _SUBJECTS.get(summary.run.system, "Scale test of profile")


def identity(summary: Summary) -> list[str]:
    """The identity of the run, in parts."""
    run = summary.run
    return [
        f"Run {run.id}",
        *([f"bare run of {run.bare_of}"] if run.bare_of else []),
        f"seed {run.seed}",
        *([f"revision {provenance.revision(summary.provenance)}"] if summary.provenance else []),
        run.substrate,
        *([f"anchors {run.anchors}"] if run.anchors else []),
        formatting.moment(run.started_unix_seconds),
        f"exit code {summary.exit_code}",
    ]


def tiles(summary: Summary) -> list[Tile]:
    """The key figures."""
    if summary.requests is not None and not summary.pods.planned:
        return [*_request_tiles(summary), *_fleet_tiles(summary)]
    pods, latency = summary.pods, summary.due_to_bind_seconds
    return [
        Tile(
            "Pods bound",
            formatting.count(pods.bound),
            (
                f"of {formatting.count(pods.created)} created, "
                f"{formatting.count(pods.planned)} planned"
            ),
            pods.never_bound > 0 or pods.never_created > 0,
        ),
        latency_tile("Bound within, p50", latency.p50, latency.p50_interval),
        latency_tile("Bound within, p99", latency.p99, latency.p99_interval),
        latency_tile("Slowest pod", latency.max, None),
        Tile(
            "Largest backlog",
            formatting.count(summary.backlog.max),
            f"unbound pods; {formatting.count(summary.backlog.at_end)} at the end",
        ),
        _gang_tile(summary),
        *_fleet_tiles(summary),
    ]


def audit_lead(audit: Audit) -> str:
    """What the audit of the fleet found, in one sentence."""
    if audit.differences is None:
        return f"It is not known: {audit.fleet_error}."
    compared = "provider, shards, coordinator, Nodes and CapacityRequests"
    if not audit.differences:
        return f"Once the load had ended, {compared} said the same twice."
    count = formatting.count(audit.differences)
    return f"Once the load had ended, {compared} differed in {count} points, twice in a row."


def prices_lead(prices: PriceFollowing) -> str:
    """How far the machines held followed prices that moved, in one sentence."""
    times = "once" if prices.moves == 1 else f"{formatting.count(prices.moves)} times"
    held, least = format_number(prices.dollars_per_hour), prices.least_dollars_per_hour
    if prices.dollars_ratio is None:
        return f"Prices moved {times}; ${held} an hour were held for no pods."
    return (
        f"Prices moved {times}; from then on ${held} an hour were held on average, "
        f"{format_number(prices.dollars_ratio)} times the least that the pods of each moment "
        f"needed, ${format_number(least)}."
    )


def interruptions_lead(interruptions: Interruptions) -> str:
    """What interruptions of spot machines led to, in one or two sentences."""
    kinds = formatting.count(interruptions.notices)
    machines, pods = formatting.count(interruptions.machines), interruptions.pods
    text = (
        f"A kind of spot machines was interrupted {kinds} times, with {machines} machines in "
        f"service; {formatting.count(pods)} pods had to leave, "
        f"{formatting.count(interruptions.lost)} of them only with their Node."
    )
    if not pods:
        return text
    longest = formatting.spoken_quantile(interruptions.due_to_bind_seconds.max)
    return f"{text} The slowest replacement was bound after {longest}."


def interruption_rows(found: Interruptions) -> list[tuple[str, str]]:
    """The numbers of that section, with their names."""
    waits = found.due_to_bind_seconds
    return [
        ("Pods evicted within the notice", formatting.count(found.evicted)),
        ("Pods lost with their Node", formatting.count(found.lost)),
        ("Replacements without a Node at the end", formatting.count(found.never_bound)),
        ("Replaced within, p50", formatting.spoken_quantile(waits.p50)),
        ("Replaced within, p90", formatting.spoken_quantile(waits.p90)),
        ("Slowest replacement", formatting.spoken_quantile(waits.max)),
        ("Interrupted kinds bought", formatting.count(found.bought_while_interrupted)),
        ("Machines of other kinds joined", formatting.count(found.joined_of_other_kinds)),
    ]


def gate_rows(gates: Sequence[GateResult]) -> list[GateRow]:
    """Missed gates first, else in the order of the file."""
    ordered = sorted(gates, key=lambda gate: gate.passed)
    return [
        GateRow(
            name=gate.name,
            value=_value(gate.value),
            limit=f"{_OPERATORS[gate.op]} {format_number(gate.limit)}",
            unit=gate.unit,
            verdict=gate.verdict,
            origin=gate.origin,
            note=gate.note,
            each=[_reading(each) for each in gate.each],
        )
        for gate in ordered
    ]


def latency_tile(label: str, value: Quantile, interval: Interval | None) -> Tile:
    """A quantile with its interval, or why it is a lower bound."""
    note = (
        f"95\u202f% interval over objects: {formatting.interval(interval)}"
        if interval
        else "since its due time"
    )
    if isinstance(value, AtLeast):
        needed = formatting.count(value.required_sample_size)
        few = f"effective sample size {value.effective_sample_size}; {needed} required"
        note = few if value.required_sample_size else "some pods were never bound"
    open_ended = isinstance(value, AtLeast) and not value.required_sample_size
    return Tile(label, formatting.spoken_quantile(value), note, open_ended)


def _value(value: float | None) -> str:
    return formatting.ABSENT if value is None else format_number(value)


def _reading(reading: Reading) -> tuple[str, str, bool]:
    return reading.name, reading.note or _value(reading.value), reading.passed


def _request_tiles(summary: Summary) -> list[Tile]:
    requests = summary.requests
    assert requests is not None
    latency = requests.due_to_ack_seconds
    return [
        Tile(
            "Requests acknowledged",
            formatting.count(requests.acknowledged),
            f"of {formatting.count(requests.created)} created, "
            f"{formatting.count(requests.planned)} planned",
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
            formatting.count(summary.machines.configured),
            f"{formatting.count(summary.nodes.ready_max)} nodes ready at most",
        ),
        Tile("Run time", formatting.clock(summary.run.duration_seconds), _phase_note(summary)),
    ]


def _gang_tile(summary: Summary) -> Tile:
    gangs = summary.gangs
    if not gangs.count:
        return Tile("Gangs complete", formatting.ABSENT, "this load has no gangs")
    note = f"of {formatting.count(gangs.count)}; {formatting.count(gangs.rack_pure)} in one rack"
    short = gangs.complete < gangs.count
    return Tile("Gangs complete", formatting.count(gangs.complete), note, short)


def _phase_note(summary: Summary) -> str:
    if summary.soak is None:
        return "ended before the soak"
    ramp, soak = formatting.clock(summary.ramp.seconds), formatting.clock(summary.soak.seconds)
    return f"ramp {ramp}, soak {soak}"
