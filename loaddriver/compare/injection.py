"""Makes HEAD worse in one endpoint by a known share, to see whether a session finds it.

How much that is in seconds is known once the first run of a session has shown the endpoint's mean.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import msgspec

from loaddriver.compare.evidence import Evidence
from loaddriver.compare.state import SessionSpec, SideSpec
from loaddriver.errors import InfrastructureError, ProfileError
from loaddriver.inject import busy_decisions
from loaddriver.inject.late_requests import late_component
from loaddriver.profile.fleet import LatencyDistribution
from loaddriver.profile.settings import ProfileSettings
from loaddriver.record.rows import PodRow
from loaddriver.run.system import BIGFLEET

_GIVEN = re.compile(r"([a-z.]+)=\+(\d+(?:\.\d+)?)%")
_BINDING = "/binding$"
KUBE_SCHEDULER = "kube-scheduler"


class Fault(StrEnum):
    """What can be injected, by the part of a run that a change must be attributed to."""

    SCHEDULED = "scheduled"
    PROVISIONED = "provisioned"
    SHARD_CPU = "shard.cpu"


ENDPOINTS: Mapping[Fault, str] = {
    Fault.SCHEDULED: "scheduled",
    Fault.PROVISIONED: "machines",
    Fault.SHARD_CPU: "shardCpu",
}
"""The endpoint that has to show each fault."""


@dataclass(frozen=True)
class Injection:
    """A fault, and by which share of its mean the endpoint grows, such as 0.1."""

    fault: Fault
    share: float


def injection_of(text: str) -> Injection:
    """The injection `FAULT=+P%`. Raises ProfileError."""
    found = _GIVEN.fullmatch(text)
    if found is None or found[1] not in set(Fault) or not float(found[2]):
        raise ProfileError([f"--inject {text}: expected {', '.join(f'{f}=+10%' for f in Fault)}"])
    return Injection(Fault(found[1]), float(found[2]) / 100)


def seconds_of(
    injection: Injection, run: Evidence, rows: Sequence[PodRow], settings: ProfileSettings
) -> float:
    """How much later each binding, or each creation of a machine, has to be, or how much longer
    each decision. Raises InfrastructureError if this run does not tell.
    """
    if run.measures is None:
        raise InfrastructureError(
            f"{run.folder}: void: {run.void_reason}; so it is unknown what {injection.share:.0%} "
            "of its times are: start another session"
        )
    mean = run.measures.values.get(ENDPOINTS[injection.fault], 0.0)
    affected = 1.0
    match injection.fault:
        case Fault.SHARD_CPU:
            mean /= 1000
        case Fault.PROVISIONED:
            affected = _share_created(rows, settings)
    if not mean or not affected:
        raise InfrastructureError(f"{run.folder}: no pod waited in {injection.fault}")
    return injection.share * mean / affected


def _share_created(rows: Sequence[PodRow], settings: ProfileSettings) -> float:
    """The share of bound pods that waited until a machine had been created."""
    # Machines that were there are provisioned in a moment.
    create = settings.fleet.latency.create_seconds
    least = (create.median if isinstance(create, LatencyDistribution) else create) / 2
    hops = [row.hops_micros() for row in rows if row.bound_micros is not None]
    waited = sum(each.get(Fault.PROVISIONED, 0) > 1e6 * least for each in hops)
    return waited / len(hops) if hops else 0.0


def injected(
    spec: SessionSpec,
    injection: Injection,
    seconds: float,
    settings: ProfileSettings,
    kube_scheduler: Path,
    folder: Path,
) -> SessionSpec:
    """The session with the fault in HEAD. What stands in for a component, in `folder`, does so on
    both sides: what it costs itself is no difference between them.
    """
    base, head = spec.base, spec.head
    match injection.fault:
        case Fault.PROVISIONED:
            later = _later(settings.fleet.latency.create_seconds, seconds)
            overrides = [*head.overrides, f"fleet.latency.createSeconds={later}"]
            head = msgspec.structs.replace(head, overrides=overrides)
        case Fault.SCHEDULED:
            base, head = (
                _with(
                    side,
                    KUBE_SCHEDULER,
                    late_component(folder / name, kube_scheduler, "POST", _BINDING, its),
                )
                for name, side, its in (("base", base, 0.0), ("head", head, seconds))
            )
        case Fault.SHARD_CPU:
            base, head = (
                _with(side, BIGFLEET, _busy_bigfleet(folder / name, side.sut, its))
                for name, side, its in (("base", base, 0.0), ("head", head, seconds))
            )
    head = msgspec.structs.replace(head, label=f"{head.label}, {spec.inject}")
    return msgspec.structs.replace(spec, base=base, head=head)


def _with(side: SideSpec, component: str, program: Path) -> SideSpec:
    """The side with a program in place of a component."""
    components = {**side.components, component: str(program.resolve())}
    return msgspec.structs.replace(side, components=components)


def _later(latency: float | LatencyDistribution, seconds: float) -> str:
    """The latency with so much added, as the value of a setting."""
    if not isinstance(latency, LatencyDistribution):
        return f"{latency + seconds:g}"
    return f"{{median: {latency.median + seconds:g}, p99: {latency.p99 + seconds:g}}}"


def _busy_bigfleet(folder: Path, sut: str, seconds: float) -> Path:
    """A program that is the checkout's `bigfleet`, with busy decisions."""
    folder.mkdir(parents=True, exist_ok=True)
    python = [str(Path(sut) / ".venv" / "bin" / "python"), "-P"] if sut else [sys.executable]
    own = shlex.join([*python, str(busy_decisions.__file__), f"{seconds:g}"])
    program = folder / "bigfleet"
    program.write_text(f'#!/bin/sh\nexec {own} "$@"\n')
    program.chmod(0o755)
    return program
