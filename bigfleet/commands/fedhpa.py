"""`bigfleet fedhpa`: runs the federation, shows federated HPAs, and adds member clusters."""

from __future__ import annotations

import argparse
import asyncio
from functools import partial
from pathlib import Path
from typing import Any

from bigfleet.commands.flags import kubeconfig_flag
from bigfleet.commands.roles import FEDHPA_RUN, add_role


def add(roles: Any) -> None:
    """Add the command to the parser's `roles`."""
    about = roles.add_parser(
        "fedhpa", help="run federated HPAs, show them, and add member clusters"
    )
    actions = about.add_subparsers(dest="action", required=True, metavar="ACTION")
    add_role(actions, FEDHPA_RUN)
    _status(actions.add_parser("status", help="show min, max, current and desired per cluster"))
    _install(actions.add_parser("install", help="install CRDs and RBAC into the host cluster"))
    _join(actions.add_parser("join", help="add a member cluster or renew its kubeconfig"))


def _status(action: argparse.ArgumentParser) -> None:
    kubeconfig_flag(action)
    action.add_argument("name", nargs="?", default="", metavar="NAMESPACE[/NAME]")
    action.add_argument("--json", action="store_true", help="the complete objects as JSON")
    action.set_defaults(build=lambda flags: partial(_show, flags))


def _install(action: argparse.ArgumentParser) -> None:
    kubeconfig_flag(action)
    action.set_defaults(build=lambda flags: partial(_make_host, flags))


def _join(action: argparse.ArgumentParser) -> None:
    kubeconfig_flag(action)
    action.add_argument("name", help="name of the member cluster")
    action.add_argument("--member", type=Path, required=True, metavar="KUBECONFIG")
    action.add_argument(
        "--label",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a label of the member; repeatable",
    )
    action.set_defaults(build=lambda flags: partial(_make_member, flags))


async def _show(flags: argparse.Namespace, stop: asyncio.Event) -> None:
    del stop
    from bigfleet.commands import fedhpa_status

    print(await fedhpa_status.status(flags.kubeconfig, flags.name, flags.json))


async def _make_host(flags: argparse.Namespace, stop: asyncio.Event) -> None:
    del stop
    from bigfleet.commands import fedhpa_status

    print(await fedhpa_status.make_host(flags.kubeconfig))


async def _make_member(flags: argparse.Namespace, stop: asyncio.Event) -> None:
    del stop
    from bigfleet.commands import fedhpa_join

    print(await fedhpa_join.join(flags.kubeconfig, flags.name, flags.member, flags.label))
