"""Installs the federated CRDs and RBAC in the host cluster, and RBAC in member clusters."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from bigfleet.api.install import apply, is_served, retry_until
from bigfleet.kube.client import KubeClient
from bigfleet.model.errors import Unavailable

KINDS = Path(__file__).with_name("fedhpa")
FEDHPA_NAMESPACE = "bigfleet-fedhpa"
_DEADLINE_SECONDS = 60.0


async def install_fedhpa(client: KubeClient, deadline_seconds: float = _DEADLINE_SECONDS) -> None:
    """Install the federated CRDs and RBAC in the host cluster; `client` must be a cluster admin.

    Idempotent. Unavailable at the deadline.
    """
    kinds = sorted(KINDS.glob("*.yaml"))
    try:
        async with asyncio.timeout(deadline_seconds):
            for manifest in _documents(*kinds, KINDS / "rbac" / "host.yaml"):
                await apply(client, manifest)
            for path in kinds:
                await retry_until(lambda kind=path.stem: is_served(client, kind))  # type: ignore[misc]
    except TimeoutError:
        raise _timed_out(client, deadline_seconds, "the federated CRDs to be served") from None


async def install_member(client: KubeClient, deadline_seconds: float = _DEADLINE_SECONDS) -> None:
    """Install the federation's RBAC in a member; `client` must be a cluster admin."""
    try:
        async with asyncio.timeout(deadline_seconds):
            for manifest in _documents(KINDS / "rbac" / "member.yaml"):
                await apply(client, manifest)
    except TimeoutError:
        raise _timed_out(client, deadline_seconds, "the federation's RBAC to be accepted") from None


def _documents(*paths: Path) -> Iterator[dict[str, Any]]:
    for path in paths:
        yield from yaml.load_all(path.read_text(), yaml.CSafeLoader)


def _timed_out(client: KubeClient, seconds: float, what: str) -> Unavailable:
    return Unavailable(
        f"{client.server}: timed out after {seconds:g} s waiting for {what}; "
        "check the kube-apiserver log"
    )
