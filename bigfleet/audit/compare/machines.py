"""Machines: does each shard list its own, in the states that the providers state? Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from bigfleet.audit.compare.fleet_index import FleetIndex
from bigfleet.audit.differences import Difference, Kind, difference
from bigfleet.audit.observations import SHARD, InspectedMachine, ShardView
from bigfleet.model.domain import Domain
from bigfleet.model.machine import Machine, MachineState


def to_inspect(index: FleetIndex) -> Iterator[tuple[str, str]]:
    """Pairs of shard and machine to look at more closely: the shard's last decision, where orders
    under way count as done, differs from the provider's record.
    """
    for machine in index.machines.values():
        owner = index.owner(machine)
        shard = index.seen.shards.get(owner)
        if shard is not None and _is_suspect(machine, shard):
            yield owner, machine.id
    for _, owner, sample in _untaken_domains(index):
        yield owner, sample.id


def differences(index: FleetIndex) -> Iterator[Difference]:
    """Differences between the providers' machines and those of the shards."""
    yield from _unusable(index)
    untaken = {domain for domain, _, sample in _untaken_domains(index) if _not_owned(index, sample)}
    for machine in index.machines.values():
        if machine.cluster or index.domain(machine) not in untaken:
            yield from _of_machine(index, machine)
    for domain, owner, sample in _untaken_domains(index):
        if domain in untaken:
            yield difference(
                Kind.DOMAIN_NOT_TAKEN,
                f"domain {domain}",
                coordinator=f"owned by {owner}",
                shard=f"{owner}: of machine {sample.id}: {_not_owned(index, sample)}",
            )
    yield from _unknown_to_providers(index)
    yield from _of_two_shards(index)
    yield from _of_unknown_clusters(index)


def _is_suspect(machine: Machine, shard: ShardView) -> bool:
    """Shards leave speculative machines out of decisions once their quota is exhausted."""
    decided = shard.machines.get(machine.id)
    if decided is None:
        return machine.state is not MachineState.SPECULATIVE
    return (decided.state, decided.cluster) != (machine.state, machine.cluster)


def _unusable(index: FleetIndex) -> Iterator[Difference]:
    for provider in index.seen.providers:
        for machine_id, error in provider.rejected.items():
            yield difference(Kind.RECORD_INVALID, f"machine {machine_id}", provider=error)
    for machine_id, names in index.listed_twice.items():
        stated = " and ".join(names)
        yield difference(Kind.MACHINE_OF_TWO_PROVIDERS, f"machine {machine_id}", providers=stated)


def _of_machine(index: FleetIndex, machine: Machine) -> Iterator[Difference]:
    owner = index.owner(machine)
    shard = index.seen.shards.get(owner)
    if shard is None or machine.id in index.listed_twice or not _is_suspect(machine, shard):
        return
    known = _known_to(index, shard, machine)
    name, provider = f"machine {machine.id}", _stated(machine.state, machine.cluster)
    if known is None or known.not_owned:
        why = known.not_owned if known else "does not list it"
        yield difference(Kind.MACHINE_NOT_LISTED, name, provider=provider, shard=f"{owner}: {why}")
    elif (known.state, known.cluster) != (machine.state, machine.cluster):
        stated = f"{owner}: {_seen(known)}"
        yield difference(Kind.MACHINE_STATE, name, provider=provider, shard=stated)


def _known_to(index: FleetIndex, shard: ShardView, machine: Machine) -> InspectedMachine | None:
    """How the shard knows the machine, None if it does not. Where too many differ for a closer look
    at each, as it was in the shard's last decision; as it should be where the shard has gone since.
    """
    seen, key = index.seen, (shard.id, machine.id)
    if key in seen.inspected:
        return seen.inspected[key]
    if f"{SHARD}{shard.id}" in seen.unavailable:
        return InspectedMachine(machine.state, machine.cluster)
    decided = shard.machines.get(machine.id)
    return None if decided is None else InspectedMachine(decided.state, decided.cluster)


def _untaken_domains(index: FleetIndex) -> Iterator[tuple[Domain, str, Machine]]:
    """The domains with free machines of which their shard decides about none: the domain, the
    shard, and one of the machines.
    """
    if index.seen.coordinator is None:
        return
    for domain, free in index.free_machines.items():
        owner = index.owner(free[0])
        shard = index.seen.shards.get(owner)
        if shard is not None and not any(machine.id in shard.machines for machine in free):
            yield domain, owner, min(free, key=lambda machine: machine.id)


def _not_owned(index: FleetIndex, machine: Machine) -> str:
    """Why the shard that should own the machine does not; "" if it does, or does not know it."""
    inspected = index.seen.inspected.get((index.owner(machine), machine.id))
    return inspected.not_owned if inspected else ""


def _unknown_to_providers(index: FleetIndex) -> Iterator[Difference]:
    if not index.seen.knows_all_machines:
        return
    rejected = {name for provider in index.seen.providers for name in provider.rejected}
    for shard in index.seen.shards.values():
        for machine_id, decided in shard.machines.items():
            if machine_id not in index.machines and machine_id not in rejected:
                yield difference(
                    Kind.MACHINE_UNKNOWN_TO_PROVIDER,
                    f"machine {machine_id}",
                    provider="does not list it",
                    shard=f"{shard.id}: {_stated(decided.state, decided.cluster)}",
                )


def _of_two_shards(index: FleetIndex) -> Iterator[Difference]:
    """Bound machines; of free ones the domain is named."""
    holders: defaultdict[str, list[str]] = defaultdict(list)
    for shard in index.seen.shards.values():
        for machine_id, decided in shard.machines.items():
            if decided.cluster:
                holders[machine_id].append(f"{shard.id}: {_stated(decided.state, decided.cluster)}")
    for machine_id, statements in holders.items():
        if len(statements) > 1:
            stated = "; ".join(sorted(statements))
            yield difference(Kind.MACHINE_OF_TWO_SHARDS, f"machine {machine_id}", shards=stated)


def _of_unknown_clusters(index: FleetIndex) -> Iterator[Difference]:
    if not index.seen.knows_all_shards or "coordinator" in index.seen.unavailable:
        return
    for machine in index.machines.values():
        if machine.cluster and machine.cluster not in index.known_clusters:
            yield difference(
                Kind.MACHINE_OF_UNKNOWN_CLUSTER,
                f"machine {machine.id}",
                provider=_stated(machine.state, machine.cluster),
                others=f"nobody knows cluster {machine.cluster}",
            )


def _stated(state: MachineState, cluster: str) -> str:
    return f"{state.name} in {cluster}" if cluster else state.name


def _seen(inspected: InspectedMachine) -> str:
    order = f", {inspected.order} under way" if inspected.order else ""
    return _stated(inspected.state, inspected.cluster) + order
