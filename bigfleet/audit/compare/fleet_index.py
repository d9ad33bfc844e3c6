"""The machines of an observation, and the shard that should decide about each. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property

from bigfleet.audit.observations import Observation, Region, ShardView
from bigfleet.model.domain import BY_RACK, Domain, domain_of, region_of
from bigfleet.model.labels import ZONE_LABEL
from bigfleet.model.machine import Machine

OWNED = "owned"


class FleetIndex:
    """An observation with its machines by id, and with what follows from their records."""

    def __init__(self, seen: Observation) -> None:
        self.seen = seen
        self.machines: dict[str, Machine] = {}
        self._provider_of: dict[str, str] = {}
        self._domain_keys = seen.coordinator.domain_keys if seen.coordinator else BY_RACK
        #: names of the providers that list one id, by that
        self.listed_twice: dict[str, list[str]] = {}
        for provider in seen.providers:
            for machine_id in provider.machines.keys() & self.machines.keys():
                before = self.listed_twice.get(machine_id, [self._provider_of[machine_id]])
                self.listed_twice[machine_id] = [*before, provider.name]
            self.machines.update(provider.machines)
            self._provider_of.update(dict.fromkeys(provider.machines, provider.name))

    def domain(self, machine: Machine) -> Domain:
        """The machine's domain."""
        return domain_of(_labels(machine), self._domain_keys)

    def region(self, machine: Machine) -> Region:
        """The provider and region whose quota the machine counts in."""
        return self._provider_of[machine.id], region_of(_labels(machine))

    def owner(self, machine: Machine) -> str:
        """The shard that should decide about the machine: of a bound one that of its cluster, of
        another that of its domain. "" if none should, or if the domain is just moving.
        """
        coordinator = self.seen.coordinator
        if coordinator is None:
            return next(iter(self.seen.shards), "")
        if machine.cluster:
            return coordinator.clusters.get(machine.cluster, "")
        row = coordinator.domains.get(self.domain(machine))
        return row.shard if row is not None and row.state == OWNED else ""

    def shard_of_cluster(self, cluster: str) -> ShardView | None:
        """The view of the shard that should serve the cluster; None if it is not known."""
        coordinator = self.seen.coordinator
        if coordinator is None:
            return next(iter(self.seen.shards.values()), None)
        return self.seen.shards.get(coordinator.clusters.get(cluster, ""))

    @cached_property
    def free_machines(self) -> Mapping[Domain, Sequence[Machine]]:
        """The machines without a cluster, by domain."""
        found: defaultdict[Domain, list[Machine]] = defaultdict(list)
        for machine in self.machines.values():
            if not machine.cluster:
                found[self.domain(machine)].append(machine)
        return found

    @cached_property
    def pods(self) -> Mapping[tuple[str, str], Mapping[tuple[str, str], int]]:
        """By shard and cluster, the pods of each need, by (profile fingerprint, group)."""
        found: defaultdict[tuple[str, str], dict[tuple[str, str], int]] = defaultdict(dict)
        for shard in self.seen.shards.values():
            for key, pods in shard.pods.items():
                found[shard.id, key.cluster][key.fingerprint, key.group] = pods
        return found

    @cached_property
    def known_clusters(self) -> set[str]:
        """The clusters that any part of the fleet other than a provider knows."""
        seen = self.seen
        known = {*seen.clusters, *(seen.coordinator.clusters if seen.coordinator else ())}
        for shard in seen.shards.values():
            known.update(shard.reported)
        known.update(cluster for _, cluster in self.pods)
        return known


def _labels(machine: Machine) -> Mapping[str, str]:
    """The labels that shards see; a machine's zone need not be among its own."""
    return {ZONE_LABEL: machine.zone, **machine.labels}
