"""The sizes of gangs, from the workloads that own their pods."""

from __future__ import annotations

import logging
from collections import OrderedDict

import msgspec

from bigfleet.api.install import gang_members
from bigfleet.controllers.pod_controller.pods import Metadata, Owner
from bigfleet.kube.client import FORBIDDEN, NOT_FOUND, ApiError, KubeClient

_LOG = logging.getLogger(__name__)
_COLLECTIONS = {
    "Job": "/apis/batch/v1/namespaces/{namespace}/jobs",
    "ReplicaSet": "/apis/apps/v1/namespaces/{namespace}/replicasets",
    "StatefulSet": "/apis/apps/v1/namespaces/{namespace}/statefulsets",
}
_CACHE_SIZE = 10_000


class OwnerSpec(msgspec.Struct, rename="camel"):
    """The fields of a Job, ReplicaSet or StatefulSet that decide its number of pods."""

    parallelism: int | None = None
    completions: int | None = None
    replicas: int | None = None
    pod_management_policy: str = ""


class _Workload(msgspec.Struct):
    spec: OwnerSpec


class GangSizes:
    """Looks up each owner once; later changes do not count for a gang that has started."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._known: OrderedDict[str, int] = OrderedDict()

    async def members(self, pod: Metadata) -> int:
        """The size of `pod`'s gang, including itself; 0 if unknown.

        ApiError when the API server fails. Without access to the owner, or without an owner, the
        size is unknown, and the gang is reported pod by pod.
        """
        if (annotated := gang_members(pod.annotations)) is not None:
            return annotated
        owner = next((o for o in pod.owner_references or () if o.controller), None)
        if owner is None or owner.kind not in _COLLECTIONS:
            return 0
        known = self._known.get(owner.uid)
        if known is None:
            known = await self._lookup(pod.namespace, owner)
            if known is None:
                return 0
            self._known[owner.uid] = known
            if len(self._known) > _CACHE_SIZE:
                self._known.popitem(last=False)
        return known

    async def _lookup(self, namespace: str, owner: Owner) -> int | None:
        """None if it cannot be read now."""
        path = f"{_COLLECTIONS[owner.kind].format(namespace=namespace)}/{owner.name}"
        try:
            raw = await self._client.get(path)
        except ApiError as error:
            if error.status not in (NOT_FOUND, FORBIDDEN):
                raise
            _LOG.warning("gang size of %s/%s is unknown: %s", namespace, owner.name, error)
            return None
        return members_of(msgspec.json.decode(raw, type=_Workload).spec)


def members_of(spec: OwnerSpec) -> int:
    """The pods that are created together; 0 where they are created one after the other."""
    if spec.parallelism is not None:
        return min(spec.parallelism, spec.completions or spec.parallelism)
    return 0 if spec.pod_management_policy == "OrderedReady" else spec.replicas or 0
