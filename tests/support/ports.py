"""Ports for servers that tests start."""

from __future__ import annotations

import itertools

from loaddriver.substrates.ports import LOOPBACK, HeldPorts

_held = HeldPorts()
_owners = itertools.count()


def free_port() -> int:
    """A port that nobody else is given while this process lives, however many tests run at once.

    Only a server that listens with SO_REUSEPORT gets it, as all of BigFleet and its etcd do.
    """
    return _held.hold(str(next(_owners)))


def free_address() -> str:
    """Such a port with its host."""
    return f"{LOOPBACK}:{free_port()}"
