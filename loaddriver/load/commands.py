"""How the processes of a load are started: one, or a Locust master and its workers."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from loaddriver.substrates.ports import LOOPBACK, free_port


@dataclass(frozen=True)
class LoadPlace:
    """How many `workers` play a plan, and where.

    At `listen`, HOST:PORT, the master waits for workers of other hosts; if it is empty, workers are
    started beside it, on loopback, and one alone needs no master.
    """

    workers: int = 1
    listen: str = ""

    @property
    def elsewhere(self) -> bool:
        """Whether workers join from other hosts."""
        return bool(self.listen)

    @property
    def distributed(self) -> bool:
        """Whether there are a master and workers."""
        return self.elsewhere or self.workers > 1

    def address(self) -> tuple[str, int]:
        """Where the master listens; a free port on loopback, if nothing is said. Raises ValueError
        if it is not HOST:PORT.
        """
        return host_and_port(self.listen) if self.listen else (LOOPBACK, free_port())


def host_and_port(address: str) -> tuple[str, int]:
    """Split HOST:PORT; an IPv6 host may have brackets. Raises ValueError."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ValueError(f"{address!r} is not HOST:PORT")
    return host.removeprefix("[").removesuffix("]"), int(port)


def locust_command() -> list[str]:
    """One process that plays the whole plan."""
    return [*_locust("locustfile.py"), *_HEADLESS]


def master_command(host: str, port: int, workers: int) -> list[str]:
    """The master of so many workers, which listens at this address."""
    return [
        *(
            *_locust("master_locustfile.py"),
            *_HEADLESS,
            "--master",
            "--expect-workers",
            str(workers),
        ),
        *("--master-bind-host", host, "--master-bind-port", str(port)),
    ]


def worker_command(host: str, port: int) -> list[str]:
    """A worker of the master at this address."""
    address = ("--master-host", host, "--master-port", str(port))
    return [*_locust("worker_locustfile.py"), "--worker", *address]


# Without web page and statistics.
_HEADLESS = ("--headless", "--only-summary")


def _locust(locustfile: str) -> list[str]:
    """Locust without an exit code of its own for requests that fail."""
    return [
        *(
            sys.executable,
            "-m",
            "locust",
            "--locustfile",
            str(Path(__file__).with_name(locustfile)),
        ),
        *("--exit-code-on-error", "0", "--loglevel", "WARNING"),
    ]
