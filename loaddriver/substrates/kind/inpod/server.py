"""Runs in a pod: answers every request with its first argument."""

import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

BODY = sys.argv[1].encode()


class Answer(BaseHTTPRequestHandler):
    """Always the same body."""

    def do_GET(self) -> None:
        """Whatever the path."""
        self.send_response(200)
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY)


HTTPServer(("", int(sys.argv[2])), Answer).serve_forever()
