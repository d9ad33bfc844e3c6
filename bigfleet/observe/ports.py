"""Checks that a port is free before a server listens on it.

Servers listen with SO_REUSEPORT, so that a launcher can reserve their ports until they listen. The
kernel would then let two servers share one port, with the connections divided between them.
"""

from __future__ import annotations

import socket

from bigfleet.model.errors import Unavailable

_CONNECT_TIMEOUT_SECONDS = 0.5


def require_free_port(purpose: str, host: str, port: int) -> None:
    """Unavailable if a process already listens on `host` and `port`; port 0 is always free."""
    if port and _answers(host, port):
        text = f"cannot {purpose} on {host}:{port}: another process listens there"
        raise Unavailable(text)


def _answers(host: str, port: int) -> bool:
    try:
        # An empty host and the wildcard addresses reach this machine.
        with socket.create_connection((host.strip("[]"), port), _CONNECT_TIMEOUT_SECONDS) as dialed:
            # Dialing a free ephemeral port may connect to itself.
            return bool(dialed.getsockname() != dialed.getpeername())
    except OSError:
        return False
