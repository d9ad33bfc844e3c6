"""A host and two members as real control planes, lines to them that can be cut, and objects."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import yaml

from bigfleet.api.install import GROUP_VERSION
from bigfleet.api.install_fedhpa import install_fedhpa, install_member
from bigfleet.fedhpa import role as federation
from bigfleet.fedhpa.members.registry import SECRETS, member_secret
from bigfleet.kube.client import NOT_FOUND, ApiError, KubeClient
from loaddriver.substrates.base import Cluster
from loaddriver.substrates.proxy import PartitionableProxy
from tests.support.clusters import get, namespace, node, role
from tests.support.waiting import eventually

__all__ = ["eventually", "get", "namespace", "node", "role"]

_NODES = itertools.count()
MEMBERS = ("east", "west")
QUICK = {
    "stabilizationSeconds": 0,
    "cooldownSeconds": 1,
    # Longer than a busy machine needs to schedule a Pod that has room: after it nobody tries again.
    "schedulingTimeoutSeconds": 10,
    "retrySeconds": 600,
    "idleTimeoutSeconds": 600,
}


@dataclass
class Fleet:
    """Administrators' clients, and the lines by which the federation reaches everything."""

    host: KubeClient
    members: dict[str, KubeClient]
    lines: dict[str, PartitionableProxy]
    kubeconfig: Path
    secrets: dict[str, dict[str, Any]] = field(default_factory=dict)

    async def join(self, name: str) -> None:
        """Make a member of it."""
        await self.host.create(SECRETS, self.secrets[name])

    async def leave(self, name: str) -> None:
        """Take it out of the registry."""
        with contextlib.suppress(ApiError):
            await self.host.delete(f"{SECRETS}/{name}")

    @asynccontextmanager
    async def federation(self, replica: str = "one") -> AsyncIterator[None]:
        """The role, running; leaving the context is its end, without any farewell."""
        settings = federation.FedHpaConfig(
            self.kubeconfig,
            observe_port=0,
            debounce_seconds=0.1,
            lease_seconds=3.0,
            replica=replica,
        )
        async with role(partial(federation.run, settings)):
            yield

    async def hpa(self, member: str, where: str, name: str = "web") -> dict[str, Any] | None:
        path = f"/apis/autoscaling/v2/namespaces/{where}/horizontalpodautoscalers/{name}"
        found: dict[str, Any] | None = await get(self.members[member], path)
        return found

    async def shares(self, where: str, name: str = "web") -> dict[str, tuple[int, int]]:
        """(min, max) of each member's HPA."""
        found = {}
        for member in self.members:
            if hpa := await self.hpa(member, where, name):
                found[member] = (hpa["spec"]["minReplicas"], hpa["spec"]["maxReplicas"])
        return found

    async def until_shares(self, where: str, wanted: dict[str, tuple[int, int]]) -> None:
        async def reached() -> bool:
            return await self.shares(where) == wanted

        try:
            await eventually(reached, f"shares {wanted}")
        except AssertionError:
            status = (await self.autoscaler(where) or {}).get("status")
            raise AssertionError(f"{await self.shares(where)}, not {wanted}: {status}") from None

    async def part(self, member: str, where: str, name: str = "web") -> dict[str, Any] | None:
        path = f"/apis/apps/v1/namespaces/{where}/deployments/{name}"
        found: dict[str, Any] | None = await get(self.members[member], path)
        return found

    async def replicas(self, where: str, name: str = "web") -> dict[str, int]:
        """What each member's Deployment has in its spec."""
        found = {}
        for member in self.members:
            if part := await self.part(member, where, name):
                found[member] = part["spec"]["replicas"]
        return found

    async def until_replicas(self, where: str, wanted: dict[str, int]) -> None:
        async def reached() -> bool:
            return await self.replicas(where) == wanted

        try:
            await eventually(reached, f"replicas {wanted}")
        except AssertionError:
            status = await get(self.host, f"{deployments(where)}/web")
            raise AssertionError(f"{await self.replicas(where)}, not {wanted}: {status}") from None

    async def scale(self, member: str, where: str, replicas: int) -> None:
        """As the member's HPA would, which waits until there is something to scale."""

        async def there() -> bool:
            return await self.part(member, where) is not None

        await eventually(there, f"a deployment in {member}")
        path = f"/apis/apps/v1/namespaces/{where}/deployments/web/scale"
        await self.members[member].patch(path, {"spec": {"replicas": replicas}})

    async def autoscaler(self, where: str, name: str = "web") -> dict[str, Any] | None:
        found: dict[str, Any] | None = await get(self.host, f"{autoscalers(where)}/{name}")
        return found

    async def condition(self, where: str, kind: str, name: str = "web") -> dict[str, str]:
        found = await self.autoscaler(where, name) or {}
        conditions = found.get("status", {}).get("conditions", [])
        return next((each for each in conditions if each["type"] == kind), {})

    async def until_condition(
        self, where: str, kind: str, status: str, name: str = "web"
    ) -> dict[str, str]:
        seen: dict[str, str] = {}

        async def reached() -> bool:
            nonlocal seen
            seen = await self.condition(where, kind, name)
            return seen.get("status") == status

        await eventually(reached, f"condition {kind}={status}")
        return seen

    async def hpa_says(
        self, member: str, where: str, current: int, desired: int, *, limited: bool = False
    ) -> None:
        """Play the member's HPA controller, which does not run here."""
        kinds = {"AbleToScale": True, "ScalingActive": True, "ScalingLimited": limited}
        conditions = [
            {
                "type": kind,
                "status": str(holds),
                "reason": "TooManyReplicas" if kind == "ScalingLimited" else "Fine",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
            for kind, holds in kinds.items()
        ]
        status = {"currentReplicas": current, "desiredReplicas": desired, "conditions": conditions}
        path = f"/apis/autoscaling/v2/namespaces/{where}/horizontalpodautoscalers/web/status"
        await self.members[member].patch(path, {"status": status})


def autoscalers(where: str) -> str:
    return f"{GROUP_VERSION}/namespaces/{where}/federatedhorizontalpodautoscalers"


def deployments(where: str) -> str:
    return f"{GROUP_VERSION}/namespaces/{where}/federateddeployments"


def autoscaler(minimum: int, maximum: int, name: str = "web", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "bigfleet.lucy.sh/v1alpha1",
        "kind": "FederatedHorizontalPodAutoscaler",
        "metadata": {"name": name},
        "spec": {
            "scaleTargetRef": {"kind": "FederatedDeployment", "name": "web"},
            "minReplicas": minimum,
            "maxReplicas": maximum,
            "rebalance": QUICK,
            **spec,
        },
    }


def deployment(image: str = "one", **spec: Any) -> dict[str, Any]:
    container = {
        "name": "c",
        "image": image,
        "resources": {"requests": {"cpu": "1", "memory": "64Mi"}},
    }
    template = {
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}},
    }
    return {
        "apiVersion": "bigfleet.lucy.sh/v1alpha1",
        "kind": "FederatedDeployment",
        "metadata": {"name": "web"},
        "spec": {"template": {"spec": template}, **spec},
    }


