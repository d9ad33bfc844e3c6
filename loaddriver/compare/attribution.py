"""Where a change happened: the hop or component that carries at least half of it. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import TypeAlias

from loaddriver.compare.comparison import MachineSpeed
from loaddriver.compare.machine_speed import relative_parts
from loaddriver.compare.measures import (
    DUE_TO_BIND,
    ENDPOINTS,
    SHARD_CPU,
    Endpoint,
    PairMeasures,
    RunMeasures,
)
from loaddriver.record.hops import HOPS

_HALF = 0.5
SECONDS_PER_POD, MILLISECONDS_PER_POD = "s/pod", "ms/pod"

Growths: TypeAlias = Mapping[str, Mapping[str, float]]
"""By endpoint and part, how much more of the endpoint the part is in HEAD."""


def changes(pairs: Sequence[PairMeasures]) -> dict[str, tuple[float, float]]:
    """The mean of each part over the pairs, for BASE and HEAD; hops first, then components."""
    names = {name: None for pair in pairs for side in (pair.base, pair.head) for name in side.parts}
    order = [hop for hop in HOPS if hop in names]
    order += sorted(name for name in names if name not in order)
    return {
        name: (
            fmean(pair.base.parts.get(name, 0.0) for pair in pairs),
            fmean(pair.head.parts.get(name, 0.0) for pair in pairs),
        )
        for name in order
    }


def unit_of(part: str) -> str:
    """The unit of a part."""
    return SECONDS_PER_POD if part in HOPS else MILLISECONDS_PER_POD


def growths(
    pairs: Sequence[PairMeasures],
    parts: Mapping[str, tuple[float, float]],
    speed: MachineSpeed,
) -> Growths:
    """The growth of each endpoint's parts, whose means are `parts`."""
    found: dict[str, Mapping[str, float]] = {
        endpoint.key: {
            name: parts[name][1] - parts[name][0] for name in endpoint.parts if name in parts
        }
        for endpoint in ENDPOINTS
    }
    found[DUE_TO_BIND] = _mean(hop_growth(pair.base, pair.head, speed) for pair in pairs)
    return found


def hop_growth(base: RunMeasures, head: RunMeasures, speed: MachineSpeed) -> dict[str, float]:
    """By hop, its part of the mean log ratio of both runs' waits, over the objects of both.

    The endpoint is a geometric mean, in which 0.1 s more is much for a pod that waits 0.1 s and
    nothing for one that waits a minute; so seconds are relative to the object's own wait. With the
    logarithmic mean of the object's two waits the parts add up exactly to its log ratio: this is
    the logarithmic mean Divisia index (B. W. Ang, Energy Policy 32, 2004).
    """
    matched = base.hops.keys() & head.hops.keys()
    found: defaultdict[str, float] = defaultdict(float)
    for key in matched:
        before, after = base.hops[key], head.hops[key]
        both = relative_parts({hop: (before[hop], after[hop]) for hop in HOPS}, speed)
        waits = [sum(each[side] for each in both.values()) for side in (0, 1)]
        if min(waits) <= 0:
            continue
        weight = len(matched) * _logarithmic_mean(*waits)
        for hop, (one, other) in both.items():
            found[hop] += (other - one) / weight
    return found


def attribute(endpoint: Endpoint, found: Growths, worse: bool) -> str:
    """The part that carries at least half of a change for the worse, or for the better.

    "" if none does: where several parts change a little, none is to blame.
    """
    sign = 1 if worse else -1
    growth = {name: sign * value for name, value in found[endpoint.key].items()}
    if len(endpoint.parts) == 1:
        (part,) = endpoint.parts
        # A decision may cost more only because there are fewer of them.
        dearer_by_decision = part == SHARD_CPU and growth.get(part, 0.0) <= 0
        return "" if dearer_by_decision else part
    whole = sum(value for value in growth.values() if value > 0)
    largest = max(growth, key=lambda name: growth[name], default="")
    return largest if whole > 0 and growth[largest] >= _HALF * whole else ""


def _mean(each_pair: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Of the pairs that have matched objects."""
    growth = [each for each in each_pair if each]
    return {hop: fmean(each[hop] for each in growth) for hop in HOPS} if growth else {}


def _logarithmic_mean(one: float, other: float) -> float:
    return one if one == other else (other - one) / math.log(other / one)
