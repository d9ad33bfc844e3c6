"""Simulates a cluster without some of its machines: do its pods still fit?"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from bigfleet.engine.kernels.placed import may_fit_without, releasable_first
from bigfleet.engine.kernels.scoring import fitting
from bigfleet.engine.phases.assign import AssignmentPhase
from bigfleet.engine.placement.constrained import place_constrained
from bigfleet.engine.placement.gangs import first_fit, in_gang_domain
from bigfleet.engine.placement.topology_terms import label_keys
from bigfleet.engine.snapshot import NONE, Flags, Longs, Rows
from bigfleet.engine.state.cluster_packing import ClusterPacking
from bigfleet.engine.state.cycle_state import CycleState
from bigfleet.engine.state.packings import Packings
from bigfleet.model.machine import MachineState

_MAX_QUERIED = 16

# A machine, a class and a number of pods.
_Placement = tuple[int, int, int]


class _Level(NamedTuple):
    """All pods of one priority, in the order in which a decision places them."""

    priority: int
    #: the placements of its gangs
    gangs: Sequence[_Placement]
    #: its needs with topology constraints
    constrained: Sequence[int]
    #: the classes of its plain needs
    plain: Longs


class Repacking:
    """Repacks a cluster's pods onto some of its machines, any number of times; the cluster must not
    change meanwhile.
    """

    def __init__(self, state: CycleState, assignment: AssignmentPhase, cluster: int) -> None:
        self._state, self._packing = state, state.packings[cluster]
        self._assignment, self._cluster = assignment, cluster

    def fits_without(self, rows: Rows) -> bool:
        """Whether all placed pods, and a margin, fit without these machines."""
        gone = np.zeros(len(self._packing.rows), np.bool_)
        gone[[self._place_of[row] for row in rows.tolist()]] = True
        # Cheap necessary conditions first.
        if not self._may_fit_without(gone) or not self._domains_stay(gone):
            return False
        trial = _Trial(self._state, self._packing, self._cluster, gone, self._running(gone))
        return trial.keeps(self._additional) and trial.places(
            self._levels, self._placed, self._margin
        )

    def _may_fit_without(self, gone: Flags) -> bool:
        packing = self._packing
        return may_fit_without(packing.machines(), packing.rows, gone, self._margin_size)

    @cached_property
    def _margin_size(self) -> Longs:
        """How much the margin takes of each resource [R]."""
        its = np.flatnonzero(self._margin)
        size: Longs = self._margin[its] @ self._state.classes.sizes[its]
        return size

    @cached_property
    def _place_of(self) -> dict[int, int]:
        """By row of the fleet, the place among the cluster's machines."""
        return {row: place for place, row in enumerate(self._packing.rows.tolist())}

    def _running(self, gone: Flags) -> dict[int, int]:
        """How many pods run on machines in service that are not `gone` [M], by need with known
        ones.
        """
        found = dict.fromkeys(self._state.running, 0)
        for index, machines, pods in self._serving:
            found[index] = int(pods[~gone[machines]].sum())
        return found

    @cached_property
    def _serving(self) -> list[tuple[int, Longs, Longs]]:
        """For each need of the cluster whose running pods are known, the machines in service with
        pods of it, and how many.
        """
        state, rows = self._state, self._packing.rows
        if not state.running:
            return []
        machines, pod_classes, pods = self._packing.placements.present()
        serving = (rows != NONE) & (state.fleet.state[rows] == MachineState.CONFIGURED)
        need = np.where(serving[machines], state.classes.need[pod_classes], NONE)
        found = []
        for index in np.unique(need[need != NONE]).tolist():
            if index in state.running:
                found.append((index, machines[need == index], pods[need == index]))
        return found

    @cached_property
    def _levels(self) -> list[_Level]:
        gangs: dict[int, list[_Placement]] = {}
        for each in self._placements(self._state.needs.gang):
            need = self._state.classes.need[each[1]]
            gangs.setdefault(int(self._state.priorities[need]), []).append(each)
        others = {priority: its for priority, *its in self._assignment.levels(self._cluster)}
        nothing: tuple[list[int], Longs] = [], np.empty(0, np.int64)
        return [
            _Level(priority, gangs.get(priority, []), *others.get(priority, nothing))
            for priority in sorted({*gangs, *others}, reverse=True)
        ]

    @cached_property
    def _additional(self) -> list[_Placement]:
        return self._placements(self._state.needs.additional)

    def _placements(self, needs: Flags) -> list[_Placement]:
        """Those of the pods of these `needs` [N], in the order of machines and classes."""
        machines, pod_classes, numbers = self._packing.placements.present()
        its = np.flatnonzero(needs[self._state.classes.need[pod_classes]])
        placed = Counter[tuple[int, int]]()
        for at in its.tolist():
            placed[int(machines[at]), int(pod_classes[at])] += int(numbers[at])
        return sorted((*at, pods) for at, pods in placed.items())

    @cached_property
    def _placed(self) -> Longs:
        """How many pods of each class [C] are placed."""
        placed: Longs = np.zeros_like(self._state.left)
        _, pod_classes, numbers = self._packing.placements.present()
        np.add.at(placed, pod_classes, numbers)
        return placed

    @cached_property
    def _margin(self) -> Longs:
        """`reclaim_margin` of the plain pods that are placed, spread over all sizes [C].

        Never more than have places while all machines are there: a size that fills its machines,
        such as one GPU a machine, would keep every other machine of the cluster.
        """
        margin = np.zeros_like(self._placed)
        if self._levels:
            order = np.concatenate([level.plain for level in self._levels])
            before = self._placed[order].cumsum()
            more = np.floor(before * self._state.settings.reclaim_margin + 1e-9)
            margin[order] = np.diff(more, prepend=0.0)
        if not margin.any():
            return margin
        nothing = np.zeros(len(self._packing.rows), np.bool_)
        trial = _Trial(self._state, self._packing, self._cluster, nothing, self._running(nothing))
        trial.keeps(self._additional)
        if not trial.place(self._levels, self._placed):
            return np.zeros_like(margin)
        return margin - trial.unplaced(self._levels, margin)

    @cached_property
    def _domains(self) -> list[tuple[Longs, Longs]]:
        """For each need with topology constraints and each of its labels: the domains of the
        machines [M], one more for those that the need does not accept, and those of its pods.
        """
        state, packing = self._state, self._packing
        machines, pod_classes, _ = packing.placements.present()
        need_of = state.classes.need[pod_classes]
        found = []
        for index in [index for level in self._levels for index in level.constrained]:
            its, flavour_fit = machines[need_of == index], state.flavour_fit(index)
            accepted = flavour_fit.accepted[packing.flavour]
            for key in label_keys(flavour_fit):
                column = state.columns.label(key)
                codes = column.codes[packing.flavour].astype(np.int64) - NONE
                nowhere = len(column.values) + 1
                found.append((np.where(accepted, codes, nowhere), np.unique(codes[its])))
        return found

    def _domains_stay(self, gone: Flags) -> bool:
        """Whether each domain with pods of a spread need keeps a machine that the need accepts."""
        # Without one it is no domain, so all pods could move to one of the other zones.
        stay = ~gone & (self._packing.rows != NONE)
        for domains, used in self._domains:
            kept = np.zeros(int(max(domains.max(), used.max(initial=0))) + 1, np.bool_)
            kept[domains[stay]] = True
            if not kept[used].all():
                return False
        return True


