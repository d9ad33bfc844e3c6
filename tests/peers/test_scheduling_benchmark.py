"""What the benchmark beside Karpenter's scheduler counts as served can run."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bigfleet.engine.snapshot import EngineConfig
from tests.peers.scheduling.decided import decide_for, faults
from tests.peers.scheduling.workload import KINDS, make_pods


def test_all_kinds_of_pods_are_equally_many() -> None:
    """As in Karpenter's benchmark."""
    kinds = Counter(
        next(kind for kind in KINDS if pod["metadata"]["labels"]["app"].startswith(kind))
        for pod in make_pods(100)
    )
    assert kinds == dict.fromkeys(KINDS, 20)


@pytest.mark.parametrize("growth", [0.0, 0.1])
def test_every_pod_has_a_place_that_kube_scheduler_would_accept(growth: float) -> None:
    """Sizes, zones and Nodes are checked pod by pod."""
    decided = decide_for(make_pods(200), EngineConfig(growth=growth))
    assert decided.unplaced == 0
    assert [*faults(decided.fleet, decided.demand, decided.placements)] == []


def test_a_place_that_kube_scheduler_would_refuse_is_told() -> None:
    """All machines small and in one zone; and then all pods on one machine."""
    decided = decide_for(make_pods(200), EngineConfig())
    small = replace(decided.fleet, flavour=np.zeros_like(decided.fleet.flavour))
    told = " ".join(faults(small, decided.demand, decided.placements))
    assert "holds more than its allocatable" in told
    assert "zone-spread pods" in told
    placements = decided.placements
    one = placements._replace(row=np.zeros_like(placements.row))
    told = " ".join(faults(decided.fleet, decided.demand, one))
    assert "host-spread pods" in told
    assert "host-anti-affinity pods" in told
    many = placements._replace(row=np.arange(len(placements.row), dtype=np.int32))
    told = " ".join(faults(decided.fleet, decided.demand, many))
    assert "zone-affinity pods" in told


def test_pods_that_keep_apart_need_as_many_machines() -> None:
    """A fifth of the pods; and each machine has its price."""
    decided = decide_for(make_pods(200), EngineConfig())
    assert decided.machines >= 40
    assert decided.dollars_per_hour >= 0.31 * decided.machines


def test_the_scheduler_is_of_the_karpenter_that_runs_are_measured_with() -> None:
    """Otherwise the two comparisons would be about different releases."""
    root = Path(__file__).parents[2]
    modules = "controlplane/modules/karpenter", "tests/peers/scheduling"
    lines = [(root / folder / "go.mod").read_text().splitlines() for folder in modules]
    one, other = ([each for each in found if "/karpenter v" in each] for found in lines)
    assert one == other
    assert len(one) == 1
