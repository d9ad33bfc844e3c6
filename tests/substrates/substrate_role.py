"""The least that a role must do: share its port, and say on /readyz when it is up."""

from __future__ import annotations

import socket
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

NOT_YET, UP = 503, 200


class SharingServer(HTTPServer):
    """Binds a port that its starter holds."""

    def server_bind(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        super().server_bind()


class Readiness(BaseHTTPRequestHandler):
    """Refuses once, then agrees."""

    answers = iter((NOT_YET, UP))

    def do_GET(self) -> None:
        print("asked", self.path, flush=True)
        self.send_response(next(self.answers))
        self.end_headers()


if __name__ == "__main__":
    host, port = sys.argv[1].split(":")
    SharingServer((host, int(port)), Readiness).serve_forever()
