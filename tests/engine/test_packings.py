"""Clusters that are placed in one call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bigfleet.engine.decide import decide
from bigfleet.engine.state import packings
from bigfleet.engine.state.cluster_packing import ClusterPacking
from tests.engine.engine_random import case_with_memory
from tests.engine.engine_rig import NOW, SETTINGS


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
