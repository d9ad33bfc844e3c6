"""Where a machine stands: the domain, which shards own as a whole, and the region of a quota."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

RACK_LABEL = "topology.bigfleet/rack"
ZONE_LABEL = "topology.kubernetes.io/zone"
REGION_LABEL = "topology.kubernetes.io/region"
# What shards own as a whole: racks, and zones where a machine has no rack; or zones.
BY_RACK: Sequence[str] = (RACK_LABEL, ZONE_LABEL)
BY_ZONE: Sequence[str] = (ZONE_LABEL,)


class Domain(NamedTuple):
    """All machines with this value of this label; both empty for those that have no such label."""

    key: str
    value: str

    def __str__(self) -> str:
        return f"{self.key}={self.value}" if self.key else "(no domain)"


def domain_of(labels: Mapping[str, str], keys: Sequence[str] = BY_RACK) -> Domain:
    """By the first of these keys that a machine has."""
    for key in keys:
        if value := labels.get(key, ""):
            return Domain(key, value)
    return Domain("", "")


def region_of(labels: Mapping[str, str]) -> str:
    """The region where a machine has one, else its zone, else ""."""
    return labels.get(REGION_LABEL) or labels.get(ZONE_LABEL, "")
