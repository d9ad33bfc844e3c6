"""Which waiting pods fit on the upcoming machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from bigfleet.controllers.pod_controller.nodes import Machine
from bigfleet.controllers.pod_controller.shapes import Shape
from bigfleet.controllers.pod_controller.upcoming import unplaced_pods
from bigfleet.model import resources
from bigfleet.model.labels import HOSTNAME_LABEL
from bigfleet.model.need import Taint
from tests.controllers.pod_rig import ZONE, anti_affinity_terms, cluster, node, peers, shape, spread


def _machine(cpu: str = "8", pods: int = 110, **labels: str) -> Machine:
    size = resources.parse_capacity({"cpu": cpu, "memory": "64Gi", "pods": str(pods)})
    return Machine({ZONE: "a", **labels}, size, ())


def _anywhere(_: Shape) -> Sequence[Mapping[str, Any]]:
    return ()


def test_a_machine_takes_as_many_as_fit() -> None:
    waits = shape("3")
    assert unplaced_pods([_machine()], {waits: 5}, _anywhere) == {waits: 3}
    assert unplaced_pods([_machine(), _machine()], {waits: 5}, _anywhere) == {waits: 1}
    assert unplaced_pods([_machine(pods=1)], {waits: 5}, _anywhere) == {waits: 4}
    assert unplaced_pods([], {waits: 5}, _anywhere) == {waits: 5}


def test_the_largest_pods_are_placed_first_and_leave_the_rest_to_the_small() -> None:
    small, large = shape("1"), shape("6")
    assert unplaced_pods([_machine()], {small: 4, large: 1}, _anywhere) == {large: 0, small: 2}


def test_a_machine_for_other_pods_delays_no_pod() -> None:
    """By its taints, labels or size it is for others."""
    waits = shape("2", nodeSelector={"zone": "b"})
    tainted = Machine({}, _machine().allocatable, (Taint("gpu", "", "NoSchedule"),))
    assert unplaced_pods([_machine(zone="a")], {waits: 1}, _anywhere) == {waits: 1}
    assert unplaced_pods([tainted], {(plain := shape("2")): 1}, _anywhere) == {plain: 1}
    assert unplaced_pods([_machine("1")], {plain: 1}, _anywhere) == {plain: 1}


def test_pods_that_keep_apart_by_hostname_get_a_machine_each() -> None:
    waits = shape("1", **anti_affinity_terms(peers(HOSTNAME_LABEL)))
    assert unplaced_pods([_machine(), _machine()], {waits: 3}, _anywhere) == {waits: 1}


@pytest.mark.parametrize(("zone", "left"), [("a", 1), ("b", 0), (None, 0)])
def test_a_machine_in_a_zone_where_a_pod_must_not_run_does_not_count(
    zone: str | None, left: int
) -> None:
    """One without a zone may be in any."""
    waits = shape("1", **spread(ZONE))
    there = cluster([node("n1", zone="a"), node("n2", zone="b")], (waits, "n1", 1), (waits, "", 1))
    labels = {ZONE: zone} if zone else {}
    there.set_upcoming("m", Machine(labels, _machine().allocatable, ()))
    assert there.unplaced_pods() == {waits: left}
