"""The pod controller as a role."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path

from bigfleet.api.install import RIGHTS, SYSTEM_NAMESPACE
from bigfleet.controllers.access import connect
from bigfleet.controllers.leading import Leadership, LeaseName, Term, replica_name
from bigfleet.controllers.pod_controller.controller import PodController
from bigfleet.controllers.pod_controller.unschedulable import HOLD_SECONDS
from bigfleet.observe import health
from bigfleet.tasks import run_until_stopped

_LEASE = LeaseName(SYSTEM_NAMESPACE, "bigfleet-pod-controller", RIGHTS)


@dataclass(frozen=True)
class Settings:
    """Without a `kubeconfig` the controller serves the cluster that its own pod runs in.

    `write_concurrency` is the number of writes that may be under way at once. Pods of
    `ignored_namespaces` get no request: they run on nodes that BigFleet does not provide. A Pod
    that cannot be scheduled for `unschedulable_hold_seconds`, though no machine is missing, asks
    for a further one. Of several controllers the one that holds a Lease of `lease_seconds` works;
    `replica` tells them apart, by default the host's name with a random number.
    """

    kubeconfig: Path | None
    observe_port: int
    observe_host: str = "127.0.0.1"
    write_concurrency: int = 16
    ignored_namespaces: tuple[str, ...] = ()
    lease_seconds: float = 12.0
    replica: str = ""
    unschedulable_hold_seconds: float = HOLD_SECONDS


async def run(settings: Settings, stop: asyncio.Event) -> None:
    """Serve until `stop` is set. InvalidInput when there is no access to a cluster."""
    async with await connect(settings.kubeconfig) as client:

        def begin() -> PodController:
            return PodController(
                client,
                settings.write_concurrency,
                time.monotonic,
                time.time,
                settings.ignored_namespaces,
                settings.unschedulable_hold_seconds,
            )

        leadership = Leadership(
            client,
            _LEASE,
            settings.replica or replica_name(),
            time.monotonic,
            settings.lease_seconds,
        )
        term = Term(leadership, begin)
        observer = await health.serve(settings.observe_host, settings.observe_port, term.not_ready)
        try:
            await run_until_stopped(stop, term.run())
        finally:
            await observer.cleanup()
