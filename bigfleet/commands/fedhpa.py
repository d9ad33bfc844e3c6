"""`bigfleet fedhpa`: what a federated HPA does, and how a cluster becomes a member."""

from __future__ import annotations

import argparse
import asyncio
from functools import partial
from pathlib import Path
from typing import Any

from bigfleet.commands.flags import kubeconfig_flag


def add(roles: Any) -> None:
    """Add the command to the parser's `roles`."""
    about = roles.add_parser("fedhpa", help="shows federated HPAs, and makes clusters members")
    actions = about.add_subparsers(dest="action", required=True, metavar="ACTION")
    _status(actions.add_parser("status", help="min, max, current and desired in each cluster"))
    _install(actions.add_parser("install", help="makes an API server the federation's own"))
    _join(actions.add_parser("join", help="makes a cluster a member, or one again"))


def _status(action: argparse.ArgumentParser) -> None:
    kubeconfig_flag(action)
    action.add_argument("name", nargs="?", default="", metavar="NAMESPACE[/NAME]")
    action.add_argument("--json", action="store_true", help="all there is, for programs")
    action.set_defaults(build=lambda flags: partial(_show, flags))


def _install(action: argparse.ArgumentParser) -> None:
    kubeconfig_flag(action)
    action.set_defaults(build=lambda flags: partial(_make_host, flags))


def _join(action: argparse.ArgumentParser) -> None:
    kubeconfig_flag(action)
    action.add_argument("name", help="what the federation calls the cluster")
    action.add_argument("--member", type=Path, required=True, metavar="KUBECONFIG")
    action.add_argument(
        "--label", action="append", default=[], metavar="KEY=VALUE", help="may be repeated"
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
