"""What is left of a federation that was played: what was done to it, and what it was seen to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from loaddriver.fedhpa.load_schedule import LoadSchedule

FEDERATION_DOWN, FEDERATION_UP = "federation down", "federation up"
PARTITIONED, RECONNECTED = "partitioned", "reconnected"


class Sample(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """At one moment (seconds since 1970), by cluster: what callers want, what the cluster gets of
    that, and how many pods work.
    """

    at: float
    offered_load: dict[str, float]
    routed_load: dict[str, float]
    ready: dict[str, int]


class FaultEvent(msgspec.Struct, frozen=True, rename="camel"):
    """Something done to the federation, at a moment in seconds since 1970."""

    at: float
    what: str
    cluster: str = ""


@dataclass(frozen=True)
class FederationRecord:
    """What a judge needs of a played course; `logs` are audit logs by cluster."""

    schedule: LoadSchedule
    began_at: float
    ended_at: float
    samples: Sequence[Sample]
    events: Sequence[FaultEvent]
    logs: Mapping[str, Path]
    host_log: Path
