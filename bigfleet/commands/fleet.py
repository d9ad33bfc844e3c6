"""`bigfleet fleet`: looks at a fleet through its coordinator, and changes what people decide."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from bigfleet.commands.coordinator import replica_flags
from bigfleet.commands.flags import addresses, identity_flag, identity_of

_VIEWS: Mapping[str, str] = {
    "status": "the fleet on one screen",
    "shards": "which shards there are, and how they do",
    "domains": "which shard acts on which topology domain",
    "out-of-domain": "machines at work for a cluster whose shard does not act on their domain",
    "clusters": "which shard serves which cluster",
    "quotas": "how many purchased machines each shard may hold",
    "shortfalls": "what shards could not provide",
    "providers": "where machines come from",
}


def add(roles: Any) -> None:
    """Add the command to the parser's `roles`."""
    role = roles.add_parser("fleet", help="asks the coordinator about the fleet, or tells it")
    actions = role.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, what in _VIEWS.items():
        view = _action(actions, name, what, _show_view)
        view.add_argument("--output", choices=("text", "json"), default="text")
    _changes(actions)
    _replicas(actions)


def _action(actions: Any, name: str, what: str, run: Callable[..., Any]) -> Any:
    action = actions.add_parser(name, help=what, description=what)
    action.add_argument(
        "--coordinator",
        type=addresses,
        required=True,
        metavar="HOST:PORT,...",
        help="any or all replicas",
    )
    identity_flag(action)
    action.set_defaults(build=lambda flags: partial(run, flags))
    return action


def _changes(actions: Any) -> None:
    assign = _action(actions, "assign-domain", "bring a domain to a shard", _change)
    assign.add_argument("domain", metavar="KEY=VALUE", help="for example topology.bigfleet/rack=r1")
    assign.add_argument("shard", metavar="SHARD")
    unassign = _action(actions, "unassign-domain", "take a domain from its shard", _change)
    unassign.add_argument("domain", metavar="KEY=VALUE")
    remove = _action(
        actions,
        "remove-shard",
        "take a shard out: a live one releases its domains first; a silent one is barred at once, "
        "so make sure that it has stopped",
        _change,
    )
    remove.add_argument("shard", metavar="SHARD")
    _removal(actions)
    quota = _action(
        actions, "set-quota", "how many purchased machines each shard may hold", _change
    )
    quota.add_argument("provider", metavar="PROVIDER")
    quota.add_argument("region", metavar="REGION", help='"" for machines without one')
    quota.add_argument("shares", nargs="*", metavar="SHARD=MACHINES", help="others get none")


def _removal(actions: Any) -> None:
    what = (
        "take a cluster out that is gone for good: its demand is forgotten, and its machines are "
        "drained and go back without asking its operator"
    )
    command = actions.add_parser("remove-cluster", help=what, description=what)
    command.add_argument("cluster", metavar="CLUSTER")
    where = command.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--coordinator", type=addresses, metavar="HOST:PORT,...", help="any or all replicas"
    )
    where.add_argument(
        "--shard", type=addresses, metavar="HOST:PORT", help="of a fleet without a coordinator"
    )
    command.add_argument("--dry-run", action="store_true", help="only say what would be done")
    command.add_argument(
        "--force",
        action="store_true",
        help="though its operator is connected, or was heard lately",
    )
    identity_flag(command)
    command.set_defaults(build=lambda flags: partial(_remove_cluster, flags))


def _replicas(actions: Any) -> None:
    leave = _action(
        actions, "remove-replica", "take a replica of the coordinator out for good", _change
    )
    leave.add_argument("replica", metavar="ID", help="or its peer address, if it never started")
    save = _action(actions, "save", "write all that the coordinator keeps into a file", _save)
    save.add_argument("file", type=Path, metavar="FILE")
    restore = actions.add_parser(
        "restore",
        help="make the state of a first replica out of a saved file",
        description="Writes the file into the state directory of one replica, which must not run. "
        "Start it then; others join it with --join. All shards must be stopped, and started with "
        "empty state directories: they are told again what is theirs.",
    )
    restore.add_argument("file", type=Path, metavar="FILE")
    restore.add_argument("--state", type=Path, required=True, metavar="DIR")
    identity_flag(restore)
    replica_flags(restore)
    restore.set_defaults(build=lambda flags: partial(_restore, flags))


async def _show_view(flags: argparse.Namespace, stop: asyncio.Event) -> None:
    del stop
    from bigfleet.commands import fleet_queries

    identity = identity_of(flags)
    print(await fleet_queries.view(flags.coordinator, identity, flags.action, flags.output))


async def _change(flags: argparse.Namespace, stop: asyncio.Event) -> None:
    del stop
    from bigfleet.commands import fleet_queries

    message = await fleet_queries.change(flags.coordinator, identity_of(flags), flags.action, flags)
    print(message)


async def _remove_cluster(flags: argparse.Namespace, stop: asyncio.Event) -> None:
    del stop
    from bigfleet.commands import cluster_removal

    print(await cluster_removal.remove(flags, identity_of(flags)))


async def _save(flags: argparse.Namespace, stop: asyncio.Event) -> None:
    del stop
    from bigfleet.commands import fleet_queries

    print(await fleet_queries.save(flags.coordinator, identity_of(flags), flags.file))


async def _restore(flags: argparse.Namespace, stop: asyncio.Event) -> None:
    del stop
    from bigfleet.adapters.coordination.etcd_member import EtcdMemberConfig
    from bigfleet.services.coordinator.restore import restore

    member = EtcdMemberConfig(
        name=flags.node_id,
        binary=flags.etcd,
        directory=flags.state,
        peers=flags.peers,
        identity=identity_of(flags, "coordinator", flags.node_id),
    )
    meta = await restore(flags.file, member)
    print(f"restored {meta.rows:,} rows of term {meta.term}; now start replica {flags.node_id}")
