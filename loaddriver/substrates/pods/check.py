"""`helm test`: asks every part of a release whether it is ready.

`python -m loaddriver.substrates.pods.check` prints a line for each part that is not, and ends with
1 if there is any.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping

import aiohttp

from loaddriver.substrates.base import SubstrateError
from loaddriver.substrates.pods.nested import READY, responds
from loaddriver.substrates.pods.places import Prerequisites, obtain
from loaddriver.substrates.probes import answers


async def not_ready(prerequisites: Prerequisites) -> list[str]:
    """The URLs of all parts that do not say that they are ready."""
    places, mounts = prerequisites.places, prerequisites.mounts
    asked: dict[str, bool] = {}
    for cluster in places.api_servers:
        url = f"{cluster.name}: {cluster.api_server}{READY}"
        asked[url] = await responds(mounts.kubeconfig(cluster.name, "admin"))
    async with aiohttp.ClientSession() as session:
        for name, role in places.roles.items():
            if role.pod:
                url = f"http://{role.observe}{READY}"
                asked[f"{name}: {url}"] = await answers(session, url)
    return [what for what, ready in asked.items() if not ready]


def main(environment: Mapping[str, str]) -> int:
    """Ask all; the exit code."""
    try:
        prerequisites = obtain(environment)
    except SubstrateError as error:
        print(error)
        return 1
    missing = asyncio.run(not_ready(prerequisites))
    for what in missing:
        print(f"not ready: {what}")
    if not missing:
        print("all parts are ready")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(os.environ))
