"""Ownership of machines by the shards of a fleet."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

from bigfleet.model.domain import Domain, domain_of
from bigfleet.model.machine import Machine, MachineEvent
from bigfleet.ports.provider import Fence
from bigfleet.services.shard.records.machine_class import class_of
from bigfleet.simulation.hosts.shard_host import ShardHost


class Ownership:
    """Checks that no machine has two owners. `removed` are the shards removed from the fleet, whose
    calls are rejected.
    """

    def __init__(self, hosts: Mapping[str, ShardHost]) -> None:
        self._hosts = hosts

    def conflicts(self, removed: Collection[str]) -> Iterator[str]:
        """Domains that two shards own, as sentences."""
        owners: defaultdict[Domain, list[str]] = defaultdict(list)
        for name, host in self._hosts.items():
            if name not in removed:
                for domain in host.held.domains:
                    owners[domain].append(name)
        for domain, names in owners.items():
            if len(names) > 1:
                yield f"{domain} is owned by {' and '.join(names)}"

    def trespass(self, fence: Fence, machine: Machine, event: MachineEvent) -> Iterator[str]:
        """A sentence if the calling shard does not own the machine on which an operation started;
        `machine` is its record before.
        """
        held = self._hosts[fence.shard_id].held
        domain = domain_of(class_of(machine).flavour.labels)
        if machine.cluster:
            serving = self._serving(machine.cluster)
            if machine.cluster not in held.clusters and serving:
                where = f"in {machine.cluster}, which {serving} serves"
                yield f"{event.name} of {machine.id} {where}, was ordered by {fence.shard_id}"
        elif domain not in held.domains:
            owner = next(
                (n for n, h in self._hosts.items() if domain in h.held.domains), "no shard"
            )
            where = f"of {domain}, which {owner} owns"
            yield f"{event.name} of {machine.id} {where}, was ordered by {fence.shard_id}"

    def orphans(self, machines: Mapping[str, Machine], removed: Collection[str]) -> Iterator[str]:
        """Machines that no shard or several shards own, as sentences."""
        shards = [
            (name, host.shard)
            for name, host in self._hosts.items()
            if name not in removed and host.shard is not None
        ]
        for machine in machines.values():
            owners = [name for name, shard in shards if shard.inventory.owns(machine.id)]
            if len(owners) != 1:
                who = " and ".join(owners) or "no shard"
                where = f"{machine.state.name} in {machine.cluster or 'no cluster'}"
                yield f"{machine.id}, {where}, is owned by {who}"

    def _serving(self, cluster: str) -> str:
        names = (name for name, host in self._hosts.items() if cluster in host.held.clusters)
        return next(names, "")
