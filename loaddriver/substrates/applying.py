"""Server-side apply of manifests, with the harness as field manager."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from bigfleet.kube.client import APPLY_PATCH, KubeClient

Manifest = Mapping[str, Any]

_APPLY_OPTIONS = {"fieldManager": "scaletest", "force": "true"}


async def apply(client: KubeClient, manifests: Iterable[Manifest]) -> None:
    """Apply each object, in order; idempotent. Raises ApiError if one is rejected."""
    for manifest in manifests:
        await client.patch(path_of(manifest), manifest, APPLY_PATCH, _APPLY_OPTIONS)


def path_of(manifest: Manifest) -> str:
    """The API path of the object, for kinds with a regular plural."""
    version, metadata = manifest["apiVersion"], manifest["metadata"]
    root = f"/api/{version}" if "/" not in version else f"/apis/{version}"
    within = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
    kind = manifest["kind"].lower()
    plural = kind + ("es" if kind.endswith("s") else "s")
    return f"{root}{within}/{plural}/{metadata['name']}"
