"""A machine's assignment to a need, stored in the provider's metadata to survive restarts."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import NamedTuple

from bigfleet.model import penalty
from bigfleet.model.need import Need, NeedKey
from bigfleet.ports.provider import Fence

_PREFIX = "bigfleet.lucy.sh/assigned-"
_PRIORITY = f"{_PREFIX}priority"
_INTERRUPTION = f"{_PREFIX}interruption-bucket"
_RECLAMATION = f"{_PREFIX}reclamation-bucket"
_NEED = f"{_PREFIX}need"
_GROUP = f"{_PREFIX}group"
_CLUSTER = f"{_PREFIX}cluster"
_BY = f"{_PREFIX}by"


class Assignment(NamedTuple):
    """The need that a machine serves, and the penalties of taking it away."""

    need: NeedKey
    priority: int
    interruption_bucket: int
    reclamation_bucket: int


def penalties_of(need: Need) -> tuple[int, int, int]:
    """Priority, interruption bucket and reclamation bucket of a machine that serves `need`."""
    profile = need.profile
    return need.priority, profile.interruption_bucket, profile.reclamation_bucket


def to_metadata(need: Need) -> dict[str, str]:
    """The metadata from which `from_metadata` restores the assignment."""
    priority, interruption_bucket, reclamation_bucket = penalties_of(need)
    fingerprint, group = need.key
    return {
        _PRIORITY: str(priority),
        _INTERRUPTION: str(interruption_bucket),
        _RECLAMATION: str(reclamation_bucket),
        _NEED: fingerprint,
        _GROUP: group,
    }


def bought_for(cluster: str, need: Need | None) -> dict[str, str]:
    """The metadata of a purchased machine that is not bound to a cluster yet."""
    return {} if need is None else to_metadata(need) | {_CLUSTER: cluster}


def ordered_by(fence: Fence) -> dict[str, str]:
    """Metadata unique to one configure order."""
    return {_BY: f"{fence.shard_id}/{fence.epoch}/{fence.sequence}"}


def incarnation_of(metadata: Mapping[str, str]) -> int:
    """A number for the order that configured a machine, so that two bindings of one machine to the
    same cluster can be told apart; 0 where the metadata has none.
    """
    by = metadata.get(_BY, "")
    return int.from_bytes(blake2b(by.encode(), digest_size=7).digest()) if by else 0


def from_metadata(cluster: str, metadata: Mapping[str, str]) -> Assignment | None:
    """The assignment of a machine in `cluster`, or of one purchased for a cluster; None when the
    metadata has none or is damaged.
    """
    cluster = cluster or metadata.get(_CLUSTER, "")
    if not cluster:
        return None
    try:
        made = Assignment(
            NeedKey(cluster, metadata[_NEED], metadata[_GROUP]),
            int(metadata[_PRIORITY]),
            int(metadata[_INTERRUPTION]),
            int(metadata[_RECLAMATION]),
        )
    except (KeyError, ValueError):
        return None
    buckets_known = all(penalty.ZERO <= b <= penalty.PINNED for b in made[2:])
    return made if buckets_known and -(2**31) <= made.priority < 2**31 else None
