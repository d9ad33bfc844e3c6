"""A profile's federation: one workload over all clusters, and how its load changes over time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import msgspec

from loaddriver.profile.archetypes import Count, NotNegative, Share
from loaddriver.profile.catalog import Catalog, pod_shares
from loaddriver.profile.decoding import ConfigStruct, FieldError
from loaddriver.profile.hints import did_you_mean

if TYPE_CHECKING:
    from loaddriver.profile.settings import ProfileSettings

Percent = Annotated[int, msgspec.Meta(ge=1, le=200)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]


class TrafficStep(ConfigStruct, frozen=True, kw_only=True):
    """From the share `at` of its phase on, callers of each cluster need so many cores. Clusters
    that are not named keep what they had.
    """

    at: Share
    cores: Annotated[dict[str, NotNegative], msgspec.Meta(min_length=1)]


class FederationPhase(ConfigStruct, frozen=True, kw_only=True):
    """A stretch of the soak. `federationDown`: the federation's API server is killed at its begin
    and started again at its end. `partitioned`: that cluster cannot be reached by the federation.
    """

    seconds: Seconds
    load: tuple[TrafficStep, ...] = ()
    federation_down: bool = False
    partitioned: str | None = None


class OnPremise(ConfigStruct, frozen=True, kw_only=True):
    """A cluster that owns its machines: so many for the workload's archetype, and never more.

    Once all of them are taken, callers that find more than `spilloverAtPercent` of its Pods' CPU
    requests in use go to the other clusters, in equal parts.
    """

    cluster: str
    machines: Count
    spillover_at_percent: Percent


class RebalanceSettings(ConfigStruct, frozen=True, kw_only=True):
    """The federated HPA's own fields, shorter than its defaults so that a run shows moves."""

    stabilization_seconds: Annotated[int, msgspec.Meta(ge=0)]
    cooldown_seconds: Annotated[int, msgspec.Meta(ge=0)]
    scheduling_timeout_seconds: Annotated[int, msgspec.Meta(ge=0)]
    retry_seconds: Annotated[int, msgspec.Meta(ge=0)]


class FederationSettings(ConfigStruct, frozen=True, kw_only=True):
    """A federated Deployment of `archetype` and its federated HPA on CPU.

    HPAs aim at `targetPercent` of what Pods request, and go down only after the least that they
    wanted for `scaleDownStabilizationSeconds`. The phases follow each other; each change of load
    comes up to `jitterSeconds` later than it says, by the seed.
    """

    archetype: str
    min_replicas: Count
    max_replicas: Count
    target_percent: Percent
    scale_down_stabilization_seconds: Annotated[int, msgspec.Meta(ge=0)]
    on_premise: OnPremise
    rebalance: RebalanceSettings
    phases: Annotated[dict[str, FederationPhase], msgspec.Meta(min_length=1)]
    jitter_seconds: Annotated[float, msgspec.Meta(ge=0)] = 0.0

    @property
    def seconds(self) -> float:
        """How long all phases take together."""
        return sum(phase.seconds for phase in self.phases.values())


def federation_errors(settings: ProfileSettings, catalog: Catalog) -> Iterator[FieldError]:
    """Everything impossible in a federation."""
    federation = settings.federation
    if federation is None:
        return
    if not settings.resource_metrics:
        yield FieldError("metrics", f"= {settings.metrics!r}: HPAs need metrics; write resource")
    if settings.load.mode != "pods":
        yield FieldError("load.mode", f"= {settings.load.mode!r}: HPAs make pods; write pods")
    if federation.archetype not in _names(catalog):
        hint = did_you_mean(federation.archetype, _names(catalog))
        text = f"= {federation.archetype!r}: no archetype of Deployments is called so{hint}"
        yield FieldError("federation.archetype", text)
    if not settings.clusters <= federation.min_replicas <= federation.max_replicas:
        text = f"= {federation.min_replicas}: must be from clusters to maxReplicas"
        yield FieldError("federation.minReplicas", text)
    yield from _cluster_errors(settings, federation)
    yield from _on_premise_errors(settings, catalog, federation)
    yield from _load_errors(settings, federation)


def _cluster_errors(
    settings: ProfileSettings, federation: FederationSettings
) -> Iterator[FieldError]:
    known = settings.cluster_names
    named = {"federation.onPremise.cluster": federation.on_premise.cluster}
    for name, phase in federation.phases.items():
        where = f"federation.phases.{name}"
        if phase.partitioned is not None:
            named[f"{where}.partitioned"] = phase.partitioned
        for position, step in enumerate(phase.load):
            for cluster in step.cores:
                named[f"{where}.load[{position}].cores.{cluster}"] = cluster
    for path, cluster in named.items():
        if cluster not in known:
            yield FieldError(path, f"= {cluster!r}: no such cluster: they are {', '.join(known)}")


def _on_premise_errors(
    settings: ProfileSettings, catalog: Catalog, federation: FederationSettings
) -> Iterator[FieldError]:
    own = federation.on_premise.cluster
    if own not in settings.cluster_names or federation.archetype not in _names(catalog):
        return
    runs = pod_shares(settings.weights_in(settings.cluster_names.index(own)), catalog)
    if set(runs) != {federation.archetype}:
        text = f"= {own!r}: its machines hold {federation.archetype} only, and it runs more"
        yield FieldError("federation.onPremise.cluster", text)
    places = federation.on_premise.machines * catalog.archetype(federation.archetype).density
    if places <= settings.pods_per_cluster:
        text = (
            f"= {federation.on_premise.machines}: others' {settings.pods_per_cluster} pods fill it"
        )
        yield FieldError("federation.onPremise.machines", text)


def _names(catalog: Catalog) -> list[str]:
    return [archetype.name for archetype in catalog.archetypes if archetype.kind == "Deployment"]


def _load_errors(settings: ProfileSettings, federation: FederationSettings) -> Iterator[FieldError]:
    name, first = next(iter(federation.phases.items()))
    begun = first.load and first.load[0].at == 0 and set(first.load[0].cores)
    if begun != set(settings.cluster_names):
        text = "must begin with a step `at: 0` that names the cores of every cluster"
        yield FieldError(f"federation.phases.{name}.load", text)
    for name, phase in federation.phases.items():
        moments = [step.at for step in phase.load]
        if moments != sorted(set(moments)):
            yield FieldError(f"federation.phases.{name}.load", "put its steps in order of `at`")
