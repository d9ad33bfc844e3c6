"""A profile as values of charts/scaletest for the cluster that the chart is installed in. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from loaddriver.errors import ProfileError
from loaddriver.profile.loading import Profile
from loaddriver.profile.settings import ProfileSettings
from loaddriver.run.chart_values import runner_resources, values_of_run

# Settings that are values of the chart, as it grants rights by them.
_VALUES_THEMSELVES = ("system", "none", "none.nodes")


def host_cluster_values(
    profile: Profile, overrides: Sequence[str], seed: int | None
) -> dict[str, Any]:
    """What differs from the chart's defaults, in the order of its values.yaml. Raises ProfileError
    for a profile that cannot be run in a cluster of others, or not in one alone.
    """
    settings = profile.settings
    if refused := list(_refused(settings)):
        raise ProfileError([f"{profile.name}: {each}" for each in refused])
    nodes = {"nodes": settings.none.nodes} if settings.system == "none" else {}
    return {
        **values_of_run(profile, overrides, seed, _VALUES_THEMSELVES),
        "clusters": 0,
        "nestedClusters": {"enabled": False, "fleet": False},
        "hostCluster": {"system": settings.system, **nodes},
        "runner": {"resources": runner_resources(settings)},
    }


def host_cluster_heading(profile: Profile, overrides: Sequence[str]) -> str:
    """Comment lines: where the values come from."""
    words = ["loaddriver", "chart-values", profile.name, "--substrate", "existing"]
    command = shlex.join([*words, *(word for each in overrides for word in ("--set", each))])
    return (
        f"# Values of charts/scaletest for the profile {profile.name} in the cluster that the\n"
        f"# chart is installed in, as printed by `{command}`.\n"
    )


def _refused(settings: ProfileSettings) -> Iterator[str]:
    if settings.system not in ("none", "command"):
        yield (
            f"system: {settings.system} needs nested clusters; for the host cluster write "
            "--set system=none or --set system=command"
        )
    if settings.clusters != 1:
        yield (
            f"it has {settings.clusters} clusters, and the host cluster is one: write "
            "--set clusters=1"
        )
    if settings.resource_metrics:
        yield "metrics: resource needs nested clusters"
    if settings.live_changes:
        yield f"{settings.live_changes} is done to local processes only"
    if settings.fleet.running_provider:
        yield "fleet.runningProvider needs --substrate local"
    started = settings.command.start or settings.command.stop
    if settings.system == "command" and started:
        yield (
            "command.start: the runner's pod has nothing but the harness; install the autoscaler "
            "first, and write --set command.start=null --set command.stop=null"
        )
