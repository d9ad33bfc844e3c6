"""A provider that is not the harness's: what it lists before anything is started, and what it is
given for the time of a run.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc.aio
import msgspec
import psutil
import yaml

from bigfleet.api import machine_codec, transport
from bigfleet.api.auth.identity import Identity, Principal
from bigfleet.api.auth.tls_diagnosis import explain_failure
from bigfleet.api.v1alpha1 import provider_pb2 as wire
from bigfleet.api.v1alpha1.provider_pb2_grpc import CapacityProviderStub
from bigfleet.model.errors import InvalidInput
from bigfleet.model.machine import Machine, MachineState
from loaddriver.errors import InfrastructureError, ProfileError
from loaddriver.profile.fleet import RunningProvider
from loaddriver.record.provenance import ProviderUsed
from loaddriver.sizing.inventory import InventoryMachine
from loaddriver.sizing.offered import FREE_STATES, inventory_machine
from loaddriver.substrates import fleet_identities
from loaddriver.substrates.base import Cluster

KEY = "fleet.runningProvider"
_ROLE = "provider"
_PAGE_MACHINES = 2000
_LIST_SECONDS = 30.0
# Watches Nodes and acts as their kubelets; it may not see pods.
_NODE_ACCESS = "fake-host"


@dataclass(frozen=True)
class ListedFleet:
    """What a provider lists: its free machines, and its name. `process` is its id, if it runs on
    this machine.
    """

    address: str
    name: str
    machines: tuple[InventoryMachine, ...]
    process: int | None

    @property
    def digest(self) -> str:
        """Equal for runs with the same machines of a provider of this name."""
        return hashlib.sha256(msgspec.json.encode((self.name, self.machines))).hexdigest()

    @property
    def used(self) -> ProviderUsed:
        """What the summary says of it."""
        return ProviderUsed(
            address=self.address,
            name=self.name,
            machines=len(self.machines),
            cpu_measured=self.process is not None,
        )


def read_fleet(running: RunningProvider) -> ListedFleet:
    """`list_fleet`, where no event loop runs yet."""
    _check_folder(running)
    return asyncio.run(list_fleet(running))


async def list_fleet(running: RunningProvider) -> ListedFleet:
    """Ask the provider for its machines, as a reader of the run's authority.

    Raises ProfileError with the key and the flag if it does not answer, or if a run cannot use it.
    """
    where = f"{KEY}.address = {running.address} (--provider)"
    with tempfile.TemporaryDirectory() as scratch:
        identity = _reader(running, Path(scratch))
        name, machines = await _list(running.address, identity, where)
    usable = (*FREE_STATES, MachineState.FAILED)
    if in_use := [each for each in machines if each.state not in usable]:
        first = in_use[0]
        place = f" in cluster {first.cluster}" if first.cluster else ""
        raise ProfileError(
            [
                f"{where}: {len(in_use)} of its {len(machines)} machines are in use, such as "
                f"{first.id}, which is {first.state.name}{place}: a run needs all of them free; "
                "start the provider with new state"
            ]
        )
    free = tuple(inventory_machine(each) for each in machines if each.state in FREE_STATES)
    return ListedFleet(running.address, name, free, _process_at(running.address))


def _check_folder(running: RunningProvider) -> None:
    if running.kubeconfigs is None:
        return
    folder = Path(running.kubeconfigs)
    if folder.exists() and not (folder.is_dir() and os.access(folder, os.W_OK)):
        what = f"{KEY}.kubeconfigs = {folder} (--provider-kubeconfigs)"
        raise ProfileError([f"{what}: is no folder that can be written to"])


def _reader(running: RunningProvider, scratch: Path) -> Identity:
    """A read-only identity of the provider's authority, below `scratch`."""
    try:
        fleet_identities.adopt(scratch, Path(running.identities))
        return fleet_identities.issue(scratch, Principal("readonly"))
    except InvalidInput as error:
        what = f"{KEY}.identities = {running.identities} (--provider-identities)"
        raise ProfileError([f"{what}: {error}"]) from None


async def _list(address: str, identity: Identity, where: str) -> tuple[str, list[Machine]]:
    """The provider's name, and all its machines. Raises ProfileError."""
    found: dict[str, Machine] = {}
    name, token, limit = "", b"", _PAGE_MACHINES
    try:
        async with transport.channel(address, identity, _ROLE) as channel:
            stub = CapacityProviderStub(channel)
            while True:
                request = wire.ListFilter(max_results=limit, page_token=token)
                answer = await stub.List(request, timeout=_LIST_SECONDS)
                for each in answer.machines:
                    name = name or answer.provider or each.host.provider
                    found[each.id] = machine_codec.machine_from_wire(each)
                first, cut = not token, limit and len(answer.machines) == limit
                if answer.next_page_token:
                    _check_progress(token, answer.next_page_token)
                elif first and cut:
                    limit = 0  # it may not know of pages, and have cut its answer all the same
                else:
                    return name, list(found.values())
                token = answer.next_page_token
    except grpc.aio.AioRpcError as error:
        reason = await explain_failure(error, address, identity, _ROLE)
        raise ProfileError([f"{where}: it does not list its machines: {reason}"]) from None
    except InvalidInput as error:
        raise ProfileError([f"{where}: what it lists is not valid: {error}"]) from None


def _check_progress(token: bytes, following: bytes) -> None:
    if following == token:
        raise InvalidInput("next_page_token", following, "leads to the page that it is on")


def _process_at(address: str) -> int | None:
    """The process of this machine that listens there; None if there is none, or none to be seen."""
    port = int(address.rpartition(":")[2])
    own = {each.address for all_of in psutil.net_if_addrs().values() for each in all_of}
    host = address.rpartition(":")[0].strip("[]")
    if host not in (*own, "localhost"):
        return None
    try:
        listening = (
            each.pid
            for each in psutil.net_connections("tcp")
            if each.status == psutil.CONN_LISTEN and each.laddr and each.laddr.port == port
        )
        return next((pid for pid in listening if pid is not None), None)
    except psutil.Error:
        return None


def write_kubeconfigs(folder: Path, clusters: Sequence[Cluster]) -> None:
    """Write CLUSTER.kubeconfig for each cluster, whole in itself; only their owner may read them.

    Raises InfrastructureError.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for cluster in clusters:
            content = _whole(cluster.kubeconfigs[_NODE_ACCESS])
            draft = folder / f".{cluster.name}.new"
            draft.unlink(missing_ok=True)
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(content)
            draft.replace(_kubeconfig(folder, cluster))
    except OSError as error:
        raise InfrastructureError(
            f"{KEY}.kubeconfigs (--provider-kubeconfigs): {error.filename}: {error.strerror}"
        ) from None


def remove_kubeconfigs(folder: Path, clusters: Sequence[Cluster]) -> None:
    """Remove them again: the clusters end with the run."""
    for cluster in clusters:
        _kubeconfig(folder, cluster).unlink(missing_ok=True)


def _kubeconfig(folder: Path, cluster: Cluster) -> Path:
    return folder / f"{cluster.name}.kubeconfig"


def _whole(kubeconfig: Path) -> str:
    """The kubeconfig with the contents of the files that it refers to."""
    content = yaml.safe_load(kubeconfig.read_text())
    for entry in content["clusters"]:
        authority = Path(entry["cluster"].pop("certificate-authority"))
        encoded = base64.b64encode(authority.read_bytes()).decode()
        entry["cluster"]["certificate-authority-data"] = encoded
    return yaml.safe_dump(content)
