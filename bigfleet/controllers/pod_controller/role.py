"""The pod controller role: configuration and leader election."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from bigfleet.api.install import RBAC_MANIFEST, SYSTEM_NAMESPACE
from bigfleet.controllers.leader_election import (
    LeaderElectedRunner,
    LeaderElector,
    LeaseName,
    replica_name,
)
from bigfleet.controllers.pod_controller.controller import PodController
from bigfleet.controllers.pod_controller.unschedulable import UNSCHEDULABLE_DELAY_SECONDS
from bigfleet.flags import KUBECONFIG, LEASE, OBSERVE, REPLICA, Flag
from bigfleet.gc_pauses import bounded_gc_pauses
from bigfleet.kube.access import connect
from bigfleet.observe import health
from bigfleet.tasks import run_until_stopped

_LEASE = LeaseName(SYSTEM_NAMESPACE, "bigfleet-pod-controller", RBAC_MANIFEST)


@dataclass(frozen=True)
class PodControllerConfig:
    """Without a `kubeconfig` the controller serves the cluster that its pod runs in.

    `write_concurrency` limits concurrent writes. Pods of `ignored_namespaces` get no request: they
    run on nodes that BigFleet does not provide. A Pod that is unschedulable for
    `unschedulable_delay_seconds`, though its need is not short, requests an additional machine; one
    that no Node has room for does so after 5 s at the latest.
    Controllers of one cluster elect a leader by a Lease of `lease_seconds`, in which they are named
    `replica`, by default the host's name with a random suffix.
    """

    kubeconfig: Annotated[Path | None, KUBECONFIG]
    observe_port: Annotated[int, OBSERVE]
    observe_host: str = "127.0.0.1"
    write_concurrency: Annotated[
        int, Flag("--write-concurrency", "writes in flight at most", "N")
    ] = 16
    ignored_namespaces: Annotated[
        tuple[str, ...],
        Flag(
            "--ignore-namespace",
            "a namespace whose pods run on nodes that BigFleet does not provide; repeatable",
            "NAMESPACE",
            repeated=True,
        ),
    ] = ()
    lease_seconds: Annotated[float, LEASE] = 12.0
    replica: Annotated[str, REPLICA] = ""
    unschedulable_delay_seconds: Annotated[
        float,
        Flag(
            "--unschedulable-delay",
            "after which an unschedulable pod requests an additional machine",
            "SECONDS",
        ),
    ] = UNSCHEDULABLE_DELAY_SECONDS


async def run(config: PodControllerConfig, stop: asyncio.Event) -> None:
    """Run until `stop` is set; InvalidInput without access to a cluster."""
    async with await connect(config.kubeconfig) as client:

        def start_worker() -> PodController:
            return PodController(
                client,
                config.write_concurrency,
                time.monotonic,
                time.time,
                config.ignored_namespaces,
                config.unschedulable_delay_seconds,
            )

        elector = LeaderElector(
            client,
            _LEASE,
            config.replica or replica_name(),
            time.monotonic,
            config.lease_seconds,
        )
        runner = LeaderElectedRunner(elector, start_worker)
        observer = await health.serve(config.observe_host, config.observe_port, runner.not_ready)
        try:
            with bounded_gc_pauses():  # tens of thousands of pods are remembered
                await run_until_stopped(stop, runner.run())
        finally:
            await observer.cleanup()
