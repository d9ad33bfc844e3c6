"""The federation of a run, where the profile wants one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from loaddriver.federated.course import make_course
from loaddriver.federated.playing import Federating, Place
from loaddriver.run.part import Part
from loaddriver.substrates.base import Substrate, SubstrateError


def federating_of(
    part: Part, substrate: Substrate, data: Path, environment: Mapping[str, str]
) -> Federating | None:
    """The part's federation, not started; None where it has none, as every bare part.

    SubstrateError where the place cannot have one.
    """
    profile = part.prepared.profile
    settings = profile.settings
    if settings.federation is None or part.bare_of:
        return None
    if not isinstance(substrate, Place):
        raise SubstrateError(f"{profile.name} has a federation: use --substrate local")
    course = make_course(
        settings.federation,
        profile.catalog.archetype(settings.federation.archetype),
        settings.cluster_names,
        settings.pods_per_cluster,
        settings.seed,
    )
    return Federating(course, profile.catalog, substrate, data, environment)
