"""The record of a federation run: samples of load and pods, and injected faults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from loaddriver.fedhpa.load_schedule import LoadSchedule

FEDERATION_DOWN, FEDERATION_UP = "federation down", "federation up"
PARTITIONED, RECONNECTED = "partitioned", "reconnected"


class Sample(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One sample by cluster: offered load, load after spillover, and running pods.

    `at` is in Unix seconds.
    """

    at: float
    offered_load: dict[str, float]
    routed_load: dict[str, float]
    ready: dict[str, int]


class FaultEvent(msgspec.Struct, frozen=True, rename="camel"):
    """An injected fault or its end, at a Unix time in seconds."""

    at: float
    what: str
    cluster: str = ""


@dataclass(frozen=True)
class FederationRecord:
    """What the judge needs of a federation run; `logs` are audit logs by cluster."""

    schedule: LoadSchedule
    began_at: float
    ended_at: float
    samples: Sequence[Sample]
    events: Sequence[FaultEvent]
    logs: Mapping[str, Path]
    host_log: Path
