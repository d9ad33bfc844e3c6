"""The federation of a run, if its profile has one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from loaddriver.fedhpa.federation_run import FederationRun, FederationSubstrate
from loaddriver.fedhpa.load_schedule import make_schedule
from loaddriver.run.inputs import Arm
from loaddriver.substrates.base import Substrate, SubstrateError


def make_federation_run(
    arm: Arm, substrate: Substrate, data: Path, environment: Mapping[str, str]
) -> FederationRun | None:
    """The arm's federation, not started; None in a profile without one and in a bare arm.

    Raises SubstrateError if the substrate does not support federations.
    """
    profile = arm.inputs.profile
    settings = profile.settings
    if settings.federation is None or arm.bare_of:
        return None
    if not isinstance(substrate, FederationSubstrate):
        raise SubstrateError(f"{profile.name} has a federation: use --substrate local")
    schedule = make_schedule(
        settings.federation,
        profile.catalog.archetype(settings.federation.archetype),
        settings.cluster_names,
        settings.pods_per_cluster,
        settings.seed,
    )
    return FederationRun(schedule, profile.catalog, substrate, data, environment)
