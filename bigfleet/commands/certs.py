"""`bigfleet certs`: identities for a test fleet, and their renewal."""

from __future__ import annotations

import argparse
import asyncio
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from bigfleet.model.errors import InvalidInput


def add(roles: Any) -> None:
    """Add the command to the parser's `roles`."""
    role = roles.add_parser(
        "certs",
        help="makes or renews identities for a test fleet",
        description="Makes an authority in DIR unless there is one, and an identity for each name "
        "given, for an admin and for looking only. Names given again are renewed; processes that "
        "use them read the new files by themselves.",
    )
    role.add_argument("--out", type=Path, required=True, metavar="DIR")
    for kind in ("cluster", "shard", "coordinator", "provider"):
        role.add_argument(
            f"--{kind}", nargs="+", action="extend", default=[], metavar="ID", help=f"{kind} ids"
        )
    role.add_argument(
        "--days", type=float, default=30.0, help="how long they are valid (default: 30)"
    )
    role.add_argument(
        "--new-authority",
        action="store_true",
        help="replace the authority; the one before stays trusted until the next time",
    )
    role.set_defaults(build=lambda flags: partial(_run, flags))


async def _run(flags: argparse.Namespace, stop: asyncio.Event) -> None:
    """Write and list; there is nothing to stop."""
    del stop
    from bigfleet.api.auth.identity import NAMED_ROLES, UNNAMED_ROLES, Principal
    from bigfleet.api.auth.issuing import issue

    if flags.days <= 0:
        raise InvalidInput("--days", flags.days, "is not positive; nothing would be valid")
    names = [Principal(role, own) for role in NAMED_ROLES for own in getattr(flags, role)]
    names += [Principal(role) for role in UNNAMED_ROLES]
    made = issue(flags.out, names, timedelta(days=flags.days), flags.new_authority)
    for name, identity in made.items():
        print(f"{name}\t{identity.directory}")
