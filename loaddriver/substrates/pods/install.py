"""Makes a nested cluster what runs expect: the harness's rights, and BigFleet's CRDs.

`python -m loaddriver.substrates.pods.install KUBECONFIG [resource-metrics]` runs between the API
server and the controllers: the garbage collector takes half a minute to notice a resource that is
added later.
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
_RESOURCE_METRICS = "resource-metrics"


async def install_into(kubeconfig: Path, *, resource_metrics: bool) -> None:
    """Wait for the API server and install. Raises SubstrateError, or what `install` does."""
    deadline = asyncio.get_running_loop().time() + _START_SECONDS
    async with await KubeClient.from_kubeconfig(kubeconfig) as client:
        while not await readiness.answers(client, "/readyz"):
            if asyncio.get_running_loop().time() > deadline:
                raise SubstrateError(f"{client.server} was not ready within {_START_SECONDS:g} s")
            await asyncio.sleep(_POLL_SECONDS)
        await readiness.grant_harness_roles(client)
        await install(client)
        if resource_metrics:
            await metrics.prepare(client)
            await metrics.register(client, LAYOUT)


if __name__ == "__main__":
    asyncio.run(install_into(Path(sys.argv[1]), resource_metrics=_RESOURCE_METRICS in sys.argv[2:]))
