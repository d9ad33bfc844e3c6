"""The same decision made the slow, obvious way: one machine after the other, in dictionaries.

It shares only the model and the input and output records with the engine.
"""

from __future__ import annotations

import math

import numpy as np
from engine_oracle_rules import (
    Amounts,
    Host,
    best_domain,
    cost,
    covers,
    fitting,
    holds,
    hosts_of,
    last_resort,
    per_unit,
    release_order,
    spread_rule,
    spread_terms,
    suitable,
    thinned,
    useful,
)

from bigfleet.engine.decision import Action, ActionKind, Decision, Shortfall
from bigfleet.engine.snapshot import NONE, Demand, Fleet, Settings
from bigfleet.model.machine import MachineState
from bigfleet.model.need import Need


class Oracle:
    """One decision."""

    def __init__(self, fleet: Fleet, demand: Demand, settings: Settings, now: float) -> None:
        self.hosts = hosts_of(fleet)
        self.demand, self.settings, self.now = demand, settings, now
        self.clusters = len(fleet.clusters)
        self.actions: list[Action] = []
        self.shortfalls: list[Shortfall] = []
        self.capped = 0

    def decide(self) -> Decision:
        """Phase 1, then phase 3."""
        for index, need in enumerate(self.demand.needs):
            self.serve(index, need, int(self.demand.cluster[index]))
        self.reclaim()
        self.release()
        claimed = np.array([host.claimed_by for host in self.hosts], np.int32)
        return Decision(self.actions, self.shortfalls, claimed, self.capped)

    def serve(self, index: int, need: Need, cluster: int) -> None:
        """Credit, then acquire."""
        missing = {name: amount for name, amount in sorted(need.aggregate.items()) if amount > 0}
        if not missing:
            return
        ours = self.creditable(index, need, cluster)
        free = self.acquirable(need)
        if need.profile.same_key is not None:
            key = need.profile.same_key
            home = best_domain(key, index, need, ours, free)
            ours = [host for host in ours if host.labels[key] == home]
            free = [host for host in free if host.labels[key] == home]
        held = [host for host in ours if self.claim(host, index, need, missing)]
        if any(missing.values()):
            self.acquire(index, need, missing, held, free)
        deficit = {name: amount for name, amount in missing.items() if amount > 0}
        if deficit:
            self.shortfalls.append(Shortfall(index, deficit))

    def claim(self, host: Host, index: int, need: Need, missing: Amounts) -> bool:
        """Count a machine if it holds anything that is still missing."""
        held = holds(host, need)
        if not any(left > 0 and held[name] > 0 for name, left in missing.items()):
            return False
        host.claimed_by = index
        for name in missing:
            missing[name] = max(0, missing[name] - held[name])
        return True

    def creditable(self, index: int, need: Need, cluster: int) -> list[Host]:
        """In keep order."""
        tiers = {
            MachineState.CONFIGURED: 0,
            MachineState.CONFIGURING: 1,
            MachineState.CREATING: 2,
        }

        def counts(host: Host) -> bool:
            if host.state is MachineState.CREATING:
                return host.wanted_by == index
            free = host.wanted_by in (index, NONE) or not spread_terms(need)
            return host.state in tiers and host.cluster == cluster and free

        found = [h for h in self.hosts if h.claimed_by == NONE and counts(h) and suitable(h, need)]
        return sorted(
            found,
            key=lambda h: (
                h.wanted_by != index,
                tiers[h.state],
                h.price,
                -h.bucket,
                h.tie_break,
            ),
        )

    def acquirable(self, need: Need) -> list[Host]:
        """Machines without a cluster."""
        states = (MachineState.IDLE, MachineState.SPECULATIVE)
        return [
            h
            for h in self.hosts
            if h.state in states and h.claimed_by == NONE and suitable(h, need)
        ]

    def acquire(
        self, index: int, need: Need, missing: Amounts, held: list[Host], free: list[Host]
    ) -> None:
        """Buy one machine after the other."""
        at_first = dict(missing)
        terms = spread_terms(need)

        def tier(host: Host) -> tuple[int, bool]:
            return last_resort(host, need), host.state is MachineState.SPECULATIVE

        def order(host: Host) -> tuple[object, ...]:
            names = tuple(host.labels[key] for key, _ in terms)
            price = per_unit(host, need, at_first), cost(host, need)
            return (*tier(host), *price, names, -host.bucket, host.tie_break)

        queue = sorted(free, key=order)
        allowed = spread_rule(terms, held, free)
        bought: list[Host] = []
        while any(missing.values()):
            head = next((h for h in queue if allowed(h, bought) and useful(h, need, missing)), None)
            if head is None:
                break
            if covers(head, need, missing):
                peers = [h for h in queue if tier(h) == tier(head) and allowed(h, bought)]
                head = fitting(peers, need, missing)
            queue.remove(head)
            bought.append(head)
            self.claim(head, index, need, missing)
        if not terms and not any(missing.values()):
            bought = thinned(bought, need, at_first)
        for host in bought:
            buying = host.state is MachineState.SPECULATIVE
            kind = ActionKind.PROVISION if buying else ActionKind.BOOTSTRAP
            self.actions.append(Action(kind, host.row, index))

    def reclaim(self) -> None:
        """Dearest excess first, capped by cluster."""
        working = [h for h in self.hosts if h.state is MachineState.CONFIGURED]
        quota = {}
        for cluster in range(self.clusters):
            count = sum(h.cluster == cluster for h in working)
            share = self.settings.reclaim_cap_fraction * count
            quota[cluster] = max(1, math.floor(share + 1e-9))
        surplus = [
            h
            for h in working
            if h.claimed_by == NONE
            and h.cluster in self.demand.reported
            and self.now - h.idle_since >= self.settings.reclaim_hold_seconds
        ]
        for host in sorted(surplus, key=release_order):
            if quota[host.cluster] == 0:
                self.capped += 1
                continue
            quota[host.cluster] -= 1
            grace = self.settings.voluntary_grace_seconds
            self.actions.append(Action(ActionKind.RECLAIM, host.row, NONE, grace))

    def release(self) -> None:
        """Give back what is elastic and idle too long, or failed."""
        for host in sorted(self.hosts, key=release_order):
            hold = self.settings.idle_hold_seconds.get(host.capacity_type, math.inf)
            overdue = host.state is MachineState.IDLE and self.now - host.idle_since > hold
            failed = host.state is MachineState.FAILED
            if host.capacity_type.elastic and host.claimed_by == NONE and (overdue or failed):
                self.actions.append(Action(ActionKind.DELETE, host.row, NONE))
