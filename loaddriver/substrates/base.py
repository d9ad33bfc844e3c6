"""What a harness needs of the place where it runs, whichever place that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from signal import Signals
from typing import Protocol

from loaddriver.errors import InfrastructureError


class SubstrateError(InfrastructureError):
    """A part that the run stands on failed, not the system under test.

    The message names the component, its command and its log.
    """


@dataclass(frozen=True)
class Cluster:
    """One Kubernetes cluster that answers.

    `kubeconfigs` maps a role ("admin", "recorder", "bigfleet-operator", ...) to a file;
    `audit_log` is None where the API server is not ours.
    """

    name: str
    api_server: str
    kubeconfigs: Mapping[str, Path]
    audit_log: Path | None


@dataclass(frozen=True)
class Capabilities:
    """What can be measured here: an audit log as clock, a scheduler set up by us."""

    audit_log: bool
    own_scheduler: bool


@dataclass(frozen=True)
class RoleSpec:
    """One BigFleet role to run as `python -m bigfleet <arguments>`.

    `ports` names the ports that the role listens on; in `arguments` every `{name}` of these
    becomes `<host>:<port>`. With `observe_port` the role counts as started only once
    `GET http://<that address>/readyz` answers 200.
    """

    name: str
    arguments: Sequence[str]
    ports: Sequence[str] = ()
    observe_port: str | None = None


@dataclass(frozen=True)
class Endpoint:
    """A running role: `addresses` maps each port name to `<host>:<port>`."""

    name: str
    addresses: Mapping[str, str]
    pid: int
    log_path: Path


@dataclass(frozen=True)
class Death:
    """An exit that nobody declared.

    `returncode` as in subprocess: negative is the signal's number.
    """

    name: str
    returncode: int
    log_path: Path
    last_lines: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """One line for people, e.g. `a/kube-scheduler was killed by SIGKILL; its log: ...`."""
        return f"{self.name} {describe_exit(self.returncode)}; its log: {self.log_path}"


class Substrate(Protocol):
    """A place that runs clusters and BigFleet roles."""

    @property
    def name(self) -> str: ...

    @property
    def capabilities(self) -> Capabilities: ...

    async def start_clusters(self, names: Sequence[str]) -> list[Cluster]:
        """Start all clusters and return once each has proved that it works.

        Raises SubstrateError; the caller calls `stop` in every case.
        """
        ...

    async def start_role(self, role: RoleSpec) -> Endpoint:
        """Start one BigFleet role, or start it again after a declared exit."""
        ...

    def expect_exit(self, name: str) -> None:
        """Declare that the named component will end, so that it is no death."""
        ...

    async def first_death(self) -> Death:
        """Wait for the first exit that was not declared."""
        ...

    async def stop(self) -> None:
        """End everything that was started; harmless when called twice."""
        ...

    def versions(self) -> dict[str, str]:
        """Version of each component, known once the clusters have started."""
        ...


def describe_exit(returncode: int) -> str:
    """Say how a process ended, e.g. `ended with exit code 1`."""
    if returncode >= 0:
        return f"ended with exit code {returncode}"
    try:
        return f"was killed by {Signals(-returncode).name}"
    except ValueError:
        return f"was killed by signal {-returncode}"
