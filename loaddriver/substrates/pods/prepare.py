"""Makes the Secrets of a release: who its processes are, and how they reach nested clusters.

`python -m loaddriver.substrates.pods.prepare` runs in a Job of the chart. It leaves Secrets that
exist as they are, and all are deleted with the release, whose object they name as their owner.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from bigfleet.api.auth import issuing
from bigfleet.api.auth.identity import Principal
from bigfleet.kube.client import CONFLICT, NOT_FOUND, ApiError, KubeClient
from loaddriver.substrates import audit, components, credentials
from loaddriver.substrates.controlplane import write_kwok_stages
from loaddriver.substrates.credentials import FEDERATION
from loaddriver.substrates.pods.control_plane import (
    API_SERVER_PORT,
    LAYOUT,
    MOUNTED,
)
from loaddriver.substrates.pods.places import (
    ClusterPlace,
    Places,
    host_client,
    obtain,
)
from loaddriver.substrates.pods.substrate import IDENTITIES
from loaddriver.substrates.ports import LOOPBACK

# Not localhost: whenever a container starts, the kubelet rewrites the hosts file of the others.
_IN_POD = f"https://{LOOPBACK}:{API_SERVER_PORT}"
_PROVIDER = "fake-host"
# Longer than any run.
_VALIDITY = timedelta(days=30)
Files = dict[str, bytes]


async def prepare(client: KubeClient, places: Places) -> list[str]:
    """Create what is missing; return the names of new Secrets. Raises ApiError."""
    writer = _Writer(client, places, await _owner(client, places))
    with tempfile.TemporaryDirectory() as scratch:
        await writer.identities(Path(scratch))
        for cluster in places.api_servers:
            await writer.cluster(Path(scratch) / cluster.name, cluster)
        await writer.write(places.token_secret, {"token": secrets.token_urlsafe(24).encode()})
    return writer.created


class _Writer:
    def __init__(self, client: KubeClient, places: Places, owner: Mapping[str, Any]) -> None:
        self._client, self._places, self._owner = client, places, owner
        self.created: list[str] = []

    async def identities(self, scratch: Path) -> None:
        """The fleet's authority, and what it signs."""
        authority = issuing.authority_directory(scratch)
        if found := await self._read(self._places.authority_secret):
            _write(authority, found)
        missing = [each for each in self._places.identities if not await self._read(each.secret)]
        principals = {each: Principal.parse(each.principal) for each in missing}
        hosts = {principals[each]: each.hosts for each in missing}
        made = issuing.issue(scratch, list(principals.values()), _VALIDITY, hosts=hosts)
        await self.write(self._places.authority_secret, _read_all(authority))
        for each, principal in principals.items():
            await self.write(each.secret, _read_all(made[principal].directory))

    async def cluster(self, scratch: Path, place: ClusterPlace) -> None:
        """A nested cluster's files, as those of a local cluster, and kubeconfigs for others."""
        if await self._read(place.access):
            return
        issued = credentials.issue(scratch, place.name, _IN_POD, [place.host])
        access = dict(_kubeconfigs(place, issued))
        audit.write_policy(scratch / LAYOUT.audit_policy.name)
        kubeconfig = MOUNTED / issued.kubeconfigs["kube-scheduler"].name
        scheduler = scratch / LAYOUT.scheduler_configuration.name
        components.write_scheduler_configuration(scheduler, kubeconfig)
        write_kwok_stages(scratch / LAYOUT.kwok_stages.name, network_agents=False)
        shutil.copy(components.KWOK_METRICS, scratch / LAYOUT.kwok_metrics.name)
        files = _read_all(scratch)
        for path in issued.kubeconfigs.values():
            files[path.name] = files[path.name].replace(str(scratch).encode(), bytes(MOUNTED))
        await self.write(place.secret, files)
        await self.write(place.access, access)

    async def write(self, name: str, files: Files) -> None:
        """Create a Secret, unless it exists."""
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "ownerReferences": [self._owner]},
            "data": {key: b64encode(text).decode() for key, text in files.items()},
        }
        try:
            await self._client.create(_secrets(self._places), body)
        except ApiError as error:
            if error.status != CONFLICT:
                raise
        else:
            self.created.append(name)

    async def _read(self, name: str) -> Files:
        """A Secret's files; empty if it does not exist."""
        try:
            body = await self._client.get(f"{_secrets(self._places)}/{name}")
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
            return {}
        data: Mapping[str, str] = msgspec.json.decode(body).get("data", {})
        return {key: b64decode(text) for key, text in data.items()}


async def _owner(client: KubeClient, places: Places) -> dict[str, Any]:
    path = f"/api/v1/namespaces/{places.namespace}/configmaps/{places.owner}"
    metadata = msgspec.json.decode(await client.get(path))["metadata"]
    name, uid = metadata["name"], metadata["uid"]
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid}


def _kubeconfigs(
    place: ClusterPlace, issued: credentials.Credentials
) -> Iterator[tuple[str, bytes]]:
    """Kubeconfigs for other pods, complete in themselves."""
    ca = b64encode(issued.ca_certificate.read_bytes()).decode()
    for identity in (*IDENTITIES, _PROVIDER):
        authority, token = {"certificate-authority-data": ca}, issued.tokens[identity]
        by_proxy = place.proxy and identity == FEDERATION
        server = f"https://{LOOPBACK}:{place.proxy}" if by_proxy else place.api_server
        text = credentials.kubeconfig(place.name, server, authority, token)
        yield f"{identity}.kubeconfig", text


def _secrets(places: Places) -> str:
    return f"/api/v1/namespaces/{places.namespace}/secrets"


def _read_all(directory: Path) -> Files:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


def _write(directory: Path, files: Files) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, text in files.items():
        (directory / name).write_bytes(text)


async def main(environment: Mapping[str, str]) -> None:
    """Prepare the release that this pod belongs to."""
    async with await host_client(environment) as client:
        for name in await prepare(client, obtain(environment).places):
            print(f"created Secret {name}", flush=True)


if __name__ == "__main__":
    asyncio.run(main(os.environ))
