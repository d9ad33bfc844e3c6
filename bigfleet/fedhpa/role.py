"""The federated HPA role: configuration, wiring and leader election."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from bigfleet.api.install_fedhpa import FEDHPA_NAMESPACE
from bigfleet.controllers.leader_election import (
    LeaderElectedRunner,
    LeaderElector,
    LeaseName,
    replica_name,
)
from bigfleet.fedhpa.autoscaler.controller import AutoscalerController
from bigfleet.fedhpa.host_cluster import HostCluster
from bigfleet.fedhpa.members.objects import MEMBER_KINDS, NamespacedName, WorkloadName
from bigfleet.fedhpa.members.registry import MemberRegistry
from bigfleet.fedhpa.members.state import Listeners
from bigfleet.fedhpa.objects import ObjectKey
from bigfleet.fedhpa.workload.controller import WorkloadController
from bigfleet.flags import KUBECONFIG, LEASE, OBSERVE, REPLICA, Flag
from bigfleet.kube.access import connect
from bigfleet.kube.client import KubeClient
from bigfleet.observe import health
from bigfleet.tasks import run_until_stopped

_LEASE = LeaseName(FEDHPA_NAMESPACE, "bigfleet-fedhpa", "`bigfleet fedhpa install`")
_PLURALS = {kind: plural for plural, kind in MEMBER_KINDS.items()}


@dataclass(frozen=True)
class FedHpaConfig:
    """`kubeconfig` is that of the host cluster; without it, the pod's own cluster is the host.

    Changes within `debounce_seconds` are reconciled once. Several processes elect a leader by a
    Lease of `lease_seconds`, in which they are named `replica`, by default the host's name with a
    random suffix.
    """

    kubeconfig: Annotated[Path | None, KUBECONFIG]
    observe_port: Annotated[int, OBSERVE]
    observe_host: str = "127.0.0.1"
    debounce_seconds: Annotated[
        float, Flag("--debounce", "handle changes within this time together", "SECONDS")
    ] = 1.0
    lease_seconds: Annotated[float, LEASE] = 12.0
    replica: Annotated[str, REPLICA] = ""


class FedHpaController:
    """Wires the controllers, and dispatches changes to them."""

    def __init__(self, client: KubeClient, debounce_seconds: float) -> None:
        self._client = client
        self.host = HostCluster(client)
        self.registry = MemberRegistry(
            Listeners(self._hpa_changed, self._member_workload_changed, self._reachability_changed)
        )
        self.autoscalers = AutoscalerController(
            self.host, self.registry, time.time, debounce_seconds
        )
        self.workloads = WorkloadController(self.host, self.registry, time.time, debounce_seconds)
        self.host.on_autoscaler = self._autoscaler_changed
        self.host.on_workload = self._workload_changed

    def not_ready(self) -> str:
        """Why the controllers are not ready; "" once they are."""
        if not self.host.listed:
            return "the federated objects are not listed yet"
        if not self.registry.listed.is_set():
            return "the members are not listed yet"
        return ""

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as loops:
            loops.create_task(self.host.follow())
            loops.create_task(self.registry.follow(self._client))
            loops.create_task(self.autoscalers.run())
            loops.create_task(self.workloads.run())

    def _hpa_changed(self, name: NamespacedName) -> None:
        self.autoscalers.hpa_changed(name)

    def _member_workload_changed(self, name: WorkloadName) -> None:
        self.workloads.member_workload_changed(name)
        self.autoscalers.workload_changed(ObjectKey(_PLURALS[name.kind], name.namespace, name.name))

    def _reachability_changed(self) -> None:
        self.workloads.reachability_changed()
        self.autoscalers.reachability_changed()

    def _autoscaler_changed(self, key: ObjectKey) -> None:
        self.autoscalers.autoscaler_changed(key)
        if (autoscaler := self.host.autoscalers.get(key)) is not None:
            self.workloads.add_debounced(autoscaler.target)

    def _workload_changed(self, key: ObjectKey) -> None:
        self.workloads.add_debounced(key)
        self.autoscalers.workload_changed(key)


async def run(config: FedHpaConfig, stop: asyncio.Event) -> None:
    """Run until `stop` is set; InvalidInput without access to the host cluster."""
    async with await connect(config.kubeconfig) as client:
        elector = LeaderElector(
            client,
            _LEASE,
            config.replica or replica_name(),
            time.monotonic,
            config.lease_seconds,
        )
        runner = LeaderElectedRunner(
            elector, lambda: FedHpaController(client, config.debounce_seconds)
        )
        observer = await health.serve(config.observe_host, config.observe_port, runner.not_ready)
        try:
            await run_until_stopped(stop, runner.run())
        finally:
            await observer.cleanup()
