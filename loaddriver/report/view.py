"""What the report's page shows, as texts ready to be put in place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loaddriver.judge.gates import GateResult, figure
from loaddriver.judge.percentiles import AtLeast, Quantile, Quantiles
from loaddriver.judge.schema import Slice, Summary
from loaddriver.report import figures

_OPERATORS = {"<=": "\u2264", ">=": "\u2265", "==": "="}
_VERDICTS = {
    "pass": "Pass",
    "fail": "Fail",
    "invalid": "Invalid",
    "error": "Error",
}
_PLACEMENTS = {
    "foundRoom": "node was there before the pod",
    "waitedForNode": "waited for its node",
    "unknown": "node not known",
}
_HOPS = {
    "seen": ("seen", "its CapacityRequest exists"),
    "rolledUp": ("rolled up", "its need has reached a shard"),
    "decided": ("decided", "a machine was chosen for the need"),
    "provisioned": ("provisioned", "the machine exists and begins to boot"),
    "nodeReady": ("node ready", "the machine is a ready Node"),
    "scheduled": ("scheduled", "the pod is bound"),
}


@dataclass(frozen=True)
class Tile:
    """A key figure; `note` puts it in proportion, `alarming` paints it as a problem."""

    label: str
    value: str
    note: str = ""
    alarming: bool = False


@dataclass(frozen=True)
class Part:
    """A piece of a bar: its name, share of the whole in percent, tone and figures."""

    name: str
    percent: float
    tone: int
    texts: Sequence[str]
    meaning: str = ""


@dataclass(frozen=True)
class SliceRow:
    """A row of a table of slices."""

    name: str
    pods: str
    unbound: str
    quantiles: Sequence[str]


@dataclass(frozen=True)
class GateRow:
    """A gate as the table shows it."""

    name: str
    value: str
    limit: str
    unit: str
    verdict: str
    origin: str
    note: str


def verdict_word(summary: Summary) -> str:
    """The verdict as a title."""
    return _VERDICTS[summary.verdict]


def tiles(summary: Summary) -> list[Tile]:
    """The figures that most readers come for."""
    pods, latency = summary.pods, summary.bind_latency_seconds
    return [
        Tile(
            "Pods bound",
            figures.count(pods.bound),
            f"of {figures.count(pods.created)} created, {figures.count(pods.planned)} planned",
            pods.never_bound > 0,
        ),
        _latency_tile("Bound within, p50", latency.p50, "half of all pods"),
        _latency_tile("Bound within, p99", latency.p99, "99 of 100 pods"),
        _latency_tile("Slowest pod", latency.max, "creation to binding"),
        Tile(
            "Backlog at worst",
            figures.count(summary.backlog.max),
            f"unbound pods; {figures.count(summary.backlog.at_end)} at the end",
        ),
        _gang_tile(summary),
        Tile(
            "Machines joined",
            figures.count(summary.machines.configured),
            f"{figures.count(summary.nodes.ready_max)} nodes ready at most",
        ),
        Tile("Run time", figures.clock(summary.run.duration_seconds), _phase_note(summary)),
    ]


def gate_rows(gates: Sequence[GateResult]) -> list[GateRow]:
    """Missed gates first, each group in the order of the file."""
    ordered = sorted(gates, key=lambda gate: gate.passed)
    return [
        GateRow(
            name=gate.name,
            value=figures.ABSENT if gate.value is None else figure(gate.value),
            limit=f"{_OPERATORS[gate.op]} {figure(gate.limit)}",
            unit=gate.unit,
            verdict=gate.verdict,
            origin=gate.origin,
            note=gate.note,
        )
        for gate in ordered
    ]


def slice_rows(slices: Mapping[str, Slice]) -> list[SliceRow]:
    """One row per slice."""
    return [
        SliceRow(
            name=_PLACEMENTS.get(name, name or "unnamed"),
            pods=figures.count(part.pods),
            unbound=figures.count(part.never_bound),
            quantiles=[figures.quantile(value) for value in _four(part.bind_latency_seconds)],
        )
        for name, part in slices.items()
    ]


def phases(summary: Summary) -> dict[str, Slice]:
    """Ramp and soak, as slices."""
    named: dict[str, Slice | None] = {"ramp": summary.ramp, "soak": summary.soak}
    return {name: phase for name, phase in named.items() if phase is not None}


def hop_parts(summary: Summary) -> list[Part]:
    """The mean wait by hop, and each hop's own quantiles."""
    hops = summary.hops_seconds
    mean = sum(hop.mean for hop in hops.values())
    return [
        Part(
            name=_HOPS[name][0],
            percent=round(100 * hop.mean / mean, 3) if mean else 0,
            tone=tone,
            texts=[
                *map(figures.plain_seconds, (hop.mean, hop.p50, hop.p90, hop.p99, hop.max)),
                figures.count(hop.pods),
            ],
            meaning=_HOPS[name][1],
        )
        for tone, (name, hop) in enumerate(hops.items(), start=1)
    ]


def gang_parts(summary: Summary) -> list[Part]:
    """How each gang began; the three ways add up to all of them."""
    gangs = summary.gangs
    ways = (
        ("anchored", gangs.anchored, 1, "first pod bound by the load driver"),
        ("scheduler first", gangs.scheduler_first, 3, "placed by kube-scheduler alone"),
        ("no room", gangs.no_room, 2, "no pod of it was bound"),
    )
    return [
        Part(
            name=name,
            percent=round(100 * number / gangs.count, 3) if gangs.count else 0,
            tone=tone,
            texts=[figures.count(number), figures.share(number, gangs.count)],
            meaning=meaning,
        )
        for name, number, tone, meaning in ways
    ]


def measurement(summary: Summary) -> list[tuple[str, str]]:
    """What the measurement says about itself."""
    audit, clock = summary.audit, summary.audit.clock
    source = "API servers' audit logs" if audit.available else "watch receipt, late by its nature"
    lag = "not comparable"
    if clock.median_seconds is not None and clock.p99_seconds is not None:
        lag = f"{figures.seconds(clock.median_seconds)} median, "
        lag += f"{figures.seconds(clock.p99_seconds)} p99"
    return [
        ("Clock", source),
        ("Audit lines read", figures.count(audit.lines)),
        ("Audit lines not readable", figures.count(audit.undecodable)),
        ("Pods and bindings that the log lacks", _pair(audit.missed_pods, audit.missed_bindings)),
        ("Watch receipt after the log", lag),
        ("Watches cut and resumed", figures.count(audit.watch.resumed)),
        ("Bound by", _counts(audit.bound_by)),
        ("Refused requests", _counts(audit.failed_requests)),
    ]


def flat(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Nested numbers under readable names."""
    return [(figures.words(name), value) for name, value in _flat(values, "")]


def _flat(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{prefix}{key}", figure(value)
        else:
            yield f"{prefix}{key}", figures.ABSENT if value is None else str(value)


def _four(latency: Quantiles) -> tuple[Quantile, ...]:
    return latency.p50, latency.p90, latency.p99, latency.max


def _latency_tile(label: str, value: Quantile, note: str) -> Tile:
    open_ended = isinstance(value, AtLeast)
    said = "some were never bound" if open_ended else note
    return Tile(label, figures.spoken_quantile(value), said, open_ended)


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


def _pair(pods: int, bindings: int) -> str:
    return f"{figures.count(pods)} and {figures.count(bindings)}"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name}: {figures.count(n)}" for name, n in counts.items()) or "none"
