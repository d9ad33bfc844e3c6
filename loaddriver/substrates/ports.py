"""Free ports that nobody can take between choosing them and listening on them.

A port is chosen by binding a socket to it, and that socket stays bound, without listening, for
the life of the run. With SO_REUSEPORT on both sides a child of the same user binds the port
again and alone receives the connections: the kernel hands them to listening sockets only. A
process that does not ask for SO_REUSEPORT is refused, and nobody who asks for any free port is
given one that is held.
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
        """Return the port held for this owner, choosing one on the first call.

        A restarted owner thus gets its former port back.
        """
        if owner not in self._sockets:
            self._sockets[owner] = _bound_socket()
        port: int = self._sockets[owner].getsockname()[1]
        return port

    def release(self) -> None:
        """Give all ports back."""
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
    """A port that nobody listens on just now, for who cannot share one that is held."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as tried:
        tried.bind((LOOPBACK, 0))
        port: int = tried.getsockname()[1]
    return port


def _bound_socket() -> socket.socket:
    held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    held.bind((LOOPBACK, 0))
    return held
