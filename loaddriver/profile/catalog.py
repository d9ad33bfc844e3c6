"""The catalog: the types of workload that tenants run, and the machines that they run on.

Machines are dedicated or shared. A dedicated machine holds exactly `podsPerMachine` pods of the pod
size that names its instance type, so the fleet follows from the pods. Shared machines are of
ordinary instance types and hold pods of all sizes, as in most clusters; the profile lists them in
`fleet.supply`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec

from loaddriver.errors import ProfileError
from loaddriver.profile.archetypes import Archetype
from loaddriver.profile.decoding import ConfigStruct
from loaddriver.profile.hints import did_you_mean
from loaddriver.profile.instance_types import DaemonSet, InstanceType, Pricing, SystemReserved

DEFAULT_CATALOG = "catalog"


class Catalog(ConfigStruct, frozen=True, kw_only=True):
    """Archetypes and prices; for shared machines also instance types, system reservations and the
    DaemonSets of every cluster.
    """

    pricing: Pricing
    archetypes: Annotated[tuple[Archetype, ...], msgspec.Meta(min_length=1)]
    instance_types: tuple[InstanceType, ...] = ()
    system_reserved: SystemReserved | None = None
    daemon_sets: tuple[DaemonSet, ...] = ()

    @property
    def shares_machines(self) -> bool:
        """Whether pods of all archetypes share machines."""
        return bool(self.instance_types)

    def archetype(self, name: str) -> Archetype:
        """The archetype called `name`. Raises KeyError."""
        return {archetype.name: archetype for archetype in self.archetypes}[name]

    def weight_sets(self) -> tuple[str, ...]:
        """The names of all weight sets, sorted."""
        return tuple(sorted({name for each in self.archetypes for name in each.weights}))


def pod_shares(weights: str | Mapping[str, float], catalog: Catalog) -> dict[str, float]:
    """Each archetype's share of all pods; the shares add up to 1, in catalog order.

    `weights` names a weight set or gives weights by archetype.
    Raises ProfileError (path `weights`) for unknown names or an empty sum.
    """
    chosen = _weights_of_set(weights, catalog) if isinstance(weights, str) else weights
    names = [archetype.name for archetype in catalog.archetypes]
    unknown = [name for name in chosen if name not in names]
    if unknown:
        raise ProfileError(
            [f"weights.{name}: no such archetype{did_you_mean(name, names)}" for name in unknown]
        )
    total = sum(chosen.values())
    if total <= 0:
        raise ProfileError(["weights: must not all be 0; give at least one archetype a weight"])
    return {name: chosen[name] / total for name in names if chosen.get(name, 0) > 0}


def _weights_of_set(name: str, catalog: Catalog) -> dict[str, float]:
    if name not in catalog.weight_sets():
        known = did_you_mean(name, catalog.weight_sets())
        raise ProfileError([f"weights = {name!r}: no such weight set{known}"])
    return {each.name: each.weights[name] for each in catalog.archetypes if name in each.weights}
