"""`bigfleet fedhpa run`: its flags, and what they mean."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from bigfleet.commands.flags import kubeconfig_flag, lease_flags, observe_flag

Role = Callable[[asyncio.Event], Coroutine[Any, Any, None]]


def add(roles: Any) -> None:
    """Add the role to the parser's `roles`."""
    role = roles.add_parser("federation", help="one HPA and one workload over many clusters")
    observe_flag(role)
    kubeconfig_flag(role)
    lease_flags(role)
    role.add_argument(
        "--debounce",
        type=float,
        default=1.0,
        metavar="SECONDS",
        help="changes within this time are looked at once (default: 1)",
    )
    role.set_defaults(build=_federation)


def _federation(flags: argparse.Namespace) -> Role:
    from bigfleet.fedhpa import role as federation

    observe_host, observe_port = flags.observe
    settings = federation.FedHpaConfig(
        kubeconfig=flags.kubeconfig,
        observe_host=observe_host,
        observe_port=observe_port,
        debounce_seconds=flags.debounce,
        lease_seconds=flags.lease,
        replica=flags.replica,
    )
    return lambda stop: federation.run(settings, stop)
