"""Pairs of runs -> a comparison: endpoints, events and voids, and one verdict. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median

import msgspec
import numpy as np

from loaddriver.compare.attribution import Growths, attribute, changes, growths, unit_of
from loaddriver.compare.comparison import (
    Comparison,
    Described,
    EndpointResult,
    Errors,
    EventResult,
    Fact,
    Overall,
    Pairing,
    PartChange,
    Side,
    Voids,
)
from loaddriver.compare.exact import (
    Runs,
    Void,
    event_result,
    suspicious,
    too_many,
    void_result,
)
from loaddriver.compare.machine_speed import machine_speed, relative, relative_parts
from loaddriver.compare.measures import ENDPOINTS, EVENTS, Endpoint, PairMeasures
from loaddriver.compare.sequential import (
    FAMILY_ERROR,
    OF_VOIDS,
    WORDS,
    Code,
    Floats,
    Spending,
    half_widths,
    judge,
    pairs_to_settle,
    percent_of,
    sign_flip_tail,
)
from loaddriver.compare.wording import why
from loaddriver.distributions import t_tail
from loaddriver.errors import ExitCode

_MOST_FLIPPED = 16


@dataclass(frozen=True)
class About:
    """What is known of a comparison besides its pairs.

    `runs` are given for pairs that are on disk, of which each side may have another number.
    """

    profile: str
    seed: int
    machine: str
    session: str
    base: Side
    head: Side
    warnings: Sequence[str] = ()
    facts: Sequence[Fact] = field(default=())
    runs: Runs | None = None
    pairing: Pairing = "interleaved"


def compare(
    about: About, pairs: Sequence[PairMeasures], voids: Sequence[Void], plan: Spending
) -> Comparison:
    """The comparison of these valid pairs and of the voids that discarded others."""
    speed = machine_speed(pairs, about.pairing)
    comparable, parts = relative(pairs, speed), changes(pairs)
    growth = growths(pairs, relative_parts(parts, speed), speed)
    endpoints = [_endpoint(each, comparable, growth, plan) for each in ENDPOINTS]
    events = [event_result(key, name, pairs, plan) for key, name in EVENTS.items()]
    of_voids = void_result(voids, about.runs)
    verdict, code = _verdict(endpoints, events, of_voids)
    return Comparison(
        verdict=verdict,
        exit_code=code,
        why=why(verdict, endpoints, events, of_voids, len(pairs)),
        warnings=list(about.warnings),
        attributed=_attributed(endpoints),
        profile=about.profile,
        seed=about.seed,
        machine=about.machine,
        session=about.session,
        pairs=len(pairs),
        pairing=about.pairing,
        errors=_errors(plan),
        speed=speed,
        base=about.base,
        head=about.head,
        endpoints=endpoints,
        events=events,
        voids=of_voids,
        parts=[
            PartChange(name=name, unit=unit_of(name), base=base, head=head)
            for name, (base, head) in parts.items()
        ],
        described=_described(pairs),
        facts=list(about.facts),
    )


def _of_two_systems(pairs: Sequence[PairMeasures]) -> bool:
    return len({run.system for pair in pairs for run in (pair.base, pair.head)}) > 1


def _endpoint(
    endpoint: Endpoint,
    pairs: Sequence[PairMeasures],
    growth: Growths,
    plan: Spending,
) -> EndpointResult:
    base = [pair.base.values[endpoint.key] for pair in pairs if endpoint.key in pair.base.values]
    head = [pair.head.values[endpoint.key] for pair in pairs if endpoint.key in pair.head.values]
    ratios = np.array([pair.ratios[endpoint.key] for pair in pairs if endpoint.key in pair.ratios])
    # Another system has no shard; where both sides run the same one, a number that only one of them
    # lacks could hide anything.
    expected = (base and head) if _of_two_systems(pairs) else (base or head)
    blank = EndpointResult(
        key=endpoint.key,
        name=endpoint.name,
        unit=endpoint.unit,
        verdict="not enough data" if expected or not pairs else "not measured",
        base_mean=_geometric_mean(base),
        head_mean=_geometric_mean(head),
        effect_percent=None,
        interval_percent=None,
        pair_deviation=None,
        tail=None,
        sign_flip_tail=None,
        pairs_to_settle=None,
        attributed="",
        base_runs=base,
        head_runs=head,
    )
    if len(ratios) < max(2, len(pairs)):
        return blank
    return _judged(blank, endpoint, ratios, growth, plan)


def _judged(
    blank: EndpointResult,
    endpoint: Endpoint,
    ratios: Floats,
    growth: Growths,
    plan: Spending,
) -> EndpointResult:
    pairs, mean, deviation = len(ratios), float(ratios.mean()), float(ratios.std(ddof=1))
    code = Code.NOT_ENOUGH_DATA
    if pairs >= plan.looks[0]:
        code = Code(judge(np.array([mean]), np.array([deviation]), pairs, plan)[0])
    half = float(half_widths(np.array([deviation]), pairs, plan)[0][0])
    error = deviation / math.sqrt(pairs)
    changed = code in (Code.REGRESSION, Code.IMPROVEMENT)
    open_ = code == Code.NOT_ENOUGH_DATA
    return msgspec.structs.replace(
        blank,
        verdict=WORDS[code],
        effect_percent=percent_of(mean),
        interval_percent=(percent_of(mean - half), percent_of(mean + half)),
        pair_deviation=deviation,
        tail=t_tail(mean / error if error else math.copysign(math.inf, mean), pairs - 1),
        sign_flip_tail=sign_flip_tail(ratios) if pairs <= _MOST_FLIPPED else None,
        pairs_to_settle=pairs_to_settle(mean, deviation, plan) if open_ else None,
        attributed=attribute(endpoint, growth, code == Code.REGRESSION) if changed else "",
    )


def _verdict(
    endpoints: Sequence[EndpointResult], events: Sequence[EventResult], voids: Voids
) -> tuple[Overall, ExitCode]:
    verdicts = {each.verdict for each in endpoints} | {each.verdict for each in events}
    if "regression" in verdicts or (too_many(voids) and voids.tail <= OF_VOIDS):
        return "regression", ExitCode.REGRESSION
    if too_many(voids):
        return "too many voids", ExitCode.INVALID_RUN
    measured = any(each.verdict != "not measured" for each in endpoints)
    if "not enough data" in verdicts or not measured or suspicious(voids):
        return "not enough data", ExitCode.NOT_ENOUGH_DATA
    return "not worse", ExitCode.PASS


def _attributed(endpoints: Sequence[EndpointResult]) -> str:
    """The attribution of the regression that is the least likely to be chance."""
    worse = [each for each in endpoints if each.verdict == "regression" and each.attributed]
    return min(worse, key=lambda each: each.tail or 0.0).attributed if worse else ""


def _errors(plan: Spending) -> Errors:
    return Errors(
        family=FAMILY_ERROR,
        difference=plan.difference_error,
        equivalence=plan.equivalence_error,
        event=plan.event_error,
        looks=list(plan.looks),
        least_effect_percent=round(100 * (plan.least_effect - 1), 6),
    )


def _described(pairs: Sequence[PairMeasures]) -> list[Described]:
    names = {
        name: None for pair in pairs for run in (pair.base, pair.head) for name in run.described
    }
    return [
        Described(
            name=name,
            base=_median(pair.base.described.get(name) for pair in pairs),
            head=_median(pair.head.described.get(name) for pair in pairs),
        )
        for name in names
    ]


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _geometric_mean(values: Sequence[float]) -> float | None:
    return math.exp(fmean(map(math.log, values))) if values else None
