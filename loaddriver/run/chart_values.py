"""A profile as values of charts/scaletest: its clusters, flags and memory. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from loaddriver.errors import ProfileError
from loaddriver.karpenter.node_source import karpenter_role
from loaddriver.profile.loading import Profile
from loaddriver.profile.settings import ProfileSettings
from loaddriver.run.bigfleet_roles import cluster_roles, provider_role, shard_role
from loaddriver.sizing.estimate import POD_BYTES, cost_lines
from loaddriver.substrates.base import Cluster, RoleSpec
from loaddriver.substrates.pods.pod_states import constant_flags

# Settings that are values of the chart, as its parts depend on them.
_VALUES_THEMSELVES = ("system",)
_MEBIBYTE = 2**20
# Without pods, of the 0.9 GiB that a nested cluster has: what the chart requests by default.
_IDLE_MEBIBYTES = {"etcd": 128, "kube-apiserver": 320}
# Of what each pod adds, measured together: etcd keeps it on tmpfs and in its cache.
_SHARE_OF_PODS = {"etcd": 0.5, "kube-apiserver": 0.5}
# The harness's rows and its plan.
_RUNNER_IDLE_MEBIBYTES, _RUNNER_POD_BYTES = 512, 16 * 1024


def chart_values(profile: Profile, overrides: Sequence[str], seed: int | None) -> dict[str, Any]:
    """What differs from the chart's defaults, in the order of its values.yaml. Raises ProfileError
    for a profile that the chart cannot run.
    """
    settings = profile.settings
    if lacks := _lacking(settings):
        raise ProfileError([f"{profile.name}: charts/scaletest cannot have {lacks}"])
    return {
        **values_of_run(profile, overrides, seed, _VALUES_THEMSELVES),
        "clusters": settings.clusters,
        **_nested_clusters(settings),
        "controlPlane": {
            **({"resourceMetrics": True} if settings.resource_metrics else {}),
            "resources": _control_plane(settings),
        },
        **_role_flags(settings),
        "runner": {"resources": runner_resources(settings)},
        **_load(settings),
        **_federation(settings),
        **_fleet(settings),
    }


def values_of_run(
    profile: Profile, overrides: Sequence[str], seed: int | None, values: Collection[str]
) -> dict[str, Any]:
    """What the runner plays; settings that are `values` of the chart are not overridden as well."""
    run: dict[str, Any] = {"profile": profile.name}
    if kept := [each for each in overrides if each.partition("=")[0] not in values]:
        run["overrides"] = kept
    if seed is not None:
        run["seed"] = seed
    return run


def _nested_clusters(settings: ProfileSettings) -> dict[str, Any]:
    if settings.on_bigfleet:
        return {}
    return {"nestedClusters": {"system": settings.system, "fleet": False}}


def _role_flags(settings: ProfileSettings) -> dict[str, Any]:
    cluster = Cluster("c1", "", {}, None)
    roles: dict[str, RoleSpec] = {}
    if settings.on_bigfleet:
        operator, pod_controller = cluster_roles(settings, cluster)
        provider = provider_role(settings, Path("inventory.jsonl"))
        roles = {"provider": provider, "operator": operator, "podController": pod_controller}
    elif settings.on_karpenter:
        roles = {"karpenter": karpenter_role(settings, cluster.name, Path("types"), None)}
    return {"flags": {name: _flags(role) for name, role in roles.items()}} if roles else {}


def _fleet(settings: ProfileSettings) -> dict[str, Any]:
    if not settings.on_bigfleet:
        return {}
    shard = {"replicas": settings.bigfleet.shards, "flags": _flags(shard_role(settings))}
    return {"bigfleet": {**_coordinators(settings), "shard": shard}}


def _lacking(settings: ProfileSettings) -> str:
    """The setting that no release can have; "" if it can have all."""
    asked = {
        settings.live_changes: bool(settings.live_changes),
        "fleet.providers": bool(settings.fleet.providers),
        "fleet.runningProvider": settings.fleet.running_provider is not None,
        # Its image has no other programs, and nested clusters have no autoscaler of their own.
        "system: command": settings.system == "command",
        # Its second arm would find the load of the first.
        "anchors: both": settings.anchors == "both",
    }
    return next((name for name, wanted in asked.items() if wanted), "")


def _load(settings: ProfileSettings) -> dict[str, Any]:
    """One worker is a process in the runner's pod."""
    workers = settings.load.workers
    return {"load": {"workers": workers}} if workers > 1 else {}


def _federation(settings: ProfileSettings) -> dict[str, Any]:
    if settings.federation is None:
        return {}
    return {
        "federation": {"enabled": True, "onPremise": settings.federation.on_premise.cluster},
    }


def _coordinators(settings: ProfileSettings) -> dict[str, Any]:
    """As many as the profile names; a fleet without any has those of the chart all the same."""
    replicas = settings.bigfleet.coordinators
    return {"coordinator": {"replicas": replicas}} if replicas else {}


def heading(profile: Profile) -> str:
    """Comment lines: where the values come from, and what hosts they need."""
    lines = [
        f"Values of charts/scaletest for the profile {profile.name}, as printed by",
        f"`loaddriver chart-values {profile.name}`. Estimated, not measured, for rented hosts:",
        *cost_lines(profile),
    ]
    return "".join(f"# {line}\n" for line in lines)


def _control_plane(settings: ProfileSettings) -> dict[str, Any]:
    pods = math.ceil(settings.max_pods / settings.clusters)
    needs = {
        name: idle * _MEBIBYTE + int(_SHARE_OF_PODS[name] * pods * POD_BYTES)
        for name, idle in _IDLE_MEBIBYTES.items()
    }
    return {
        name: {"requests": {"memory": _mebibytes(need)}, "limits": {"memory": _mebibytes(3 * need)}}
        for name, need in needs.items()
    }


def runner_resources(settings: ProfileSettings) -> dict[str, Any]:
    """The memory of the runner."""
    need = _RUNNER_IDLE_MEBIBYTES * _MEBIBYTE + settings.max_pods * _RUNNER_POD_BYTES
    return {"requests": {"memory": _mebibytes(need)}, "limits": {"memory": _mebibytes(2 * need)}}


def _flags(role: RoleSpec) -> dict[str, str]:
    return {flag.removeprefix("--"): value for flag, value in constant_flags(role).items()}


def _mebibytes(amount: int) -> str:
    return f"{math.ceil(amount / _MEBIBYTE)}Mi"
