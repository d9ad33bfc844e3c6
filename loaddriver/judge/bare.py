"""Ratios of a run to its baseline without BigFleet (the bare run of the same plan)."""

from __future__ import annotations

from collections.abc import Mapping

from loaddriver.judge.percentiles import Quantile, Quantiles
from loaddriver.judge.schema import Bare, Hop, Summary

Numbers = Mapping[str, Quantile]


def bare_section(summary: Summary, bare: Summary | None) -> Bare | None:
    """The ratios to `bare` for due time and creation to binding, and for every hop of both runs."""
    if bare is None:
        return None
    hops = summary.hops_seconds
    common = [name for name in hops if name in bare.hops_seconds]
    due, latency = summary.due_to_bind_seconds, summary.bind_latency_seconds
    return Bare(
        id=bare.run.id,
        verdict=bare.verdict,
        due_to_bind_seconds=bare.due_to_bind_seconds,
        bind_latency_seconds=bare.bind_latency_seconds,
        hops_seconds=bare.hops_seconds,
        ratios={
            "dueToBind": _ratios(_of(due), _of(bare.due_to_bind_seconds)),
            "bind": _ratios(_of(latency), _of(bare.bind_latency_seconds)),
            **{name: _ratios(_of(hops[name]), _of(bare.hops_seconds[name])) for name in common},
        },
    )


def _of(numbers: Quantiles | Hop) -> Numbers:
    named: dict[str, Quantile] = {"p50": numbers.p50, "p90": numbers.p90, "p99": numbers.p99}
    return {**named, "mean": numbers.mean} if isinstance(numbers, Hop) else named


def _ratios(ours: Numbers, theirs: Numbers) -> dict[str, float | None]:
    return {name: _ratio(ours[name], theirs[name]) for name in ours}


def _ratio(ours: Quantile, theirs: Quantile) -> float | None:
    if not isinstance(ours, float) or not isinstance(theirs, float) or not theirs:
        return None
    return round(ours / theirs, 4)
