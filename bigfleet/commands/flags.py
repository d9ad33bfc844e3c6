"""Flags that several roles and commands share."""

from __future__ import annotations

import argparse
from pathlib import Path

from bigfleet.api.auth.identity import Identity
from bigfleet.commands.config_flags import checked
from bigfleet.flags import parse_address, parse_addresses

address = checked(parse_address)
addresses = checked(parse_addresses)


def kubeconfig_flag(role: argparse.ArgumentParser) -> None:
    """Which cluster it works in."""
    role.add_argument(
        "--kubeconfig", type=Path, help="kubeconfig (default: the cluster this pod runs in)"
    )


def identity_flag(role: argparse.ArgumentParser) -> None:
    """Mutual TLS or plaintext; one must be chosen explicitly."""
    either = role.add_mutually_exclusive_group(required=True)
    either.add_argument(
        "--identity",
        type=Path,
        metavar="DIR",
        help="directory with tls.crt, tls.key and ca.crt, as `bigfleet certs` writes them",
    )
    either.add_argument("--insecure", action="store_true", help="plaintext, without authentication")


def identity_of(flags: argparse.Namespace, role: str = "", name: str = "") -> Identity | None:
    """The identity that `identity_flag` read; None for --insecure.

    InvalidInput unless it can be used and, with a `role`, is that of the `role` called `name`.
    """
    if flags.identity is None:
        return None
    identity = Identity(flags.identity)
    if role:
        identity.load_as(role, name)
    else:
        identity.load()
    return identity
