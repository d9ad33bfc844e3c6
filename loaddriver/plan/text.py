"""Formats a plan as text in 80 columns: steps, bursts, demand steps, churn, archetypes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from loaddriver.plan.records import RAMP, Level, Plan, Step, Workload
from loaddriver.profile.fleet import FleetSettings
from loaddriver.profile.settings import ProfileSettings

_COLUMNS = (16, 10, 8, 8, 8, 10, 10)


def plan_lines(plan: Plan, settings: ProfileSettings) -> Iterator[str]:
    """The lines of a plan's summary."""
    yield (
        f"{plan.header.profile}, seed {plan.header.seed}: {plan.header.pods:,} pods in "
        f"{plan.header.clusters} cluster{'s' * (plan.header.clusters > 1)}, "
        f"{len(plan.events):,} requests"
    )
    yield "  (reproducible: the same profile and seed give the same plan)"
    yield _row("step", "seconds", "objects", "pods", "gangs", "pods/s", "requests")
    for step in plan.steps:
        yield _step_line(plan, step)
    yield from _shape_lines(plan, settings)
    yield from _churn_lines(settings)
    yield from _market_lines(settings.fleet)
    yield _row("archetype", "", "objects", "pods", "gangs", "", "largest")
    yield from _archetype_lines(plan)


def _row(name: str, *cells: object) -> str:
    widths = _COLUMNS[1:]
    texts = [f"{cell!s:>{width}}" for cell, width in zip(cells, widths, strict=True)]
    return f"  {name:<{_COLUMNS[0]}}{''.join(texts)}".rstrip()


def _step_line(plan: Plan, step: Step) -> str:
    own = [w for w in plan.workloads if w.step == step.number and w.origin == RAMP]
    rate = f"{step.pods_per_second:.1f}" if step.pods else ""
    return _row(
        f"{step.number} {step.phase}",
        f"{step.seconds:g}",
        len(own),
        step.pods,
        _gangs(own),
        rate,
        step.events,
    )


def _gangs(workloads: Sequence[Workload]) -> int:
    return sum(workload.group is not None for workload in workloads)


def _shape_lines(plan: Plan, settings: ProfileSettings) -> Iterator[str]:
    """Bursts and demand steps, in the profile's order."""
    for number, burst in enumerate(settings.bursts):
        own = [w for w in plan.workloads if w.origin == f"burst-{number}"]
        where = f" in {burst.cluster}" if burst.cluster else ""
        yield (
            f"  burst in the {burst.phase} at {burst.at_seconds:g} s for "
            f"{burst.duration_seconds:g} s: "
            f"{burst.pods} {burst.archetype} pods{where}, {len(own)} objects"
        )
    pods = plan.header.pods
    for number, step in enumerate(settings.demand_steps):
        levels = [level for level in plan.levels if level.origin == f"demand-{number}"]
        after = _pods_after(plan, levels)
        yield (
            f"  demand times {step.factor:g} at {step.at_seconds:g} s: from {pods:,} to {after:,} "
            f"pods, {len(levels)} changes in {_span(levels):.1f} s"
        )
        pods = after


def _pods_after(plan: Plan, levels: Sequence[Level]) -> int:
    """The pods without bursts, after `levels` are applied."""
    burst = {(w.cluster, w.name) for w in plan.workloads if w.origin.startswith("burst")}
    last = levels[-1] if levels else None
    now: dict[tuple[int, str], int] = {}
    for level in plan.levels:
        key = level.cluster, level.workload
        if key not in burst:
            now[key] = level.replicas
        if level is last:
            break
    return sum(now.values())


def _span(levels: Sequence[Level]) -> float:
    offsets = [level.offset_seconds for level in levels]
    return max(offsets) - min(offsets) if offsets else 0.0


def _churn_lines(settings: ProfileSettings) -> Iterator[str]:
    rate, burst = settings.soak.churn_pods_per_second, settings.soak.churn_burst
    if not rate:
        return
    burst_text = (
        f", in bursts {burst.factor:g}x for {burst.seconds:g} s every {burst.every_seconds:g} s"
        if burst
        else ""
    )
    yield f"  churn: {rate:g} pods/s for {settings.soak.seconds:g} s{burst_text}"


def _market_lines(fleet: FleetSettings) -> Iterator[str]:
    if (moves := fleet.prices) is not None:
        yield (
            f"  prices of {' and '.join(moves.capacity_types)} machines move {_times(moves.number)}"
            f" from {moves.at_seconds:g} s on,"
        )
        yield (
            f"    every {moves.every_seconds:g} s, to {moves.lowest_factor:g} to "
            f"{moves.highest_factor:g} times their own"
        )
    if (cuts := fleet.interruptions) is not None:
        yield (
            f"  a kind of spot machines is interrupted {_times(cuts.number)} from "
            f"{cuts.at_seconds:g} s on,"
        )
        yield (
            f"    every {cuts.every_seconds:g} s, after a notice of {cuts.notice_seconds:g} s, for "
            f"{cuts.down_seconds:g} s"
        )


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _archetype_lines(plan: Plan) -> Iterator[str]:
    by_archetype: defaultdict[str, list[Workload]] = defaultdict(list)
    for workload in plan.workloads:
        if workload.origin == RAMP:
            by_archetype[workload.archetype].append(workload)
    for name, own in sorted(by_archetype.items()):
        replicas = [workload.replicas for workload in own]
        yield _row(name, "", len(own), sum(replicas), _gangs(own), "", max(replicas))
