"""`bigfleet certs`: creates and renews identities for a test fleet."""

from __future__ import annotations

import argparse
import asyncio
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from bigfleet.model.errors import InvalidInput

_MAX_DAYS = 36_500


def add(roles: Any) -> None:
    """Add the command to the parser's `roles`."""
    role = roles.add_parser(
        "certs",
        help="create or renew identities for a test fleet",
        description="Creates a CA in DIR unless there is one, and an identity for each given ID, "
        "for an admin and for read-only access. IDs given again are renewed; running processes "
        "reload the new files.",
    )
    role.add_argument("--out", type=Path, required=True, metavar="DIR")
    for name in ("cluster", "shard", "coordinator", "provider"):
        role.add_argument(
            f"--{name}", nargs="+", action="extend", default=[], metavar="ID", help=f"{name} IDs"
        )
    role.add_argument(
        "--host",
        nargs="+",
        action="extend",
        default=[],
        metavar="HOST",
        help="names or addresses for which coordinators' certificates are valid as well as for "
        "localhost: etcd verifies those of its peers",
    )
    role.add_argument("--days", type=float, default=30.0, help="validity period (default: 30)")
    role.add_argument(
        "--new-authority",
        action="store_true",
        help="replace the CA; the previous one stays trusted until the next replacement",
    )
    role.set_defaults(build=lambda flags: partial(_run, flags))


async def _run(flags: argparse.Namespace, stop: asyncio.Event) -> None:
    """Issue the identities and list them."""
    del stop
    from bigfleet.api.auth.identity import NAMED_ROLES, UNNAMED_ROLES, Principal
    from bigfleet.api.auth.issuing import issue

    if not 0 < flags.days <= _MAX_DAYS:
        raise InvalidInput("--days", flags.days, f"is not > 0 and at most {_MAX_DAYS:,}")
    names = [Principal(role, own) for role in NAMED_ROLES for own in getattr(flags, role)]
    names += [Principal(role) for role in UNNAMED_ROLES]
    hosts = {name: flags.host for name in names if name.role == "coordinator"}
    made = issue(flags.out, names, timedelta(days=flags.days), flags.new_authority, hosts)
    for name, identity in made.items():
        print(f"{name}\t{identity.directory}")
