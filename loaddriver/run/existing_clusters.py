"""What differs in a run in clusters of other people: its plan, its Nodes, its settings."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from bigfleet.kube.client import CONNECTION_ERRORS, ApiError, KubeClient
from loaddriver.errors import InfrastructureError, ProfileError
from loaddriver.karpenter.guest import karpenter_guest
from loaddriver.plan.confined import confined
from loaddriver.plan.records import Plan
from loaddriver.profile.settings import ProfileSettings
from loaddriver.run.context import RunOptions
from loaddriver.substrates.choice import ExistingClusters, SubstrateName
from loaddriver.substrates.existing.contexts import Context
from loaddriver.substrates.existing.removal import leftovers, remove_all


def existing_clusters(options: RunOptions, settings: ProfileSettings) -> ExistingClusters:
    """What the run asks of existing clusters."""
    return ExistingClusters(
        contexts=options.contexts,
        number=settings.clusters,
        fleet_nodes=_has_own_nodes(settings),
        refused=_refused(options, settings),
        guest=karpenter_guest() if settings.on_karpenter else None,
    )


def check_place(options: RunOptions, settings: ProfileSettings) -> None:
    """Raise ProfileError for what only existing clusters have, if the run's are its own, and for
    what only local ones have, if they are not.
    """
    if settings.fleet.running_provider and options.substrate is not SubstrateName.LOCAL:
        raise ProfileError(["fleet.runningProvider (--provider) needs --substrate local"])
    if options.substrate is SubstrateName.EXISTING:
        return
    needs = "needs --substrate existing: the run's own clusters"
    if options.contexts:
        raise ProfileError([f"--context {options.contexts[0]} {needs} are in no kubeconfig"])
    if settings.system == "none" and settings.none.nodes == "existing":
        raise ProfileError([f"none.nodes = existing {needs} have no Nodes"])
    if settings.system == "command" and settings.command.start is None:
        raise ProfileError([f"system: command without command.start {needs} have no autoscaler"])


def plan_for(options: RunOptions, settings: ProfileSettings, plan: Plan) -> Plan:
    """The plan as it is played on the options' substrate."""
    if options.substrate is not SubstrateName.EXISTING:
        return plan
    return confined(plan, fleet_nodes=_has_own_nodes(settings))


def _has_own_nodes(settings: ProfileSettings) -> bool:
    """Whether the run has simulated Nodes of its own: the registered fleet, or Karpenter's."""
    return settings.on_karpenter or (settings.system == "none" and settings.none.nodes == "fleet")


def _refused(options: RunOptions, settings: ProfileSettings) -> str:
    if settings.system == "bigfleet":
        return "system: bigfleet needs clusters of its own; write none, command or karpenter"
    if settings.resource_metrics:
        return "metrics: resource needs clusters of its own"
    if options.keep or options.bare:
        return "--keep and --bare leave or need more than one run has there"
    return ""


async def clean(contexts: Sequence[Context], say: Callable[[str], None]) -> None:
    """Remove what runs left in these clusters. Raises InfrastructureError."""
    for context in contexts:
        try:
            async with connected_to(context) as client:
                found = await leftovers(client)
                for each in found:
                    say(f"context {context.name}: removing {each}")
                await remove_all(client)
        except (ApiError, *CONNECTION_ERRORS) as error:
            raise InfrastructureError(
                f"context {context.name}: {error or 'no response'}"
            ) from error
        say(f"context {context.name}: {len(found)} objects of earlier runs removed")


@asynccontextmanager
async def connected_to(context: Context) -> AsyncIterator[KubeClient]:
    """A client of the context's user; the file with its credentials is gone afterwards."""
    with tempfile.NamedTemporaryFile("w", suffix=".kubeconfig") as file:  # mode 0600
        file.write(context.kubeconfig)
        file.flush()
        async with await KubeClient.from_kubeconfig(Path(file.name)) as client:
            yield client
