"""Topology of machines: the domain, which one shard owns as a whole, and the region of a quota."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bigfleet.model.labels import RACK_LABEL, REGION_LABEL, ZONE_LABEL

# What shards own as a whole: racks, and zones for machines without a rack label; or zones.
BY_RACK: Sequence[str] = (RACK_LABEL, ZONE_LABEL)
BY_ZONE: Sequence[str] = (ZONE_LABEL,)


class Domain(NamedTuple):
    """All machines with this label value; both empty for machines without any such label."""

    key: str
    value: str

    def __str__(self) -> str:
        return f"{self.key}={self.value}" if self.key else "(no domain)"


def domain_of(labels: Mapping[str, str], keys: Sequence[str] = BY_RACK) -> Domain:
    """The domain of a machine, by the first of `keys` that it has."""
    for key in keys:
        if value := labels.get(key, ""):
            return Domain(key, value)
    return Domain("", "")


def region_of(labels: Mapping[str, str]) -> str:
    """The region of a machine, or its zone if it has no region label, else ""."""
    return labels.get(REGION_LABEL) or labels.get(ZONE_LABEL, "")
