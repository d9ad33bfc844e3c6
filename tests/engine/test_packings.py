"""Clusters that are placed in one call."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bigfleet.engine.columns import columns_of
from bigfleet.engine.cycle_memory import CycleMemory
from bigfleet.engine.decide import decide
from bigfleet.engine.snapshot import Demand
from bigfleet.engine.state import packings
from bigfleet.engine.state.cluster_packing import ClusterPacking
from bigfleet.engine.state.cycle_state import CycleState
from bigfleet.model.need import NodeOverhead, Operator, Requirement
from tests.engine.engine_pods import daemons, pods
from tests.engine.engine_random import case_with_memory
from tests.engine.engine_rig import NOW, SETTINGS, configured, demand_of, fleet_of


@pytest.mark.parametrize("first", range(0, 120, 30))
def test_pods_lie_where_they_lie_when_each_cluster_is_placed_alone(
    monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    """One call for all clusters of a priority only saves time."""
    calls = []

    def counted(self: packings.Packings, clusters: Any, *rest: Any) -> None:
        calls.append(len(clusters))
        in_one_call(self, clusters, *rest)

    in_one_call = packings.Packings._place_together
    monkeypatch.setattr(packings.Packings, "_place_together", counted)
    cases = [case_with_memory(seed) for seed in range(first, first + 30)]
    together = [decide(*case, SETTINGS, NOW) for case in cases]
    assert max(calls) > 1
    number = len(calls)

    def alone(*columns: Any, **_common: bool) -> ClusterPacking:
        return ClusterPacking(*columns)

    monkeypatch.setattr(packings, "ClusterPacking", alone)
    for case, found in zip(cases, together, strict=True):
        other = decide(*case, SETTINGS, NOW)
        assert other.actions == found.actions
        assert other.cycle_memory == found.cycle_memory
        assert np.array_equal(other.claimed_by, found.claimed_by)
        pairs: Any = zip(other.find_placements(), found.find_placements(), strict=True)
        assert all(np.array_equal(column, same) for column, same in pairs)
    assert len(calls) == number


def test_machines_are_interchangeable_only_as_the_daemon_sets_are_now() -> None:
    """What an earlier decision found of the same flavours does not count."""
    plain = fleet_of([configured(name, labels={"model": name}) for name in ("a", "b")])
    fleet = replace(plain, flavours=columns_of(plain.flavours))

    def kinds(overhead: NodeOverhead) -> list[int]:
        demand: Demand = replace(
            demand_of(fleet, [("east", pods((1, 1)))]), overheads={0: [overhead]}
        )
        state = CycleState(fleet, demand, CycleMemory(), SETTINGS, NOW)
        return [int(kind) for kind in state.packings[0].kind]

    assert len({*kinds(daemons(1))}) == 1
    assert len({*kinds(daemons(1, Requirement("model", Operator.IN, ("b",))))}) == 2
