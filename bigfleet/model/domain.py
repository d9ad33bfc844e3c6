"""Topology of machines: the domain, which one shard owns as a whole, and the region of a quota."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bigfleet.model.labels import RACK_LABEL, REGION_LABEL, ZONE_LABEL

# What shards own as a whole: racks, and zones for machines without a rack label; or zones.
BY_RACK: Sequence[str] = (RACK_LABEL, ZONE_LABEL)
BY_ZONE: Sequence[str] = (ZONE_LABEL,)
MAX_NAME_LENGTH = 253


class Domain(NamedTuple):
    """All machines with this label value; both empty for machines without any such label."""

    key: str
    value: str

    def __str__(self) -> str:
        return f"{self.key}={self.value}" if self.key else "(no domain)"


def is_name(value: str) -> bool:
    """Whether a value can be part of a key in the coordinator's store, and of a line of output."""
    is_short = 0 < len(value) <= MAX_NAME_LENGTH
    return is_short and value.isprintable() and value == value.strip()


def domain_of(labels: Mapping[str, str], keys: Sequence[str] = BY_RACK) -> Domain:
    """The domain of a machine, by the first of `keys` that it has; what is no name is no label."""
    for key in keys:
        if is_name(value := labels.get(key, "")):
            return Domain(key, value)
    return Domain("", "")


def region_of(labels: Mapping[str, str]) -> str:
    """The region of a machine, or its zone if it has no region label, else ""."""
    found = (labels.get(REGION_LABEL, ""), labels.get(ZONE_LABEL, ""))
    return next(filter(is_name, found), "")
