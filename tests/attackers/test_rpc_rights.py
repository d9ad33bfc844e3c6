"""Each credential tries every method of every real server; one table says what it may call."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509

from bigfleet.api.auth.identity import Identity
from controlplane.request import Binaries
from tests.attackers.rpc_rig import DAY, DENIED, Method, call, fleet, issue, issue_odd, methods

pytestmark = pytest.mark.cluster

_UNAVAILABLE, _UNKNOWN = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNAUTHENTICATED
_ORDERS = "Create Configure Drain Delete ClaimEpoch"
_FLEET_LISTS = (
    "ListShards ListDomainAssignments ListClusterAssignments ListQuotas ListProviders "
    "ListShardReports"
)
_REPAIRS = (
    "AssignDomain UnassignDomain RemoveShard SetQuota SnapshotSave JoinRaftCluster LeaveRaftCluster"
)
# By credential and service, the methods that it may call. All others are refused to it.
MAY_CALL = {
    "cluster/blue": {"Shard": "Session"},
    "shard/s0": {
        "CapacityProvider": f"{_ORDERS} Get List",
        "Coordinator": "ReportShard ClaimEpoch ResolveCluster",
    },
    "coordinator/b": {"Coordinator": f"JoinRaftCluster LeaveRaftCluster {_FLEET_LISTS}"},
    "provider/p": {},
    "admin": {
        "ShardAdmin": "RemoveCluster",
        "ShardRead": "InspectNeeds InspectMachine InspectCeilings Checkpoint",
        "CapacityProvider": f"{_ORDERS} Get List",
        "Coordinator": f"ReportShard ClaimEpoch ResolveCluster {_REPAIRS} {_FLEET_LISTS}",
    },
    "readonly": {
        "ShardRead": "InspectNeeds InspectMachine InspectCeilings Checkpoint",
        "CapacityProvider": "Get List",
        "Coordinator": _FLEET_LISTS,
    },
}
# Fields by which a request names its sender, by the role of those that it holds to it.
NAMES_SENDER = {"shard": ("shard_id", "asking_shard_id"), "coordinator": ("node_id",)}


def allowed(credential: str) -> set[str]:
    """As of MAY_CALL, such as Shard/Session."""
    services = MAY_CALL[credential]
    return {f"{service}/{name}" for service, names in services.items() for name in names.split()}


def request_of(method: Method, credential: str) -> Any:
    """As empty as can be, in the caller's own name."""
    role, _, own = credential.partition("/")
    request = method.request()
    for field in NAMES_SENDER.get(role, ()):
        if field in method.request.DESCRIPTOR.fields_by_name:
            setattr(request, field, own)
    if method.name == "Shard/Session":
        request.hello.cluster_id = own or "blue"
    return request


def test_the_table_names_only_methods_that_exist_and_each_has_a_caller() -> None:
    """A new method, or one that goes, is a new row here."""
    everybody = set[str]().union(*(allowed(credential) for credential in MAY_CALL))
    assert everybody == {method.name for method in methods()}


async def test_each_credential_may_call_what_the_table_says_and_nothing_else(
    tmp_path: Path, binaries: Binaries
) -> None:
    """Against a real shard, provider and coordinator: each of 26 methods with each credential."""
    async with fleet(tmp_path, binaries.etcd) as addresses:
        identities = dict(zip(MAY_CALL, issue(tmp_path, *MAY_CALL), strict=True))
        for credential, own in identities.items():
            codes = {
                method.name: await call(
                    addresses[method.server], own, method, request_of(method, credential)
                )
                for method in methods()
            }
            assert not {_UNAVAILABLE, _UNKNOWN, grpc.StatusCode.UNIMPLEMENTED} & {*codes.values()}
            passed = {name for name, code in codes.items() if code is not DENIED}
            assert passed == allowed(credential), credential
        await _nobody_speaks_for_another(addresses, identities)
        await _strangers_are_not_served(tmp_path, addresses)


async def _nobody_speaks_for_another(
    addresses: Mapping[str, str], identities: Mapping[str, Identity]
) -> None:
    """Whatever it may call, a shard, replica or operator that names another is refused."""
    tried = set()
    for credential in ("shard/s0", "coordinator/b", "cluster/blue"):
        for method in methods():
            if method.name in allowed(credential):
                request = request_of(method, credential)
                if (theirs := _in_the_name_of_another(request)) is None:
                    continue
                tried.add((credential, method.name))
                code = await call(addresses[method.server], identities[credential], method, theirs)
                assert code is DENIED, (credential, method.name)
    assert {name for _, name in tried} >= {
        *(f"CapacityProvider/{name}" for name in _ORDERS.split()),
        *(f"Coordinator/{name}" for name in ("ReportShard", "ClaimEpoch", "ResolveCluster")),
        *("Coordinator/JoinRaftCluster", "Coordinator/LeaveRaftCluster", "Shard/Session"),
    }


def _in_the_name_of_another(request: Any) -> Any:
    """The same request of somebody else; None where it names nobody."""
    own = request.SerializeToString()
    for field in ("shard_id", "asking_shard_id", "node_id"):
        if getattr(request, field, ""):
            setattr(request, field, "another")
    if "hello" in request.DESCRIPTOR.fields_by_name:
        request.hello.cluster_id = "another"
    return None if request.SerializeToString() == own else request


async def _strangers_are_not_served(fleet_directory: Path, addresses: Mapping[str, str]) -> None:
    """No certificate, one of another authority, an expired one: no connection. A name that is none
    of ours, two names, or none: no call.
    """
    [expired] = issue(fleet_directory, "admin", validity=-DAY)
    [foreign] = issue(fleet_directory / "foreign", "admin")
    (foreign.directory / "ca.crt").write_bytes((expired.directory / "ca.crt").read_bytes())
    for method in methods():
        for own in (None, expired, foreign):
            code = await call(addresses[method.server], own, method, method.request())
            assert code is _UNAVAILABLE, method.name
    uri = x509.UniformResourceIdentifier
    admin, another = uri("bigfleet://admin"), uri("bigfleet://shard/s0")
    for names in (
        (uri("spiffe://fleet/admin"),),
        (uri("bigfleet://root/x"),),
        (admin, another),
        (x509.DNSName("admin"),),
    ):
        odd = issue_odd(fleet_directory, *names)
        for method in methods():
            code = await call(addresses[method.server], odd, method, method.request())
            assert code is _UNKNOWN, (names, method.name)
