"""What the load driver must be allowed to do for anchors, asked of the server before it matters."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from bigfleet.kube.client import KubeClient
from loaddriver.errors import InfrastructureError

_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class Right(NamedTuple):
    """A verb on a resource of the core group, in all namespaces."""

    verb: str
    resource: str
    subresource: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}{'/' if self.subresource else ''}{self.subresource}"


RIGHTS = (Right("patch", "pods", "status"),)


class _Answer(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _Answer = msgspec.field(default_factory=_Answer)


async def require_rights(client: KubeClient, cluster: str) -> None:
    """Return if all RIGHTS are there. InfrastructureError names those that are not."""
    missing = [str(right) for right in RIGHTS if not await _allowed(client, right)]
    if missing:
        raise InfrastructureError(
            f"cluster {cluster}: the load driver's user lacks rights that anchors need: "
            f"{', '.join(missing)}; grant them in a ClusterRole, or run with anchors: off"
        )


async def _allowed(client: KubeClient, right: Right) -> bool:
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": right._asdict()},
    }
    answer = await client.create(_REVIEWS, body)
    return msgspec.json.decode(answer, type=_Review).status.allowed
