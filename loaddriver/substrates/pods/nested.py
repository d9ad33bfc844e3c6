"""Whether a nested cluster of a release works, as its pod's containers cannot say."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

from bigfleet.kube.client import CONNECTION_ERRORS, ApiError, KubeClient
from loaddriver.substrates import metrics, readiness
from loaddriver.substrates.base import SubstrateError
from loaddriver.substrates.pods.places import ClusterPlace

READY = "/readyz"
_POLL_SECONDS = 0.5


async def responds(kubeconfig: Path) -> bool:
    """Whether its API server says that it is ready."""
    async with await KubeClient.from_kubeconfig(kubeconfig) as client:
        return await readiness.answers(client, READY)


async def has_metrics(kubeconfig: Path) -> bool:
    """Whether it says what pods use."""
    with suppress(ApiError, *CONNECTION_ERRORS):
        async with await KubeClient.from_kubeconfig(kubeconfig) as client:
            return await metrics.is_available(client)
    return False


async def verify(place: ClusterPlace, kubeconfig: Path, seconds: float) -> None:
    """Verify that a Node becomes usable, which takes every part of a control plane.

    Raises SubstrateError if that takes more `seconds`.
    """
    deadline = asyncio.get_running_loop().time() + seconds
    try:
        async with await KubeClient.from_kubeconfig(kubeconfig) as client:
            await readiness.add_check_node(client)
            while not await readiness.check_node_is_usable(client):
                if asyncio.get_running_loop().time() > deadline:
                    raise SubstrateError(f"cluster {place.name}: kwok makes no Node ready")
                await asyncio.sleep(_POLL_SECONDS)
            await readiness.remove_check_node(client)
    except (ApiError, *CONNECTION_ERRORS) as error:
        raise SubstrateError(
            f"cluster {place.name} at {place.api_server}: {error or 'no response'}"
        ) from error
