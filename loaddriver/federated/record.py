"""What is left of a federation that was played: what was done to it, and what it was seen to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from loaddriver.federated.course import Course

FEDERATION_DOWN, FEDERATION_UP = "federation down", "federation up"
CUT_OFF, REACHED_AGAIN = "cut off", "reached again"


class Sample(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """At one moment (seconds since 1970), by cluster: what callers want, what the cluster gets of
    that, and how many pods work.
    """

    at: float
    wanted: dict[str, float]
    taken: dict[str, float]
    ready: dict[str, int]


class Event(msgspec.Struct, frozen=True, rename="camel"):
    """Something done to the federation, at a moment in seconds since 1970."""

    at: float
    what: str
    cluster: str = ""


@dataclass(frozen=True)
class FederationRecord:
    """What a judge needs of a played course; `logs` are audit logs by cluster."""

    course: Course
    began_at: float
    ended_at: float
    samples: Sequence[Sample]
    events: Sequence[Event]
    logs: Mapping[str, Path]
    host_log: Path
