"""Our images as real containers, on whichever engine answers here."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kind.engine import Engine

ROOT = Path(__file__).parents[2]

_SOCKET_SECONDS = 20.0
# What pods are allowed, too: nothing but a private /tmp.
HARDENED: dict[str, Any] = {
    "read_only": True,
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges"],
}


@contextmanager
def docker_api(engine: Engine, folder: Path) -> Iterator[dict[str, str]]:
    """The variables that lead to an API as Docker's: Docker's own, or one that podman serves here.

    The library's own helper is an image of a registry; what it would remove, tests remove.
    """
    settings = {"TESTCONTAINERS_RYUK_DISABLED": "true"}
    if engine.name == "docker":
        yield settings
        return
    socket = folder / "podman.sock"
    command = [str(engine.path), "system", "service", "--time=0", f"unix://{socket}"]
    with subprocess.Popen(command, env=dict(engine.environment)) as service:
        try:
            _await(socket, service)
            # On this very machine, even where the library thinks that it runs in a container.
            yield settings | {
                "DOCKER_HOST": f"unix://{socket}",
                "TESTCONTAINERS_CONNECTION_MODE": "docker_host",
                "TESTCONTAINERS_HOST_OVERRIDE": "127.0.0.1",
            }
        finally:
            service.terminate()


def open_to_all(folder: Path) -> Path:
    """A new folder that a container's own user may write to."""
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    return folder


def _await(socket: Path, service: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _SOCKET_SECONDS
    while not socket.exists():
        assert service.poll() is None, "podman could not serve its API"
        assert time.monotonic() < deadline, "podman's API did not come up"
        time.sleep(0.05)
