"""Which substrate a run happens on: the one place that knows them all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TypeAlias

from controlplane.pins import METRICS_SERVER
from controlplane.request import Binaries, BinaryRequest
from controlplane.resolve import resolve
from loaddriver.substrates.base import Substrate, SubstrateError
from loaddriver.substrates.components import ControlPlaneConfig
from loaddriver.substrates.kind import prerequisites as kind
from loaddriver.substrates.kind.substrate import KindSubstrate
from loaddriver.substrates.local import LocalSubstrate
from loaddriver.substrates.runscope import RunScope

Prerequisites: TypeAlias = Binaries | kind.Prerequisites
"""What a substrate must have of this machine before anything starts."""


class SubstrateName(StrEnum):
    """What the command line offers."""

    LOCAL = "local"
    KIND = "kind"


def obtain_prerequisites(
    name: SubstrateName,
    request: BinaryRequest,
    progress: Callable[[str], None],
    *,
    resource_metrics: bool = False,
    coordinators: int = 0,
) -> Prerequisites:
    """Find, fetch or build what a run needs of its machine; blocks for minutes the first time.

    Raises controlplane's errors, or SubstrateError for what this machine or the place lacks.
    """
    match name:
        case SubstrateName.LOCAL:
            return resolve(request, progress, [METRICS_SERVER] if resource_metrics else [])
        case SubstrateName.KIND:
            if resource_metrics:
                raise _only_local("metrics: resource")
            if coordinators:
                raise _only_local(f"bigfleet.coordinators: {coordinators}")
            return kind.obtain(request, progress)


def _only_local(setting: str) -> SubstrateError:
    return SubstrateError(
        f"this profile has `{setting}`, which kind clusters have not: use --substrate local"
    )


def make_substrate(
    prerequisites: Prerequisites,
    scope: RunScope,
    log_directory: Path,
    environment: Mapping[str, str],
    *,
    resource_metrics: bool = False,
) -> Substrate:
    """The substrate that these supplies are for, with nothing started yet.

    Call it inside an event loop.
    """
    run_id, data = scope.run_id, scope.data_directory
    if isinstance(prerequisites, Binaries):
        settings = ControlPlaneConfig(resource_metrics=resource_metrics)
        return LocalSubstrate(run_id, data, log_directory, prerequisites, environment, settings)
    return KindSubstrate(run_id, data, log_directory, prerequisites, environment)
