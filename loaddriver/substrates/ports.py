"""Reserves free ports until a child process listens on them.

A socket is bound to each port and stays bound, without listening, for the duration of the run.
With SO_REUSEPORT on both sides a child of the same user binds the port as well and receives all
connections, which the kernel passes to listening sockets only. Other processes cannot bind the
port, and the kernel does not choose it as a free port.
"""

from __future__ import annotations

import socket
from types import TracebackType

LOOPBACK = "127.0.0.1"


class HeldPorts:
    """Ports on loopback held until `release`. The listener must itself set SO_REUSEPORT."""

    def __init__(self) -> None:
        self._sockets: dict[str, socket.socket] = {}

    def hold(self, owner: str) -> int:
        """The port held for this owner, chosen at the first call.

        A restarted owner gets the same port.
        """
        if owner not in self._sockets:
            self._sockets[owner] = _bound_socket()
        port: int = self._sockets[owner].getsockname()[1]
        return port

    def release(self) -> None:
        """Release all ports."""
        while self._sockets:
            _, held = self._sockets.popitem()
            held.close()

    def __enter__(self) -> HeldPorts:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def free_port() -> int:
    """A currently free port, for processes that do not set SO_REUSEPORT."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as tried:
        tried.bind((LOOPBACK, 0))
        port: int = tried.getsockname()[1]
    return port


def _bound_socket() -> socket.socket:
    held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    held.bind((LOOPBACK, 0))
    return held
