"""`loaddriver load-worker`: plays a share of a run's load from this host."""

from __future__ import annotations

import argparse
import os
import platform
import socket
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from loaddriver.commands.flags import address
from loaddriver.errors import ExitCode, LoadTimeoutError
from loaddriver.load.commands import host_and_port, worker_command
from loaddriver.load.files import KUBECONFIGS_VARIABLE, WORKER_VARIABLE

_MASTER_SECONDS = 300.0
_POLL_SECONDS = 1.0


def add(commands: Any) -> None:
    """Register the command."""
    command = commands.add_parser(
        "load-worker", help="play a share of the load of a run on another host (run --load-listen)"
    )
    command.add_argument(
        "--master", required=True, type=address, metavar="HOST:PORT", help="where the run listens"
    )
    command.add_argument(
        "--kubeconfigs",
        type=Path,
        required=True,
        metavar="DIR",
        help="CLUSTER.kubeconfig, or CLUSTER/load-driver.kubeconfig, of each cluster of the run",
    )
    command.add_argument(
        "--name",
        default=f"{platform.node()}-{os.getpid()}",
        help="unique among the workers of the run; default: host name and process id",
    )
    command.set_defaults(do=_play)


def _play(flags: argparse.Namespace) -> ExitCode:
    """Become a Locust worker: it joins, plays its share, and ends with the run."""
    host, port = host_and_port(flags.master)
    await_master(host, port, _MASTER_SECONDS)
    command = worker_command(host, port)
    environment = {
        **os.environ,
        WORKER_VARIABLE: flags.name,
        KUBECONFIGS_VARIABLE: str(flags.kubeconfigs.resolve()),
    }
    os.execve(command[0], command, environment)


def await_master(host: str, port: int, seconds: float) -> None:
    """Wait until somebody listens there. Raises LoadTimeoutError after so many seconds.

    Locust itself would ask for the host's address and connect ten times a second, and its master
    would then find all those attempts waiting.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            with closing(socket.create_connection((host, port), timeout=_POLL_SECONDS)):
                return
        except OSError as error:
            if time.monotonic() > deadline:
                raise LoadTimeoutError(
                    f"nobody listens at {host}:{port} after {seconds:g} s, where the run was to "
                    f"wait for its workers: {error}"
                ) from error
        time.sleep(_POLL_SECONDS)
