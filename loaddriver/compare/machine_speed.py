"""How fast the machine was in each run, by the CPU of what both sides share. Pure.

A machine that others use is faster in one minute than in the next: the CPU that the same work takes
varies by a tenth from run to run, and all that takes CPU varies with it. kwok and
kube-controller-manager are no part of what is compared, and do the same for each pod. So whatever
takes CPU is given relative to what they took in the same run, which leaves a quarter of the noise
of CPU and half of that of waits. A reference that a change does not touch adds no bias.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from loaddriver.compare.comparison import MachineSpeed
from loaddriver.compare.measures import ENDPOINTS, MACHINE_HOPS, SHARED, PairMeasures
from loaddriver.distributions import t_tail

# Of one pair nobody knows how much it varies.
_LEAST_PAIRS = 3
# How rarely references that a change has not touched may seem to disagree, in both directions.
_DISAGREEMENT = 0.01


def machine_speed(pairs: Sequence[PairMeasures]) -> MachineSpeed:
    """How much slower the machine was for HEAD, and whether that can be told."""
    names = [name for name in SHARED if pairs and all(name in pair.shared for pair in pairs)]
    changes = {name: float(np.mean([pair.shared[name] for pair in pairs])) for name in names}
    percents = {name: 100 * math.expm1(change) for name, change in changes.items()}
    agree = _agree(pairs, names)
    mean = float(np.mean([*changes.values()])) if names else 0.0
    return MachineSpeed(
        components=percents, used=bool(names) and agree, slower_percent=100 * math.expm1(mean)
    )


def _agree(pairs: Sequence[PairMeasures], names: Sequence[str]) -> bool:
    """Whether the components changed alike: else HEAD makes one of them do more, or less."""
    if len(names) < len(SHARED) or len(pairs) < _LEAST_PAIRS:
        return True
    one, other = names
    apart = np.array([pair.shared[one] - pair.shared[other] for pair in pairs])
    error = float(apart.std(ddof=1)) / math.sqrt(len(apart))
    if not error:
        return not apart.any()
    return 2 * t_tail(abs(float(apart.mean())) / error, len(apart) - 1) > _DISAGREEMENT


def relative(pairs: Sequence[PairMeasures], speed: MachineSpeed) -> list[PairMeasures]:
    """The pairs with what takes CPU relative to the machine's speed, if that is used."""
    if not speed.used:
        return list(pairs)
    takes_cpu = {endpoint.key for endpoint in ENDPOINTS if endpoint.takes_cpu}
    found = []
    for pair in pairs:
        slower = float(np.mean([pair.shared[name] for name in speed.components]))
        ratios = {
            key: value - slower if key in takes_cpu else value for key, value in pair.ratios.items()
        }
        found.append(msgspec.structs.replace(pair, ratios=ratios))
    return found


def relative_parts(
    parts: Mapping[str, tuple[float, float]], speed: MachineSpeed
) -> dict[str, tuple[float, float]]:
    """The parts of BASE and HEAD, HEAD's as on a machine that was as fast as for BASE."""
    factor = 1 / (1 + speed.slower_percent / 100) if speed.used else 1.0
    return {
        name: (base, head if name in MACHINE_HOPS else head * factor)
        for name, (base, head) in parts.items()
    }
