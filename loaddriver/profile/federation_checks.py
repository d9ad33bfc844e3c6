"""Checks of a federation against the clusters and the catalog."""

from __future__ import annotations

from collections.abc import Iterator

from loaddriver.profile.catalog import Catalog, pod_shares
from loaddriver.profile.decoding import FieldError
from loaddriver.profile.federation import FederationSettings
from loaddriver.profile.hints import did_you_mean
from loaddriver.profile.settings import ProfileSettings


def federation_errors(settings: ProfileSettings, catalog: Catalog) -> Iterator[FieldError]:
    """Every contradiction in the federation."""
    federation = settings.federation
    if federation is None:
        return
    if not settings.resource_metrics:
        yield FieldError("metrics", f"= {settings.metrics!r}: HPAs need metrics; write resource")
    if settings.load.mode != "pods":
        yield FieldError("load.mode", f"= {settings.load.mode!r}: HPAs need pods; write pods")
    if federation.archetype not in _names(catalog):
        hint = did_you_mean(federation.archetype, _names(catalog))
        text = f"= {federation.archetype!r}: no such archetype of Deployments{hint}"
        yield FieldError("federation.archetype", text)
    if not settings.clusters <= federation.min_replicas <= federation.max_replicas:
        text = f"= {federation.min_replicas}: must be between clusters and maxReplicas"
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
            yield FieldError(path, f"= {cluster!r}: no such cluster (known: {', '.join(known)})")


def _on_premise_errors(
    settings: ProfileSettings, catalog: Catalog, federation: FederationSettings
) -> Iterator[FieldError]:
    own = federation.on_premise.cluster
    if own not in settings.cluster_names or federation.archetype not in _names(catalog):
        return
    runs = pod_shares(settings.weights_in(settings.cluster_names.index(own)), catalog)
    if set(runs) != {federation.archetype}:
        text = f"= {own!r}: must run {federation.archetype} only"
        yield FieldError("federation.onPremise.cluster", text)
    places = federation.on_premise.machines * catalog.archetype(federation.archetype).density
    if places <= settings.pods_per_cluster:
        text = (
            f"= {federation.on_premise.machines}: the {settings.pods_per_cluster} pods of other "
            "workloads fill them"
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
            yield FieldError(
                f"federation.phases.{name}.load", "steps must be in increasing order of `at`"
            )
