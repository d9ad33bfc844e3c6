"""`bigfleet audit`: compares what the parts of a fleet say, and names every difference."""

from __future__ import annotations

import argparse
import asyncio
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from bigfleet.commands.config_flags import checked
from bigfleet.commands.flags import addresses, identity_flag, identity_of

_PAUSE_SECONDS = 15.0
_MOST_SECONDS = 3600.0


def add(roles: Any) -> None:
    """Add the command to the parser's `roles`."""
    what = "compare provider, shards, coordinator and clusters, and name every difference"
    role = roles.add_parser(
        "audit",
        help=what,
        description="Reads each part of the fleet and, for as long as anything of what differs "
        "remains, reads all again until the pause is over, and names what still differs: what is "
        "only on its way changes meanwhile. Reads only. Exit code 0 if nothing differs, 1 if "
        "something does or a part did not answer, 2 for invalid flags.",
    )
    way_in = role.add_mutually_exclusive_group(required=True)
    way_in.add_argument(
        "--coordinator",
        type=addresses,
        default=(),
        metavar="HOST:PORT,...",
        help="one or more replicas of the coordinator, which lists shards and providers",
    )
    way_in.add_argument(
        "--shard",
        default="",
        metavar="HOST:PORT",
        help="the shard, in a fleet without a coordinator",
    )
    role.add_argument(
        "--provider",
        action="append",
        default=[],
        metavar="HOST:PORT",
        help="a provider; without it, those that the coordinator lists (repeatable)",
    )
    role.add_argument(
        "--shard-address",
        action="append",
        default=[],
        metavar="SHARD=HOST:PORT",
        help="where to reach a shard from here, if not at the address that it reports (repeatable)",
    )
    role.add_argument(
        "--cluster",
        action="append",
        default=[],
        metavar="CLUSTER=KUBECONFIG",
        help="a cluster whose Nodes and requests are compared, too (repeatable)",
    )
    identity_flag(role)
    role.add_argument(
        "--pause",
        type=checked(_seconds),
        default=_PAUSE_SECONDS,
        metavar="SECONDS",
        help="between the first observation and the last; longer than a roll-up interval and a "
        f"cycle (default: {_PAUSE_SECONDS:g})",
    )
    role.add_argument("--output", choices=("text", "json"), default="text")
    role.set_defaults(build=lambda flags: partial(_run, flags))


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds <= _MOST_SECONDS:
        raise ValueError(f"{text} is not a number of seconds above 0, at most {_MOST_SECONDS:g}")
    return seconds


async def _run(flags: argparse.Namespace, stop: asyncio.Event) -> None:
    """Observe for as long as a difference lasts, and print; BigFleetError if one does."""
    from bigfleet.audit.collect import Sources, observe  # other roles do not need its libraries
    from bigfleet.audit.following import follow
    from bigfleet.commands import audit_text
    from bigfleet.model.errors import BigFleetError

    sources = Sources(
        coordinator=flags.coordinator,
        shard=flags.shard,
        providers=_providers(flags),
        shard_addresses=_pairs("--shard-address", "SHARD=HOST:PORT", flags.shard_address),
        kubeconfigs={
            cluster: Path(path)
            for cluster, path in _pairs("--cluster", "CLUSTER=KUBECONFIG", flags.cluster).items()
        },
        identity=identity_of(flags),
    )

    async def wait(seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await stop.wait()
            raise BigFleetError("interrupted before the last observation; no result")

    seen, findings = await follow(lambda: observe(sources), wait, flags.pause)
    show = audit_text.as_json if flags.output == "json" else audit_text.as_text
    print(show(findings, seen))
    if findings.lasting:
        raise BigFleetError(audit_text.verdict(findings))


def _providers(flags: argparse.Namespace) -> list[str]:
    from bigfleet.model.errors import InvalidInput

    if flags.shard and not flags.provider:
        raise InvalidInput("--provider", "", "is missing: without a coordinator nobody lists it")
    return list(flags.provider)


def _pairs(flag: str, form: str, arguments: list[str]) -> dict[str, str]:
    """Values by name; InvalidInput for an argument that is not NAME=VALUE."""
    from bigfleet.model.errors import InvalidInput

    found: dict[str, str] = {}
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if not (name and equals and value):
            raise InvalidInput(flag, argument, f"is not {form}")
        if name in found:
            raise InvalidInput(flag, argument, f"names {name} twice")
        found[name] = value
    return found
