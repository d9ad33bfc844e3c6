"""The page's sections on waits and their hops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from loaddriver.judge.gates import format_number
from loaddriver.judge.percentiles import Interval, Quantile, Quantiles
from loaddriver.judge.schema import GangSide, Hop, Requests, Slice, Summary
from loaddriver.record.hops import HOPS
from loaddriver.report import formatting

_PLACEMENTS = {
    "nodeWasReady": "node was ready before the pod",
    "waitedForNode": "waited for its node",
    "unknown": "node unknown",
}
_SPANS = {"dueToBind": "due time to binding", "bind": "creation to binding"}
_HOPS = {
    "arrived": ("arrived", "the pod that the plan asks for exists"),
    "seen": ("seen", "its CapacityRequest exists"),
    "rolledUp": ("rolled up", "its need has reached a shard"),
    "decided": ("decided", "a machine was chosen for the need"),
    "provisioned": ("provisioned", "the machine exists and starts to boot"),
    "nodeReady": ("node ready", "the machine is a ready Node"),
    "scheduled": ("scheduled", "the pod is bound"),
}
_BANDS = {
    "all": ("All bound pods", ""),
    "middle": ("The middle fifth", ", from p40 to p60"),
    "slowest": ("The slowest hundredth", ", beyond p99"),
}
_TONES = {hop: tone for tone, hop in enumerate(HOPS, start=1)}


@dataclass(frozen=True)
class BarSegment:
    """A segment of a bar: its name, percentage, tone and texts."""

    name: str
    percent: float
    tone: int
    texts: Sequence[str]
    meaning: str = ""


@dataclass(frozen=True)
class BandBar:
    """A band of pods as a bar of its hops; `width` is relative to the longest wait, in percent."""

    name: str
    note: str
    wait: str
    width: float
    parts: Sequence[BarSegment]


@dataclass(frozen=True)
class SliceRow:
    """A row of a table of slices; quantiles are pairs of a value and its interval."""

    name: str
    pods: str
    unbound: str
    quantiles: Sequence[tuple[str, str]]


def slice_rows(slices: Mapping[str, Slice]) -> list[SliceRow]:
    """One row per slice."""
    return [
        SliceRow(
            name=_PLACEMENTS.get(name, name or "unnamed"),
            pods=formatting.count(part.pods),
            unbound=formatting.count(part.never_bound + part.never_created),
            quantiles=_four(part.due_to_bind_seconds),
        )
        for name, part in slices.items()
    ]


def span_rows(summary: Summary) -> list[tuple[str, Sequence[tuple[str, str]]]]:
    """The waits of all pods from their due times, and beside them from their creation."""
    return [
        ("Due time to binding", _four(summary.due_to_bind_seconds)),
        ("Creation to binding", _four(summary.bind_latency_seconds)),
    ]


def phases(summary: Summary) -> dict[str, Slice]:
    """Ramp, open stage and soak, as slices; the open stage also by placement."""
    stage = summary.open_stage
    placements = {} if stage is None else stage.placement
    named: dict[str, Slice | None] = {
        "ramp": summary.ramp,
        "open stage": stage,
        **{f"open stage, {_PLACEMENTS[name]}": part for name, part in placements.items()},
        "soak": summary.soak,
    }
    return {name: phase for name, phase in named.items() if phase is not None}


def band_bars(summary: Summary) -> list[BandBar]:
    """The bars of typical and slow pods, by hop."""
    longest = max((band.wait_seconds for band in summary.wait_bands.values()), default=0)
    return [
        BandBar(
            name=_BANDS[name][0],
            note=f"{formatting.count(band.pods)} pods{_BANDS[name][1]}",
            wait=formatting.seconds(band.wait_seconds),
            width=round(100 * band.wait_seconds / longest, 3) if longest else 0,
            parts=[
                BarSegment(
                    name=_HOPS[hop][0],
                    percent=round(100 * seconds / band.wait_seconds, 3),
                    tone=_TONES[hop],
                    texts=[formatting.seconds(seconds)],
                )
                for hop, seconds in band.hops_seconds.items()
                if band.wait_seconds
            ],
        )
        for name, band in summary.wait_bands.items()
    ]


def hop_segments(summary: Summary) -> list[BarSegment]:
    """Each hop's mean and quantiles."""
    mean = sum(hop.mean for hop in summary.hops_seconds.values())
    return [
        BarSegment(
            name=_HOPS[name][0],
            percent=round(100 * hop.mean / mean, 3) if mean else 0,
            tone=_TONES[name],
            texts=_hop_texts(hop),
            meaning=_HOPS[name][1],
        )
        for name, hop in summary.hops_seconds.items()
    ]


def inapplicable_hops(summary: Summary) -> str:
    """The names of the stages that the system under test does not have; "" if it has all."""
    found = summary.not_applicable
    return ", ".join(_HOPS[hop][0] for hop in found.hops) if found else ""


