"""`loaddriver load-worker`: plays a share of a run's load from this host."""

from __future__ import annotations

import argparse
import os
import platform
from pathlib import Path
from typing import Any

from loaddriver.commands.flags import address
from loaddriver.errors import ExitCode
from loaddriver.load.commands import host_and_port, worker_command
from loaddriver.load.files import KUBECONFIGS_VARIABLE, WORKER_VARIABLE


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
    command = worker_command(*host_and_port(flags.master))
    environment = {
        **os.environ,
        WORKER_VARIABLE: flags.name,
        KUBECONFIGS_VARIABLE: str(flags.kubeconfigs.resolve()),
    }
    os.execve(command[0], command, environment)