class _Trial:
    """One packing onto the machines that are not `gone`."""

    def __init__(
        self,
        state: CycleState,
        before: ClusterPacking,
        cluster: int,
        gone: Flags,
        running: dict[int, int],
    ) -> None:
        self._state, self._gone = state, gone
        self._left = np.zeros_like(state.left)
        stay = ~gone & (before.rows != NONE)
        self._place = np.cumsum(stay) - 1
        self._packing = before.without_pods(stay, self._left)
        self._trial = copy.copy(state)
        self._trial.packings, self._trial.left = Packings({cluster: self._packing}), self._left
        self._trial.running, self._trial.beyond_skew = running, set()

    def keeps(self, additional: Sequence[_Placement]) -> bool:
        """Keep the placements of additional needs; False if one of their machines is gone."""
        for machine, pod_class, pods in additional:
            if self._gone[machine]:
                return False
            self._packing.record_placement(int(self._place[machine]), pod_class, pods)
        return True

    def places(self, levels: Sequence[_Level], pods: Longs, margin: Longs) -> bool:
        """Place all other `pods` [C], and then the `margin` [C]; False if they do not fit."""
        return self.place(levels, pods) and not self.unplaced(levels, margin).any()

    def place(self, levels: Sequence[_Level], pods: Longs) -> bool:
        """Place `pods` [C] as a decision does; False if those of one level do not fit."""
        for level in levels:
            self._keep_gangs(level.gangs)
            for index in level.constrained:
                its = self._state.classes.of(index)
                self._left[its] = pods[its]
                place_constrained(self._trial, index)
            self._left[level.plain] = pods[level.plain]
            self._packing.place(level.plain, level.priority)
            if self._left.any():
                return False
        return True

    def unplaced(self, levels: Sequence[_Level], margin: Longs) -> Longs:
        """Place the plain pods `margin` [C] as well; what does not fit [C]."""
        self._left += margin
        for level in levels:
            self._packing.place_more(level.plain, level.priority)
        return self._left

    def _keep_gangs(self, placements: Sequence[_Placement]) -> None:
        """Keep these placements; pods whose machine is gone, or full of pods of higher priorities,
        move in their gang's domain.
        """
        packing, sizes, movers = self._packing, self._state.classes.sizes, set[int]()
        for machine, pod_class, pods in placements:
            place = int(self._place[machine])
            if not self._gone[machine] and fitting(packing.free, place, sizes, pod_class) >= pods:
                packing.record_placement(place, pod_class, pods)
            else:
                self._left[pod_class] += pods
                movers.add(int(self._state.classes.need[pod_class]))
        for index in sorted(movers & {*self._state.gang_domains}):
            inside = in_gang_domain(self._state, index, packing.flavour)
            inside &= self._state.flavour_fit(index).accepted[packing.flavour]
            first_fit(self._trial, index, np.flatnonzero(inside).tolist())


def find_disruption_cost_queries(state: CycleState) -> dict[int, Rows]:
    """The clusters that may have surplus machines, and their least utilized ones, whose disruption
    cost to query.
    """
    asked = {}
    releasable = (state.fleet.state == MachineState.CONFIGURED) & ~state.unavailable
    for cluster in sorted(state.demand.reachable):
        if cluster not in state.packings:
            continue
        columns = state.packings.columns_of(cluster)
        machines, rows = columns.machines(), columns.rows
        least = releasable_first(machines, rows, releasable, _MAX_QUERIED)
        if len(least):
            asked[cluster] = rows[least]
    return asked
