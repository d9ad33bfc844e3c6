"""Gives a cluster what Karpenter expects there: its definitions, its rights, what it may buy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

from bigfleet.api.install import retry_until
from bigfleet.kube.client import NOT_FOUND, ApiError, KubeClient
from loaddriver.karpenter.guest import RBAC
from loaddriver.karpenter.objects import instance_types, node_class, node_pools
from loaddriver.profile.settings import ProfileSettings
from loaddriver.sizing.inventory import InventoryMachine
from loaddriver.substrates.applying import apply
from loaddriver.substrates.existing.definitions import COLLECTION
from loaddriver.substrates.existing.objects import MANAGED


def definitions_of(printed: bytes) -> list[dict[str, Any]]:
    """The CustomResourceDefinitions that `karpenter --crds` wrote."""
    definitions: list[dict[str, Any]] = msgspec.json.decode(printed)
    for each in definitions:
        each.pop("status", None)
    return definitions


def write_instance_types(machines: Sequence[InventoryMachine], path: Path) -> None:
    """Write the file of its kwok provider."""
    path.write_bytes(msgspec.json.encode(instance_types(machines)))


async def prepare(
    client: KubeClient,
    definitions: Iterable[Mapping[str, Any]],
    machines: Sequence[InventoryMachine],
    settings: ProfileSettings,
    *,
    apart: bool = False,
) -> None:
    """Create all that Karpenter needs before it starts.

    With `apart` the cluster is other people's: Nodes are for the load alone, definitions can be
    found for their removal, and rights are granted elsewhere. It waits until the API server serves
    the definitions. ApiError if an object is refused.
    """
    if apart:
        await _define(client, definitions)
    else:
        await apply(client, [*definitions, *yaml.safe_load_all(RBAC.read_text())])
    pools = node_pools(machines, settings, apart=apart)
    bought = [node_class(settings), *pools]
    await retry_until(lambda: _applied(client, bought))


async def _define(client: KubeClient, definitions: Iterable[Mapping[str, Any]]) -> None:
    """Create them, to be found by their label. ApiError if one is there: it is another's."""
    for each in definitions:
        labels = {**each["metadata"].get("labels", {}), MANAGED[0]: MANAGED[1]}
        await client.create(
            COLLECTION, {**each, "metadata": {**each["metadata"], "labels": labels}}
        )


async def _applied(client: KubeClient, manifests: Iterable[Mapping[str, Any]]) -> bool:
    """Apply them; False while the API server does not serve their kinds yet."""
    try:
        await apply(client, manifests)
    except ApiError as error:
        if error.status == NOT_FOUND:
            return False
        raise
    return True
