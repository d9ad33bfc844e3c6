"""`bigfleet why`: explains the state of a need, a machine, a pod or ceilings."""

from __future__ import annotations

import argparse
import asyncio
from functools import partial
from pathlib import Path
from typing import Any

from bigfleet.commands.flags import identity_flag, identity_of


def add(roles: Any) -> None:
    """Add the command to the parser's `roles`."""
    role = roles.add_parser("why", help="explain the state of a need, a machine or a pod")
    role.add_argument("--shard", required=True, metavar="HOST:PORT")
    identity_flag(role)
    about = role.add_mutually_exclusive_group(required=True)
    about.add_argument(
        "--need",
        metavar="CLUSTER[/PROFILE[/GROUP]]",
        help="PROFILE is a fingerprint or a prefix of it; without it, all needs of the cluster",
    )
    about.add_argument("--machine", metavar="ID")
    about.add_argument(
        "--ceilings",
        action="store_true",
        help="what ceilings withhold from clusters; with --cluster, all about that cluster's",
    )
    about.add_argument("--pod", metavar="NAMESPACE/NAME", help="needs --kubeconfig outside a pod")
    role.add_argument("--kubeconfig", type=Path, help="kubeconfig of the pod's cluster")
    role.add_argument(
        "--cluster", default="", help="the pod's cluster, if several have such a need"
    )
    role.add_argument("--json", action="store_true", help="the complete response as JSON")
    role.set_defaults(build=lambda flags: partial(_run, flags))


async def _run(flags: argparse.Namespace, stop: asyncio.Event) -> None:
    """Query and print."""
    del stop
    from bigfleet.commands import shard_queries  # other roles do not need its libraries

    if flags.machine:
        query = shard_queries.machine_query(flags.machine)
    elif flags.ceilings:
        query = shard_queries.ceilings_query(flags.cluster)
    elif flags.need:
        query = shard_queries.need_query(flags.need)
    else:
        query = shard_queries.pod_query(flags.pod, flags.kubeconfig, flags.cluster)
    answer = await shard_queries.ask(flags.shard, query, identity_of(flags))
    print(answer.as_json() if flags.json else answer.as_text())
