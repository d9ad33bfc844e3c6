"""Flags that several roles and commands share."""

from __future__ import annotations

import argparse
from pathlib import Path

from bigfleet.api.auth.identity import Identity
from bigfleet.model.errors import InvalidInput

_EVERYWHERE = ("", "0.0.0.0", "[::]", "::")


def server_flags(role: argparse.ArgumentParser) -> None:
    """Where it listens, keeps its state, and is observed."""
    role.add_argument("--listen", type=address, required=True, metavar="HOST:PORT")
    role.add_argument("--state", type=Path, required=True, metavar="DIR")
    observe_flag(role)


def observe_flag(role: argparse.ArgumentParser) -> None:
    """Where it is observed."""
    role.add_argument(
        "--observe",
        type=address,
        required=True,
        metavar="HOST:PORT",
        help="serves /healthz, /readyz and /metrics",
    )


def kubeconfig_flag(role: argparse.ArgumentParser) -> None:
    """Which cluster it works in."""
    role.add_argument("--kubeconfig", type=Path, help="default: the cluster this pod runs in")


def addresses(text: str) -> tuple[str, ...]:
    """HOST:PORT,HOST:PORT,...; ArgumentTypeError for anything else."""
    several = tuple(text.split(","))
    for each in several:
        address(each)
    return several


def address(text: str) -> tuple[str, int]:
    """HOST:PORT; ArgumentTypeError for anything else."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT")
    return host, int(port)


def advertise_flag(role: argparse.ArgumentParser, whom: str) -> None:
    """Where `whom` reach it."""
    role.add_argument(
        "--advertise",
        type=_reachable,
        metavar="HOST:PORT",
        help=f"where {whom} reach it (default: where it listens)",
    )


def advertised_of(flags: argparse.Namespace) -> str:
    """What `advertise_flag` was given. InvalidInput where others could not dial what is listened
    on.
    """
    host, port = flags.listen
    if not flags.advertise and host in _EVERYWHERE:
        hint = "is every address of this host; --advertise HOST:PORT says where others reach it"
        raise InvalidInput("--listen", f"{host}:{port}", hint)
    return flags.advertise or ""


def _reachable(text: str) -> str:
    host, port = address(text)
    if host in _EVERYWHERE or port == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT that others could dial")
    return text


def identity_flag(role: argparse.ArgumentParser) -> None:
    """Who it is to its peers: one of the two must be given, so that plaintext is a choice."""
    either = role.add_mutually_exclusive_group(required=True)
    either.add_argument(
        "--identity",
        type=Path,
        metavar="DIR",
        help="holds tls.crt, tls.key and ca.crt, as `bigfleet certs` makes them",
    )
    either.add_argument(
        "--insecure", action="store_true", help="plaintext: no peer is asked who it is"
    )


def identity_of(flags: argparse.Namespace, role: str = "", own: str = "") -> Identity | None:
    """What `identity_flag` was given; None for --insecure.

    InvalidInput unless it can be used and, with a `role`, is that of the `role` called `own`.
    """
    if flags.identity is None:
        return None
    identity = Identity(flags.identity)
    if role:
        identity.load_as(role, own)
    else:
        identity.load()
    return identity


def lease_flags(role: argparse.ArgumentParser) -> None:
    """How replicas agree on which of them works."""
    role.add_argument(
        "--lease",
        type=_lease,
        default=12.0,
        metavar="SECONDS",
        help="how long a replica that died keeps the others from its work (default: 12)",
    )
    role.add_argument(
        "--replica",
        default="",
        metavar="NAME",
        help="another one for each replica (default: the host's name and a random number)",
    )


def _lease(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not 1 to 3600 seconds")
    return seconds
