"""Queries and changes sent to the coordinator's leader."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from google.protobuf.message import Message

from bigfleet.adapters.coordinator.client import LeaderClient
from bigfleet.api.auth.identity import Identity
from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.commands import fleet_views as views
from bigfleet.commands.json_output import to_json_dict
from bigfleet.model.errors import InvalidInput

_MAX_MACHINES = 2**31 - 1  # of an int32
_LISTS: Mapping[str, tuple[str, Message]] = {
    "shards": ("ListShards", wire.ListShardsRequest()),
    "reports": ("ListShardReports", wire.ListShardReportsRequest()),
    "domains": ("ListDomainAssignments", wire.ListDomainAssignmentsRequest()),
    "clusters": ("ListClusterAssignments", wire.ListClusterAssignmentsRequest()),
    "quotas": ("ListQuotas", wire.ListQuotasRequest()),
    "providers": ("ListProviders", wire.ListProvidersRequest()),
}
_LISTS_OF_VIEW: Mapping[str, Sequence[str]] = {
    "status": ("shards", "reports", "domains", "clusters", "quotas"),
    "shards": ("shards", "reports", "domains", "clusters"),
    "domains": ("domains",),
    "clusters": ("clusters", "reports"),
    "quotas": ("quotas",),
    "shortfalls": ("reports",),
    "out-of-domain": ("reports",),
    "providers": ("providers",),
}


async def view(replicas: Sequence[str], identity: Identity | None, action: str, output: str) -> str:
    """What `bigfleet fleet ACTION` prints. Unavailable if no replica leads."""
    async with LeaderClient(replicas, identity) as client:
        lists = {}
        for name in _LISTS_OF_VIEW[action]:
            method, request = _LISTS[name]
            lists[name] = _rows(await client.call(method, request))
        if output == "json":
            return _json(client, lists)
        return "\n".join(_text(action, client, lists))


def _rows(answer: Message) -> list[Any]:
    """The rows of a list response, which has one repeated field."""
    return [row for _, rows in answer.ListFields() for row in rows]


def _json(client: LeaderClient, lists: Mapping[str, Sequence[Message]]) -> str:
    data = {name: [to_json_dict(row) for row in rows] for name, rows in lists.items()}
    return json.dumps({"leader": client.leader, "term": client.term, **data}, indent=2)


def _text(action: str, client: LeaderClient, lists: Mapping[str, Sequence[Any]]) -> list[str]:
    match action:
        case "status":
            return views.status(client.leader, client.term, views.Lists(**lists))
        case "shards":
            return views.shard_lines(views.Lists(**lists))
        case "shortfalls":
            return views.shortfalls(lists["reports"])
        case "clusters":
            return views.clusters(lists["clusters"], lists["reports"])
        case "out-of-domain":
            return views.out_of_domain_machines(lists["reports"])
        case _:
            show: Callable[[Sequence[Any]], list[str]] = getattr(views, action)
            return show(lists[action])


async def change(
    replicas: Sequence[str], identity: Identity | None, action: str, flags: argparse.Namespace
) -> str:
    """Request a change; return what was accepted. BigFleetError with the coordinator's message."""
    method, request, message = _CHANGES[action](flags)
    async with LeaderClient(replicas, identity) as client:
        if action == "set-quota":  # before the change: once it is accepted nothing may fail
            listed = _rows(await client.call(*_LISTS["providers"]))
            message += views.quota_warning(flags.provider, flags.region, listed)
        await client.call(method, request)
    return message


def _assign(flags: argparse.Namespace) -> tuple[str, Message, str]:
    key, value = _domain(flags.domain)
    request = wire.AssignDomainRequest(topology_key=key, topology_value=value, shard_id=flags.shard)
    message = (
        f"accepted: {flags.domain} moves to {flags.shard} once its current shard has released it"
    )
    return "AssignDomain", request, message


def _unassign(flags: argparse.Namespace) -> tuple[str, Message, str]:
    key, value = _domain(flags.domain)
    request = wire.UnassignDomainRequest(topology_key=key, topology_value=value)
    message = f"accepted: {flags.domain} is being released; the smallest shard gets it next"
    return "UnassignDomain", request, message


def _remove(flags: argparse.Namespace) -> tuple[str, Message, str]:
    message = (
        f"accepted: {flags.shard} is leaving; `fleet shards` lists it until it has released all. "
        "If it has just died and is listed as silent, remove it again"
    )
    return "RemoveShard", wire.RemoveShardRequest(shard_id=flags.shard), message


def _quota(flags: argparse.Namespace) -> tuple[str, Message, str]:
    machines_by_shard = {}
    for argument in flags.machines_by_shard:
        shard, equals, machines = argument.rpartition("=")
        if not (shard and equals and machines.isdecimal() and int(machines) <= _MAX_MACHINES):
            hint = f"is not SHARD=MACHINES, a whole number from 0 to {_MAX_MACHINES:,}"
            raise InvalidInput("set-quota", argument, hint)
        machines_by_shard[shard] = int(machines)
    quota = wire.QuotaAllocation(
        provider=flags.provider, region=flags.region, per_shard=machines_by_shard
    )
    message = f"accepted: at most {sum(machines_by_shard.values()):,} machines of {flags.provider}"
    return "SetQuota", wire.SetQuotaRequest(quota=quota), message


def _remove_replica(flags: argparse.Namespace) -> tuple[str, Message, str]:
    request = wire.LeaveRaftClusterRequest(node_id=flags.replica)
    return "LeaveRaftCluster", request, f"replica {flags.replica} is removed; stop its process"


_CHANGES: Mapping[str, Callable[[argparse.Namespace], tuple[str, Message, str]]] = {
    "assign-domain": _assign,
    "unassign-domain": _unassign,
    "remove-shard": _remove,
    "set-quota": _quota,
    "remove-replica": _remove_replica,
}


def _domain(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise InvalidInput("domain", text, "is not KEY=VALUE, as in topology.bigfleet/rack=r1")
    return key, value


async def save(replicas: Sequence[str], identity: Identity | None, file: Path) -> str:
    """Save a snapshot; the file is written atomically."""
    async with LeaderClient(replicas, identity, call_seconds=60.0) as client:
        messages = await client.call("SnapshotSave", wire.SnapshotSaveRequest())
    try:
        _write_atomically(
            file, [messages[0].meta_json, b"\n", *(each.data for each in messages[1:])]
        )
    except OSError as error:
        raise InvalidInput("FILE", str(file), f"cannot be written: {error.strerror}") from None
    return f"saved {json.loads(messages[0].meta_json)['rows']:,} rows to {file}"


def _write_atomically(file: Path, parts: Iterable[bytes]) -> None:
    draft = file.with_name(f".{file.name}.new")
    try:
        with draft.open("wb") as out:
            out.writelines(parts)
            out.flush()
            os.fsync(out.fileno())
        draft.rename(file)
    finally:
        draft.unlink(missing_ok=True)
