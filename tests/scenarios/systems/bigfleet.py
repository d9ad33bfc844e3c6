"""BigFleet under test: provider, shard, operator and pod controller of one cluster."""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import msgspec

from bigfleet.adapters.provider.grpc import GrpcProvider
from bigfleet.api.auth.identity import Identity
from bigfleet.api.install import GROUP_VERSION, install
from bigfleet.kube.client import KubeClient
from bigfleet.model.machine import Machine, MachineState
from loaddriver.profile.loading import load_profile
from loaddriver.profile.settings import ProfileSettings
from loaddriver.record.cpu import PROVIDER
from loaddriver.run.bigfleet_roles import LISTEN, inventory_of, start_fleet
from loaddriver.sizing.inventory import save_inventory
from loaddriver.substrates.base import Endpoint
from tests.scenarios import fleet, timing
from tests.scenarios.history import History, ObservedPod
from tests.scenarios.judging import Message, MessagePattern, MessagePatterns
from tests.scenarios.systems.system import WHOLE, SystemContext
from tests.support.listed import listed

_PROFILES = Path(__file__).parents[3] / "profiles"

# Added up they stay below timing.REACTION_SECONDS.
CYCLE_SECONDS = 0.5
ROLLUP_SECONDS = 0.5
RECLAIM_HOLD_SECONDS = 2.0
IDLE_HOLD_SECONDS = 0.5
UNSCHEDULABLE_HOLD_SECONDS = 2.0
NODE_HOLD_SECONDS = 3.0
_SETTINGS = {
    "bigfleet.cycleSeconds": CYCLE_SECONDS,
    "bigfleet.rollupSeconds": ROLLUP_SECONDS,
    "bigfleet.reclaimHoldSeconds": RECLAIM_HOLD_SECONDS,
    "bigfleet.idleHoldSeconds": IDLE_HOLD_SECONDS,
    "bigfleet.unschedulableDelaySeconds": UNSCHEDULABLE_HOLD_SECONDS,
    "bigfleet.nodeReadyTimeoutSeconds": NODE_HOLD_SECONDS,
    "bigfleet.reclaimCapFraction": 1.0,
    **{
        f"fleet.latency.{order}Seconds": timing.PROVIDER_SECONDS
        for order in ("create", "configure", "drain", "delete")
    },
}
_AT_REST = (MachineState.SPECULATIVE, MachineState.IDLE)
_NAMED_MACHINES = 3


def settings() -> ProfileSettings:
    """Those of the smallest profile, but for what is said above."""
    overrides = [f"{key}={value:g}" for key, value in _SETTINGS.items()]
    return load_profile("smoke", _PROFILES, overrides).settings


class _Condition(msgspec.Struct):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class _Status(msgspec.Struct):
    conditions: list[_Condition] = []


class _Owner(msgspec.Struct):
    uid: str = ""


class _Metadata(msgspec.Struct, rename="camel"):
    owner_references: list[_Owner] = []


class _Request(msgspec.Struct):
    metadata: _Metadata
    spec: msgspec.Raw
    status: _Status = msgspec.field(default_factory=_Status)


class _Requests(msgspec.Struct):
    items: list[_Request]


def _wording(reason: str) -> MessagePattern:
    """The Event of the pod controller begins with the reason that the condition has."""
    return MessagePattern("FailedProvisioning", event_text=f"{reason}: ", condition=reason)


_WORDINGS: MessagePatterns = MappingProxyType(
    {"nothing-fits": _wording("NoMatchingSupply"), "nothing-left": _wording("PriorityStarved")}
)


class BigFleet:
    """The whole of it, for one cluster, with a fleet of its own."""

    name = "BigFleet"
    message_patterns = _WORDINGS
    internal_kinds = frozenset({"AvailableCapacity"})
    left_out: Mapping[str, str] = MappingProxyType(
        {
            "all-on-one-node": "one machine ahead is kept for the next gang that fits on one, so "
            "that kube-scheduler does not tear it",
            "beside-a-cache-on-its-node": "which pods share a Node with others is not known to "
            "the shard; a full Node cannot be made larger",
        }
    )
    judged = WHOLE

    def __init__(self) -> None:
        self._roles: Mapping[str, Endpoint] = {}
        self._resting: dict[str, MachineState] = {}

    async def install(self, client: KubeClient) -> None:
        """Its kinds, and the roles and policies beside them."""
        await install(client)

    async def start(self, context: SystemContext) -> None:
        """Start its roles."""
        self._context = context
        seeds = [m for each in fleet.instance_types() for m in fleet.machines(each, each.in_rack)]
        save_inventory(seeds, inventory_of(context.scratch))
        self._resting = {seed.id: MachineState[seed.state] for seed in seeds}
        started = start_fleet(context.substrate, settings(), [context.cluster], context.scratch)
        self._roles = await started

    async def conditions(self, pods: Sequence[ObservedPod]) -> Mapping[str, Sequence[Message]]:
        """Of the pods' CapacityRequests, or of some that ask for the same.

        Which of the pods of a short need wait is kube-scheduler's choice: just as many requests say
        so as pods are short.
        """
        path = f"{GROUP_VERSION}/capacityrequests"
        requests = msgspec.json.decode(await self._context.client.get(path), type=_Requests).items
        of_spec: defaultdict[bytes, list[Message]] = defaultdict(list)
        specs: dict[str, bytes] = {}
        for request in requests:
            spec = bytes(request.spec)
            of_spec[spec] += (
                Message("condition", each.reason, each.message)
                for each in request.status.conditions
                if each.status == "True"
            )
            specs |= {owner.uid: spec for owner in request.metadata.owner_references}
        return {pod.uid: of_spec[specs.get(pod.uid, b"")] for pod in pods}

    async def held(self) -> list[str]:
        """Machines that are neither where they began nor on their own way there."""
        provider = self._roles[PROVIDER]
        identity = Identity(provider.readonly_identity) if provider.readonly_identity else None
        client = GrpcProvider(provider.addresses[LISTEN], identity)
        try:
            machines = await listed(client)
        finally:
            await client.close()
        moved = [m for m in machines if m.state is not self._resting[m.id]]
        return [_phrase(machine) for machine in moved]

    async def explain(self, seen: History) -> str:
        """What `bigfleet why` says of all needs, and of the machines that are Nodes."""
        nodes = [node.name for node in seen.present()][:_NAMED_MACHINES]
        about = [("--need", self._context.cluster.name), *(("--machine", name) for name in nodes)]
        said = await asyncio.gather(*(self._why(*each) for each in about))
        held = await self.held()
        logs = ", ".join(str(each.log_path) for each in self._roles.values())
        return "\n".join([*said, f"machines: {'; '.join(held) or 'none'}", f"logs: {logs}"])

    async def _why(self, *about: str) -> str:
        shard = self._roles["shard-0"]
        identity = str(shard.readonly_identity)
        command = [sys.executable, "-m", "bigfleet", "why", "--shard", shard.addresses[LISTEN]]
        child = await asyncio.create_subprocess_exec(
            *command,
            *("--identity", identity, *about),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        out, _ = await child.communicate()
        return out.decode().strip()


def _phrase(machine: Machine) -> str:
    error = f" ({machine.last_error})" if machine.last_error else ""
    return f"{machine.id} {machine.state.name}{error}"
