"""How fast the machine was in each run, by the CPU of what both sides share. Pure.

A machine that others use is faster in one minute than in the next: the CPU that the same work takes
varies by a tenth from run to run, and all that takes CPU varies with it. kwok and
kube-controller-manager are no part of what is compared, and do the same for each pod; so do
BigFleet's controllers where two Kubernetes releases are compared. So whatever takes CPU is given
relative to what two of these took in the same run, which leaves a quarter of the noise of CPU and
half of that of waits. A reference that a change does not touch adds no bias. Runs that were played
at the same time met a machine of one speed, so that references would only add their own noise.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import msgspec
import numpy as np

from loaddriver.compare.comparison import MachineSpeed, Objection, Pairing
from loaddriver.compare.measures import (
    DUE_TO_BIND,
    ENDPOINTS,
    MACHINE_HOPS,
    REFERENCES,
    SCHEDULED,
    WRITES,
    Endpoint,
    PairMeasures,
    cpu_part,
)
from loaddriver.compare.sequential import percent_of, two_sided_tail

# One could have been made dearer by HEAD.
_TWO = 2
# Of fewer nobody knows how much they vary.
_LEAST_PAIRS = 3
# How rarely references that a change has not touched may seem to disagree, in both directions.
_DISAGREEMENT = 0.01
# In the mean of several pairs; equal systems' pairs differ by 1 %.
_MOST_CHANGE_OF_WRITES = math.log(1.02)
# Waits do not grow as CPU does; over interleaved pairs this is noise, elsewhere a bias.
_MOST_CHANGE_OF_SPEED = math.log(1.05)
_WAITS = (DUE_TO_BIND, SCHEDULED)


def machine_speed(pairs: Sequence[PairMeasures], pairing: Pairing = "interleaved") -> MachineSpeed:
    """How much slower the machine was for HEAD, and whether that can be told."""
    names = [name for name in REFERENCES if pairs and all(name in p.shared for p in pairs)][:_TWO]
    changes = {name: float(np.mean([pair.shared[name] for pair in pairs])) for name in names}
    mean = float(np.mean([*changes.values()])) if names else 0.0
    unusable = "at once" if pairing == "at once" else _objection(pairs, names)
    return MachineSpeed(
        components={name: percent_of(change) for name, change in changes.items()},
        unusable=unusable,
        slower_percent=percent_of(mean),
        waits_left_out=pairing == "on disk" and not unusable and abs(mean) > _MOST_CHANGE_OF_SPEED,
    )


def _objection(pairs: Sequence[PairMeasures], names: Sequence[str]) -> Objection:
    """Why the speed cannot be told; "" if it can.

    Two references as well could have been made dearer by HEAD, which shows in the writes.
    """
    if len(names) < _TWO or len(pairs) < _LEAST_PAIRS:
        return "unknown"
    one, other = names
    apart = np.array([pair.shared[one] - pair.shared[other] for pair in pairs])
    if two_sided_tail(apart) <= _DISAGREEMENT:
        return "disagreement"
    writes = [_log_ratio(pair, WRITES) for pair in pairs]
    known = [change for change in writes if change is not None]
    if known and abs(float(np.mean(known))) > _MOST_CHANGE_OF_WRITES:
        return "writes"
    return ""


def _log_ratio(pair: PairMeasures, described: str) -> float | None:
    base, head = (run.described.get(described) for run in (pair.base, pair.head))
    return math.log(head / base) if base and head else None


def relative(pairs: Sequence[PairMeasures], speed: MachineSpeed) -> list[PairMeasures]:
    """The pairs with what takes CPU relative to the machine's speed, if that is used."""
    if not speed.used:
        return list(pairs)
    references = {
        endpoint.key: [name for name in speed.components if not _consists_of(endpoint, name)]
        for endpoint in ENDPOINTS
        if endpoint.takes_cpu
    }
    if speed.waits_left_out:
        pairs = [_without(pair, _WAITS) for pair in pairs]
    found = []
    for pair in pairs:
        ratios = dict(pair.ratios)
        for key in references.keys() & ratios.keys():
            ratios[key] -= float(np.mean([pair.shared[name] for name in references[key]]))
        found.append(msgspec.structs.replace(pair, ratios=ratios))
    return found


def _consists_of(endpoint: Endpoint, reference: str) -> bool:
    """Whether the reference is a part of the endpoint, which would be compared with itself."""
    return any(cpu_part(component) in endpoint.parts for component in REFERENCES[reference])


def _without(pair: PairMeasures, keys: Collection[str]) -> PairMeasures:
    kept = {key: value for key, value in pair.ratios.items() if key not in keys}
    return msgspec.structs.replace(pair, ratios=kept)


def relative_parts(
    parts: Mapping[str, tuple[float, float]], speed: MachineSpeed
) -> dict[str, tuple[float, float]]:
    """The parts of BASE and HEAD, HEAD's as on a machine that was as fast as for BASE."""
    factor = 1 / (1 + speed.slower_percent / 100) if speed.used else 1.0
    return {
        name: (base, head if name in MACHINE_HOPS else head * factor)
        for name, (base, head) in parts.items()
    }
