"""A profile's federation: one workload over all clusters, and its load over time."""

from __future__ import annotations

from typing import Annotated

import msgspec

from loaddriver.profile.archetypes import Count, NotNegative, Positive, Share
from loaddriver.profile.decoding import ConfigStruct

Percent = Annotated[int, msgspec.Meta(ge=1, le=200)]


class TrafficStep(ConfigStruct, frozen=True, kw_only=True):
    """From the fraction `at` of its phase on, the traffic of each cluster needs so many cores.

    Clusters that are not named keep their value.
    """

    at: Share
    cores: Annotated[dict[str, NotNegative], msgspec.Meta(min_length=1)]


class FederationPhase(ConfigStruct, frozen=True, kw_only=True):
    """A phase of the soak.

    With `federationDown` the federation's API server is killed at its start and restarted at its
    end. `partitioned` names a cluster that the federation cannot reach.
    """

    seconds: Positive
    load: tuple[TrafficStep, ...] = ()
    federation_down: bool = False
    partitioned: str | None = None


class OnPremise(ConfigStruct, frozen=True, kw_only=True):
    """A cluster with a fixed number of machines for the workload's archetype.

    Once all of them are in use, traffic beyond `spilloverAtPercent` of its Pods' CPU requests
    spills over to the other clusters, in equal parts.
    """

    cluster: str
    machines: Count
    spillover_at_percent: Percent


class RebalanceSettings(ConfigStruct, frozen=True, kw_only=True):
    """Fields of the federated HPA, shorter than its defaults so that a run shows rebalancing."""

    stabilization_seconds: Annotated[int, msgspec.Meta(ge=0)]
    cooldown_seconds: Annotated[int, msgspec.Meta(ge=0)]
    scheduling_timeout_seconds: Annotated[int, msgspec.Meta(ge=0)]
    retry_seconds: Annotated[int, msgspec.Meta(ge=0)]


class FederationSettings(ConfigStruct, frozen=True, kw_only=True):
    """A federated Deployment of `archetype` and its federated HPA on CPU.

    HPAs target `targetPercent` of the Pods' requests and scale down to the highest recommendation
    of the last `scaleDownStabilizationSeconds`. The phases follow each other; each change of load
    is delayed by up to `jitterSeconds`, derived from the seed.
    """

    archetype: str
    min_replicas: Count
    max_replicas: Count
    target_percent: Percent
    scale_down_stabilization_seconds: Annotated[int, msgspec.Meta(ge=0)]
    on_premise: OnPremise
    rebalance: RebalanceSettings
    phases: Annotated[dict[str, FederationPhase], msgspec.Meta(min_length=1)]
    jitter_seconds: NotNegative = 0.0

    @property
    def seconds(self) -> float:
        """The length of all phases together."""
        return sum(phase.seconds for phase in self.phases.values())
