"""Who gets a domain, and how it passes on. Pure: rows in, changes to rows out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import NamedTuple

import msgspec

from bigfleet.model.errors import InvalidInput, UnknownObject
from bigfleet.services.coordinator.domain_lifecycle import DomainEvent, DomainState, next_state
from bigfleet.services.coordinator.registry import Load, Registry
from bigfleet.services.coordinator.rows import Domain, DomainName, RowChanges, put

# A new order's id; never the same twice in the life of the fleet.
NewOrder = Callable[[], str]


class Sighting(NamedTuple):
    """A domain that a shard has seen, with its machines and the commonest type among them."""

    topology_key: str
    topology_value: str
    machines: int = 0
    instance_type: str = ""


def give(
    registry: Registry, candidates: Iterable[str], seen: Iterable[Sighting], order: NewOrder
) -> RowChanges:
    """Domains seen that are nobody's, each to the candidate with the fewest machines of its type.

    So every kind of machine is shared out evenly: a shard without any of a kind could never serve
    those who ask for it. Largest domains first, ties by machines of all types, domains and name,
    so that any leader would decide the same. Domains that somebody has, or is about to get, stay
    as they are. Nothing without candidates.
    """
    loads = {shard: registry.load(shard).copy() for shard in candidates}
    changes: RowChanges = {}
    for sighting in sorted(set(seen), key=_largest_first) if loads else ():
        if sighting[:2] in registry.domains:
            continue
        row = _given(sighting, _poorest(loads, sighting.instance_type), order())
        if row.key not in changes:
            changes[row.key] = row
            loads[row.shard].count(row)
    return changes


def _largest_first(sighting: Sighting) -> tuple[int, Sighting]:
    return -sighting.machines, sighting


def _poorest(loads: Mapping[str, Load], instance_type: str) -> str:
    def wealth(shard: str) -> tuple[int, int, int, str]:
        load = loads[shard]
        return load.of_type[instance_type], load.machines, load.domains, shard

    return min(loads, key=wealth)


def move(registry: Registry, name: DomainName, to: str, order: NewOrder) -> RowChanges:
    """Bring a domain to the shard `to`: released by its present shard first.

    UnknownObject for a shard that never reported, InvalidInput for one that is going away, and for
    a domain by a label that shards do not own by.
    """
    shard = registry.shards.get(to)
    if shard is None:
        raise UnknownObject(f"no shard {to} has ever reported; `fleet shards` lists those that did")
    if shard.removed or shard.leaving:
        raise InvalidInput("shard_id", to, "is being removed; name a shard that stays")
    key = name[0]
    if key and shard.domain_keys and key not in shard.domain_keys:
        own = " or ".join(shard.domain_keys)
        raise InvalidInput("topology_key", key, f"is not what shards own machines by: {own}")
    domain = registry.domains.get(name)
    if domain is None:
        return put(_given(Sighting(*name), to, order()))
    if domain.state is not DomainState.RELEASING and domain.shard == to:
        return {}
    return put(_releasing(domain, to, order()))


def release(registry: Registry, name: DomainName, order: NewOrder) -> RowChanges:
    """Take a domain from its shard; UnknownObject when nobody has it."""
    domain = registry.domains.get(name)
    if domain is None:
        raise UnknownObject(f"domain {'='.join(name)} is not assigned to any shard")
    if domain.state is DomainState.RELEASING and not domain.to:
        return {}
    return put(_releasing(domain, "", order()))


def release_all(registry: Registry, shard: str, limit: int, order: NewOrder) -> RowChanges:
    """The first `limit` domains that a leaving shard has not been told to release yet."""
    held = (d for d in registry.domains_of(shard) if d.state is not DomainState.RELEASING)
    return put(*(_releasing(domain, "", order()) for domain in islice(held, limit)))


def taken(domain: Domain) -> RowChanges:
    """Its shard has accepted it."""
    state = next_state(domain.name, domain.state, DomainEvent.TAKEN)
    return put(msgspec.structs.replace(domain, state=state))


def released(registry: Registry, domain: Domain, order: NewOrder) -> RowChanges:
    """Its shard will not act on it any more: it goes to whom it was promised, or is free."""
    next_state(domain.name, domain.state, DomainEvent.RELEASED)
    return freed(registry, domain, order)


def freed(registry: Registry, domain: Domain, order: NewOrder) -> RowChanges:
    """What becomes of a domain that nobody acts on any more: whom it was promised gets it."""
    heir = registry.shards.get(domain.to)
    if heir is None or heir.removed or heir.leaving:
        return {domain.key: None}
    known = Sighting(*domain.name, domain.machines, domain.instance_type)
    return put(_given(known, heir.id, order()))


def repeated(domain: Domain, order: str) -> Domain:
    """The same, to be asked of its shard once more under a new order."""
    state = next_state(domain.name, domain.state, DomainEvent.REPEAT)
    return msgspec.structs.replace(domain, state=state, order=order)


def _given(sighting: Sighting, shard: str, order: str) -> Domain:
    key, value, machines, instance_type = sighting
    state = next_state((key, value), DomainState.FREE, DomainEvent.GIVE)
    return Domain(key, value, shard, state, order, machines=machines, instance_type=instance_type)


def _releasing(domain: Domain, to: str, order: str) -> Domain:
    """An order that was given and not answered keeps its id: the shard may be carrying it out."""
    state = next_state(domain.name, domain.state, DomainEvent.RELEASE)
    if domain.state is DomainState.RELEASING:
        order = domain.order
    return msgspec.structs.replace(domain, state=state, order=order, to=to)
