"""Assignment and transfer of topology domains. Pure: rows in, changes to rows out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import NamedTuple

import msgspec

from bigfleet.model.errors import InvalidInput, UnknownObject
from bigfleet.services.coordinator.domain_lifecycle import DomainEvent, DomainState, next_state
from bigfleet.services.coordinator.registry import Load, Registry
from bigfleet.services.coordinator.rows import Domain, DomainName, RowChanges, put

# Makes the id of a new instruction, unique in the life of the fleet.
NewInstructionId = Callable[[], str]


class Observation(NamedTuple):
    """A domain reported by a shard: its number of machines and their most common type."""

    topology_key: str
    topology_value: str
    machines: int = 0
    instance_type: str = ""


class Drain(NamedTuple):
    """Machines that a shard is to drain for pods of a higher priority, before it releases their
    domain.
    """

    machine_ids: tuple[str, ...]
    priority: int


def assign_unowned(
    registry: Registry,
    candidates: Iterable[str],
    seen: Iterable[Observation],
    instruction_id: NewInstructionId,
) -> RowChanges:
    """Assign each unowned domain to the candidate with the fewest machines of its type.

    This spreads every instance type evenly: a shard without a type could not serve needs that
    require it. Largest domains first; ties go by machines of all types, domains and name, so that
    every leader decides the same. Domains that have an owner or a transfer target are skipped.
    """
    loads = _loads(registry, candidates)
    changes: RowChanges = {}
    for observation in sorted(set(seen), key=_largest_first) if loads else ():
        if observation[:2] in registry.domains:
            continue
        row = _assigned(
            observation, _least_loaded(loads, observation.instance_type), instruction_id()
        )
        if row.key not in changes:
            changes[row.key] = row
            loads[row.shard].count(row)
    return changes


def _largest_first(observation: Observation) -> tuple[int, Observation]:
    return -observation.machines, observation


def _least_loaded(loads: Mapping[str, Load], instance_type: str) -> str:
    def load_key(shard: str) -> tuple[int, int, int, str]:
        load = loads[shard]
        return load.of_type[instance_type], load.machines, load.domains, shard

    return min(loads, key=load_key)


def move(
    registry: Registry,
    name: DomainName,
    to: str,
    instruction_id: NewInstructionId,
    reason: str = "",
    home: str = "",
    drain: Drain | None = None,
) -> RowChanges:
    """Transfer a domain to the shard `to`; its present shard releases it first, and drains machines
    if told so. It keeps its home unless there is a new one.

    UnknownObject for a shard that never reported; InvalidInput for one that is being removed, and
    for a topology key that is not among the shard's domain keys.
    """
    shard = registry.shards.get(to)
    if shard is None:
        raise UnknownObject(f"shard {to} has never reported; `fleet shards` lists known shards")
    if shard.removed or shard.leaving:
        raise InvalidInput("shard_id", to, "is being removed; choose another shard")
    key = name[0]
    if key and key not in shard.domain_keys:
        allowed = " or ".join(shard.domain_keys)
        raise InvalidInput("topology_key", key, f"is not a domain key of the shards: {allowed}")
    domain = registry.domains.get(name)
    if domain is None:
        return put(_assigned(Observation(*name), to, instruction_id()))
    if domain.state is not DomainState.RELEASING and domain.shard == to:
        return {}
    return put(_releasing(domain, to, instruction_id(), reason, home, drain))


def release(registry: Registry, name: DomainName, instruction_id: NewInstructionId) -> RowChanges:
    """Take a domain from its shard; UnknownObject when it has no owner."""
    domain = registry.domains.get(name)
    if domain is None:
        raise UnknownObject(f"domain {'='.join(name)} is not assigned to any shard")
    if domain.state is DomainState.RELEASING and not domain.to:
        return {}
    return put(_releasing(domain, "", instruction_id()))


def release_all(
    registry: Registry,
    shard: str,
    limit: int,
    instruction_id: NewInstructionId,
    candidates: Iterable[str] = (),
) -> RowChanges:
    """Release the next `limit` domains of a leaving shard, each to the candidate with the fewest
    machines of its type.
    """
    loads = _loads(registry, candidates)
    held = (d for d in registry.domains_of(shard) if d.state is not DomainState.RELEASING)
    changes: RowChanges = {}
    for domain in sorted(islice(held, limit), key=_largest_row_first):
        to = _counted(loads, domain)
        changes |= put(_releasing(domain, to, instruction_id(), home=to))
    return changes


def passed_on(
    registry: Registry,
    orphans: Iterable[Domain],
    instruction_id: NewInstructionId,
    candidates: Iterable[str] = (),
) -> RowChanges:
    """Domains whose shard is gone: each for its transfer target, else for the candidate with the
    fewest machines of its type; without any they are free.
    """
    loads = _loads(registry, candidates)
    changes: RowChanges = {}
    for domain in sorted(orphans, key=_largest_row_first):
        next_state(domain.name, domain.state, DomainEvent.OWNER_GONE)
        found = _freed(registry, domain, instruction_id)
        if found[domain.key] is None and (to := _counted(loads, domain)):
            known = Observation(*domain.name, domain.machines, domain.instance_type)
            found = put(_assigned(known, to, instruction_id()))
        changes |= found
    return changes


def _loads(registry: Registry, candidates: Iterable[str]) -> Mapping[str, Load]:
    """What each candidate has, to be counted on."""
    return {shard: registry.load(shard).copy() for shard in candidates}


def _counted(loads: Mapping[str, Load], domain: Domain) -> str:
    """The shard with the fewest machines of the domain's type, which are its own from now on; ""
    without any shard.
    """
    if not loads:
        return ""
    to = _least_loaded(loads, domain.instance_type)
    loads[to].count(domain)
    return to


def _largest_row_first(domain: Domain) -> tuple[int, DomainName]:
    return -domain.machines, domain.name


def taken(domain: Domain) -> RowChanges:
    """The domain once its shard has accepted it."""
    state = next_state(domain.name, domain.state, DomainEvent.TAKEN)
    return put(msgspec.structs.replace(domain, state=state))


def released(registry: Registry, domain: Domain, instruction_id: NewInstructionId) -> RowChanges:
    """The domain once its shard has released it: assigned to the transfer target, or free."""
    next_state(domain.name, domain.state, DomainEvent.RELEASED)
    return _freed(registry, domain, instruction_id)


def refused(domain: Domain) -> RowChanges:
    """The domain once its shard has refused to drain machines of it: nothing changes hands."""
    state = next_state(domain.name, domain.state, DomainEvent.REFUSED)
    return put(
        msgspec.structs.replace(
            domain, state=state, to="", reason="", drained=(), drained_for_priority=0
        )
    )


def _freed(registry: Registry, domain: Domain, instruction_id: NewInstructionId) -> RowChanges:
    """A domain without an owner: assigned to its transfer target, or free."""
    transfer_target = registry.shards.get(domain.to)
    if transfer_target is None or transfer_target.removed or transfer_target.leaving:
        return {domain.key: None}
    known = Observation(*domain.name, domain.machines, domain.instance_type)
    assigned = _assigned(known, transfer_target.id, instruction_id())
    return put(msgspec.structs.replace(assigned, reason=domain.reason, home=domain.home))


def reissued(domain: Domain, instruction_id: str) -> Domain:
    """The domain, with its shard instructed once more under a new id."""
    state = next_state(domain.name, domain.state, DomainEvent.REPEAT)
    return msgspec.structs.replace(domain, state=state, instruction_id=instruction_id)


def _assigned(observation: Observation, shard: str, instruction_id: str) -> Domain:
    key, value, machines, instance_type = observation
    state = next_state((key, value), DomainState.FREE, DomainEvent.GIVE)
    return Domain(
        key, value, shard, state, instruction_id, machines=machines, instance_type=instance_type
    )


def _releasing(
    domain: Domain,
    to: str,
    instruction_id: str,
    reason: str = "",
    home: str = "",
    drain: Drain | None = None,
) -> Domain:
    """An unacknowledged instruction keeps its id: the shard may be carrying it out."""
    state = next_state(domain.name, domain.state, DomainEvent.RELEASE)
    if domain.state is DomainState.RELEASING:
        instruction_id = domain.instruction_id
    return msgspec.structs.replace(
        domain,
        state=state,
        instruction_id=instruction_id,
        to=to,
        reason=reason,
        home=home or domain.home,
        drained=drain.machine_ids if drain else (),
        drained_for_priority=drain.priority if drain else 0,
    )
