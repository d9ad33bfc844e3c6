"""The real servers of a fleet, each behind mutual TLS, and whoever calls them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from google.protobuf import message_factory

from bigfleet.adapters.host.instant import InstantHost
from bigfleet.adapters.provider.memory import MemoryProvider
from bigfleet.api import transport
from bigfleet.api.auth import certificates, issuing
from bigfleet.api.auth.certificates import Authority
from bigfleet.api.auth.identity import AUTHORITY, CERTIFICATE, KEY, Identity, Principal
from bigfleet.api.v1alpha1 import (
    coordinator_pb2,
    provider_pb2,
    shard_pb2,
    shardadmin_pb2,
    shardread_pb2,
)
from bigfleet.services.provider.role import serving as provider_serving
from tests.support import providers as provider_rig
from tests.support import replicas as replicas_rig
from tests.support import shard_rig as shard_rig

DAY = timedelta(days=1)
DENIED = grpc.StatusCode.PERMISSION_DENIED
_TIMEOUT_SECONDS = 60.0
_ATTEMPTS = 5
# Which role's server has each of our services.
_SERVED_BY = {
    "Shard": "shard",
    "ShardRead": "shard",
    "ShardAdmin": "shard",
    "CapacityProvider": "provider",
    "Coordinator": "coordinator",
}


@dataclass(frozen=True)
class Method:
    """One method of the wire, such as Shard/Session; `request` is the class of what it takes."""

    name: str
    path: str
    server: str
    request: type[Any]


def methods() -> Iterator[Method]:
    """Every one there is."""
    for file in (coordinator_pb2, provider_pb2, shard_pb2, shardadmin_pb2, shardread_pb2):
        for service in file.DESCRIPTOR.services_by_name.values():
            for each in service.methods:
                yield Method(
                    f"{service.name}/{each.name}",
                    f"/{service.full_name}/{each.name}",
                    _SERVED_BY[service.name],
                    message_factory.GetMessageClass(each.input_type),
                )


def issue(out: Path, *names: str, validity: timedelta = DAY) -> list[Identity]:
    """Identities such as `shard/s0`, of one authority below `out`."""
    wanted = [Principal(*name.split("/")) for name in names]
    made = issuing.issue(out, wanted, validity)
    return [made[name] for name in wanted]


def issue_odd(fleet: Path, *alternatives: x509.GeneralName) -> Identity:
    """Signed by the fleet's authority, and naming just these: what no issuer of ours would make."""
    directory = fleet / "authority"
    [own] = x509.load_pem_x509_certificates((directory / AUTHORITY).read_bytes())
    key = serialization.load_pem_private_key((directory / "ca.key").read_bytes(), None)
    assert isinstance(key, certificates.PrivateKey)
    leaf, leaf_key = Authority(own, key).issue("odd", list(alternatives), DAY)
    odd = fleet / "odd"
    odd.mkdir(exist_ok=True)
    (odd / CERTIFICATE).write_bytes(certificates.certificate_pem(leaf))
    (odd / KEY).write_bytes(certificates.key_pem(leaf_key))
    (odd / AUTHORITY).write_bytes((directory / AUTHORITY).read_bytes())
    return Identity(odd)


@asynccontextmanager
async def fleet(out: Path, etcd: Path) -> AsyncIterator[Mapping[str, str]]:
    """Where a shard `s`, a provider `p` and a coordinator `a` listen, by role; their identities lie
    below `out`.
    """
    shard, provider, coordinator = issue(out, "shard/s", "provider/p", "coordinator/a")
    given = provider_rig.settings(_made(out / "run-provider"), identity=provider)
    async with AsyncExitStack() as closing:
        replicas = closing.enter_context(
            replicas_rig.running(
                etcd, _made(out / "run"), names=("a",), identities={"a": coordinator.directory}
            )
        )
        served = await closing.enter_async_context(provider_serving(given, InstantHost()))
        rig = await closing.enter_async_context(
            shard_rig.shard(MemoryProvider(), _made(out / "run-shard"), identity=shard)
        )
        [address] = replicas.addresses()
        yield {
            "shard": rig.address,
            "provider": f"127.0.0.1:{served.port}",
            "coordinator": address,
        }


def _made(directory: Path) -> Path:
    directory.mkdir(parents=True)
    return directory


async def call(address: str, own: Identity | None, method: Method, request: Any) -> grpc.StatusCode:
    """What `method` is answered with, whichever way messages stream.

    A call that is refused while gRPC still sends its first message ends as INTERNAL in the client,
    some of a thousand times on busy cores, so it is made again.
    """
    for _ in range(_ATTEMPTS):
        code = await _call_once(address, own, method, request)
        if code is not grpc.StatusCode.INTERNAL:
            break
    return code


async def _call_once(
    address: str, own: Identity | None, method: Method, request: Any
) -> grpc.StatusCode:
    async with _channel(address, own, method.server) as channel:
        calls = channel.stream_stream(
            method.path, lambda message: message.SerializeToString(), bytes
        )
        stream = calls(iter([request]), timeout=_TIMEOUT_SECONDS)
        try:
            async for _ in stream:
                break
        except grpc.aio.AioRpcError as error:
            return error.code()
        stream.cancel()
        return grpc.StatusCode.OK


def _channel(address: str, own: Identity | None, server: str) -> grpc.aio.Channel:
    """As whoever attacks would open it: nothing looks at what the certificate says."""
    if own is None:
        return grpc.aio.insecure_channel(address)
    authority, key, leaf = (
        (own.directory / name).read_bytes() for name in (AUTHORITY, KEY, CERTIFICATE)
    )
    credentials = grpc.ssl_channel_credentials(authority, key, leaf)
    name = ("grpc.ssl_target_name_override", transport.SERVER_NAME.format(role=server))
    return grpc.aio.secure_channel(address, credentials, options=[name])
