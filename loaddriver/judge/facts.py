"""What only the runner knows of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loaddriver.errors import ExitCode
from loaddriver.judge.disruptions import BudgetKey
from loaddriver.judge.gangs import GroupKey
from loaddriver.profile.instance_types import DaemonSet
from loaddriver.sizing.fit import PodRequirements
from loaddriver.sizing.inventory import InventoryMachine


@dataclass(frozen=True)
class RunFailure:
    """What ended the run before it was over, such as a component's death or an interruption."""

    exit_code: ExitCode
    sentence: str


@dataclass(frozen=True)
class HarnessHealth:
    """How well the harness itself fared, sampled from the load's first request to its last.

    `loop_stalls` counts the times the runner's event loop did not come back in time, and
    `loop_stall_max_seconds` is the longest of them. `clock_step_max_seconds` is the largest change
    of wall clock minus monotonic clock from one sample to the next, without its sign. CPU seconds
    are of runner and load together, and of everything that belongs to the run, those included.
    `others_cpu_share` is what neither belonged to the run nor was idle, of all that the machine
    has, 0 to 1; None where nobody could tell, for which `others_unknown` may give a good reason.
    """

    loop_stall_max_seconds: float
    loop_stalls: int
    clock_step_max_seconds: float
    harness_cpu_seconds: float
    run_cpu_seconds: float
    others_cpu_share: float | None = None
    others_unknown: str = ""

    @property
    def harness_cpu_share(self) -> float | None:
        """The harness's part of the run's CPU, 0 to 1; None where nothing was used."""
        return self.harness_cpu_seconds / self.run_cpu_seconds if self.run_cpu_seconds else None


@dataclass(frozen=True)
class ArchetypeFacts:
    """What a diagnosis must know of an archetype.

    `topology` is sameRack, sameZone or ""; one machine of any of `instance_types` holds
    `pods_per_machine` of its pods and of no other's; `fleet_machines` is how many of them the fleet
    has or can create, over all clusters. Archetypes that share machines have no such types.
    """

    pods_per_machine: int
    instance_types: frozenset[str]
    topology: str = ""
    fleet_machines: int | None = None


@dataclass(frozen=True)
class FleetFacts:
    """The machines that there were to have, by name, and what the load's pods ask of them.

    `daemon_sets` are every cluster's DaemonSets; `needs` are by cluster and workload; `run_seconds`
    says how long pods run that end by themselves, by archetype. `shrinks_at_micros` is when the
    plan first asks for less than before, None if it never does.
    """

    machines: Mapping[str, InventoryMachine]
    daemon_sets: Sequence[DaemonSet]
    needs: Mapping[BudgetKey, PodRequirements]
    run_seconds: Mapping[str, float] = field(default_factory=dict)
    shrinks_at_micros: int | None = None
    shares_machines: bool = False


@dataclass(frozen=True)
class Shortfall:
    """A need that all supply does not cover, as a shard says at the end of the run.

    `instance_types` are those the need asks for; `missing` gives Kubernetes quantities by resource
    name; `reason` is the shard's own words, "" where it gives none, and `kind` the sort of reason.
    """

    cluster: str
    instance_types: tuple[str, ...]
    missing: Mapping[str, str]
    reason: str = ""
    kind: str = ""


@dataclass(frozen=True)
class RunFacts:
    """The run's identity, its plan and what the runner noticed.

    `planned_groups` gives the number of pods by cluster and group. `failures` are sentences that
    blame the system under test, such as a ramp that did not get through in its budget;
    `invalid_reasons` blame the harness or the machine and void the run. `load` and `components` go
    into the summary as they are: numbers under camelCase keys with units, None for what could not
    be read. Of `load`, the self-audit reads `maxLatenessSeconds` and `p99LatenessSeconds`.

    `budget_floors` gives the pods that a disruption budget protects, by cluster and workload.

    `bare` marks a run without BigFleet, and `bare_of` is the id of the run whose nodes it has.
    `knee` is where the ramp broke (camelCase keys with units), where it looked for that. None as
    `harness_health` or `shortfalls` means that nobody could be asked.
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
    invalid_reasons: tuple[str, ...] = ()
    run_failure: RunFailure | None = None
    planned_requests: int = 0
    anchors: str = ""
    bare: bool = False
    bare_of: str = ""
    knee: Mapping[str, Any] | None = None
    harness_health: HarnessHealth | None = None
    archetypes: Mapping[str, ArchetypeFacts] = field(default_factory=dict)
    shortfalls: Sequence[Shortfall] | None = None
    budget_floors: Mapping[BudgetKey, int] = field(default_factory=dict)
    fleet: FleetFacts | None = None
