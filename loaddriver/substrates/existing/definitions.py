"""CustomResourceDefinitions in existing clusters: those of a run, and those that were there."""

from __future__ import annotations

import msgspec

from bigfleet.kube.client import FORBIDDEN, NOT_FOUND, ApiError, KubeClient, is_transient
from bigfleet.kube.types import ObjectList
from loaddriver.substrates.existing.cleaning import Meta, delete, labelled, release
from loaddriver.substrates.existing.objects import MANAGED

COLLECTION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class _Names(msgspec.Struct):
    plural: str


class _Version(msgspec.Struct):
    name: str
    served: bool = True


class _Spec(msgspec.Struct):
    group: str
    names: _Names
    versions: list[_Version]


class _Definition(msgspec.Struct):
    metadata: Meta
    spec: _Spec

    @property
    def objects(self) -> str:
        """The collection of all objects of its kind, in all namespaces."""
        version = next(each.name for each in self.spec.versions if each.served)
        return f"/apis/{self.spec.group}/{version}/{self.spec.names.plural}"


async def present(client: KubeClient, names: frozenset[str]) -> list[str]:
    """Those of the named definitions that the cluster has."""
    found = {each.metadata.name for each in await labelled(client, COLLECTION, {})}
    return sorted(found & names)


async def of_runs(client: KubeClient) -> list[str]:
    """The names of the definitions with the label. None for a user who may not list them: no run
    of his made any.
    """
    return [each.metadata.name for each in await _of_runs(client)]


async def begin_removal(client: KubeClient) -> list[str]:
    """Ask for the removal of all definitions with the label, and of every object of their kinds;
    return the names of those that were still there, so call it until there is none.

    The objects' finalizers are taken off: what was to end them is gone.
    """
    found = await _of_runs(client)
    for each in found:
        try:
            await release(client, each.objects, await labelled(client, each.objects, {}))
        except ApiError as error:
            # Its kind is no longer served, or not yet; or its storage is just being changed.
            if error.status != NOT_FOUND and not is_transient(error):
                raise
    await delete(client, (f"{COLLECTION}/{each.metadata.name}" for each in found))
    return [each.metadata.name for each in found]


async def _of_runs(client: KubeClient) -> list[_Definition]:
    try:
        content = await client.get(COLLECTION, {"labelSelector": "=".join(MANAGED)})
    except ApiError as error:
        if error.status == FORBIDDEN:
            return []
        raise
    found: list[_Definition] = msgspec.json.decode(content, type=ObjectList[_Definition]).items
    return found
