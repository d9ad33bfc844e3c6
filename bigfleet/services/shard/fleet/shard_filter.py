"""Selects the machines that this shard decides about.

An unbound machine belongs to the shard that owns its domain. A bound machine belongs to the shard
that serves its cluster: only that shard can have its Node drained, and knows whether its pods still
need it. So a domain may be transferred while machines in it are bound: they are counted once, where
they are needed, and pass to the new owner one by one as they are drained. By the provider's record,
every machine belongs to one shard at a time.

In a domain that is being released, machines reserved for a need stay this shard's until they are
bound to its cluster; otherwise they would be purchased a second time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

import numpy as np

from bigfleet.engine.snapshot import NONE, Flags
from bigfleet.model.domain import BY_RACK, MAX_NAME_LENGTH, Domain, domain_of, is_name
from bigfleet.model.machine import MachineState
from bigfleet.services.shard.fleet.columns import Columns

_LOG = logging.getLogger(__name__)
_Value = TypeVar("_Value")
# With a need, machines in these states are reserved for it and not bound to its cluster yet.
_RESERVABLE = (int(MachineState.CREATING), int(MachineState.IDLE))


class OwnedSets(Protocol):
    """What this shard owns: each set is another object once it has changed."""

    @property
    def domains(self) -> frozenset[Domain]: ...
    @property
    def leaving(self) -> frozenset[Domain]: ...
    @property
    def clusters(self) -> frozenset[str]: ...


class ShardFilter:
    """Separates this shard's machines from those of others. Without `owned` all are its own.
    `domain_keys` are the labels whose values are the domains, the same for all shards.
    """

    def __init__(
        self, owned: OwnedSets | None = None, domain_keys: Sequence[str] = BY_RACK
    ) -> None:
        self._owned, self._domain_keys = owned, domain_keys
        self._of_domains = _CachedFlags[Domain](lambda owned: owned.domains)
        self._of_leaving = _CachedFlags[Domain](lambda owned: owned.leaving)
        self._of_clusters = _CachedFlags[str](lambda owned: owned.clusters)
        self._logged_keys: set[str] = set()

    @property
    def is_everything(self) -> bool:
        """Whether all machines are this shard's."""
        return self._owned is None

    def domain_of(self, labels: Mapping[str, str]) -> Domain:
        """The domain of a machine with these labels. The first value of each label that is no name
        is logged: its machines count as without it.
        """
        for key in self._domain_keys:
            value = labels.get(key, "")
            if value and not is_name(value) and key not in self._logged_keys:
                self._logged_keys.add(key)
                _LOG.warning(
                    "a provider lists machines with label %s=%.40r, which is ignored: a name has "
                    "up to %d printable characters without spaces around them",
                    key,
                    value,
                    MAX_NAME_LENGTH,
                )
        return domain_of(labels, self._domain_keys)

    def owned(self, columns: Columns, domains: Sequence[Domain], clusters: Sequence[str]) -> Flags:
        """For each row whether it is this shard's; False for a row without a record yet.

        `domains` has the domain of each flavour, `clusters` the name of each cluster number.
        """
        if self._owned is None:
            return np.ones(len(columns.state), np.bool_)
        by_domain = self._of_domains.flags(self._owned, domains)[columns.flavour]
        leaving = self._of_leaving.flags(self._owned, domains)
        if leaving.any():
            by_domain |= leaving[columns.flavour] & reserved(columns)
        by_cluster = self._of_clusters.flags(self._owned, clusters)[columns.cluster]
        owned: Flags = np.where(columns.cluster == NONE, by_domain, by_cluster)
        owned &= columns.state != 0
        return owned

    def out_of_domain_machines(
        self, columns: Columns, domains: Sequence[Domain], clusters: Sequence[str]
    ) -> Flags:
        """This shard's bound machines that pass to another shard once they are drained."""
        if self._owned is None:
            return np.zeros(len(columns.state), np.bool_)
        by_domain = self._of_domains.flags(self._owned, domains)[columns.flavour]
        bound: Flags = columns.cluster != NONE
        return bound & ~by_domain & self.owned(columns, domains, clusters)

    def in_own_domains(self, columns: Columns, domains: Sequence[Domain]) -> Flags:
        """Which machines are in domains of this shard, whomever they serve."""
        if self._owned is None:
            return np.ones(len(columns.state), np.bool_)
        owned: Flags = self._of_domains.flags(self._owned, domains)[columns.flavour]
        return owned

    def has(self, columns: Columns, row: int, domain: Domain, cluster: str) -> bool:
        """Whether the machine in `row`, which is in `domain` and bound to `cluster` if that is not
        "", is this shard's.
        """
        if self._owned is None:
            return True
        if cluster:
            return cluster in self._owned.clusters
        reserved = columns.state[row] in _RESERVABLE and columns.need[row] != NONE
        return domain in self._owned.domains or (reserved and domain in self._owned.leaving)


def has_reserved_machine(columns: Columns, domains: Sequence[Domain], domain: Domain) -> bool:
    """Whether a machine of `domain` is reserved for a need and not bound to its cluster yet.

    `domains` has the domain of each flavour.
    """
    there = np.array([each == domain for each in domains], np.bool_)
    return bool(len(there)) and bool((there[columns.flavour] & reserved(columns)).any())


def reserved(columns: Columns) -> Flags:
    """Which machines are reserved for a need, and not bound to its cluster yet."""
    flags: Flags = np.isin(columns.state, _RESERVABLE) & (columns.need != NONE)
    return flags


class _CachedFlags(Generic[_Value]):
    """Which of some values are owned, recomputed only when either side has changed."""

    def __init__(self, owned_values: Callable[[OwnedSets], frozenset[_Value]]) -> None:
        self._owned_values = owned_values
        self._known: tuple[frozenset[_Value], Sequence[_Value], int] | None = None
        self._flags: Flags = np.zeros(1, np.bool_)

    def flags(self, owned: OwnedSets, values: Sequence[_Value]) -> Flags:
        """One flag for each value, and a final False that NONE indexes."""
        known, values_owned = self._known, self._owned_values(owned)
        if (
            known is None
            or known[0] is not values_owned
            or known[1] is not values
            or known[2] != len(values)
        ):
            self._flags = np.array([*(value in values_owned for value in values), False], np.bool_)
            self._known = (values_owned, values, len(values))
        return self._flags
