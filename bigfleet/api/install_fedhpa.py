"""Puts the federated kinds into the federation's API server, and the rights into it and members."""

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
    """Make `client`'s cluster fit to hold federated objects; it must be its administrator's.

    Harmless when repeated. Unavailable when it has not taken all by the deadline.
    """
    kinds = sorted(KINDS.glob("*.yaml"))
    try:
        async with asyncio.timeout(deadline_seconds):
            for manifest in _documents(*kinds, KINDS / "rbac" / "host.yaml"):
                await apply(client, manifest)
            for path in kinds:
                await retry_until(lambda kind=path.stem: is_served(client, kind))  # type: ignore[misc]
    except TimeoutError:
        raise _timed_out(client, deadline_seconds, "the federated kinds") from None


async def install_member(client: KubeClient, deadline_seconds: float = _DEADLINE_SECONDS) -> None:
    """Give the federation its rights in a member; `client` must be its administrator's."""
    try:
        async with asyncio.timeout(deadline_seconds):
            for manifest in _documents(KINDS / "rbac" / "member.yaml"):
                await apply(client, manifest)
    except TimeoutError:
        raise _timed_out(client, deadline_seconds, "the federation's rights") from None


def _documents(*paths: Path) -> Iterator[dict[str, Any]]:
    for path in paths:
        yield from yaml.safe_load_all(path.read_text())


def _timed_out(client: KubeClient, seconds: float, what: str) -> Unavailable:
    return Unavailable(
        f"{client.server}: waited {seconds:g} s in vain for {what}; "
        "look into the log of its kube-apiserver"
    )
