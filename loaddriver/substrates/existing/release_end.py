"""Ends the run of a release of charts/scaletest while the release still has its rights.

`python -m loaddriver.substrates.existing.release_end NAMESPACE JOB` is what the chart calls before
helm deletes anything. JOB is the runner's.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Sequence

from bigfleet.kube.client import CONNECTION_ERRORS, NOT_FOUND, ApiError, KubeClient
from loaddriver.substrates.base import SubstrateError
from loaddriver.substrates.existing.objects import OWN_NAMESPACE
from loaddriver.substrates.existing.removal import leftovers, remove_all, run_in
from loaddriver.substrates.existing.starter import started_by_job

# Longer than the runner's grace period.
_DEADLINE_SECONDS = 300.0
_POLL_INTERVAL_SECONDS = 0.5


async def end_release(
    client: KubeClient, namespace: str, job: str, say: Callable[[str], None]
) -> None:
    """Delete the runner's Job, wait until its pod has ended, and remove what it could not remove
    itself. What another run has there stays. Raises SubstrateError or ApiError.
    """
    await _end_job(client, f"/apis/batch/v1/namespaces/{namespace}/jobs/{job}")
    run = await run_in(client)
    if run and not started_by_job(run, namespace, job):
        say(f"namespace {OWN_NAMESPACE} is that of run {run}, and stays")
        return
    found = await leftovers(client)
    for each in found:
        say(f"removing {each}")
    await remove_all(client)
    say(f"the run has ended; {len(found)} objects that it left are removed")


async def _end_job(client: KubeClient, path: str) -> None:
    try:
        # The Job stays until its pod has ended, which removes what the run made.
        await client.delete(path, {"propagationPolicy": "Foreground"})
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while time.monotonic() < deadline:
            await client.get(path)
            await asyncio.sleep(_POLL_INTERVAL_SECONDS)
    except ApiError as error:
        if error.status != NOT_FOUND:
            raise
    else:
        raise SubstrateError(f"{path}: its pod has not ended after {_DEADLINE_SECONDS:g} s")


async def _main(namespace: str, job: str) -> None:
    async with KubeClient.in_cluster() as client:
        await end_release(client, namespace, job, lambda line: print(line, flush=True))


def main(arguments: Sequence[str]) -> int:
    """End it; return 0 if nothing is left."""
    [namespace, job] = arguments
    try:
        asyncio.run(_main(namespace, job))
    except (SubstrateError, ApiError, *CONNECTION_ERRORS) as error:
        print(f"the run could not be ended: {error or 'no response'}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
