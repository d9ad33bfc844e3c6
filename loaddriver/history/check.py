"""Whether a run is as good as its machine's history: a weaker test than interleaved pairs. Pure.

A single run is held against the stored runs of one profile on one machine: by the interval in
which a further run of the same kind would lie, with the rules and the errors of comparisons.
Whatever has changed about the machine since then counts as the revision's doing, so only runs at
the same calibration are taken, and nothing is said where they are too few.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import numpy as np

from loaddriver.compare.measures import ENDPOINTS, EVENTS
from loaddriver.compare.sequential import (
    LOOKS,
    WORDS,
    Code,
    Spending,
    half_widths,
    judge,
    percent_of,
)
from loaddriver.errors import ExitCode
from loaddriver.history.record import Line

FEWEST, MOST = LOOKS[0], 20
"""How many stored runs are needed, and how many of the newest ones are taken."""
# Gates are not among them: they do not change what is measured.
_SAME_LOAD = ("plan", "profile", "catalog", "machines")
_OWN_VERSION = "bigfleet"


@dataclass(frozen=True)
class Finding:
    """What is known of one endpoint, or of one event."""

    code: Code
    sentence: str


@dataclass(frozen=True)
class Check:
    """The outcome: 0 same or better, 4 regression, 7 not enough data."""

    exit_code: ExitCode
    baseline: tuple[Line, ...]
    sentences: tuple[str, ...]


def check(run: Line, history: Sequence[Line], least_effect: float) -> Check:
    """Hold a valid run against the stored ones; `least_effect` is a ratio above 1."""
    baseline = baseline_of(run, history)
    if len(baseline) < FEWEST:
        return Check(ExitCode.NOT_ENOUGH_DATA, baseline, (_too_few(run, history, baseline),))
    plan = Spending(least_effect, (len(baseline),))
    found = [*_endpoints(run, baseline, plan), *_events(run, baseline)]
    found.sort(key=lambda each: -(each.code is Code.REGRESSION))
    codes = {each.code for each in found}
    exit_code = ExitCode.PASS
    if Code.REGRESSION in codes:
        exit_code = ExitCode.REGRESSION
    elif Code.NOT_ENOUGH_DATA in codes:
        exit_code = ExitCode.NOT_ENOUGH_DATA
    return Check(exit_code, baseline, tuple(each.sentence for each in found))


def baseline_of(run: Line, history: Sequence[Line]) -> tuple[Line, ...]:
    """The newest runs that this one can be compared with."""
    return tuple(line for line in history if not _obstacle(run, line))[-MOST:]


def _obstacle(run: Line, line: Line) -> str:
    """Why a stored run cannot be compared with this one; "" if it can."""
    if line.revision == run.revision:
        return "of the same revision"
    if line.dirty is not False:
        return "of a checkout with changes"
    if not line.is_valid:
        return "invalid"
    if line.machine.id != run.machine.id:
        return "of another machine"
    if not line.machine.matches(run.machine):
        return "of the machine at another speed (calibration)"
    if any(line.inputs.get(name) != run.inputs.get(name) for name in _SAME_LOAD):
        return "of another plan, profile or provider"
    if _others(line.versions) != _others(run.versions):
        return "with other versions of Kubernetes or its parts"
    return ""


def _others(versions: dict[str, str]) -> dict[str, str]:
    return {name: version for name, version in versions.items() if name != _OWN_VERSION}


def _too_few(run: Line, history: Sequence[Line], baseline: Sequence[Line]) -> str:
    reasons = [why for line in history if (why := _obstacle(run, line))]
    counted = [f"{reasons.count(why)} {why}" for why in dict.fromkeys(reasons)]
    others = f"; of the others, {', '.join(counted)}" if counted else ""
    return (
        f"{len(baseline)} of {len(history)} stored runs can be compared with {run.run}, and "
        f"{FEWEST} are needed{others}"
    )


def _endpoints(run: Line, baseline: Sequence[Line], plan: Spending) -> Iterator[Finding]:
    for endpoint in ENDPOINTS:
        stored = [
            math.log(line.endpoints[endpoint.key])
            for line in baseline
            if endpoint.key in line.endpoints
        ]
        if endpoint.key not in run.endpoints or len(stored) < FEWEST:
            if endpoint.key in run.endpoints or stored:
                own = "" if endpoint.key in run.endpoints else " and not in this one"
                known = f"measured in {len(stored)} stored runs{own}"
                yield Finding(Code.NOT_ENOUGH_DATA, f"{endpoint.name}: {known}")
            continue
        now = run.endpoints[endpoint.key]
        yield _judged(endpoint.name, f"{now:.4g} {endpoint.unit}", math.log(now), stored, plan)


def _judged(name: str, shown: str, now: float, stored: Sequence[float], plan: Spending) -> Finding:
    """By the interval of a further run: as wide as that of a mean, times sqrt(n + 1)."""
    runs, change = len(stored), now - fmean(stored)
    deviation = np.array([stdev(stored) * math.sqrt(runs + 1)])
    code = Code(int(judge(np.array([change]), deviation, runs, plan)[0]))
    width = float(half_widths(deviation, runs, plan)[0][0])
    return Finding(
        code,
        f"{name}: {WORDS[code]}, {shown}, {_percent(change)} ({_percent(change - width)} to "
        f"{_percent(change + width)}) against {runs} stored runs",
    )


def _events(run: Line, baseline: Sequence[Line]) -> Iterator[Finding]:
    """What happened in this run. One run proves no regression, but may have more than any other."""
    for key, name in EVENTS.items():
        if not (count := run.events.get(key, 0)):
            continue
        before = [line.events.get(key, 0) for line in baseline]
        as_many = sum(each >= count for each in before)
        yield Finding(
            Code.SAME if as_many else Code.NOT_ENOUGH_DATA,
            f"{name}: {count} in this run, as many in {as_many} and some in "
            f"{sum(each > 0 for each in before)} of {len(baseline)} stored runs",
        )


def _percent(logarithm: float) -> str:
    return f"{percent_of(logarithm):+.1f} %"
