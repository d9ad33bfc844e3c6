"""Runs the pods of a release as processes of this machine, as a kubelet runs containers.

The pods are those that the controllers of a real control plane made, and their Secrets are those
that are really there. A pod has an address on loopback of its own; host names and paths are
replaced wherever a process reads them. The images' programs are the pinned binaries.
"""

from __future__ import annotations

import asyncio
import re
import sys
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import aiohttp

from bigfleet.kube.client import STRATEGIC_PATCH, ApiError, KubeClient
from loaddriver.substrates.processes import Process, Supervisor
from tests.charts.helm_rig import Object
from tests.support.clusters import get
from tests.support.waiting import eventually

_FIRST_HOST = 16
_COMMAND_OF_IMAGE = {
    "bigfleet": (sys.executable, "-m", "bigfleet"),
    "loaddriver": (sys.executable, "-m", "loaddriver"),
}
_HOME = {"PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
_SECONDS = 120.0


def addresses(names: Sequence[str]) -> dict[str, str]:
    """An address on loopback for each pod."""
    return {name: f"127.0.1.{_FIRST_HOST + number}" for number, name in enumerate(names)}


@dataclass
class PodProcesses:
    """The containers of one pod. `folder` has its volumes, `claims` those that outlive it."""

    pod: Object
    address: str
    folder: Path
    node: Node
    running: dict[str, Process] = field(default_factory=dict)
    statuses: dict[str, Object] = field(default_factory=dict)

    @property
    def name(self) -> str:
        found: str = self.pod["metadata"]["name"]
        return found

    async def run(self) -> None:
        """Start the containers in the order of a kubelet; a Job's pod runs to its end."""
        spec = self.pod["spec"]
        for volume in spec["volumes"]:
            await self._fill(volume)
        for container in spec.get("initContainers", ()):
            process = await self._start(container)
            if container.get("restartPolicy") == "Always":
                await self._started(container)
            else:
                await self._ended(container, process)
        for container in spec["containers"]:
            process = await self._start(container)
            if spec["restartPolicy"] == "Never":
                await self._ended(container, process)
            elif "startupProbe" in container:
                await self._started(container)

    async def _start(self, container: Object) -> Process:
        process = self.node.supervisor.start(
            f"{self.name}/{container['name']}",
            self._command(container),
            self.node.logs / self.name / f"{container['name']}.log",
            self._environment(container),
        )
        self.running[container["name"]] = process
        await self._report(container, process, {"running": {}})
        return process

    async def _ended(self, container: Object, process: Process) -> None:
        self.node.supervisor.expect_exit(process.name)
        code = await process.wait()
        await self._report(container, process, {"terminated": {"exitCode": code}})
        assert not code or container["name"] == "runner", process.log_path.read_text()

    async def _report(self, container: Object, process: Process, state: Object) -> None:
        """What the kubelet tells the API server."""
        name = container["name"]
        self.statuses[name] = {
            "name": name,
            "image": container["image"],
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            "containerID": f"process://{process.pid}",
            "state": state,
        }
        first = [each["name"] for each in self.pod["spec"].get("initContainers", ())]
        status = {
            "phase": "Running",
            "podIP": self.address,
            "initContainerStatuses": [v for k, v in self.statuses.items() if k in first],
            "containerStatuses": [v for k, v in self.statuses.items() if k not in first],
        }
        path = f"/api/v1/namespaces/{self.node.namespace}/pods/{self.name}/status"
        await self.node.client.patch(path, {"status": status}, STRATEGIC_PATCH)

    async def _started(self, container: Object) -> None:
        [(kind, probe)] = [
            (kind, container["startupProbe"][kind])
            for kind in ("httpGet", "tcpSocket")
            if kind in container["startupProbe"]
        ]
        ports = {each["name"]: each["containerPort"] for each in container.get("ports", ())}
        port = ports.get(probe["port"], probe["port"])

        async def answers() -> bool:
            process = self.running[container["name"]]
            assert process.returncode is None, process.log_path.read_text()
            if kind == "tcpSocket":
                return await _connects(self.address, port)
            return await _says_ok(f"http://{self.address}:{port}{probe['path']}")

        await eventually(answers, f"{self.name}/{container['name']}", seconds=_SECONDS)

    def _command(self, container: Object) -> list[str]:
        program = container.get("command") or self._entrypoint(container["image"])
        words = [*program, *container.get("args", ())]
        return [self._here(word) for word in words]

    def _entrypoint(self, image: str) -> Sequence[str]:
        name = image.rpartition(":")[0].rpartition("/")[2]
        return _COMMAND_OF_IMAGE.get(name) or (name,)

    def _here(self, word: str) -> str:
        """A word of a command line or a variable, with this machine's addresses and paths."""
        word = word.replace("$(POD_NAME)", self.name)
        word = self._roots.sub(rf"\g<1>{self.folder}\g<2>", word)
        if word in self.node.programs:
            return str(self.node.programs[word])
        word = word.replace("=/usr/local/bin/etcd", f"={self.node.programs['etcd']}")
        return self._with_addresses(word)

    def _with_addresses(self, text: str) -> str:
        own = re.sub(r"(?<![\d.])(0\.0\.0\.0|127\.0\.0\.1)(?![\d.])", self.address, text)
        return self.node.with_addresses(own)

    def _environment(self, container: Object) -> dict[str, str]:
        given = {
            each["name"]: self._here(each.get("value", self.name))
            for each in container.get("env", ())
        }
        if "NUMBA_CACHE_DIR" in given:
            # As in a volume that a shard has used before: it takes minutes on full cores.
            given["NUMBA_CACHE_DIR"] = str(Path("~/.cache/bigfleet/kernels").expanduser())
        temporary = str(self._volume("tmp"))
        own = {**_HOME, **given, "HOME": temporary, "TMPDIR": temporary}
        if any(mount["name"] == "api" for mount in container["volumeMounts"]):
            own["KUBECONFIG"] = str(self.node.kubeconfig)
        return own

    def _volume(self, name: str) -> Path:
        """Where the first container that mounts a volume has it, below the pod's folder."""
        return self.folder / self._paths[name].lstrip("/")

    @cached_property
    def _paths(self) -> dict[str, str]:
        spec = self.pod["spec"]
        containers = (*spec["containers"], *spec.get("initContainers", ()))
        return {m["name"]: m["mountPath"] for each in containers for m in each["volumeMounts"]}

    @cached_property
    def _roots(self) -> re.Pattern[str]:
        """Where a path of the pod begins."""
        roots = {f"/{path.split('/')[1]}" for path in self._paths.values()}
        return re.compile(rf"(^|=|unix://)({'|'.join(sorted(roots))})(?=/|$)")

    async def _fill(self, volume: Object) -> None:
        folder = self._volume(volume["name"])
        claim = volume.get("persistentVolumeClaim", {}).get("claimName")
        if claim:
            shared = self.node.root / "claims" / claim
            shared.mkdir(parents=True, exist_ok=True)
            folder.parent.mkdir(parents=True, exist_ok=True)
            folder.symlink_to(shared)
            return
        folder.mkdir(parents=True)
        async for path, text in self._contents(volume):
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(self._rewritten(text, path))

    def _rewritten(self, text: str, path: str) -> str:
        if path.endswith((".crt", ".key", ".pub", "token", "tokens.csv")):
            return text
        # Files of a nested cluster refer to each other by where its pod has them.
        text = text.replace("/credentials/", f"{self.folder}/credentials/")
        return self._with_addresses(text)

    async def _contents(self, volume: Object) -> Any:
        sources = volume.get("projected", {}).get("sources", [volume])
        for source in sources:
            if "secret" in source:
                secret = source["secret"]
                name = secret.get("secretName") or secret["name"]
                data = {k: b64decode(v).decode() for k, v in (await self._secret(name)).items()}
            elif "configMap" in source and volume["name"] != "api":
                secret = source["configMap"]
                path = f"/api/v1/namespaces/{self.node.namespace}/configmaps/{secret['name']}"
                data = (await get(self.node.client, path))["data"]
            else:
                continue
            items = secret.get("items") or [{"key": key, "path": key} for key in data]
            for item in items:
                yield item["path"], data[item["key"]]

    async def _secret(self, name: str) -> Mapping[str, str]:
        """Wait for it, as a kubelet does."""
        path = f"/api/v1/namespaces/{self.node.namespace}/secrets/{name}"
        found: dict[str, str] = {}

        async def exists() -> bool:
            try:
                body = await get(self.node.client, path)
            except ApiError:
                return False
            found.update((body or {}).get("data", {}))
            return bool(found)

        await eventually(exists, f"Secret {name}", seconds=_SECONDS)
        return found


@dataclass
class Node:
    """All pods of a namespace, on this machine. `programs` are paths by the images' names."""

    client: KubeClient
    kubeconfig: Path
    namespace: str
    root: Path
    logs: Path
    programs: Mapping[str, Path]
    supervisor: Supervisor
    hosts: dict[str, str] = field(default_factory=dict)
    pods: dict[str, PodProcesses] = field(default_factory=dict)

    def with_addresses(self, text: str) -> str:
        """The text with addresses for the names of hosts."""
        for host, address in self.hosts.items():
            # A short name may be anything else's too, unless a port follows.
            after = r"(?![\w.-])" if "." in host else r"(?=:\d)"
            text = re.sub(rf"(?<![\w.-]){re.escape(host)}{after}", address, text)
        return text

    async def adopt(self) -> None:
        """Find the pods, and give each an address and its names."""
        pods = (await get(self.client, f"/api/v1/namespaces/{self.namespace}/pods"))["items"]
        given = addresses([each["metadata"]["name"] for each in pods])
        for pod in pods:
            name = pod["metadata"]["name"]
            folder = self.root / given[name].rpartition(".")[2]
            self.pods[name] = PodProcesses(pod, given[name], folder, self)
        self.hosts = dict(sorted(await self._names(), key=lambda each: -len(each[0])))

    def of(self, component: str) -> PodProcesses:
        """The only pod of a component."""
        label = "app.kubernetes.io/component"
        [found] = [
            each
            for each in self.pods.values()
            if each.pod["metadata"]["labels"][label] == component
        ]
        return found

    async def _names(self) -> list[tuple[str, str]]:
        path = f"/api/v1/namespaces/{self.namespace}/services"
        found = []
        for service in (await get(self.client, path))["items"]:
            name = service["metadata"]["name"]
            domain = f"{name}.{self.namespace}.svc.cluster.local"
            selector = service["spec"]["selector"].items()
            for pod, processes in self.pods.items():
                if selector <= processes.pod["metadata"]["labels"].items():
                    found += [(f"{pod}.{domain}", processes.address), (domain, processes.address)]
                    found.append((name, processes.address))
        return found


async def _connects(host: str, port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(host, port)
    except OSError:
        return False
    writer.close()
    await writer.wait_closed()
    return True


async def _says_ok(url: str) -> bool:
    try:
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            return response.status == 200
    except aiohttp.ClientError:
        return False
