"""Selects the substrate of a run."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeAlias

from bigfleet.kube.client import KubeClient
from controlplane.locate import LocatedBinary
from controlplane.pins import KARPENTER, METRICS_SERVER, OPTIONAL_MODULES, wanted_modules
from controlplane.request import Binaries, BinaryRequest
from controlplane.resolve import obtain, resolve
from loaddriver.errors import ProfileError
from loaddriver.substrates.base import Substrate, SubstrateError
from loaddriver.substrates.components import ControlPlaneConfig
from loaddriver.substrates.existing import substrate as existing
from loaddriver.substrates.existing.contexts import read_contexts
from loaddriver.substrates.existing.objects import Guest
from loaddriver.substrates.existing.substrate import ExistingSubstrate
from loaddriver.substrates.local import LocalSubstrate
from loaddriver.substrates.pods import places as pods
from loaddriver.substrates.pods.substrate import PodsSubstrate
from loaddriver.substrates.runscope import RunScope

_KWOK = "kwok"

Prerequisites: TypeAlias = Binaries | existing.Prerequisites | pods.Prerequisites
"""What a substrate needs of this machine before it starts."""


class SubstrateName(StrEnum):
    """The substrates of the command line. A run on kind is one on `pods` there (kindrun)."""

    LOCAL = "local"
    KIND = "kind"
    EXISTING = "existing"
    PODS = "pods"


@dataclass(frozen=True)
class ExistingClusters:
    """What a run asks of existing clusters: the contexts given, and how many clusters it has.

    `fleet_nodes`: it has Nodes of its own. `refused` names a setting that they cannot have. The
    `guest` is the autoscaler that it brings along, an optional component of the binaries.
    """

    contexts: Sequence[str]
    number: int
    fleet_nodes: bool
    refused: str = ""
    guest: Guest | None = None


def obtain_prerequisites(
    name: SubstrateName,
    request: BinaryRequest,
    progress: Callable[[str], None],
    *,
    resource_metrics: bool = False,
    karpenter: bool = False,
    local_only: str = "",
    clusters: ExistingClusters | None = None,
    load_workers: int = 1,
) -> Prerequisites:
    """Locate, download or build what a run needs of its machine; may block for minutes.
    `local_only` names a setting that only processes of this machine can have. Of several
    `load_workers` each has a pod, where there are pods.

    Raises controlplane's errors, or SubstrateError if the machine or the substrate cannot run it.
    """
    if local_only and name is not SubstrateName.LOCAL:
        raise _only_local(local_only)
    match name:
        case SubstrateName.LOCAL:
            wanted = {METRICS_SERVER: resource_metrics, KARPENTER: karpenter}
            return resolve(request, progress, [name for name, asked in wanted.items() if asked])
        case SubstrateName.KIND:
            raise SubstrateError("--substrate kind is for whole runs alone: loaddriver run PROFILE")
        case SubstrateName.EXISTING:
            return _existing(request, progress, clusters)
        case SubstrateName.PODS:
            found = pods.obtain(request.environment)
            pods.check_load_workers(found.places, load_workers)
            return found


def _existing(
    request: BinaryRequest, progress: Callable[[str], None], clusters: ExistingClusters | None
) -> existing.Prerequisites:
    if clusters is None:
        raise SubstrateError("an existing cluster can only be measured: loaddriver run")
    if clusters.refused:
        raise ProfileError([f"{clusters.refused}; not with --substrate existing"])
    contexts = tuple(read_contexts(request.environment, clusters.contexts))
    if len(contexts) != clusters.number:
        raise ProfileError(
            [
                f"the profile has {clusters.number} clusters, and {len(contexts)} contexts were "
                "given: give --context once for each, or --set clusters=N"
            ]
        )
    guest = clusters.guest
    programs = _programs(request, progress, guest) if clusters.fleet_nodes else {}
    return existing.Prerequisites(contexts, programs, dict(request.environment), guest)


def _programs(
    request: BinaryRequest, progress: Callable[[str], None], guest: Guest | None
) -> dict[str, LocatedBinary]:
    """They alone: the harness's image has no other component of a control plane than kwok."""
    modules = [each for each in wanted_modules(None) if _KWOK in each.components]
    if guest:
        modules.append(OPTIONAL_MODULES[guest.name])
    return obtain(modules, request, progress)


def _only_local(setting: str) -> SubstrateError:
    return SubstrateError(
        f"this profile has `{setting}`, which only one substrate supports: use --substrate local"
    )


# Twice what an API server has in use, with a CapacityRequest for each pod.
_API_SERVER_MIB, _MIB_PER_POD = 500, 0.09


def _api_server_mib(pods: int | None) -> int | None:
    return None if pods is None else _API_SERVER_MIB + math.ceil(pods * _MIB_PER_POD)


def make_substrate(
    prerequisites: Prerequisites,
    scope: RunScope,
    log_directory: Path,
    environment: Mapping[str, str],
    *,
    pods_per_cluster: int | None = None,
    resource_metrics: bool = False,
    bigfleet: Sequence[str] = (),
    scheduler_config: Path | None = None,
    before_controllers: Callable[[KubeClient], Awaitable[None]] | None = None,
    identities: Path | None = None,
) -> Substrate:
    """The substrate of these prerequisites, not started yet.

    Local roles are started by the command line `bigfleet`, if given, and kube-scheduler with
    `scheduler_config`; `before_controllers` prepares local clusters, whose identities come from the
    authority in `identities`, if given. The memory of their API servers is bounded if it is known
    how many pods they will have. Call it inside an event loop. Raises SubstrateError.
    """
    run_id, data = scope.run_id, scope.data_directory
    if isinstance(prerequisites, Binaries):
        settings = ControlPlaneConfig(
            api_server_mib=_api_server_mib(pods_per_cluster),
            resource_metrics=resource_metrics,
            scheduler_config=scheduler_config,
            before_controllers=before_controllers,
        )
        roles = {"bigfleet": bigfleet} if bigfleet else {}
        return LocalSubstrate(
            run_id,
            data,
            log_directory,
            prerequisites,
            environment,
            settings,
            identities=identities,
            **roles,
        )
    if bigfleet or scheduler_config:
        raise SubstrateError("--sut, --component and --scheduler-config need --substrate local")
    if isinstance(prerequisites, existing.Prerequisites):
        return ExistingSubstrate(run_id, data, log_directory, prerequisites)
    return PodsSubstrate(log_directory, prerequisites, resource_metrics=resource_metrics)
