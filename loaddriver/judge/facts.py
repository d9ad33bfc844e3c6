"""Facts about a run that only the runner knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loaddriver.errors import ExitCode
from loaddriver.judge.disruptions import BudgetKey
from loaddriver.judge.gangs import GroupKey
from loaddriver.load.workers import WorkerRecord
from loaddriver.profile.instance_types import DaemonSet
from loaddriver.record.cpu import CpuUse, is_driver
from loaddriver.record.fleet_audit import FleetAudit
from loaddriver.record.provenance import Provenance
from loaddriver.sizing.fit import PodRequirements
from loaddriver.sizing.inventory import InventoryMachine
from loaddriver.sizing.market import UNCHANGED, PlayedMarket


@dataclass(frozen=True)
class RunFailure:
    """The cause that ended a run early, such as a component's exit or an interruption."""

    exit_code: ExitCode
    sentence: str


@dataclass(frozen=True)
class InvalidReason:
    """Why a measurement is invalid.

    With `overload`, an overloaded system under test can be the cause; with `starved`, only if the
    harness waited for cores.
    """

    sentence: str
    overload: bool = False
    starved: bool = False


@dataclass(frozen=True)
class HarnessHealth:
    """The health of the harness, sampled from the load's first request to its last.

    `loop_stalls` counts stalls of the runner's event loop, `loop_stall_max_seconds` is the longest;
    `loop_computing_max_seconds` is the most CPU that the loop itself used in one, as opposed to
    waiting for a core. `clock_step_max_seconds` is the largest absolute change of wall clock minus
    monotonic clock between samples. `others_unknown` may give a legitimate reason why the CPU used
    by others is unknown. `load_workers` are those that played the load, if there were several; what
    one on another host used is known from itself only.
    """

    loop_stall_max_seconds: float
    loop_stalls: int
    clock_step_max_seconds: float
    cpu: CpuUse
    loop_computing_max_seconds: float = 0.0
    others_unknown: str = ""
    load_workers: Sequence[WorkerRecord] = ()

    @property
    def harness_cpu_seconds(self) -> float:
        """CPU of runner and load together, on all hosts."""
        used = self.cpu.whole.processes
        here = sum(seconds for name, seconds in used.items() if is_driver(name))
        return here + self._elsewhere_cpu_seconds

    @property
    def harness_cpu_share(self) -> float | None:
        """The harness's share of the run's CPU, 0 to 1; None if none was used."""
        of_run = self.cpu.whole.run_seconds + self._elsewhere_cpu_seconds
        return self.harness_cpu_seconds / of_run if of_run else None

    @property
    def busiest_driver_cores(self) -> float:
        """The most cores that the runner, or one process of the load, kept busy for 10 s."""
        elsewhere = (worker.busiest_cores for worker in self._elsewhere)
        return max(self.cpu.busiest_driver_cores, *elsewhere, 0.0)

    @property
    def worst_driver_wait_share(self) -> float:
        """The largest share of 10 s that one of them waited for a core, 0 to 1."""
        elsewhere = (worker.worst_wait_share for worker in self._elsewhere)
        return max(self.cpu.worst_driver_wait_share, *elsewhere, 0.0)

    @property
    def _elsewhere(self) -> list[WorkerRecord]:
        return [worker for worker in self.load_workers if worker.elsewhere]

    @property
    def _elsewhere_cpu_seconds(self) -> float:
        return sum(worker.cpu_seconds for worker in self._elsewhere)


@dataclass(frozen=True)
class ArchetypeFacts:
    """The facts about an archetype for the diagnosis.

    `topology` is sameRack, sameZone or ""; a machine of any of `instance_types` holds
    `pods_per_machine` of its pods and no others; `fleet_machines` is the number of them that the
    fleet has or can create, over all clusters. Archetypes that share machines have no types.
    """

    pods_per_machine: int
    instance_types: frozenset[str]
    topology: str = ""
    fleet_machines: int | None = None


@dataclass(frozen=True)
class FleetFacts:
    """The fleet's machines by name, and the requirements of the load's pods.

    `daemon_sets` are every cluster's DaemonSets; `needs` are keyed by cluster and workload;
    `run_seconds` is the run time of pods that complete, by archetype. `shrinks_at_micros` is when
    the plan first reduces its demand, None if it never does. `own_nodes` are the machines that
    another autoscaler created, by Node: it may create any number of those that have a price.
    `unpriced_nodes` of its Nodes are like no machine of the fleet, so that the cost is unknown.
    `market` is what prices and supply did.
    """

    machines: Mapping[str, InventoryMachine]
    daemon_sets: Sequence[DaemonSet]
    needs: Mapping[BudgetKey, PodRequirements]
    run_seconds: Mapping[str, float] = field(default_factory=dict)
    shrinks_at_micros: int | None = None
    shares_machines: bool = False
    own_nodes: Mapping[str, InventoryMachine] = field(default_factory=dict)
    unpriced_nodes: int = 0
    market: PlayedMarket = UNCHANGED

    @property
    def nodes(self) -> Mapping[str, InventoryMachine]:
        """The machines that can be Nodes, by the Node's name."""
        return {**self.machines, **self.own_nodes}


@dataclass(frozen=True)
class Shortfall:
    """A need that the supply does not cover, reported by a shard at the end of the run.

    `instance_types` are those the need accepts; `missing` has Kubernetes quantities by resource
    name; `reason` is the shard's message or "", `kind` its category.
    """

    cluster: str
    instance_types: tuple[str, ...]
    missing: Mapping[str, str]
    reason: str = ""
    kind: str = ""


@dataclass(frozen=True)
class RunFacts:
    """The run's identity, its plan and the runner's findings.

    `planned_groups` has the number of pods by cluster and group. `failures` are sentences on the
    system under test, such as a ramp that exceeded its time budget; `invalid_reasons` are those
    that make the run invalid unless the system under test was the cause. `load` and
    `components` are copied to the summary: numbers under camelCase keys with units, None if
    unknown. The self-checks read `maxLatenessSeconds` and `p99LatenessSeconds` of `load`.

    `budget_floors` has the number of pods that a disruption budget protects, by cluster and
    workload.

    `system` is the autoscaler under test, "" if there is none: then `bare` is set, and `bare_of` is
    the id of the run whose nodes it has. `knee` is where binding fell behind the ramp (camelCase
    keys with units), if the profile searches it. `harness_health`, `provenance`, `shortfalls` and
    `fleet_audit` are None if unknown. `clock_offset_seconds` is the largest offset between the
    clocks of the load, the API servers and the shards that the recording proves, None if nothing
    was compared. `at_once`: another run was played at the same time.
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
    invalid_reasons: tuple[InvalidReason, ...] = ()
    run_failure: RunFailure | None = None
    ramp_started_micros: int | None = None
    open_stage_started_micros: int | None = None
    clock_offset_seconds: float | None = None
    planned_requests: int = 0
    anchors: str = ""
    bare: bool = False
    bare_of: str = ""
    system: str = "bigfleet"
    knee: Mapping[str, Any] | None = None
    harness_health: HarnessHealth | None = None
    provenance: Provenance | None = None
    archetypes: Mapping[str, ArchetypeFacts] = field(default_factory=dict)
    shortfalls: Sequence[Shortfall] | None = None
    budget_floors: Mapping[BudgetKey, int] = field(default_factory=dict)
    fleet: FleetFacts | None = None
    fleet_audit: FleetAudit | None = None
    at_once: bool = False
