"""Sets up a federation of a run's clusters: API server, members, role and objects."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import yaml

from bigfleet.api.install_fedhpa import install_fedhpa, install_member
from bigfleet.kube.client import CONNECTION_ERRORS, ApiError, KubeClient
from loaddriver.errors import InfrastructureError
from loaddriver.fedhpa import objects
from loaddriver.plan.setup_manifests import namespace_body
from loaddriver.substrates.base import Cluster, RoleSpec
from loaddriver.substrates.credentials import FEDERATION
from loaddriver.substrates.proxy import PartitionableProxy

HOST = "host"
ROLE = RoleSpec(
    "federation",
    ["fedhpa", "run", "--observe", "{observe}"],
    ports=("observe",),
    observe_port="observe",
    cluster=HOST,
    identity=FEDERATION,
)
_HPA = (
    f"/apis/autoscaling/v2/namespaces/{objects.NAMESPACE}/horizontalpodautoscalers/{objects.NAME}"
)
# The first metrics need two scrapes, and pods may need machines first.
_SCALING_TIMEOUT_SECONDS = 150.0
_JOIN_TIMEOUT_SECONDS = 60.0
_POLL_INTERVAL_SECONDS = 0.5


async def prepare_host(host: Cluster) -> None:
    """Install the federation's CRDs and namespace on the host."""
    async with await KubeClient.from_kubeconfig(host.kubeconfigs["admin"]) as admin:
        await install_fedhpa(admin)
        await admin.create("/api/v1/namespaces", namespace_body(objects.NAMESPACE))


@dataclass(frozen=True)
class MemberJoiner:
    """Joins clusters to the federation through proxies; `folder` has private kubeconfigs."""

    host: Cluster
    folder: Path
    environment: Mapping[str, str]

    async def join(self, member: Cluster, proxy: PartitionableProxy) -> None:
        """Join a member with the CLI command. Raises InfrastructureError."""
        async with await KubeClient.from_kubeconfig(member.kubeconfigs["admin"]) as admin:
            await install_member(admin)
            await admin.create("/api/v1/namespaces", namespace_body(objects.NAMESPACE))
        path = self.folder / f"{member.name}-via-proxy.kubeconfig"
        path.write_text(_via_proxy(member.kubeconfigs[FEDERATION], proxy.port))
        await self._run("join", member.name, "--member", str(path))

    async def _run(self, *arguments: str) -> None:
        kubeconfig = str(self.host.kubeconfigs["admin"])
        command = [sys.executable, "-m", "bigfleet", "fedhpa", *arguments]
        process = await asyncio.create_subprocess_exec(
            *command,
            *("--kubeconfig", kubeconfig),
            env=dict(self.environment),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        async with asyncio.timeout(_JOIN_TIMEOUT_SECONDS):
            output, _ = await process.communicate()
        if process.returncode:
            raise InfrastructureError(f"`{' '.join(command)}` failed: {output.decode().strip()}")


def _via_proxy(kubeconfig: Path, port: int) -> str:
    content = yaml.safe_load(kubeconfig.read_text())
    content["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"
    return yaml.safe_dump(content)


async def create_objects(host: Cluster, bodies: Mapping[str, Any]) -> None:
    """Create the federation's objects, one body per collection."""
    async with await KubeClient.from_kubeconfig(host.kubeconfigs["admin"]) as admin:
        for path, body in bodies.items():
            await admin.create(path, body)


async def wait_until_scaling(members: Sequence[Cluster], say: Callable[[str], None]) -> None:
    """Wait until every member's HPA is active. Raises InfrastructureError."""
    say("waiting for metrics of the members' HPAs")
    waiting = {member.name: "no HPA yet" for member in members}
    try:
        async with asyncio.timeout(_SCALING_TIMEOUT_SECONDS):
            await asyncio.gather(*(_until_scaling(member, waiting) for member in members))
    except TimeoutError:
        states = "; ".join(f"{name}: {why}" for name, why in waiting.items() if why)
        raise InfrastructureError(
            f"the members' HPAs were not active within {_SCALING_TIMEOUT_SECONDS:g} s: {states}"
        ) from None


async def _until_scaling(member: Cluster, waiting: dict[str, str]) -> None:
    async with await KubeClient.from_kubeconfig(member.kubeconfigs["admin"]) as admin:
        while waiting[member.name]:
            waiting[member.name] = await _inactive_reason(admin)
            await asyncio.sleep(_POLL_INTERVAL_SECONDS)


class _Condition(msgspec.Struct):
    type: str
    status: str
    message: str = ""


class _HpaStatus(msgspec.Struct, rename="camel"):
    conditions: list[_Condition] = []
    current_metrics: list[Any] | None = None


class _Hpa(msgspec.Struct):
    status: _HpaStatus


async def _inactive_reason(admin: KubeClient) -> str:
    """Why the HPA is not active; "" if it is."""
    try:
        status = msgspec.json.decode(await admin.get(_HPA), type=_Hpa).status
    except (ApiError, *CONNECTION_ERRORS) as error:
        return str(error) or repr(error)
    active = [each for each in status.conditions if each.type == "ScalingActive"]
    if active and active[0].status == "True" and status.current_metrics:
        return ""
    return active[0].message if active else "not reconciled yet"
