"""Whether an address has somebody who answers already.

Our servers share ports (SO_REUSEPORT), so that whoever starts them can hold their ports until they
listen. The price: the kernel would let two of them listen, and share their callers out.
"""

from __future__ import annotations

import socket

from bigfleet.model.errors import Unavailable

_CONNECT_TIMEOUT_SECONDS = 0.5


def require_free_port(purpose: str, host: str, port: int) -> None:
    """Unavailable when somebody listens on `host` and `port` already; 0 is a port of one's own."""
    if port and _answers(host, port):
        text = f"cannot {purpose} on {host}:{port}: it is taken; another process answers there"
        raise Unavailable(text)


def _answers(host: str, port: int) -> bool:
    try:
        # An empty host and the unspecified addresses reach this machine.
        with socket.create_connection(
            (host.strip("[]"), port), _CONNECT_TIMEOUT_SECONDS
        ) as dialled:
            # A free port of those that dialling uses can happen to reach itself.
            return bool(dialled.getsockname() != dialled.getpeername())
    except OSError:
        return False
