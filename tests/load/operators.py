"""Very many clusters whose needs each take one machine, and their operators."""

from __future__ import annotations

import asyncio
import random
from collections.abc import MutableSequence, Sequence

from bigfleet.api.need_codec import need_from_wire
from bigfleet.api.v1alpha1 import capacity_pb2
from bigfleet.services.shard.fleet.assignment import to_metadata
from loaddriver.wire.operators import Operator, Rhythm, Tally
from tests.support.many_machines import TYPES

LEAST_NEEDS, MOST_NEEDS = 30, 300
CHANGED_SHARE = 0.01
ARRIVE_WITHIN_SECONDS = 30.0
_ZERO = capacity_pb2.PenaltyBucket.ValueType(1)


def machine_for(cluster: int, number: int, clusters: int) -> int:
    """The number of the stand-in's machine that just serves a need."""
    return number * clusters + cluster


def need(
    cluster: int, number: int, clusters: int, generation: int = 0
) -> capacity_pb2.CapacityNeed:
    """One of a cluster's needs: a profile that other clusters have too, in a group of its own.

    Each asks for most of one machine, so that it is served by one; a later generation asks for a
    little more.
    """
    kind = machine_for(cluster, number, clusters) % TYPES
    cpu = 2 ** (kind % 4 + 1) * 1000 - 900 + generation % 500
    return capacity_pb2.CapacityNeed(
        requirements=[
            capacity_pb2.NodeSelectorRequirement(
                key="node.kubernetes.io/instance-type",
                operator=capacity_pb2.NodeSelectorRequirement.IN,
                values=[f"t{kind}.large"],
            )
        ],
        aggregate_resources={"cpu": f"{cpu}m", "memory": "1Gi"},
        min_unit={"cpu": "100m", "memory": "64Mi"},
        priority=1000 * (number % 5),
        interruption_penalty_bucket=_ZERO,
        reclamation_penalty_bucket=_ZERO,
        group=f"g{number}",
    )


def bound_machines(operators: Sequence[LoadOperator]) -> dict[int, dict[str, str]]:
    """The machines that serve all needs, by number, each with the metadata that binds it."""
    return {
        machine_for(cluster, number, len(operators)): to_metadata(need_from_wire(each, "need"))
        for cluster, operator in enumerate(operators)
        for number, each in enumerate(operator.needs)
    }


def operators_of(
    count: int, period_seconds: float, tally: Tally, *, fickle: bool = True
) -> list[LoadOperator]:
    """So many clusters' operators; `fickle` ones change a few of their needs from roll-up to
    roll-up.
    """
    return [LoadOperator(n, count, period_seconds, tally, fickle=fickle) for n in range(count)]


class LoadOperator:
    """One cluster's operator with 30 to 300 needs."""

    def __init__(
        self, number: int, of: int, period_seconds: float, tally: Tally, *, fickle: bool = True
    ) -> None:
        self._number, self._of, self._generation = number, of, 0
        choice = random.Random(number)
        self.needs = [need(number, at, of) for at in range(choice.randint(LEAST_NEEDS, MOST_NEEDS))]
        self._tally, self._fickle, self._period_seconds = tally, fickle, period_seconds

    async def run(self, address: str) -> None:
        """Until cancelled. They come one after another: all at once, they would time this process
        and not the shard.
        """
        changing = asyncio.Event()
        if self._fickle:
            changing.set()
        operator = Operator(
            f"cluster-{self._number:04d}",
            self.needs,
            lambda: [address],
            None,
            Rhythm(self._period_seconds, self._change, changing),
            self._tally,
        )
        await operator.run(self._number / self._of * ARRIVE_WITHIN_SECONDS)

    def _change(
        self, needs: MutableSequence[capacity_pb2.CapacityNeed], choice: random.Random
    ) -> None:
        self._generation += 1
        for _ in range(max(1, int(CHANGED_SHARE * len(needs)))):
            chosen = choice.randrange(len(needs))
            needs[chosen].CopyFrom(need(self._number, chosen, self._of, self._generation))
