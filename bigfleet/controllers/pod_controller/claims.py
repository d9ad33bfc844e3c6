"""Which volume claims keep a Pod waiting, whatever machines there are."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from bigfleet.api.kube.client import FORBIDDEN, NOT_FOUND, ApiError, KubeClient
from bigfleet.controllers.pod_controller.pods import Pod

_LATE = "WaitForFirstConsumer"


class _ClaimSpec(msgspec.Struct, rename="camel"):
    storage_class_name: str = ""


class _ClaimStatus(msgspec.Struct):
    phase: str = ""


class _Claim(msgspec.Struct):
    spec: _ClaimSpec
    status: _ClaimStatus = msgspec.field(default_factory=_ClaimStatus)


class _StorageClass(msgspec.Struct, rename="camel"):
    volume_binding_mode: str = ""


class Claims:
    """Reads claims when asked, since few Pods wait long enough for it to matter.

    Where it has no right to read them it finds nothing wrong.
    """

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def missing(self, pod: Pod) -> str:
        """Why no machine would do for the Pod's volumes; "" when one would. ApiError."""
        for name in _claim_names(pod):
            path = f"/api/v1/namespaces/{pod.metadata.namespace}/persistentvolumeclaims/{name}"
            try:
                claim = msgspec.json.decode(await self._client.get(path), type=_Claim)
                bound = claim.status.phase == "Bound" or await self._binds_late(claim)
            except ApiError as error:
                if error.status == NOT_FOUND:
                    return f"its volume claim {name} does not exist"
                if error.status != FORBIDDEN:
                    raise
            else:
                if not bound:
                    return f"its volume claim {name} is not bound"
        return ""

    async def _binds_late(self, claim: _Claim) -> bool:
        """Whether the claim waits for the Pod, and not the Pod for the claim."""
        name = claim.spec.storage_class_name
        if claim.status.phase == "Lost" or not name:
            return False
        path = f"/apis/storage.k8s.io/v1/storageclasses/{name}"
        try:
            found = msgspec.json.decode(await self._client.get(path), type=_StorageClass)
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
            return False
        return found.volume_binding_mode == _LATE


def _claim_names(pod: Pod) -> Iterator[str]:
    for volume in pod.spec.volumes or ():
        if volume.persistent_volume_claim is not None:
            yield volume.persistent_volume_claim.claim_name
        elif volume.ephemeral is not None:
            yield f"{pod.metadata.name}-{volume.name}"
