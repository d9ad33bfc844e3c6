"""Phase 3 the slow way, and the order in which machines are drained and given back."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from engine_oracle_headroom import Ahead
from engine_oracle_rules import Host, grace, holds, home_key, release_order, suitable

from bigfleet.engine.decision import Action, ActionKind
from bigfleet.engine.snapshot import NONE
from bigfleet.model.machine import MachineState
from bigfleet.model.need import Need

if TYPE_CHECKING:
    from engine_oracle import Oracle


class Giving:
    """Made after phase 1: what is surplus then, and due, is `ripe`."""

    def __init__(self, oracle: Oracle) -> None:
        self.oracle = oracle
        self.open = oracle.demand.reported - oracle.demand.unreachable
        spare = [
            host
            for host in oracle.hosts
            if host.state is MachineState.CONFIGURED
            and host.claimed_by == NONE
            and host.cluster in self.open
        ]
        self.left = [host for host in spare if self.left_behind(host)]
        rest = [host for host in spare if host not in self.left]
        self.ahead = Ahead(oracle)
        self.stays = self.ahead.retain(self.left)
        self.spare = sorted(rest, key=lambda host: (not self.due(host), release_order(host)))
        due = [host for host in self.spare if self.due(host) and not self.sheltered(host)]
        self.ripe = sorted([*due, *self.left], key=release_order)

    def left_behind(self, host: Host) -> bool:
        """Whether the gang it last served is whole and at work in another domain now."""
        home = self.oracle.homes.get(host.wanted_by)
        if home is None:
            return False
        key = str(self.oracle.demand.needs[host.wanted_by].profile.same_key)
        held = self.oracle.held(host.wanted_by)
        at_work = all(h.state is MachineState.CONFIGURED for h in held)
        lacking = any(self.oracle.missing.get(host.wanted_by, {}).values())
        return at_work and not lacking and host.labels.get(key) != home

    def due(self, host: Host) -> bool:
        """Whether the machine's hold is over, and it is not there to be ahead."""
        hold_seconds = self.oracle.settings.reclaim_hold_seconds
        return self.oracle.now - host.idle_since >= hold_seconds and host not in self.stays

    def sheltered(self, host: Host) -> bool:
        """Whether some gang's members may live on it and would find no room."""
        return any(
            self.misses(index, need, host) for index, need in enumerate(self.oracle.demand.needs)
        )

    def misses(self, index: int, need: Need, host: Host) -> bool:
        """Whether this gang could miss the machine."""
        key, cluster = home_key(need), int(self.oracle.demand.cluster[index])
        if key is None or cluster != host.cluster or not suitable(host, need):
            return False
        states = (MachineState.CONFIGURED, MachineState.CONFIGURING)
        held = [h for h in self.oracle.held(index) if h.state in states and h.cluster == cluster]
        here = [h for h in held if h.labels[key] == host.labels[key]]
        later = self.spare[self.spare.index(host) + 1 :]
        staying = [
            h
            for h in later
            if h.cluster == cluster and suitable(h, need) and h.labels[key] == host.labels[key]
        ]
        if not here:
            return False
        for name, want in need.aggregate.items():
            if want <= 0:
                continue
            own = sum(holds(h, need)[name] for h in here)
            total = sum(holds(h, need)[name] for h in held)
            living = min(math.ceil(want * own / total), own) if total else 0
            room = own - living + sum(holds(h, need)[name] for h in staying)
            if min(holds(host, need)[name], living) > room:
                return True
        return False

    def preemptions(self) -> list[Action]:
        """What is taken from others."""
        return [
            Action(ActionKind.PREEMPT, host.row, index, grace(gap))
            for index, taken in sorted(self.oracle.taken.items())
            for host, gentle, gap in taken
            if not gentle
        ]

    def reclaims(self) -> tuple[list[Action], int]:
        """For needs first, then dearest excess first; both capped by cluster."""
        orders = [
            Action(ActionKind.RECLAIM, host.row, index, grace(gap))
            for index, taken in sorted(self.oracle.taken.items())
            for host, gentle, gap in taken
            if gentle and host.state is MachineState.CONFIGURED
        ]
        voluntary = self.oracle.settings.voluntary_grace_seconds
        unwanted = [host for host in self.ripe if host.claimed_by == NONE]
        orders += [Action(ActionKind.RECLAIM, host.row, NONE, voluntary) for host in unwanted]
        left: dict[int, int] = {}
        allowed = []
        for order in orders:
            cluster = self.oracle.hosts[order.row].cluster
            left.setdefault(cluster, self.quota(cluster))
            left[cluster] -= 1
            if left[cluster] >= 0:
                allowed.append(order)
        return allowed, len(orders) - len(allowed)

    def quota(self, cluster: int) -> int:
        """How many machines of a cluster may be reclaimed now."""
        working = [h for h in self.oracle.hosts if h.state is MachineState.CONFIGURED]
        count = sum(host.cluster == cluster for host in working)
        share = self.oracle.settings.reclaim_cap_fraction * count
        return max(1, math.floor(share + 1e-9))

    def deletions(self) -> list[Action]:
        """Give back what is elastic and idle too long, or failed."""
        found = []
        for host in sorted(self.oracle.hosts, key=release_order):
            hold = self.oracle.settings.idle_hold_seconds.get(host.capacity_type, math.inf)
            idle_seconds = self.oracle.now - host.idle_since
            overdue = host.state is MachineState.IDLE and idle_seconds > hold
            failed = host.state is MachineState.FAILED
            if host.capacity_type.elastic and host.claimed_by == NONE and (overdue or failed):
                found.append(Action(ActionKind.DELETE, host.row, NONE))
        return found
