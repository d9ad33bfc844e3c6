"""Reads every source once.

A source that does not answer is noted, and the others are read: an audit is wanted most when
something is broken.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from bigfleet.api.auth.identity import Identity
from bigfleet.audit.collect.cluster import read_cluster
from bigfleet.audit.collect.fleet import read_coordinator, read_provider
from bigfleet.audit.collect.shard import inspect_machines, read_shard
from bigfleet.audit.compare.fleet_index import FleetIndex
from bigfleet.audit.compare.machines import to_inspect
from bigfleet.audit.observations import (
    CLUSTER,
    COORDINATOR,
    PROVIDER,
    SHARD,
    CoordinatorView,
    InspectedMachine,
    Observation,
)
from bigfleet.model.domain import BY_RACK
from bigfleet.model.errors import BigFleetError

_View = TypeVar("_View")


@dataclass(frozen=True)
class Sources:
    """Where to read: the coordinator's replicas or, in a fleet without one, the shard; providers,
    by default those that the coordinator lists; and kubeconfigs by cluster. `shard_addresses` has
    the addresses of shards that cannot be reached at the one that they report.
    """

    coordinator: Sequence[str] = ()
    shard: str = ""
    providers: Sequence[str] = ()
    shard_addresses: Mapping[str, str] = field(default_factory=dict)
    kubeconfigs: Mapping[str, Path] = field(default_factory=dict)
    identity: Identity | None = None


async def observe(sources: Sources) -> Observation:
    """What all sources say now. InvalidInput if a kubeconfig cannot be used."""
    reading = _Reading()
    coordinator, listed = await _coordinator(sources, reading)
    reported = coordinator.shards if coordinator else {}
    addresses = {name: sources.shard_addresses.get(name, at) for name, at in reported.items()}
    if sources.shard:
        addresses = {sources.shard: sources.shard}
    keys = coordinator.domain_keys if coordinator else BY_RACK
    identity = sources.identity
    providers, shards, clusters = await asyncio.gather(
        reading.all(
            PROVIDER,
            dict.fromkeys(sources.providers or listed),
            lambda address, _: read_provider(address, identity),
        ),
        reading.all(SHARD, addresses, lambda _, address: read_shard(address, identity, keys)),
        reading.all(CLUSTER, sources.kubeconfigs, read_cluster),
    )
    seen = Observation(
        at=time.time(),
        providers=list(providers.values()),
        shards={view.id: view for view in shards.values()},
        clusters=clusters,
        coordinator=coordinator,
        unavailable=reading.errors,
    )
    by_id = {view.id: addresses[name] for name, view in shards.items()}
    return replace(seen, inspected=await _inspected(seen, by_id, identity, reading))


async def _coordinator(
    sources: Sources, reading: _Reading
) -> tuple[CoordinatorView | None, Sequence[str]]:
    """The coordinator's lists, and the addresses of the providers that it knows."""
    if not sources.coordinator:
        return None, ()
    read = await reading.one(COORDINATOR, read_coordinator(sources.coordinator, sources.identity))
    return read or (None, ())


async def _inspected(
    seen: Observation,
    addresses: Mapping[str, str],
    identity: Identity | None,
    reading: _Reading,
) -> Mapping[tuple[str, str], InspectedMachine | None]:
    machines: dict[str, list[str]] = {}
    for shard, machine in to_inspect(FleetIndex(seen)):
        machines.setdefault(shard, []).append(machine)
    found = await reading.all(
        SHARD,
        machines,
        lambda shard, names: inspect_machines(addresses[shard], identity, names),
    )
    return {(shard, name): view for shard, views in found.items() for name, view in views.items()}


_Key = TypeVar("_Key")


class _Reading:
    """Reads sources concurrently; `errors` has those that failed, by name."""

    def __init__(self) -> None:
        self.errors: dict[str, str] = {}

    async def one(self, name: str, read: Awaitable[_View]) -> _View | None:
        """The view; None if the source did not answer."""
        try:
            return await read
        except BigFleetError as error:
            self.errors[name] = str(error)
            return None

    async def all(
        self,
        prefix: str,
        sources: Mapping[str, _Key],
        read: Callable[[str, _Key], Awaitable[_View]],
    ) -> dict[str, _View]:
        """The views of those that answered, by name."""
        names = list(sources)
        views = await asyncio.gather(
            *(self.one(prefix + name, read(name, sources[name])) for name in names)
        )
        return {name: view for name, view in zip(names, views, strict=True) if view is not None}
