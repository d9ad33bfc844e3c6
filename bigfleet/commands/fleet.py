"""`bigfleet fleet`: shows and changes a fleet through its coordinator."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from bigfleet.commands.config_flags import add_config
from bigfleet.commands.flags import addresses, identity_flag, identity_of

_VIEWS: Mapping[str, str] = {
    "status": "the fleet on one screen",
    "shards": "the shards and their state",
    "domains": "the shard that owns each topology domain",
    "out-of-domain": "machines in use whose shard does not own their domain",
    "clusters": "the shard that serves each cluster",
    "quotas": "the purchased machines that each shard may hold",
    "shortfalls": "unmet demand by cluster",
    "providers": "the capacity providers",
}


def add(roles: Any) -> None:
    """Add the command to the parser's `roles`."""
    role = roles.add_parser("fleet", help="show and change the fleet through the coordinator")
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
        help="one or more replicas of the coordinator",
    )
    identity_flag(action)
    action.set_defaults(build=lambda flags: partial(run, flags))
    return action


def _changes(actions: Any) -> None:
    assign = _action(actions, "assign-domain", "assign a domain to a shard", _change)
    assign.add_argument("domain", metavar="KEY=VALUE", help="for example topology.bigfleet/rack=r1")
    assign.add_argument("shard", metavar="SHARD")
    unassign = _action(actions, "unassign-domain", "release a domain from its shard", _change)
    unassign.add_argument("domain", metavar="KEY=VALUE")
    remove = _action(
        actions,
        "remove-shard",
        "remove a shard: a live one releases its domains first; a silent one is fenced at once, "
        "so make sure that it has stopped",
        _change,
    )
    remove.add_argument("shard", metavar="SHARD")
    _removal(actions)
    quota = _action(
        actions, "set-quota", "set how many purchased machines each shard may hold", _change
    )
    quota.add_argument("provider", metavar="PROVIDER")
    quota.add_argument("region", metavar="REGION", help='"" for machines without a region')
    quota.add_argument(
        "machines_by_shard", nargs="*", metavar="SHARD=MACHINES", help="shards left out get none"
    )


def _removal(actions: Any) -> None:
    what = (
        "remove a cluster that is gone for good: its demand is deleted, and its machines are "
        "drained and released without asking its operator"
    )
    command = actions.add_parser("remove-cluster", help=what, description=what)
    command.add_argument("cluster", metavar="CLUSTER")
    where = command.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--coordinator",
        type=addresses,
        metavar="HOST:PORT,...",
        help="one or more replicas of the coordinator",
    )
    where.add_argument(
        "--shard",
        type=addresses,
        metavar="HOST:PORT",
        help="the shard, in a fleet without a coordinator",
    )
    command.add_argument("--dry-run", action="store_true", help="only print what would be done")
    command.add_argument(
        "--force",
        action="store_true",
        help="remove even if its operator is connected or was recently",
    )
    identity_flag(command)
    command.set_defaults(build=lambda flags: partial(_remove_cluster, flags))


def _replicas(actions: Any) -> None:
    leave = _action(
        actions, "remove-replica", "remove a replica of the coordinator for good", _change
    )
    leave.add_argument("replica", metavar="ID", help="its peer address if it never started")
    save = _action(actions, "save", "save a snapshot of the coordinator's state", _save)
    save.add_argument("file", type=Path, metavar="FILE")
    actions.add_parser(
        "restore",
        help="restore a snapshot into the state directory of a first replica",
        description="Restores a snapshot into the state directory of one replica, which must not "
        "be running. Then start it, and let others join it with --join. All shards must be stopped "
        "and started with empty state directories; the coordinator assigns their domains again.",
        fill=_restore_flags,
    )


def _restore_flags(restore: argparse.ArgumentParser) -> None:
    from bigfleet.services.coordinator.config import CoordinatorConfig

    restore.add_argument("file", type=Path, metavar="FILE")
    add_config(restore, CoordinatorConfig, {"node_id", "state_directory", "etcd", "peers"})
    identity_flag(restore)
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
        peers=flags.peers or {},
        identity=identity_of(flags, "coordinator", flags.node_id),
    )
    meta = await restore(flags.file, member)
    print(f"restored {meta.rows:,} rows of term {meta.term}; now start replica {flags.node_id}")
