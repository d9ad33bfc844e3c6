"""The settings of a run: the records of profiles/<name>/profile.yaml.

Decoding is strict: a key without effect, or a number in the wrong unit, would measure something
else than the author intended.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

import msgspec

from loaddriver.profile.archetypes import Count, DnsLabel, NotNegative, Positive, Sentence
from loaddriver.profile.bigfleet import BigfleetSettings
from loaddriver.profile.catalog import DEFAULT_CATALOG
from loaddriver.profile.decoding import ConfigStruct
from loaddriver.profile.federation import FederationSettings
from loaddriver.profile.fleet import FleetSettings
from loaddriver.profile.load import Load


class KarpenterSettings(ConfigStruct, frozen=True, kw_only=True):
    """The settings of Karpenter, where it is the system under test.

    With `preferences: ignore` it does not buy for preferred affinity and spread. Nodes that would
    not be missed are released after `consolidateAfterSeconds`; null keeps all.
    """

    preferences: Literal["respect", "ignore"] = "respect"
    consolidate_after_seconds: NotNegative | None = None


class StandingSettings(ConfigStruct, frozen=True, kw_only=True):
    """The Nodes of a run without an autoscaler: the harness registers the whole `fleet` before the
    load, or uses the Nodes that an `existing` cluster has.
    """

    nodes: Literal["fleet", "existing"] = "fleet"


CommandLine = Annotated[str, msgspec.Meta(min_length=1)]


class CommandSettings(ConfigStruct, frozen=True, kw_only=True):
    """An autoscaler that is started by a command line, once per cluster, with KUBECONFIG set.

    `start` runs as long as the run does, unless there is a `stop`: then it installs something and
    ends, and `stop` removes that. Without `start` the cluster has its autoscaler already. `ready`
    is repeated until it ends with exit code 0, for at most `readySeconds`, which also limit a
    `start` that ends. Its Nodes have all labels of `nodeSelector`.
    """

    start: CommandLine | None = None
    stop: CommandLine | None = None
    ready: CommandLine | None = None
    ready_seconds: Positive = 60.0
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)


SystemName = Literal["bigfleet", "karpenter", "none", "command"]


class OpenStage(ConfigStruct, frozen=True, kw_only=True):
    """The last `steps` of an adaptive ramp, offered at fixed times once all others are bound.

    Their rate is `capacityShare` of the rate at which the later half of the steps before them was
    bound, so that their waits are those of a system below its capacity, but never above that of
    `stepSeconds`.
    """

    steps: Count
    capacity_share: Annotated[float, msgspec.Meta(gt=0, le=0.7)]


class Ramp(ConfigStruct, frozen=True, kw_only=True):
    """From empty clusters to all pods, in steps.

    `pacing: adaptive` releases a step once the backlog and p99 of the previous one are within
    limits, which hides a slow system: it is for ramps that fill a fleet, and their length is what
    tells. `fixed` releases on a fixed schedule, for waits that are gated. `knee` makes each step
    faster than the previous one, and ends the run when binding falls behind. A step's requests are
    spread over `stepSeconds`; the whole ramp, or what precedes its `openStage`, must finish within
    `budgetSeconds`. With a `capacityShare` an adaptive ramp follows the machine: each step is
    faster than the last until more than a quarter of `maxBacklogPods` wait as the next one begins,
    which then has that share of the rate at which pods were bound in the last three.
    """

    pacing: Literal["adaptive", "fixed", "knee"]
    steps: Count
    step_seconds: Positive
    max_backlog_pods: Annotated[int, msgspec.Meta(ge=0)]
    max_step_p99_seconds: Positive
    budget_seconds: Positive
    capacity_share: Annotated[float, msgspec.Meta(gt=0, le=0.9)] | None = None
    open_stage: OpenStage | None = None

    @property
    def held_steps(self) -> int:
        """The steps before the open stage."""
        return self.steps - (self.open_stage.steps if self.open_stage else 0)


class ChurnBurst(ConfigStruct, frozen=True, kw_only=True):
    """Bursts of deletions, at `factor` times the rate between bursts.

    Bursts last `seconds` and start as a Poisson process, one in `everySeconds` on average. The mean
    churn rate is unchanged.
    """

    every_seconds: Positive
    seconds: Positive
    factor: Annotated[float, msgspec.Meta(gt=1)]


class Soak(ConfigStruct, frozen=True, kw_only=True):
    """The judged phase: full load, with pods deleted (and so recreated) at a steady rate.

    The rate is the sum over all clusters, and includes deletions by the `meanLifetimeSeconds` of
    archetypes.
    """

    seconds: NotNegative
    churn_pods_per_second: NotNegative
    churn_burst: ChurnBurst | None = None


class Burst(ConfigStruct, frozen=True, kw_only=True):
    """Extra objects, created `atSeconds` into a phase and deleted `durationSeconds` later.

    `pods` is the sum over all clusters, or the number in `cluster`. An archetype with gangs comes
    in whole gangs, each in one cluster. In an adaptive ramp, a burst moves with the step that it
    falls into.
    """

    phase: Literal["ramp", "soak"]
    at_seconds: NotNegative
    archetype: str
    pods: Count
    duration_seconds: Positive
    cluster: str | None = None


class DemandStep(ConfigStruct, frozen=True, kw_only=True):
    """From `atSeconds` of the soak on, demand is `factor` times that of the ramp.

    Deployments and StatefulSets are scaled; gangs and Jobs are created and deleted as a whole.
    """

    phase: Literal["soak"]
    at_seconds: NotNegative
    factor: NotNegative


class Fault(ConfigStruct, frozen=True, kw_only=True):
    """A role of BigFleet that is killed `atSeconds` into the soak, and started again `downSeconds`
    later. It is named as its log is: `provider-cloud`, `shard-0`, `c1/operator`.
    """

    role: Annotated[str, msgspec.Meta(min_length=1)]
    at_seconds: NotNegative
    down_seconds: NotNegative

    @property
    def ends_at_seconds(self) -> float:
        """When it is started again."""
        return self.at_seconds + self.down_seconds


class ProfileSettings(ConfigStruct, frozen=True, kw_only=True):
    """profile.yaml.

    `clusterWeights` replace `weights` in single clusters (`c1` is the first). With
    `metrics: resource`, clusters serve the resource metrics API for HPAs. `system` is the
    autoscaler under test, whose settings are under its own name; `none` has no autoscaler. A
    `federation` plays its phases in the soak, which continues for `soak.seconds` after them.
    `catalog` names the file of archetypes and machines, `profiles/<catalog>.yaml`. `faults` are
    what BigFleet must bear; what dies without being named there ends the run.
    """

    description: Sentence
    seed: Annotated[int, msgspec.Meta(ge=0)]
    clusters: Count
    pods_per_cluster: Count
    weights: str | dict[str, NotNegative]
    fleet: FleetSettings
    ramp: Ramp
    soak: Soak
    anchors: Literal["on", "off", "both"]
    bigfleet: BigfleetSettings
    system: SystemName = "bigfleet"
    karpenter: KarpenterSettings = msgspec.field(default_factory=KarpenterSettings)
    none: StandingSettings = msgspec.field(default_factory=StandingSettings)
    command: CommandSettings = msgspec.field(default_factory=CommandSettings)
    load: Load = msgspec.field(default_factory=Load)
    bursts: tuple[Burst, ...] = ()
    demand_steps: tuple[DemandStep, ...] = ()
    cluster_weights: dict[str, str | dict[str, NotNegative]] = msgspec.field(default_factory=dict)
    metrics: Literal["none", "resource"] = "none"
    federation: FederationSettings | None = None
    catalog: DnsLabel = DEFAULT_CATALOG
    faults: tuple[Fault, ...] = ()

    @property
    def changing_roles(self) -> str:
        """The key by which roles are killed, added or removed while the load runs; "" if none."""
        keys = {
            "faults": self.faults,
            "bigfleet.joiningShards": self.bigfleet.joining_shards,
            "bigfleet.leavingShard": self.bigfleet.leaving_shard,
        }
        return next((key for key, value in keys.items() if value), "")

    @property
    def live_changes(self) -> str:
        """The key by which the harness changes the fleet in the run, only locally; "" if none."""
        return self.changing_roles or self.fleet.market_key

    @property
    def cluster_names(self) -> tuple[str, ...]:
        """The cluster names, in the order of the plan."""
        return tuple(f"c{number + 1}" for number in range(self.clusters))

    def weights_in(self, cluster: int) -> str | dict[str, float]:
        """The weights in the cluster of that number."""
        return self.cluster_weights.get(f"c{cluster + 1}", self.weights)

    @property
    def on_karpenter(self) -> bool:
        """Whether Karpenter is the system under test."""
        return self.system == "karpenter"

    @property
    def on_bigfleet(self) -> bool:
        """Whether BigFleet is the system under test: others' clusters have no CRDs of its."""
        return self.system == "bigfleet"

    def without_system(self) -> ProfileSettings:
        """The same settings but for those that name another system, or another provider."""
        return msgspec.structs.replace(
            self,
            system="bigfleet",
            karpenter=KarpenterSettings(),
            none=StandingSettings(),
            command=CommandSettings(),
            fleet=msgspec.structs.replace(self.fleet, running_provider=None),
        )

    @property
    def resource_metrics(self) -> bool:
        """Whether clusters serve the resource metrics API."""
        return self.metrics == "resource"

    @property
    def pods(self) -> int:
        """The pods at the end of the ramp, over all clusters."""
        return self.clusters * self.pods_per_cluster

    @property
    def max_pods(self) -> int:
        """The most pods that can exist at once, if all bursts coincide."""
        highest = max((step.factor for step in self.demand_steps), default=1.0)
        return math.ceil(self.pods * max(1.0, highest)) + sum(each.pods for each in self.bursts)

    def phase_seconds(self, phase: Literal["ramp", "soak"]) -> float:
        """The planned length of a phase."""
        return self.ramp.steps * self.ramp.step_seconds if phase == "ramp" else self.soak.seconds
