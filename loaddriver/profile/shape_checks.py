"""Checks of churn, bursts, demand steps, and of what load mode and pacing exclude."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from loaddriver.apportion import divisible, largest_divisible
from loaddriver.profile.catalog import Catalog, pod_shares
from loaddriver.profile.decoding import FieldError
from loaddriver.profile.hints import did_you_mean
from loaddriver.profile.settings import Burst, ProfileSettings

_FASTEST_TURNOVER_SECONDS = 10


def shape_errors(settings: ProfileSettings, catalog: Catalog) -> Iterator[FieldError]:
    """Every contradiction in how the load changes over time."""
    yield from _churn_errors(settings)
    yield from _lifetime_errors(settings, catalog)
    for position, burst in enumerate(settings.bursts):
        yield from _burst_errors(settings, catalog, f"bursts[{position}]", burst)
    yield from _demand_step_errors(settings)
    yield from _mode_errors(settings)
    if settings.ramp.pacing == "knee":
        yield from _knee_errors(settings)


def _churn_errors(settings: ProfileSettings) -> Iterator[FieldError]:
    churn = settings.soak.churn_pods_per_second
    most = settings.pods / _FASTEST_TURNOVER_SECONDS
    if churn > most:
        yield FieldError(
            "soak.churnPodsPerSecond",
            f"= {churn:g}: with {settings.pods} pods that replaces every pod within "
            f"{_FASTEST_TURNOVER_SECONDS} s; it is in pods per second over all clusters and must "
            f"be at most {most:g}",
        )
    burst = settings.soak.churn_burst
    if burst is not None and burst.seconds >= burst.every_seconds:
        yield FieldError(
            "soak.churnBurst.seconds",
            f"= {burst.seconds:g}: must be less than everySeconds, {burst.every_seconds:g}, or the "
            "bursts overlap",
        )


def _lifetime_errors(settings: ProfileSettings, catalog: Catalog) -> Iterator[FieldError]:
    lifetimes = {each.name: each.mean_lifetime_seconds for each in catalog.archetypes}
    ends: dict[str, float] = {}
    for cluster in range(settings.clusters):
        for name, share in pod_shares(settings.weights_in(cluster), catalog).items():
            if (lifetime := lifetimes[name]) is not None:
                pods = settings.pods_per_cluster * share
                ends[name] = ends.get(name, 0.0) + pods / lifetime
    least = sum(ends.values())
    if least > settings.soak.churn_pods_per_second and settings.soak.seconds:
        yield FieldError(
            "soak.churnPodsPerSecond",
            f"= {settings.soak.churn_pods_per_second:g}: the meanLifetimeSeconds of "
            f"{', '.join(ends)} alone delete {least:.3g} pods per second, which counts as churn; "
            f"write at least {least:.3g}",
        )


def _burst_errors(
    settings: ProfileSettings, catalog: Catalog, where: str, burst: Burst
) -> Iterator[FieldError]:
    names = [archetype.name for archetype in catalog.archetypes]
    if burst.archetype not in names:
        known = did_you_mean(burst.archetype, names)
        yield FieldError(f"{where}.archetype", f"= {burst.archetype!r}: no such archetype{known}")
        return
    length, end = settings.phase_seconds(burst.phase), burst.at_seconds + burst.duration_seconds
    if end > length:
        yield FieldError(
            f"{where}.durationSeconds",
            f"= {burst.duration_seconds:g}: the burst would end {end:g} s into the {burst.phase}, "
            f"which lasts {length:g} s; start it earlier or shorten it",
        )
    gang = catalog.archetype(burst.archetype).gang
    if gang is not None and not divisible(burst.pods, gang.size.min, gang.size.max):
        fitting = largest_divisible(burst.pods, gang.size.min, gang.size.max) or gang.size.min
        yield FieldError(
            f"{where}.pods",
            f"= {burst.pods}: not a sum of whole {burst.archetype} gangs of {gang.size.min} to "
            f"{gang.size.max} pods; write {fitting}",
        )


def _demand_step_errors(settings: ProfileSettings) -> Iterator[FieldError]:
    for position, step in enumerate(settings.demand_steps):
        if step.at_seconds >= settings.soak.seconds:
            yield FieldError(
                f"demandSteps[{position}].atSeconds",
                f"= {step.at_seconds:g}: must be less than the soak, {settings.soak.seconds:g} s",
            )
    for position, (first, second) in enumerate(pairwise(settings.demand_steps)):
        if second.at_seconds <= first.at_seconds:
            yield FieldError(
                f"demandSteps[{position + 1}].atSeconds",
                f"= {second.at_seconds:g} must be later than the previous step",
            )


def _mode_errors(settings: ProfileSettings) -> Iterator[FieldError]:
    if settings.load.mode == "pods":
        return
    if settings.ramp.pacing != "fixed":
        yield FieldError(
            "ramp.pacing",
            f"= {settings.ramp.pacing!r}: with load.mode: cr there are no pods, so the ramp "
            "cannot wait for them to bind; write fixed",
        )
    if settings.anchors != "off":
        yield FieldError(
            "anchors",
            f"= {settings.anchors!r}: with load.mode: cr there are no pods to anchor; write off",
        )


def _knee_errors(settings: ProfileSettings) -> Iterator[FieldError]:
    if settings.soak.seconds or settings.bursts or settings.demand_steps:
        yield FieldError(
            "soak.seconds",
            "with ramp.pacing: knee the run has no soak; write soak.seconds: 0, and remove bursts "
            "and demandSteps",
        )
    if settings.ramp.steps < 2:
        yield FieldError("ramp.steps", "= 1: a second step must confirm the knee; write at least 2")