def _through(kubeconfig: Path, port: int) -> str:
    """The kubeconfig's content, complete in itself, by way of a line."""
    content = yaml.safe_load(kubeconfig.read_text())
    cluster = content["clusters"][0]["cluster"]
    ca = Path(cluster.pop("certificate-authority")).read_bytes()
    cluster["certificate-authority-data"] = base64.b64encode(ca).decode()
    cluster["server"] = f"https://127.0.0.1:{port}"
    return yaml.safe_dump(content)


@asynccontextmanager
async def fleet(clusters: dict[str, Cluster], folder: Path) -> AsyncIterator[Fleet]:
    """The fleet with both members joined and lines whole."""
    lines = {name: PartitionableProxy(cluster.api_server) for name, cluster in clusters.items()}
    async with contextlib.AsyncExitStack() as stack:
        clients = {}
        for name, cluster in clusters.items():
            client = await KubeClient.from_kubeconfig(cluster.kubeconfigs["admin"])
            clients[name] = await stack.enter_async_context(client)
            await lines[name].start()
            stack.push_async_callback(lines[name].stop)
        identity = {n: c.kubeconfigs["bigfleet-fedhpa"] for n, c in clusters.items()}
        kubeconfig = folder / "federation.kubeconfig"
        kubeconfig.write_text(_through(identity["host"], lines["host"].port))
        made = Fleet(clients["host"], {n: clients[n] for n in MEMBERS}, lines, kubeconfig)
        await install_fedhpa(made.host)
        for name in MEMBERS:
            await install_member(made.members[name])
            content = _through(identity[name], lines[name].port)
            made.secrets[name] = member_secret(name, content, {"zone": name})
            await made.leave(name)
            await made.join(name)
        yield made


@asynccontextmanager
async def place(made: Fleet, name: str) -> AsyncIterator[str]:
    """A namespace of that name everywhere."""
    async with contextlib.AsyncExitStack() as stack:
        for client in (made.host, *made.members.values()):
            await stack.enter_async_context(namespace(client, name))
        yield name


async def stays(
    reconcile: Callable[[], Awaitable[Any]], value: Any, seconds: float, what: str
) -> None:
    """The value does not change within so many seconds."""
    ends = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < ends:
        seen = await reconcile()
        assert seen == value, f"{what}: {seen} instead of {value}"
        await asyncio.sleep(0.1)


async def missing(client: KubeClient, path: str) -> bool:
    try:
        await client.get(path)
    except ApiError as error:
        return error.status == NOT_FOUND
    return False


def decoded(content: bytes) -> Any:
    return msgspec.json.decode(content)


@asynccontextmanager
async def nodes(made: Fleet, **per_member: int) -> AsyncIterator[None]:
    """Nodes of 8 CPUs that Pods are scheduled to by now; a Pod here asks for one.

    A new Node is tainted until it is Ready: a member whose first Pod waits for that on full cores
    cannot schedule it, as far as the federation can see.
    """
    created: list[tuple[str, str]] = []

    async def usable() -> bool:
        found = [await get(made.members[member], f"/api/v1/nodes/{n}") for member, n in created]
        return not any(each["spec"].get("taints") for each in found)

    try:
        for member, count in per_member.items():
            for index in range(count):
                name = f"n-{member}-{index}-{next(_NODES)}"  # no earlier test's Pod is bound to it
                await made.members[member].create("/api/v1/nodes", node(name))
                created.append((member, name))
        await eventually(usable, "Nodes without a taint")
        yield
    finally:
        for member, name in created:
            await made.members[member].delete(f"/api/v1/nodes/{name}")
