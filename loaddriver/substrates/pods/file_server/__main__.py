"""Serves files that grow, such as an audit log, to the runner in another pod.

`python -m loaddriver.substrates.pods.file_server --file NAME=PATH` runs beside whoever writes them.
"""

from __future__ import annotations

import argparse
import hmac
from collections.abc import Mapping, Sequence
from pathlib import Path

from aiohttp import web

_BEARER = "Bearer "


def application(files: Mapping[str, Path], token: str) -> web.Application:
    """GET /NAME answers with the file, or with the asked Range of its bytes.

    404 for a name that is not served and while the file does not exist, 401 without the token,
    416 for a range that begins at or behind the end.
    """

    async def serve(request: web.Request) -> web.StreamResponse:
        given = request.headers.get("Authorization", "")
        if not hmac.compare_digest(given, _BEARER + token):
            raise web.HTTPUnauthorized
        path = files.get(request.match_info["name"])
        if path is None or not path.is_file():
            raise web.HTTPNotFound
        return web.FileResponse(path)

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    made = web.Application()
    made.add_routes([web.get("/healthz", healthz), web.get("/{name}", serve)])
    return made


def _named(text: str) -> tuple[str, Path]:
    name, separator, path = text.partition("=")
    if not (name and separator and path):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=PATH")
    return name, Path(path)


def parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    made = argparse.ArgumentParser(prog="file_server", description="Serve files that grow.")
    made.add_argument("--listen", required=True, metavar="HOST:PORT")
    made.add_argument("--token", type=Path, required=True, metavar="FILE")
    made.add_argument(
        "--file", type=_named, action="append", required=True, metavar="NAME=PATH", dest="files"
    )
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until SIGTERM."""
    flags = parser().parse_args(arguments)
    host, _, port = flags.listen.rpartition(":")
    token = flags.token.read_text().strip()
    web.run_app(application(dict(flags.files), token), host=host, port=int(port), print=None)


if __name__ == "__main__":
    main()
