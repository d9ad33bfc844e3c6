"""A federation in audit logs: writes to its members' HPAs and to the federated HPA's status."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from loaddriver.record.audit_line import RESPONSE_COMPLETE, AuditLine, micros
from loaddriver.substrates.credentials import FEDERATION

_HPAS, _FEDERATED = "horizontalpodautoscalers", "federatedhorizontalpodautoscalers"


@dataclass(frozen=True, slots=True)
class Share:
    """A cluster's minimum and maximum number of replicas."""

    min: int
    max: int


@dataclass(frozen=True, slots=True)
class HpaWrite:
    """A successful write to a member's HPA and its result; `share` is None after a deletion.

    The timestamp is when the server had responded.
    """

    at_micros: int
    cluster: str
    by_federation: bool
    share: Share | None
    current: int
    desired: int


@dataclass(frozen=True, slots=True)
class FederatedStatus:
    """A successful write of the federated HPA's status: its view of each cluster."""

    at_micros: int
    states: Mapping[str, str]


class _Spec(msgspec.Struct, rename="camel"):
    min_replicas: int = 1
    max_replicas: int = 0


class _Line(msgspec.Struct):
    name: str
    state: str = ""


class _Status(msgspec.Struct, rename="camel"):
    current_replicas: int | None = None
    desired_replicas: int | None = None
    clusters: list[_Line] = []


class _Hpa(msgspec.Struct):
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


def hpa_writes(logs: Mapping[str, Path]) -> list[HpaWrite]:
    """All writes in order of time, from audit logs by cluster."""
    found = [_write(line, name) for name, log in logs.items() for line in _lines(log, _HPAS)]
    return sorted(found, key=lambda write: write.at_micros)


def federated_statuses(log: Path) -> list[FederatedStatus]:
    """All statuses in order of time, from the audit log of the federation's API server."""
    return [
        FederatedStatus(
            micros(line.stage_timestamp),
            {each.name: each.state for each in _body(line).status.clusters},
        )
        for line in _lines(log, _FEDERATED)
    ]


def _write(line: AuditLine, cluster: str) -> HpaWrite:
    hpa = _body(line)
    gone = line.verb == "delete"
    return HpaWrite(
        at_micros=micros(line.stage_timestamp),
        cluster=cluster,
        by_federation=line.user.username == FEDERATION,
        share=None if gone else Share(hpa.spec.min_replicas, hpa.spec.max_replicas),
        current=hpa.status.current_replicas or 0,
        desired=hpa.status.desired_replicas or 0,
    )


def _body(line: AuditLine) -> _Hpa:
    return msgspec.json.decode(line.response_object, type=_Hpa) if line.response_object else _Hpa()


def _lines(log: Path, resource: str) -> Iterator[AuditLine]:
    """Successful writes to a resource; other lines are skipped without being decoded."""
    mark = f'"resource":"{resource}"'.encode()
    decoder = msgspec.json.Decoder(AuditLine)
    with log.open("rb") as lines:
        for raw in lines:
            if mark not in raw:
                continue
            line = decoder.decode(raw)
            if (
                line.stage == RESPONSE_COMPLETE
                and line.succeeded
                and line.object_ref.resource == resource
            ):
                yield line
