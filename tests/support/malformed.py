"""Malformed roll-ups and machine records, generated from a seed."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from bigfleet.api.v1alpha1 import capacity_pb2 as capacity
from bigfleet.api.v1alpha1 import provider_pb2 as provider

_NAMES = ("", "cpu", "memory", "nvidia.com/gpu", "pods", "x" * 300, "räck", "\x00", "zone")
_QUANTITIES = (
    "", "0", "1", "-1", "-0", "500m", "NaN", "inf", "1e99", "1e-99", "9" * 39,
    "4611686018427387904", "2Ei", "1Gi", "0.0000001", "1_000", " 1", "0x10", "1e", "٣",
)  # fmt: skip
_INTS = (0, 1, 2, -1, 5, 27, 28, 999, 2**31 - 1, -(2**31))
_PRICES = (0.0, 1.0, math.nan, math.inf, -math.inf, -1.0, 1e308, 5e-324)


def _some(draw: random.Random, choices: Sequence[str], most: int) -> list[str]:
    return [draw.choice(choices) for _ in range(draw.randint(0, most))]


def _amounts(draw: random.Random) -> dict[str, str]:
    return {name: draw.choice(_QUANTITIES) for name in _some(draw, _NAMES, 4)}


def _requirement(draw: random.Random) -> capacity.NodeSelectorRequirement:
    return capacity.NodeSelectorRequirement(
        key=draw.choice(_NAMES),
        operator=capacity.NodeSelectorRequirement.Operator.ValueType(draw.choice(_INTS)),
        values=_some(draw, _NAMES, 3),
    )


def _spread(draw: random.Random) -> capacity.TopologySpread:
    return capacity.TopologySpread(
        topology_key=draw.choice(_NAMES),
        max_skew=draw.choice(_INTS),
        when_unsatisfiable=capacity.TopologySpread.WhenUnsatisfiable.ValueType(draw.choice(_INTS)),
    )


def need(draw: random.Random) -> capacity.CapacityNeed:
    """A need in which each field may be absurd."""
    return capacity.CapacityNeed(
        requirements=[_requirement(draw) for _ in range(draw.randint(0, 3))],
        aggregate_resources=_amounts(draw),
        priority=draw.choice(_INTS),
        spread=[_spread(draw) for _ in range(draw.randint(0, 2))],
        interruption_penalty_bucket=capacity.PenaltyBucket.ValueType(draw.choice(_INTS)),
        reclamation_penalty_bucket=capacity.PenaltyBucket.ValueType(draw.choice(_INTS)),
        min_unit=_amounts(draw),
        group=draw.choice(("", "g", "folded:", "x" * 5000)),
    )


def plausible_need(draw: random.Random) -> capacity.CapacityNeed:
    """A need that is accepted, at the edge of what makes sense."""
    keys = ("topology.kubernetes.io/zone", "topology.bigfleet/rack", "nowhere")
    operator = draw.choice((3, 4, 5))
    amounts = ("1", "1m", "4", "1000000", "2Pi")
    return capacity.CapacityNeed(
        requirements=[
            capacity.NodeSelectorRequirement(
                key=draw.choice(keys),
                operator=capacity.NodeSelectorRequirement.Operator.ValueType(operator),
            )
        ],
        aggregate_resources={"cpu": draw.choice(amounts), "memory": draw.choice(amounts)},
        priority=draw.choice((0, 5, 2**31 - 1, -(2**31))),
        spread=[
            capacity.TopologySpread(
                topology_key=draw.choice(keys),
                max_skew=draw.choice((1, 2**31 - 1)),
                when_unsatisfiable=capacity.TopologySpread.DO_NOT_SCHEDULE,
            )
        ],
        interruption_penalty_bucket=capacity.PenaltyBucket.ValueType(draw.choice((1, 26, 27))),
        reclamation_penalty_bucket=capacity.PenaltyBucket.ValueType(draw.choice((1, 26, 27))),
        min_unit={"cpu": draw.choice(amounts), "unheard-of": draw.choice(("0", "1"))},
        group=draw.choice(("", "a", "b")),
    )


def machine(draw: random.Random) -> provider.Machine:
    """A machine's record in which each field may be absurd."""
    return provider.Machine(
        id=draw.choice(("", "m-1", "m-1", "m-2", "x" * 37, "mäx", "a\nb", "m-3")),
        state=provider.MachineState.ValueType(draw.choice(_INTS)),
        instance_type=draw.choice(_NAMES),
        zone=draw.choice(_NAMES),
        capacity_type=provider.CapacityType.ValueType(draw.choice(_INTS)),
        price_per_hour=draw.choice(_PRICES),
        interruption_probability=draw.choice((*_PRICES, 0.5)),
        resources=provider.Resources(resources=_amounts(draw)),
        allocatable=provider.Resources(resources=_amounts(draw)),
        labels={name: draw.choice(_NAMES) for name in _some(draw, _NAMES, 3)},
        cluster=draw.choice(("", "east", "x" * 1000)),
        host=provider.HostRef(provider="p", ref=draw.choice(("", "h"))),
        last_error=draw.choice(("", "e" * 10_000)),
        shard_metadata={draw.choice(_NAMES): "?", "bigfleet.lucy.sh/assigned-priority": "1e9"},
    )
