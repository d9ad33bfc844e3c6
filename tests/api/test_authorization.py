"""Every call is authorized by one table, and callers act only as themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import message_factory

from bigfleet.api.auth.authorization import AUTHORIZATION_TABLE, CallDenied, check_sender
from bigfleet.api.auth.identity import Principal
from bigfleet.api.v1alpha1 import (
    coordinator_pb2,
    provider_pb2,
    shard_pb2,
    shardadmin_pb2,
    shardread_pb2,
)
from bigfleet.observe import metrics
from tests.api.identity_rig import create, get, greet, identity, refusal, serving

DENIED = grpc.StatusCode.PERMISSION_DENIED


def test_every_method_of_the_wire_has_a_rule() -> None:
    """A new method gets its rule before it is served; the table has no others."""
    files = (coordinator_pb2, provider_pb2, shard_pb2, shardadmin_pb2, shardread_pb2)
    methods = {
        f"/{service.full_name}/{method.name}"
        for file in files
        for service in file.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    assert methods == set(AUTHORIZATION_TABLE)


@pytest.mark.parametrize("method", sorted(AUTHORIZATION_TABLE))
def test_read_only_reads_and_nothing_else(method: str) -> None:
    """The identity for inspection is admitted to exactly the calls that change nothing."""
    name = method.rpartition("/")[2]
    reads = name.startswith(("List", "Inspect", "Get", "Checkpoint"))
    assert ("readonly" in AUTHORIZATION_TABLE[method].roles) == reads


@pytest.mark.parametrize(
    ("role", "calls"),
    [
        ("cluster", "Session"),
        ("shard", "ClaimEpoch Create Configure Drain Delete Get List ReportShard ResolveCluster"),
        (
            "coordinator",
            "JoinRaftCluster LeaveRaftCluster ListShards ListDomainAssignments "
            "ListClusterAssignments ListQuotas ListProviders ListShardReports",
        ),
        ("provider", ""),
    ],
)
def test_each_role_has_its_calls_and_no_others(role: str, calls: str) -> None:
    """This bounds what a stolen key can do."""
    own = {
        method.rpartition("/")[2]
        for method, rule in AUTHORIZATION_TABLE.items()
        if role in rule.roles
    }
    assert own == set(calls.split())


def test_an_admin_may_make_every_call_but_a_clusters() -> None:
    """Repair needs all of them; a session would replace a cluster's needs."""
    own = {method for method, rule in AUTHORIZATION_TABLE.items() if "admin" in rule.roles}
    assert set(AUTHORIZATION_TABLE) - own == {"/bigfleet.v1alpha1.Shard/Session"}


@pytest.mark.parametrize(
    ("role", "field"),
    [("shard", "shard_id"), ("shard", "asking_shard_id"), ("coordinator", "node_id")],
)
def test_a_caller_may_name_only_itself(role: str, field: str) -> None:
    """No call lets one member of a role act as another."""
    one = Principal(role, "one")
    requests = {
        method: message_factory.GetMessageClass(request)
        for method, request in _requests().items()
        if field in request.fields_by_name and role in AUTHORIZATION_TABLE[method].roles
    }
    assert requests
    for method, request in requests.items():
        check_sender(AUTHORIZATION_TABLE[method], one, request(**{field: "one"}))
        with pytest.raises(CallDenied, match=f"may not speak for {role} 'two'"):
            check_sender(AUTHORIZATION_TABLE[method], one, request(**{field: "two"}))


def _requests() -> dict[str, Any]:
    """What each method is called with."""
    return {
        f"/{service.full_name}/{method.name}": method.input_type
        for file in (coordinator_pb2, provider_pb2)
        for service in file.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }


async def test_a_shard_gives_orders_as_itself_only(tmp_path: Path) -> None:
    """A shard cannot raise another's marks: an order names the shard that the certificate names."""
    one = identity(tmp_path, "shard", "one")
    async with serving(identity(tmp_path, "provider", "p")) as address:
        assert await create(address, one, "one") == "one"
        error = await refusal(create(address, one, "two"))
    assert error.code() is DENIED
    assert error.details() == "bigfleet://shard/one may not speak for shard 'two'"


async def test_a_cluster_greets_as_itself_only(tmp_path: Path) -> None:
    """An operator opens the session of the cluster in its certificate, and of no other."""
    own = identity(tmp_path, "cluster", "blue")
    async with serving(identity(tmp_path, "shard", "s")) as address:
        assert await greet(address, own, "blue") == "blue"
        error = await refusal(greet(address, own, "green"))
    assert error.code() is DENIED
    assert error.details() == "bigfleet://cluster/blue may not speak for cluster 'green'"


async def test_a_role_that_is_not_in_the_rule_is_denied_and_counted(tmp_path: Path) -> None:
    """A cluster may not create machines; the error lists who may, and the server counts it."""
    async with serving(identity(tmp_path, "provider", "p")) as address:
        refused = metrics.calls_denied.labels("PERMISSION_DENIED")
        before = refused._value.get()
        error = await refusal(create(address, identity(tmp_path, "cluster", "blue"), "blue"))
        assert refused._value.get() == before + 1
    assert error.code() is DENIED
    assert error.details() == (
        "bigfleet://cluster/blue may not call /bigfleet.v1alpha1.CapacityProvider/Create; "
        "allowed: admin, shard"
    )


async def test_an_admin_may_act_under_any_name_and_readonly_may_only_read(tmp_path: Path) -> None:
    """Repair and conformance need orders without a shard; inspection needs none."""
    looking = identity(tmp_path, "readonly")
    async with serving(identity(tmp_path, "provider", "p")) as address:
        assert await create(address, identity(tmp_path, "admin"), "any") == "any"
        assert await get(address, looking) == "m"
        assert (await refusal(create(address, looking, "any"))).code() is DENIED


async def test_plaintext_is_not_authorized() -> None:
    """Without an identity every call is served, which is what --insecure means."""
    async with serving(None) as address:
        assert await get(address, None) == "m"
        assert await greet(address, None, "blue") == "blue"
