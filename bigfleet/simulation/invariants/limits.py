"""Limits that administrators set, ceilings of clusters and quotas of shards, and their keeping."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from bigfleet.engine.decision import ActionType
from bigfleet.engine.snapshot import NONE
from bigfleet.model.ceiling import Ceiling, Ceilings, micros
from bigfleet.model.domain import domain_of, region_of
from bigfleet.model.machine import Machine, MachineEvent, MachineState
from bigfleet.ports.ownership import OwnershipRecord, QuotaKey
from bigfleet.ports.provider import Fence
from bigfleet.services.shard.decide.compute import CycleResult
from bigfleet.services.shard.records.machine_class import class_of
from bigfleet.simulation.hosts.provider import NAME
from bigfleet.simulation.hosts.shard_host import ShardHost

# After this time no order is under way that was decided under an earlier limit.
_KNOWN_SECONDS = 60.0
_AT_WORK = (MachineState.CONFIGURING, MachineState.CONFIGURED)


class _Bound:
    """A limit that changes; infinite at first."""

    def __init__(self) -> None:
        self._changes = [(-math.inf, math.inf)]

    def change(self, now_seconds: float, limit: float) -> None:
        if limit != self._changes[-1][1]:
            self._changes.append((now_seconds, limit))

    def loosest(self, now_seconds: float) -> float:
        """The highest limit that an order begun now may have been decided under."""
        ends = [since for since, _ in self._changes[1:]] + [math.inf]
        return max(
            limit
            for (_, limit), end in zip(self._changes, ends, strict=True)
            if end > now_seconds - _KNOWN_SECONDS
        )


class ImposedLimits:
    """Sets the `ceilings` of all shards, and checks that orders keep to them and to quotas, and
    that there are none for `removed` clusters. `now` returns seconds.
    """

    def __init__(self, hosts: Mapping[str, ShardHost], now: Callable[[], float]) -> None:
        self.ceilings = Ceilings()
        self.removed: set[str] = set()
        self._hosts, self._now = hosts, now
        self._machines: dict[str, _Bound] = {}
        self._dollars: dict[str, _Bound] = {}
        self._slices: dict[tuple[str, str], _Bound] = {}
        self._owned: dict[str, tuple[float, OwnershipRecord]] = {}

    def set_ceiling(self, cluster: str, ceiling: Ceiling) -> None:
        """Set the ceiling of a cluster."""
        self.ceilings = replace(
            self.ceilings, clusters={**self.ceilings.clusters, cluster: ceiling}
        )
        for bounds, limit in (
            (self._machines, ceiling.machines),
            (self._dollars, ceiling.dollars_per_hour),
        ):
            bounds.setdefault(cluster, _Bound()).change(self._now(), limit)

    def withholds(self, machine: Machine, cluster: str, truth: Mapping[str, Machine]) -> bool:
        """Whether a limit in force keeps the cluster from the free machine."""
        ceiling = self.ceilings.of(cluster)
        if ceiling.bounds_acquisition:
            number, dollars = _held(cluster, truth)
            dollars += machine.price_per_hour
            if number + 1 > ceiling.machines or dollars > ceiling.dollars_per_hour:
                return True
        if machine.state is not MachineState.SPECULATIVE or not machine.capacity_type.elastic:
            return False
        region = region_of(class_of(machine).flavour.labels)
        records = (host.held for host in self._hosts.values())
        return any(
            cluster in held.clusters
            and self._bought(held, region, truth) + 1 > held.slices[QuotaKey(NAME, region)]
            for held in records
            if QuotaKey(NAME, region) in held.slices
        )

    def note_ownership(self) -> None:
        """Note what each shard owns now."""
        now = self._now()
        for name, host in self._hosts.items():
            held = host.held
            _, before = self._owned.get(name, (now, None))
            if before is None or (before.domains, before.clusters) != (held.domains, held.clusters):
                self._owned[name] = now, held
            for key, most in held.slices.items():
                self._slices.setdefault((name, key.region), _Bound()).change(now, most)

    def check_decision(self, result: CycleResult) -> Iterator[str]:
        """Actions for removed clusters, and preemptions for a priority above the cluster's ceiling,
        as sentences.
        """
        for action in result.decision.actions:
            if action.need == NONE:
                continue
            need, cluster = result.demand.needs[action.need], result.keys[action.need].cluster
            is_above = need.priority > self.ceilings.of(cluster).priority
            if action.type is ActionType.PREEMPT and is_above:
                yield f"{cluster} preempts with priority {need.priority} above its ceiling"
            if cluster in self.removed:
                machine = result.machine_id(action.row)
                yield f"{action.type.value} of {machine} for {cluster}, which was removed"

    def excess(
        self, fence: Fence, machine: Machine, event: MachineEvent, truth: Mapping[str, Machine]
    ) -> Iterator[str]:
        """A sentence if the operation that has just started exceeds a limit; `machine` is its
        record before, `truth` those of all machines now.
        """
        if event is MachineEvent.CONFIGURE:
            yield from self._above_ceiling(truth[machine.id].cluster, truth)
        elif event is MachineEvent.CREATE and machine.capacity_type.elastic:
            self.note_ownership()
            yield from self._above_quota(fence.shard_id, machine, truth)

    def _above_ceiling(self, cluster: str, truth: Mapping[str, Machine]) -> Iterator[str]:
        number, dollars = _held(cluster, truth)
        for bounds, what, amount in (
            (self._machines, "machines", number),
            (self._dollars, "dollars an hour", dollars),
        ):
            if cluster in bounds and amount > (most := bounds[cluster].loosest(self._now())):
                yield f"{cluster} gets {amount:g} {what}, its ceiling is {most:g}"

    def _above_quota(
        self, shard: str, machine: Machine, truth: Mapping[str, Machine]
    ) -> Iterator[str]:
        region = region_of(class_of(machine).flavour.labels)
        bound, (since, held) = self._slices.get((shard, region)), self._owned[shard]
        if bound is None or self._now() - since < _KNOWN_SECONDS:
            return  # what it owned a moment ago may have been less
        bought, most = self._bought(held, region, truth), bound.loosest(self._now())
        if bought > most:
            yield f"{shard} buys machine {bought} in {region}, its quota is {most:g}"

    @staticmethod
    def _bought(held: OwnershipRecord, region: str, truth: Mapping[str, Machine]) -> int:
        """The elastic machines in the region that a shard owns and that exist."""
        return sum(
            machine.capacity_type.elastic
            and machine.state is not MachineState.SPECULATIVE
            and region_of(labels := class_of(machine).flavour.labels) == region
            and domain_of(labels) in held.domains
            and (not machine.cluster or machine.cluster in held.clusters)
            for machine in truth.values()
        )


def _held(cluster: str, truth: Mapping[str, Machine]) -> tuple[int, float]:
    """The number of machines that a cluster has, and their dollars an hour."""
    its = [m for m in truth.values() if m.cluster == cluster and m.state in _AT_WORK]
    return len(its), sum(micros(machine.price_per_hour) for machine in its) / 1e6
