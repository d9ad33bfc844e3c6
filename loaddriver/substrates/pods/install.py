"""Makes a nested cluster what runs expect: the harness's rights, and what is asked for besides.

`python -m loaddriver.substrates.pods.install KUBECONFIG [bigfleet] [resource-metrics]` runs between
the API server and the controllers: the garbage collector takes half a minute to notice a resource
that is added later.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from bigfleet.api.install import install
from bigfleet.kube.client import KubeClient
from loaddriver.substrates import metrics, readiness
from loaddriver.substrates.base import SubstrateError
from loaddriver.substrates.pods.control_plane import LAYOUT

_START_SECONDS = 120.0
_POLL_SECONDS = 0.2
_BIGFLEET, _RESOURCE_METRICS = "bigfleet", "resource-metrics"


async def install_into(kubeconfig: Path, *, bigfleet: bool, resource_metrics: bool) -> None:
    """Wait for the API server and install: BigFleet's CRDs and policies, and metrics, each if it is
    wanted. Raises SubstrateError, or what `install` does.
    """
    deadline = asyncio.get_running_loop().time() + _START_SECONDS
    async with await KubeClient.from_kubeconfig(kubeconfig) as client:
        while not await readiness.answers(client, "/readyz"):
            if asyncio.get_running_loop().time() > deadline:
                raise SubstrateError(f"{client.server} was not ready within {_START_SECONDS:g} s")
            await asyncio.sleep(_POLL_SECONDS)
        await readiness.grant_harness_roles(client)
        if bigfleet:
            await install(client)
        if resource_metrics:
            await metrics.prepare(client)
            await metrics.register(client, LAYOUT)


if __name__ == "__main__":
    wanted = sys.argv[2:]
    asyncio.run(
        install_into(
            Path(sys.argv[1]),
            bigfleet=_BIGFLEET in wanted,
            resource_metrics=_RESOURCE_METRICS in wanted,
        )
    )
