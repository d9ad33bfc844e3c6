"""Where a change happened: the hop or component that carries at least half of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from loaddriver.compare.measures import SHARD_CPU, Endpoint, PairMeasures
from loaddriver.record.hops import HOPS

_HALF = 0.5
SECONDS_PER_POD, MILLISECONDS_PER_POD = "s/pod", "ms/pod"


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


def attribute(endpoint: Endpoint, found: Mapping[str, tuple[float, float]], worse: bool) -> str:
    """The part that carries at least half of a change for the worse, or for the better.

    "" if none does: where several parts change a little, none is to blame.
    """
    if endpoint.parts == (SHARD_CPU,):
        return SHARD_CPU
    sign = 1 if worse else -1
    growth = {
        name: sign * (found[name][1] - found[name][0]) for name in endpoint.parts if name in found
    }
    whole = sum(value for value in growth.values() if value > 0)
    largest = max(growth, key=lambda name: growth[name], default="")
    return largest if whole > 0 and growth[largest] >= _HALF * whole else ""
