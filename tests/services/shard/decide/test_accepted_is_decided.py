"""What a shard accepts it decides about: over whole roll-ups, at every limit there is."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from hypothesis import Phase, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from bigfleet.api.v1alpha1 import capacity_pb2
from bigfleet.model.machine import Machine
from tests.support.deciding_rig import play
from tests.support.wire_strategies import CLUSTERS, fleets, rollups


class World:
    """What a shard is given; shown in short, because whole roll-ups fill screens."""

    def __init__(
        self, fleet: Sequence[Machine], history: Sequence[capacity_pb2.ClusterCapacityNeeds]
    ) -> None:
        self.fleet, self.history = fleet, history

    def __repr__(self) -> str:
        return f"{self.fleet} {[str(rollup)[:2000] for rollup in self.history]}"[:20_000]


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Some machines, and up to four roll-ups of two clusters."""
    of = draw(st.lists(st.sampled_from(CLUSTERS), min_size=1, max_size=4))
    return World(draw(fleets()), [draw(rollups(cluster)) for cluster in of])


# Each example takes several decisions: to make a failing one smaller would take minutes.
@hypothesis_settings(max_examples=60, phases=[Phase.explicit, Phase.generate])
@given(worlds())
def test_every_roll_up_that_makes_sense_is_accepted_and_decided(world: World) -> None:
    """Sums beyond 64 bits, as many sizes as may be, gangs, spreads, penalties, strange labels,
    cordoned machines and DaemonSets, of two clusters at once: no error, nothing in quarantine.
    """
    asyncio.run(play(world.fleet, world.history))
