"""Explains on request why a need has what it has, from a decision and its inputs."""

from __future__ import annotations

import numpy as np

from bigfleet.engine.columns import columns_of
from bigfleet.engine.decision import ActionType, Decision
from bigfleet.engine.explain.explanation import (
    DomainCoverage,
    Explanation,
    PlacedMachine,
    Reason,
)
from bigfleet.engine.explain.one_more_machine import OneMoreMachine
from bigfleet.engine.fit.capacity import Capacities
from bigfleet.engine.fit.matching import Matcher
from bigfleet.engine.fit.pod_classes import PodClasses
from bigfleet.engine.need_columns import need_columns_of
from bigfleet.engine.snapshot import NONE, Demand, Flags, Fleet, Ints, Longs, Rows
from bigfleet.engine.state.ceiling_budgets import describe_usage
from bigfleet.engine.state.cycle_state import present_flavours
from bigfleet.model import resources
from bigfleet.model.machine import MachineState
from bigfleet.model.need import Size, total_of

_MAX_DOMAINS = 5


class Explainer:
    """Explains needs of one decision."""

    def __init__(self, fleet: Fleet, demand: Demand, decision: Decision) -> None:
        self._fleet, self._demand, self._decision = fleet, demand, decision
        columns = columns_of(fleet.flavours)
        self._capacities = Capacities(columns, Matcher(columns), demand)
        needs, present = need_columns_of(demand.needs), present_flavours(fleet)
        self._classes = PodClasses(needs, demand.cluster, self._capacities, present)
        self.one_more_machine = OneMoreMachine(
            fleet, demand, decision, self._capacities, self._classes
        )
        self._ordered = {action.row: action for action in decision.actions}
        self._short = {shortfall.need: shortfall for shortfall in decision.shortfalls}
        preemptions = (each for each in decision.actions if each.type is ActionType.PREEMPT)
        self._preempting = {action.need for action in preemptions}
        self._priority: Ints = np.append(needs.priority, 0)

    def need(self, index: int) -> Explanation:
        """Explain need number `index`."""
        shortfall = self._short.get(index)
        usable = np.flatnonzero(self._usable(index)[self._fleet.flavour])
        free = self._free(index, usable)
        reason = self._reason(index, usable, free) if shortfall else None
        return Explanation(
            need=index,
            matching=self._by_state(self._classes.fit(index).accepted),
            usable=self._by_state(self._usable(index)),
            by_requirement=self._by_requirement(index),
            free=len(free),
            lower_priority=len(self._lower_priority(index, usable)),
            counted=self._counted(index),
            short=shortfall.sizes if shortfall else (),
            impossible=shortfall.impossible if shortfall else (),
            age_cycles=shortfall.age_cycles if shortfall else 0,
            domains=self._domains(index, free),
            reason=reason,
            message=self._message(index, reason) if reason else "",
        )

    def reason(self, index: int) -> Reason:
        """Why need `index` is short."""
        usable = np.flatnonzero(self._usable(index)[self._fleet.flavour])
        return self._reason(index, usable, self._free(index, usable))

    def reason_and_message(self, index: int) -> tuple[Reason, str]:
        """Why need `index` is short, and the message for users, which names the ceiling if any."""
        reason = self.reason(index)
        return reason, self._message(index, reason)

    def _message(self, index: int, reason: Reason) -> str:
        if reason is not Reason.CEILING_REACHED:
            return str(reason.value)
        need, cluster = self._demand.needs[index], int(self._demand.cluster[index])
        messages = [
            *describe_usage(self._demand.ceilings.get(cluster), self._decision.held.get(cluster))
        ]
        if need.priority < need.profile.priority:
            messages.append(f"its priority {need.profile.priority} is limited to {need.priority}")
        return f"{reason.value}: {'; '.join(messages)}"

    def _usable(self, index: int) -> Flags:
        """The flavours [F] that the need accepts and that hold one of its pods: one of a size that
        is short if any is.
        """
        usable = np.zeros(len(self._capacities.columns), np.bool_)
        capacity, begin = self._capacity_for(index), self._bounds(index)[0]
        shortfall, sizes = self._short.get(index), self._demand.needs[index].sizes
        short = {size.amounts for size in shortfall.sizes} if shortfall else set()
        for pod_class in range(*self._bounds(index)):
            amounts = sizes[int(self._classes.original[pod_class]) - begin].amounts
            if not short or amounts in short:
                usable |= (capacity >= self._classes.sizes[pod_class]).all(axis=1)
        if self._bounds(index)[0] < self._bounds(index)[1]:
            possible = ~self._classes.impossible[slice(*self._bounds(index))]
            usable &= bool(possible.any())
        return usable & self._classes.fit(index).accepted

    def obstacle(self, index: int, size: Size) -> str:
        """Why no machine can hold a pod of this size of need `index`."""
        accepted = self._classes.fit(index).accepted
        if not accepted.any():
            unmet = [text for text, count in self._by_requirement(index).items() if not count]
            wanted = f": none has {' and '.join(unmet)}" if unmet else ""
            return f"no machine of the fleet matches its constraints{wanted}"
        column_of = self._capacities.columns.column_of
        capacity = self._capacity_for(index)[accepted]
        for name, amount in size.amounts:
            most = int(capacity[:, column_of[name]].max()) if name in column_of else 0
            if amount > most:
                asked, offered = (resources.text(name, each) for each in (amount, most))
                there = f"has more than {offered} allocatable" if most else "has any"
                return f"it requests {name} {asked}, but no machine that matches {there}"
        all_of = ", ".join(f"{n} {a}" for n, a in resources.texts(dict(size.amounts)).items())
        return f"no machine that matches has {all_of} allocatable together"

    def accepts(self, index: int) -> Flags:
        """The flavours [F] that need `index` accepts, whatever the size of its pods."""
        return self._classes.fit(index).accepted

    def _bounds(self, index: int) -> tuple[int, int]:
        its = self._classes.of(index)
        return its.start, its.stop

    def _capacity_for(self, index: int) -> Longs:
        return self._capacities.of(int(self._demand.cluster[index]))

    def _by_state(self, flavours: Flags) -> dict[MachineState, int]:
        states = self._fleet.state[flavours[self._fleet.flavour]]
        counts = np.bincount(states, minlength=max(MachineState) + 1)
        return {state: int(counts[state]) for state in MachineState if counts[state]}

    def _by_requirement(self, index: int) -> dict[str, int]:
        counts = {}
        for requirement in self._demand.needs[index].profile.requirements:
            meeting = self._capacities.matcher.meeting((requirement,))
            counts[str(requirement)] = int(np.count_nonzero(meeting[self._fleet.flavour]))
        return counts

    def _free(self, index: int, usable: Rows) -> Rows:
        acquirable = self._fleet.acquirable[usable] & ~self._backed_off(index, usable)
        free: Rows = usable[acquirable & (self._decision.claimed_by[usable] == NONE)]
        return free

    def _backed_off(self, index: int, usable: Rows) -> Flags:
        return self._fleet.backs_off(int(self._demand.cluster[index]), usable)

    def _lower_priority(self, index: int, usable: Rows) -> Rows:
        holder = self._decision.claimed_by[usable]
        is_lower = self._priority[holder] < self._demand.needs[index].priority
        lower_priority: Rows = usable[(holder != NONE) & is_lower]
        return lower_priority

    def _at_ceiling(self, index: int, usable: Rows, free: Rows) -> bool:
        """Whether the need is short because of its cluster's ceiling."""
        need, holder = self._demand.needs[index], self._decision.claimed_by[usable]
        if index in self._decision.at_ceiling and (
            len(free) or len(self._lower_priority(index, usable))
        ):
            return True
        # Machines that it could preempt if the ceiling did not limit its priority.
        claimed = self._priority[holder] < need.profile.priority
        out_of_reach = (holder != NONE) & claimed & (self._priority[holder] >= need.priority)
        others = self._demand.cluster[holder] != self._demand.cluster[index]
        return not len(free) and bool((out_of_reach & others).any())

    def _counted(self, index: int) -> list[PlacedMachine]:
        pods = self._decision.placements
        its = pods.need == index
        ordered = [row for row, action in self._ordered.items() if action.need == index]
        sizes = self._demand.needs[index].sizes
        found = []
        for row in sorted({*pods.row[its].tolist(), *ordered}):
            here = its & (pods.row == row)
            held = [
                Size(sizes[size].amounts, number)
                for size, number in zip(
                    pods.size[here].tolist(), pods.pods[here].tolist(), strict=True
                )
            ]
            action = self._ordered.get(row)
            found.append(
                PlacedMachine(
                    row,
                    MachineState(int(self._fleet.state[row])),
                    float(self._classes.fit(index).costs[self._fleet.flavour[row]]),
                    sum(size.pods for size in held),
                    total_of(held),
                    action.type if action else None,
                )
            )
        return found

    def _domains(self, index: int, free: Rows) -> list[DomainCoverage]:
        same_key = self._demand.needs[index].profile.same_key
        if same_key is None:
            return []
        own = np.array([counted.row for counted in self._counted(index)], np.intp)
        flavours = self._fleet.flavour[np.concatenate((own, free))]
        codes, names = self._capacities.columns.label(same_key)
        found = [
            DomainCoverage(names[code], self._per_mille(index, flavours[codes[flavours] == code]))
            for code in np.unique(codes[flavours]).tolist()
            if code != NONE
        ]
        return sorted(found, key=lambda each: (-each.per_mille, each.domain))[:_MAX_DOMAINS]

    def _per_mille(self, index: int, flavours: Ints) -> int:
        # In Python integers, because the products do not fit into 64 bits.
        column_of = self._capacities.columns.column_of
        capacity = self._capacity_for(index)[flavours]
        want = self._demand.needs[index].aggregate
        have = {n: sum(capacity[:, column_of[n]].tolist()) if n in column_of else 0 for n in want}
        return min(min(1000 * have[name] // want[name], 1000) for name in want)

    def _reason(self, index: int, usable: Rows, free: Rows) -> Reason:
        profile = self._demand.needs[index].profile
        if not len(usable) or not self._short[index].sizes:
            return Reason.NO_MATCHING_SUPPLY
        if int(self._demand.cluster[index]) in self._demand.suspended:
            return Reason.CLUSTER_SUSPENDED
        if self._at_ceiling(index, usable, free):
            return Reason.CEILING_REACHED
        if not len(free) and self._backed_off(index, usable).any():
            return Reason.OFFERINGS_UNAVAILABLE
        constrained = self._classes.fit(index).is_constrained
        if profile.same_key is not None or (constrained and len(free)):
            return Reason.TOPOLOGY_UNSATISFIABLE
        pods = self._decision.placements
        rows = pods.row[pods.need == index]
        if (self._fleet.state[rows] == MachineState.DRAINING).any() or index in self._preempting:
            return Reason.PREEMPTION_EXHAUSTED
        return Reason.PRIORITY_STARVED