def ratio_rows(summary: Summary) -> list[tuple[str, Sequence[str]]]:
    """Ratios of each hop to the bare run, by percentile; empty without a bare run."""
    if summary.bare is None:
        return []
    return [
        (
            _SPANS.get(name) or _HOPS[name][0],
            [_ratio(ratios.get(key)) for key in ("mean", "p50", "p90", "p99")],
        )
        for name, ratios in summary.bare.ratios.items()
    ]


def request_rows(requests: Requests) -> list[tuple[str, str]]:
    """Counts and waits of the load's own CapacityRequests, over all and by cluster."""
    due, latency = requests.due_to_ack_seconds, requests.ack_latency_seconds
    return [
        ("Planned", formatting.count(requests.planned)),
        ("Created", formatting.count(requests.created)),
        ("Acknowledged", formatting.count(requests.acknowledged)),
        ("Never acknowledged", formatting.count(requests.never_acknowledged)),
        ("withdrawn", formatting.count(requests.withdrawn)),
        ("Due time to acknowledgement, p50", _with_interval(due.p50, due.p50_interval)),
        ("Due time to acknowledgement, p99", _with_interval(due.p99, due.p99_interval)),
        ("Creation to acknowledgement, p50", _with_interval(latency.p50, latency.p50_interval)),
        ("Creation to acknowledgement, p99", _with_interval(latency.p99, latency.p99_interval)),
        *(
            (
                f"p50 and p99 in {name}",
                f"{formatting.spoken_quantile(each.p50)}, {formatting.spoken_quantile(each.p99)}",
            )
            for name, each in requests.clusters.items()
        ),
    ]


def gang_segments(summary: Summary) -> list[BarSegment]:
    """The placement of the gangs' first pods; the three cases add up to all gangs."""
    gangs = summary.gangs
    ways = (
        ("anchored", gangs.anchored, 1, "first pod went to the node that the harness nominated"),
        ("scheduler first", gangs.scheduler_first, 3, "placed by kube-scheduler alone"),
        ("unplaced", gangs.unplaced, 2, "no pod was bound"),
    )
    return [
        BarSegment(
            name=name,
            percent=round(100 * number / gangs.count, 3) if gangs.count else 0,
            tone=tone,
            texts=[formatting.count(number), formatting.share(number, gangs.count)],
            meaning=meaning,
        )
        for name, number, tone, meaning in ways
    ]


def sides(summary: Summary) -> list[tuple[str, Sequence[str]]]:
    """The rows of the comparison of both runs of a plan: a name, and a text for each run."""
    both = summary.side_by_side
    return [
        ("Valid measurement", ["yes" if side.valid else "no" for side in both]),
        ("Gangs never complete", [f"{side.stuck:,} of {side.gangs:,}" for side in both]),
        ("Complete at some time", [_share(side.complete_share) for side in both]),
        ("Always in one rack", [_share(side.rack_pure_share) for side in both]),
        (
            "First pod placed on the nominated node",
            [formatting.count(side.anchored) for side in both],
        ),
        (
            "Placed by kube-scheduler alone",
            [formatting.count(side.scheduler_first) for side in both],
        ),
        ("Unplaced", [formatting.count(side.unplaced) for side in both]),
        *_side_quantiles("A gang's pod: due time to binding", both, "due_to_bind_seconds"),
        *_side_quantiles("Due time to complete", both, "completion_seconds"),
        *_side_quantiles("First binding to complete", both, "partial_seconds"),
    ]


def _side_quantiles(
    what: str, both: Sequence[GangSide], field: str
) -> list[tuple[str, Sequence[str]]]:
    found: list[Quantiles] = [getattr(side, field) for side in both]
    return [
        (f"{what}, p50", [_with_interval(each.p50, each.p50_interval) for each in found]),
        (f"{what}, p99", [_with_interval(each.p99, each.p99_interval) for each in found]),
    ]


def _with_interval(value: Quantile, interval: Interval) -> str:
    if not isinstance(value, float):
        return formatting.spoken_quantile(value)
    return f"{formatting.seconds(value)} ({formatting.interval(interval)})"


def _hop_texts(hop: Hop) -> list[str]:
    four = (hop.p50, hop.p90, hop.p99, hop.max)
    return [
        formatting.plain_seconds(hop.mean),
        *map(formatting.quantile, four),
        formatting.count(hop.pods),
    ]


def _four(latency: Quantiles) -> list[tuple[str, str]]:
    return [
        (formatting.quantile(latency.p50), _interval(latency.p50, latency.p50_interval)),
        (formatting.quantile(latency.p90), ""),
        (formatting.quantile(latency.p99), _interval(latency.p99, latency.p99_interval)),
        (formatting.quantile(latency.max), ""),
    ]


def _interval(value: Quantile, interval: Interval) -> str:
    """The interval, or "" for a lower bound."""
    return formatting.plain_interval(interval) if isinstance(value, float) else ""


def _ratio(value: float | None) -> str:
    return formatting.ABSENT if value is None else f"{format_number(value)}\u202f\u00d7"


def _share(value: float | None) -> str:
    return formatting.ABSENT if value is None else formatting.share(value, 1)
