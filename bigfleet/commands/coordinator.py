"""`bigfleet coordinator`: its flags, and what they mean."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

from bigfleet.commands.flags import (
    address,
    addresses,
    advertise_flag,
    advertised_of,
    identity_flag,
    identity_of,
    server_flags,
)

Role = Callable[[asyncio.Event], Coroutine[Any, Any, None]]


def add(roles: Any) -> None:
    """Add the role to the parser's `roles`."""
    role = roles.add_parser("coordinator", help="keeps the shards of a fleet apart")
    server_flags(role)
    identity_flag(role)
    replica_flags(role)
    advertise_flag(role, "shards and people")
    role.add_argument(
        "--join",
        type=addresses,
        default=(),
        metavar="HOST:PORT,...",
        help="coordinators that let this replica in, if it was not there from the beginning",
    )
    role.add_argument(
        "--expected-shards",
        type=int,
        default=1,
        metavar="N",
        help="give no domain away before so many shards have registered",
    )
    role.set_defaults(build=_coordinator)


def replica_flags(role: argparse.ArgumentParser) -> None:
    """Which replica it is, and its etcd."""
    role.add_argument("--node-id", required=True, metavar="ID")
    role.add_argument("--etcd", type=Path, required=True, metavar="PATH", help="the etcd binary")
    role.add_argument(
        "--peers",
        type=_peers,
        default={},
        metavar="ID=HOST:PORT,...",
        help="where the etcd members of all replicas reach each other, this one's among them; "
        "without it the replica is the only one for ever",
    )


def _coordinator(flags: argparse.Namespace) -> Role:
    from bigfleet.services.coordinator import role
    from bigfleet.services.coordinator.config import CoordinatorConfig

    (listen_host, listen_port), (observe_host, observe_port) = flags.listen, flags.observe
    settings = CoordinatorConfig(
        node_id=flags.node_id,
        listen_host=listen_host,
        listen_port=listen_port,
        observe_host=observe_host,
        observe_port=observe_port,
        state_directory=flags.state,
        etcd=flags.etcd,
        peers=flags.peers,
        advertised=advertised_of(flags),
        join=flags.join,
        expected_shards=flags.expected_shards,
        identity=identity_of(flags, "coordinator", flags.node_id),
    )
    return lambda stop: role.run(settings, stop)


def _peers(text: str) -> Mapping[str, str]:
    peers: dict[str, str] = {}
    for part in text.split(","):
        name, equals, where = part.partition("=")
        if not (name and equals) or name in peers:
            raise argparse.ArgumentTypeError(f"{part!r} is not ID=HOST:PORT with an ID of its own")
        address(where)
        peers[name] = where
    return peers
