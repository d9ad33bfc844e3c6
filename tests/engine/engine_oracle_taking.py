"""Phase 2 the slow way: who lacks something takes from others."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from engine_oracle_rules import Host, Pool, best_domain, grace, last_resort, suitable

from bigfleet.engine.snapshot import NONE
from bigfleet.model import penalty
from bigfleet.model.machine import MachineState

if TYPE_CHECKING:
    from engine_oracle import Oracle

_FREE = (MachineState.IDLE, MachineState.SPECULATIVE)


class Taking:
    """Who may take what is settled by the claims of phase 1."""

    def __init__(self, oracle: Oracle, ripe: list[Host]) -> None:
        self.oracle = oracle
        self.ripe = {host.row for host in ripe}
        open_ = oracle.demand.reported - oracle.demand.unreachable
        self.holders = {
            host.row: host.claimed_by
            for host in oracle.hosts
            if host.state is MachineState.DRAINING
            or (host.state is MachineState.CONFIGURED and host.cluster in open_)
        }
        kept = [h for h in oracle.hosts if h.state in _FREE and h.kept_for != NONE]
        self.stirred = any(host.claimed_by == NONE for host in kept)
        self.robbed: set[int] = set()

    def run(self) -> None:
        """Need by need."""
        oracle = self.oracle
        if not any(oracle.lacks(index) for index in oracle.missing):
            return
        oracle.keeps = False
        for index in range(len(oracle.keys)):
            passes = index in oracle.expired or oracle.demand.needs[index].is_additional
            if oracle.lacks(index) and not passes:
                self.help(index)

    def help(self, index: int) -> None:
        """Look again if something became free, then take."""
        oracle = self.oracle
        if self.stirred or index in self.robbed:
            oracle.withdraw(index)
            oracle.serve(index)
        if not oracle.lacks(index):
            return
        key = oracle.demand.needs[index].profile.same_key
        offers = [host for host in oracle.hosts if self.offered(host, index)]
        if key is None:
            self.take(index, offers)
        else:
            self.complete(index, key, offers)

    def offered(self, host: Host, index: int) -> bool:
        """Whether the need may take the machine."""
        oracle = self.oracle
        need, cluster = oracle.demand.needs[index], int(oracle.demand.cluster[index])
        if self.holders.get(host.row, math.nan) != host.claimed_by or not suitable(host, need):
            return False
        if host.state is MachineState.DRAINING:
            if host.kept_for == index or not self.in_time(host, index):
                return False
            if host.claimed_by == NONE:
                return True
        elif host.cluster == cluster:
            return False
        if host.claimed_by == NONE:
            promised = host.wanted_by == index
            return promised or host.row in self.ripe or host.priority < need.profile.priority
        loser = oracle.demand.needs[host.claimed_by].profile
        if loser.priority < need.profile.priority:
            return True
        both_gangs = loser.same_key is not None and need.profile.same_key is not None
        return both_gangs and loser.priority == need.profile.priority and oracle.lacks(
            host.claimed_by
        )  # fmt: skip

    def complete(self, index: int, key: str, offers: list[Host]) -> None:
        """Take for a gang if that makes it whole."""
        oracle = self.oracle
        need = oracle.demand.needs[index]
        held = oracle.held(index)
        pool = Pool(
            ours=[*oracle.creditable(index), *(h for h in held if h.state not in _FREE)],
            free=[*oracle.acquirable(index), *(h for h in held if h.state in _FREE)],
            spare=[host for host in offers if self.gentle(host)],
            used=[host for host in offers if not self.gentle(host)],
        )
        home, whole = best_domain(key, index, need, pool, oracle.reserved_domain(index))
        if whole:
            oracle.withdraw(index)
            oracle.settle(index, home, True)
            self.stirred |= any(host.claimed_by != index for host in held)
            self.take(index, [host for host in offers if host.labels[key] == home])
        elif index in oracle.reserved:
            del oracle.reserved[index]
            oracle.withdraw(index)
            oracle.serve(index)
            self.stirred = True

    def in_time(self, host: Host, index: int) -> bool:
        """Whether what drains for another need does so as fast as this one may demand."""
        if host.claimed_by == NONE:
            return True
        given, demanded = (
            grace(max(self.oracle.demand.needs[each].profile.priority - host.priority, 0))
            for each in (host.claimed_by, index)
        )
        return given <= demanded

    def gentle(self, host: Host) -> bool:
        """Whether nobody counts it, or its pods have to leave already."""
        return host.claimed_by == NONE or host.state is MachineState.DRAINING

    def take(self, index: int, offers: list[Host]) -> None:
        """Take as few and as harmless machines as possible."""
        oracle = self.oracle
        tiers = {host.row: self.tier(host, index) for host in offers}
        places = {tier: place for place, tier in enumerate(sorted({*tiers.values()}))}
        held = oracle.held(index)
        holders = {host.row: host.claimed_by for host in offers}
        gentle = {host.row for host in offers if self.gentle(host)}
        picked = oracle.pick(
            index,
            held,
            offers,
            lambda host: tiers[host.row],
            lambda host: places[tiers[host.row]],
            lambda _: 0.0,
        )
        oracle.taken[index] = [
            (host, host.row in gentle, self.gap(host, holders[host.row], index)) for host in picked
        ]
        losers = {holders[host.row] for host in picked} - {NONE}
        for loser in losers:
            oracle.recount(loser)
        self.robbed |= losers

    def tier(self, host: Host, index: int) -> tuple[object, ...]:
        """Draining, excess, draining for another, used, used by the pinned; last resorts; promised;
        best victim.
        """
        need = self.oracle.demand.needs[index]
        new = host.wanted_by != index
        reluctance = last_resort(host, need)
        drains = host.state is MachineState.DRAINING
        if host.claimed_by == NONE:
            return 0 if drains else 1, reluctance, new, 0.0
        if drains:
            return 2, reluctance, new, -float(self.gap(host, host.claimed_by, index))
        loser = self.oracle.demand.needs[host.claimed_by].profile
        pinned = loser.interruption_bucket == penalty.PINNED
        score = self.score(host, index)
        return 4 if pinned else 3, reluctance, new, -score

    def score(self, host: Host, index: int) -> float:
        """How good a victim it is."""
        weights = self.oracle.settings.victim_weights
        loser = self.oracle.demand.needs[host.claimed_by].profile
        gap = self.gap(host, host.claimed_by, index)
        score = gap * weights.priority_gap + weights.drain / grace(gap)
        for bucket, weight in (
            (loser.interruption_bucket, weights.interruption),
            (loser.reclamation_bucket, weights.reclamation),
        ):
            score += weight / max(penalty.dollars(bucket), 0.01)
        return score

    def gap(self, host: Host, holder: int, index: int) -> int:
        """By how much the need outranks what the machine serves, or last served."""
        own = self.oracle.demand.needs[index].profile.priority
        if host.state is MachineState.DRAINING and holder == NONE:
            return 0
        other = host.priority
        if holder != NONE:
            other = self.oracle.demand.needs[holder].profile.priority
        return max(own - other, 0)
