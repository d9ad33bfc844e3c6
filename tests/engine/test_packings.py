"""Clusters that are placed in one call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bigfleet.engine.cycle_memory import CycleMemory
from bigfleet.engine.decide import decide
from bigfleet.engine.decision import Decision
from bigfleet.engine.snapshot import NONE, Demand, Longs
from bigfleet.engine.state import packings
from bigfleet.engine.state.cycle_state import CycleState
from bigfleet.engine.state.packing_order import ClassesInOrder
from bigfleet.engine.state.packings import Packings
from bigfleet.model.need import Need, NodeOverhead, Operator, Requirement, Size
from tests.engine.engine_pods import daemons, pods
from tests.engine.engine_random import Case, case_with_memory
from tests.engine.engine_rig import (
    NOW,
    SETTINGS,
    comparable,
    configured,
    demand_of,
    fleet_of,
    remembering,
)


@pytest.mark.parametrize("first", range(0, 120, 30))
def test_pods_lie_where_they_lie_when_each_cluster_is_placed_alone(
    monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    """One call for all clusters of a priority only saves time."""
    calls = []

    def counted(self: Packings, orders: ClassesInOrder, priority: int) -> None:
        calls.append(len(orders.clusters))
        in_one_call(self, orders, priority)

    in_one_call = Packings.place
    monkeypatch.setattr(Packings, "place", counted)
    cases = [case_with_memory(seed) for seed in range(first, first + 30)]
    together = [decide(*case, SETTINGS, NOW) for case in cases]
    assert max(calls) > 1

    def alone(self: Packings, orders: ClassesInOrder, priority: int) -> None:
        for cluster, order in orders:
            self[cluster].place(order, priority)

    monkeypatch.setattr(Packings, "place", alone)
    for case, found in zip(cases, together, strict=True):
        _are_equal(decide(*case, SETTINGS, NOW), found)


def _are_equal(one: Decision, other: Decision) -> None:
    assert comparable(one) == comparable(other)
    pairs: Any = zip(one.find_placements(), other.find_placements(), strict=True)
    assert all(np.array_equal(column, same) for column, same in pairs)


class _Kernel:
    """Counts in how many clusters pods are placed as before."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clusters, self.known = 0, 0
        self._kernel: Any = vars(packings)["place_in_each"]
        monkeypatch.setattr(packings, "place_in_each", self)

    def __call__(self, clusters: Longs, *rest: Any) -> Any:
        known = rest[-3]
        self.clusters += len(clusters)
        self.known += int((known != NONE).sum())
        return self._kernel(clusters, *rest)


def _forgetful(case: Case) -> Case:
    return case._replace(fleet=replace(case.fleet, flavours=[*case.fleet.flavours]))


def _changes(case: Case, draw: np.random.Generator) -> Iterator[Case]:
    """The case with one thing of each kind different."""
    fleet, demand, _ = case
    row, other = draw.integers(len(fleet), size=2)
    need = int(draw.integers(len(demand.needs)))
    cluster = int(draw.integers(len(fleet.clusters)))

    def with_machine(name: str, value: object) -> Case:
        column = getattr(fleet, name).copy()
        column[row] = value
        return case._replace(fleet=replace(fleet, **{name: column}))

    def with_need(changed: Need) -> Case:
        needs = [*demand.needs]
        needs[need] = changed
        return case._replace(demand=replace(demand, needs=needs))

    sizes = demand.needs[need].sizes
    more = tuple(Size(size.amounts, size.pods + 1) for size in sizes)
    yield with_machine("last_claimed_by", need)
    yield with_machine("last_claimed_by", NONE)
    yield with_machine("flavour", fleet.flavour[other])
    yield case._replace(fleet=replace(fleet, tie_break=fleet.tie_break[::-1].copy()))
    yield with_need(replace(demand.needs[need], sizes=more))
    yield with_need(replace(demand.needs[need], sizes=sizes[:1]))
    yield with_need(replace(demand.needs[need], sizes=demand.needs[need - 1].sizes))
    overheads = {**demand.overheads, cluster: demand.overheads.get(cluster - 1, ())}
    yield case._replace(demand=replace(demand, overheads=overheads))


@pytest.mark.parametrize("first", range(0, 40, 20))
def test_what_is_placed_as_before_lies_where_it_lies_when_all_is_computed(
    monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    """After a decision on the same machines and needs, and on such that differ in one thing."""
    kernel = _Kernel(monkeypatch)
    for seed in range(first, first + 20):
        case, draw = case_with_memory(seed), np.random.default_rng(seed)
        case = case._replace(fleet=remembering(case.fleet))
        if not len(case.demand.needs):
            continue
        found = decide(*case, SETTINGS, NOW)
        known = kernel.known
        _are_equal(decide(*case, SETTINGS, NOW), found)
        for changed in _changes(case, draw):
            decide(*case, SETTINGS, NOW)
            remembered = decide(*changed, SETTINGS, NOW)
            _are_equal(decide(*_forgetful(changed), SETTINGS, NOW), remembered)
    assert kernel.known > known


def test_only_changed_clusters_are_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ten clusters, of which the demand of one has changed."""
    names = [f"cluster-{number}" for number in range(10)]
    machines = [configured(f"m{n}", name) for n, name in enumerate(names)]
    fleet = remembering(fleet_of(machines))
    kernel = _Kernel(monkeypatch)

    def decided(*wants: int) -> None:
        needs = [(name, pods((1, want))) for name, want in zip(names, wants, strict=True)]
        decide(fleet, demand_of(fleet, needs), CycleMemory(), SETTINGS, NOW)

    decided(*[1] * 10)
    assert (kernel.clusters, kernel.known) == (10, 0)
    decided(*[1] * 10)
    assert (kernel.clusters, kernel.known) == (20, 10)
    decided(*[1] * 9, 2)
    assert (kernel.clusters, kernel.known) == (30, 19)


def test_machines_are_interchangeable_only_as_the_daemon_sets_are_now() -> None:
    """What an earlier decision found of the same flavours does not count."""
    machines = [configured(name, labels={"model": name}) for name in ("a", "b")]
    fleet = remembering(fleet_of(machines))

    def kinds(overhead: NodeOverhead) -> list[int]:
        demand: Demand = replace(
            demand_of(fleet, [("east", pods((1, 1)))]), overheads={0: [overhead]}
        )
        state = CycleState(fleet, demand, CycleMemory(), SETTINGS, NOW)
        return [int(kind) for kind in state.packings[0].kind]

    assert len({*kinds(daemons(1))}) == 1
    assert len({*kinds(daemons(1, Requirement("model", Operator.IN, ("b",))))}) == 2
