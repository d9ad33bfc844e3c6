"""The federation as a role: one process beside the federation's API server."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path

from bigfleet.api.install_federation import FEDERATION_NAMESPACE
from bigfleet.api.kube.client import KubeClient
from bigfleet.controllers.access import connect
from bigfleet.controllers.leading import Leadership, LeaseName, Term, replica_name
from bigfleet.federation.autoscaler.controller import AutoscalerController
from bigfleet.federation.host import Host
from bigfleet.federation.members.objects import MEMBER_KINDS, Name, WorkloadName
from bigfleet.federation.members.registry import Registry
from bigfleet.federation.members.state import Listeners
from bigfleet.federation.objects import Key
from bigfleet.federation.workload.controller import WorkloadController
from bigfleet.observe import health
from bigfleet.tasks import run_until_stopped

_LEASE = LeaseName(FEDERATION_NAMESPACE, "bigfleet-federation", "`bigfleet fedhpa install`")
_PLURALS = {kind: plural for plural, kind in MEMBER_KINDS.items()}


@dataclass(frozen=True)
class Settings:
    """`kubeconfig` is the federation's own API server's; without it, that of the pod's cluster.

    Changes within `gather_seconds` are looked at once. Of several processes one decides, the one
    that holds a Lease of `lease_seconds`; `replica` tells them apart, by default the host's name
    with a random number.
    """

    kubeconfig: Path | None
    observe_port: int
    observe_host: str = "127.0.0.1"
    gather_seconds: float = 1.0
    lease_seconds: float = 12.0
    replica: str = ""


class Federation:
    """All parts, and who hears of what."""

    def __init__(self, client: KubeClient, gather_seconds: float) -> None:
        self._client = client
        self.host = Host(client)
        self.registry = Registry(
            Listeners(self._hpa_changed, self._part_changed, self._reach_changed)
        )
        self.autoscalers = AutoscalerController(self.host, self.registry, time.time, gather_seconds)
        self.workloads = WorkloadController(self.host, self.registry, time.time, gather_seconds)
        self.host.on_autoscaler = self._autoscaler_changed
        self.host.on_workload = self._workload_changed

    def not_ready(self) -> str:
        """Why nothing is decided yet; "" once it is."""
        if not self.host.listed:
            return "the federated objects are not listed yet"
        if not self.registry.listed.is_set():
            return "the members are not listed yet"
        return ""

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as loops:
            loops.create_task(self.host.follow())
            loops.create_task(self.registry.follow(self._client))
            loops.create_task(self.autoscalers.run())
            loops.create_task(self.workloads.run())

    def _hpa_changed(self, name: Name) -> None:
        self.autoscalers.hpa_changed(name)

    def _part_changed(self, name: WorkloadName) -> None:
        self.workloads.part_changed(name)
        self.autoscalers.workload_changed(Key(_PLURALS[name.kind], name.namespace, name.name))

    def _reach_changed(self) -> None:
        self.workloads.reach_changed()
        self.autoscalers.reach_changed()

    def _autoscaler_changed(self, key: Key) -> None:
        self.autoscalers.autoscaler_changed(key)
        if (autoscaler := self.host.autoscalers.get(key)) is not None:
            self.workloads.soon(autoscaler.target)

    def _workload_changed(self, key: Key) -> None:
        self.workloads.soon(key)
        self.autoscalers.workload_changed(key)


async def run(settings: Settings, stop: asyncio.Event) -> None:
    """Serve until `stop` is set. InvalidInput when there is no access to the API server."""
    async with await connect(settings.kubeconfig) as client:
        leadership = Leadership(
            client,
            _LEASE,
            settings.replica or replica_name(),
            time.monotonic,
            settings.lease_seconds,
        )
        term = Term(leadership, lambda: Federation(client, settings.gather_seconds))
        observer = await health.serve(settings.observe_host, settings.observe_port, term.not_ready)
        try:
            await run_until_stopped(stop, term.run())
        finally:
            await observer.cleanup()
