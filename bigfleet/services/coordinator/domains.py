"""Who gets a domain, and how it passes on. Pure: rows in, changes to rows out."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

import msgspec

from bigfleet.model.errors import InvalidInput, UnknownObject
from bigfleet.services.coordinator.domain_lifecycle import DomainEvent, DomainState, next_state
from bigfleet.services.coordinator.registry import Registry
from bigfleet.services.coordinator.rows import Domain, DomainName, RowChanges, put

# A new order's id; never the same twice in the life of the fleet.
NewOrder = Callable[[], str]
Seen = tuple[str, str, int]


def give(
    registry: Registry, candidates: Iterable[str], seen: Sequence[Seen], order: NewOrder
) -> RowChanges:
    """Domains seen that are nobody's, each to the candidate with the fewest machines.

    Largest domains first, ties by name, so that any leader would decide the same. Domains that
    somebody has, or is about to get, stay as they are. Nothing without candidates.
    """
    queue = [_place(registry, shard) for shard in candidates]
    heapq.heapify(queue)
    changes: RowChanges = {}
    for key, value, machines in sorted(seen, key=lambda each: (-each[2], each[0], each[1])):
        if not queue or (key, value) in registry.domains:
            continue
        held, domains, shard = heapq.heappop(queue)
        row = _given((key, value), shard, machines, order())
        if row.key not in changes:
            changes[row.key] = row
            held, domains = held + machines, domains + 1
        heapq.heappush(queue, (held, domains, shard))
    return changes


def move(registry: Registry, name: DomainName, to: str, order: NewOrder) -> RowChanges:
    """Bring a domain to the shard `to`: released by its present shard first.

    UnknownObject for a shard that never reported, InvalidInput for one that is going away.
    """
    shard = registry.shards.get(to)
    if shard is None:
        raise UnknownObject(f"no shard {to} has ever reported; `fleet shards` lists those that did")
    if shard.removed or shard.leaving:
        raise InvalidInput("shard_id", to, "is being removed; name a shard that stays")
    domain = registry.domains.get(name)
    if domain is None:
        return put(_given(name, to, 0, order()))
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
    return put(_given(domain.name, heir.id, domain.machines, order()))


def repeated(domain: Domain, order: str) -> Domain:
    """The same, to be asked of its shard once more under a new order."""
    state = next_state(domain.name, domain.state, DomainEvent.REPEAT)
    return msgspec.structs.replace(domain, state=state, order=order)


def _place(registry: Registry, shard: str) -> tuple[int, int, str]:
    load = registry.load(shard)
    return load.machines, load.domains, shard


def _given(name: DomainName, shard: str, machines: int, order: str) -> Domain:
    state = next_state(name, DomainState.FREE, DomainEvent.GIVE)
    return Domain(name[0], name[1], shard, state, order, machines=machines)


def _releasing(domain: Domain, to: str, order: str) -> Domain:
    """An order that was given and not answered keeps its id: the shard may be carrying it out."""
    state = next_state(domain.name, domain.state, DomainEvent.RELEASE)
    if domain.state is DomainState.RELEASING:
        order = domain.order
    return msgspec.structs.replace(domain, state=state, order=order, to=to)
