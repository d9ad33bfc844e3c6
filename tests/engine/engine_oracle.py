"""The same decision made the slow, obvious way: one machine after the other, in dictionaries.

It shares only the model and the input and output records with the engine. Phase 1 and what comes
out are here, phase 2 in `engine_oracle_taking`, phase 3 in `engine_oracle_giving`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from engine_oracle_giving import Giving
from engine_oracle_rules import (
    Amounts,
    Host,
    Pool,
    best_domain,
    cost,
    covers,
    fitting,
    holds,
    hosts_of,
    last_resort,
    per_unit,
    spread_rule,
    spread_terms,
    suitable,
    thinned,
    useful,
)
from engine_oracle_taking import Taking

from bigfleet.engine.carry import Carry, Reservation, Shortage
from bigfleet.engine.decision import Action, ActionKind, Decision, Shortfall
from bigfleet.engine.snapshot import NONE, Demand, Fleet, Settings
from bigfleet.model.machine import MachineState
from bigfleet.model.need import NeedKey

_FREE = (MachineState.IDLE, MachineState.SPECULATIVE)


class Oracle:
    """One decision."""

    def __init__(
        self, fleet: Fleet, demand: Demand, carry: Carry, settings: Settings, now: float
    ) -> None:
        self.hosts = hosts_of(fleet)
        self.demand, self.settings, self.now, self.carry = demand, settings, now, carry
        self.keys = [
            NeedKey(fleet.clusters[cluster], *need.key)
            for need, cluster in zip(demand.needs, demand.cluster.tolist(), strict=True)
        ]
        self.reserved: dict[int, Reservation] = {}
        self.expired: set[int] = set()
        self.missing: dict[int, Amounts] = {}
        self.acquired: dict[int, list[Host]] = {}
        self.taken: dict[int, list[tuple[Host, bool, int]]] = {}
        self.homes: dict[int, str] = {}
        self.keeps = True
        self.keep()

    def decide(self) -> Decision:
        """Phase 1, 2, 3."""
        for index in range(len(self.demand.needs)):
            self.serve(index)
        giving = Giving(self)
        Taking(self, giving.ripe).run()
        giving.ahead.acquire(giving.ripe)
        headroom = frozenset(host.row for hosts in giving.ahead.hosts.values() for host in hosts)
        reclaims, capped = giving.reclaims()
        short, shortages = self.shortfalls()
        actions = [*self.acquisitions(), *giving.preemptions(), *reclaims, *giving.deletions()]
        claimed = np.array([host.claimed_by for host in self.hosts], np.int32)
        carry = Carry(tuple(self.reservations()), tuple(shortages))
        return Decision(actions, short, claimed, headroom, capped, carry)

    def keep(self) -> None:
        """Take up reservations, and mark machines that are kept for somebody."""
        for reservation in self.carry.reservations:
            if reservation.need in self.keys:
                index = self.keys.index(reservation.need)
                if self.now - reservation.since_seconds < self.settings.reservation_seconds:
                    self.reserved[index] = reservation
                else:
                    self.expired.add(index)
        for host in self.hosts:
            if host.state is MachineState.DRAINING or (
                host.state in _FREE and host.wanted_by in self.reserved
            ):
                host.kept_for = host.wanted_by

    def lacks(self, index: int) -> bool:
        """Whether the need had its turn and is not covered."""
        return any(self.missing.get(index, {}).values())

    def held(self, index: int) -> list[Host]:
        """What the need counts."""
        return [host for host in self.hosts if host.claimed_by == index]

    def recount(self, index: int) -> None:
        """What the need lacks now."""
        need = self.demand.needs[index]
        missing = {name: amount for name, amount in sorted(need.aggregate.items()) if amount > 0}
        for host in self.held(index):
            for name in missing:
                missing[name] = max(0, missing[name] - holds(host, need)[name])
        self.missing[index] = missing

    def reserved_domain(self, index: int) -> str | None:
        """Where the gang gathers, if such a place still exists."""
        reservation, key = self.reserved.get(index), self.demand.needs[index].profile.same_key
        known = {host.labels.get(str(key)) for host in self.hosts} if reservation else set()
        return reservation.domain if reservation and reservation.domain in known else None

    def serve(self, index: int) -> None:
        """Credit, then acquire; a gang in the best domain, or in the one that it reserved."""
        need = self.demand.needs[index]
        key = need.profile.same_key
        if not any(amount > 0 for amount in need.aggregate.values()):
            return
        if key is None:
            self.serve_where(index, lambda _: True, bool(spread_terms(need)))
            return
        kept = self.reserved_domain(index)
        pool = Pool(self.creditable(index), self.acquirable(index))
        home, whole = best_domain(key, index, need, pool, kept)
        self.settle(index, home if whole or kept is None else kept, whole)

    def settle(self, index: int, home: str | None, whole: bool) -> None:
        """Serve a gang in one domain, and only if it is whole there also from its neighbours."""
        key = str(self.demand.needs[index].profile.same_key)
        if home is not None:
            self.homes[index] = home
        self.serve_where(
            index, lambda host: home is not None and host.labels[key] == home, not whole
        )

    def serve_where(self, index: int, inside: Callable[[Host], bool], spares: bool) -> None:
        """Credit, then acquire, among some machines; spare what neighbours want, or do not."""
        self.recount(index)
        missing = self.missing[index]
        ours = [host for host in self.creditable(index) if inside(host)]
        stranded = self.demand.needs[index].is_additional
        if spares or stranded:
            allowed = (index,) if stranded else (index, NONE)
            ours = [host for host in ours if host.wanted_by in allowed]
        held = [host for host in ours if self.claim(host, index, missing)]
        waits = stranded and any(self.comes(host, index) for host in self.hosts)
        if any(missing.values()) and index not in self.expired and not waits:
            free = [host for host in self.acquirable(index) if inside(host)]
            self.acquired[index] = self.buy(index, held, free)

    def comes(self, host: Host, index: int) -> bool:
        """Whether the need's cluster is about to get a machine that would do for the need."""
        cluster = self.demand.cluster[index]
        here = host.cluster == cluster
        promised = host.claimed_by != NONE and self.demand.cluster[host.claimed_by] == cluster
        serves = host.state is MachineState.CONFIGURED and here
        joins = host.state is MachineState.CONFIGURING and here
        return suitable(host, self.demand.needs[index]) and (joins or (promised and not serves))

    def withdraw(self, index: int) -> None:
        """As if the need had not had its turn."""
        for host in self.held(index):
            host.claimed_by = NONE
        self.acquired.pop(index, None)
        self.homes.pop(index, None)

    def claim(self, host: Host, index: int, missing: Amounts) -> bool:
        """Count a machine if it holds anything that is still missing."""
        held = holds(host, self.demand.needs[index])
        if not any(left > 0 and held[name] > 0 for name, left in missing.items()):
            return False
        host.claimed_by = index
        for name in missing:
            missing[name] = max(0, missing[name] - held[name])
        return True

    def creditable(self, index: int) -> list[Host]:
        """In keep order."""
        need, cluster = self.demand.needs[index], int(self.demand.cluster[index])
        tiers = {
            MachineState.CONFIGURED: 0,
            MachineState.CONFIGURING: 1,
            MachineState.CREATING: 2,
            MachineState.DRAINING: 3,
        }

        def counts(host: Host) -> bool:
            if host.state is MachineState.CREATING:
                return host.wanted_by == index
            if host.state is MachineState.DRAINING:
                return host.kept_for == index
            return host.state in tiers and host.cluster == cluster

        found = [h for h in self.hosts if h.claimed_by == NONE and counts(h) and suitable(h, need)]
        return sorted(
            found,
            key=lambda h: (h.wanted_by != index, tiers[h.state], h.price, -h.bucket, h.tie_break),
        )

    def acquirable(self, index: int) -> list[Host]:
        """Machines without a cluster that are not kept for an equal."""
        need = self.demand.needs[index]

        def allowed(host: Host) -> bool:
            if host.kept_for in (NONE, index) or not self.keeps:
                return True
            return self.demand.needs[host.kept_for].profile.priority < need.profile.priority

        return [
            h
            for h in self.hosts
            if h.state in _FREE and h.claimed_by == NONE and suitable(h, need) and allowed(h)
            and index not in self.expired
        ]  # fmt: skip

    def buy(self, index: int, held: list[Host], free: list[Host]) -> list[Host]:
        """The machines to acquire, one after the other."""
        need = self.demand.needs[index]

        def tier(host: Host) -> tuple[object, ...]:
            return last_resort(host, need), host.state is MachineState.SPECULATIVE

        return self.pick(
            index, held, free, tier, lambda host: cost(host, need), lambda h: -h.bucket
        )

    def pick(
        self,
        index: int,
        held: list[Host],
        free: Sequence[Host],
        tier: Callable[[Host], tuple[object, ...]],
        rank: Callable[[Host], float],
        worth: Callable[[Host], float],
    ) -> list[Host]:
        """Claim machines by tier, price and worth, the last one by best fit."""
        need, missing = self.demand.needs[index], self.missing[index]
        at_first, terms = dict(missing), spread_terms(need)

        def order(host: Host) -> tuple[object, ...]:
            names = tuple(host.labels[key] for key, _ in terms)
            price = per_unit(host, need, at_first), cost(host, need)
            return (*tier(host), *price, names, worth(host), host.tie_break)

        queue = sorted(free, key=order)
        allowed = spread_rule(terms, held, free)
        picked: list[Host] = []
        while any(missing.values()):
            head = next((h for h in queue if allowed(h, picked) and useful(h, need, missing)), None)
            if head is None:
                break
            if covers(head, need, missing):
                peers = [h for h in queue if tier(h) == tier(head) and allowed(h, picked)]
                head = fitting(peers, need, missing, rank)
            queue.remove(head)
            picked.append(head)
            for name in missing:
                missing[name] = max(0, missing[name] - holds(head, need)[name])
        if not terms and not any(missing.values()):
            picked = thinned(picked, need, at_first, rank)
        for host in picked:
            host.claimed_by = index
        return picked

    def acquisitions(self) -> list[Action]:
        """Bootstraps and provisions by need."""
        return [
            Action(
                ActionKind.BOOTSTRAP if host.state is MachineState.IDLE else ActionKind.PROVISION,
                host.row,
                index,
            )
            for index, hosts in sorted(self.acquired.items())
            for host in hosts
        ]

    def shortfalls(self) -> tuple[list[Shortfall], list[Shortage]]:
        """Who lacks what, and since when."""
        before = {shortage.need: shortage for shortage in self.carry.shortages}
        found, shortages = [], []
        for index in filter(self.lacks, range(len(self.keys))):
            last = before.get(self.keys[index])
            cycles = 1 + (last.cycles if last else 0)
            since = last.since_seconds if last else self.now
            deficit = {name: left for name, left in self.missing[index].items() if left > 0}
            found.append(Shortfall(index, deficit, cycles, since))
            shortages.append(Shortage(self.keys[index], cycles, since))
        return found, shortages

    def reservations(self) -> Iterator[Reservation]:
        """For whom machines are kept."""
        for index, key in enumerate(self.keys):
            is_gang = self.demand.needs[index].profile.same_key is not None
            if not any(self.waits(host, index, is_gang) for host in self.held(index)):
                continue
            if is_gang and self.lacks(index):
                continue
            domain = self.homes[index] if is_gang else ""
            last = self.reserved.get(index)
            goes_on = last is not None and last.domain == domain
            yield Reservation(key, domain, last.since_seconds if last and goes_on else self.now)

    def waits(self, host: Host, index: int, is_gang: bool) -> bool:
        """Whether the need holds a machine that does not serve it yet but was promised."""
        working = host.state is MachineState.CONFIGURED
        if working and host.cluster == self.demand.cluster[index]:
            return False
        drained = working or host.state is MachineState.DRAINING
        return is_gang or drained or host.kept_for == index
