"""What only the runner knows of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from loaddriver.errors import ExitCode
from loaddriver.judge.gangs import GroupKey


@dataclass(frozen=True)
class Accident:
    """What ended the run before it was over, such as a component's death or an interruption."""

    exit_code: ExitCode
    sentence: str


@dataclass(frozen=True)
class RunFacts:
    """The run's identity, its plan and what the runner noticed.

    `planned_groups` gives the number of pods by cluster and group. `failures` are sentences that
    blame the system under test, such as a ramp that did not get through in its budget; `doubts`
    blame the harness or the machine and void the run. `load` and `components` go into the summary
    as they are: numbers under camelCase keys with units, None for what could not be read.
    """

    id: str
    profile: str
    seed: int
    substrate: str
    started_micros: int
    soak_started_micros: int | None
    ended_micros: int
    planned_pods: int
    planned_groups: Mapping[GroupKey, int]
    versions: Mapping[str, str]
    environment: Mapping[str, str]
    load: Mapping[str, Any] = field(default_factory=dict)
    components: Mapping[str, Any] = field(default_factory=dict)
    failures: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    accident: Accident | None = None
