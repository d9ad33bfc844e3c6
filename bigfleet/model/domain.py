"""Where a machine stands: the domain, which shards own as a whole, and the region of a quota."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

RACK_LABEL = "topology.bigfleet/rack"
ZONE_LABEL = "topology.kubernetes.io/zone"
REGION_LABEL = "topology.kubernetes.io/region"


class Domain(NamedTuple):
    """All machines with this value of this label; both empty for those that have no such label."""

    key: str
    value: str

    def __str__(self) -> str:
        return f"{self.key}={self.value}" if self.key else "(no domain)"


def domain_of(labels: Mapping[str, str]) -> Domain:
    """The rack where a machine has one, else its zone."""
    for key in (RACK_LABEL, ZONE_LABEL):
        if value := labels.get(key, ""):
            return Domain(key, value)
    return Domain("", "")


def region_of(labels: Mapping[str, str]) -> str:
    """The region where a machine has one, else its zone, else ""."""
    return labels.get(REGION_LABEL) or labels.get(ZONE_LABEL, "")
