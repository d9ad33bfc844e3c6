"""What a harness needs of the place where it runs, whichever place that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from signal import Signals
from typing import Protocol

from bigfleet.api.auth.identity import Principal
from loaddriver.errors import InfrastructureError


class SubstrateError(InfrastructureError):
    """A part that the run stands on failed, not the system under test.

    The message names the component, its command and its log.
    """


@dataclass(frozen=True)
class Cluster:
    """One Kubernetes cluster that answers.

    `kubeconfigs` maps an identity of the harness ("admin", "recorder", ...) to a file;
    `audit_log` is None where the API server is not ours. `own_namespaces` hold what the place
    itself runs in the cluster, which is no part of the load.
    """

    name: str
    api_server: str
    kubeconfigs: Mapping[str, Path]
    audit_log: Path | None
    own_namespaces: tuple[str, ...] = ()


@dataclass(frozen=True)
class Capabilities:
    """What a reader of a result must know of the place where it was measured.

    `audit_log`: the API server's log is ours to read, as the clock. `own_scheduler`:
    kube-scheduler binds nothing but the load. `own_clock`: stamps are taken by this machine's
    clock. `roles_in_pods`: BigFleet runs in pods, not as processes of this machine.
    """

    audit_log: bool
    own_scheduler: bool
    own_clock: bool
    roles_in_pods: bool

    def statements(self) -> dict[str, str]:
        """One phrase per capability, for the report."""
        return {
            "timestamps": "API server's audit log" if self.audit_log else "watch receipts",
            "clock": "this machine's" if self.own_clock else "another machine's",
            "scheduler": "binds the load only" if self.own_scheduler else "binds other pods too",
            "bigfleetRoles": "pods" if self.roles_in_pods else "processes",
        }


@dataclass(frozen=True)
class RoleSpec:
    """One BigFleet role to run as `bigfleet <arguments>`, wherever that is.

    `cluster` is the one it serves, None for those that serve all. In `arguments`, `{name}`
    becomes what the role sees under that name:

    - of `ports`: the `<host>:<port>` to listen on; `{role/port}` is where it reaches another
      role's port, which must have been started before, unless `preallocated_ports` names it;
    - of `inputs`: that file or folder, to read;
    - of `kubeconfigs`: a folder with `<cluster>.kubeconfig` of that identity for each cluster;
    - of `outputs`: a file to write, which the harness finds as that name among its logs;
    - `{identity}`: a folder with the certificate by which its peers know it as `peer_identity`;
    - `{state}`: a private folder that outlives restarts;
    - `{etcd}`: the etcd binary, where roles are processes;
    - `{api-server}`: the URL at which any machine reaches its cluster's API server.

    With an `identity` it may use its cluster's API as that user; where the place does not see to
    that, `--kubeconfig FILE` is added. With `observe_port` it counts as started only once
    `GET /readyz` answers 200 there.
    """

    name: str
    arguments: Sequence[str]
    ports: Sequence[str] = ()
    observe_port: str | None = None
    cluster: str | None = None
    identity: str | None = None
    inputs: Mapping[str, Path] = field(default_factory=dict)
    kubeconfigs: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    peer_identity: Principal | None = None
    preallocated_ports: Sequence[str] = ()


@dataclass(frozen=True)
class Endpoint:
    """A running role; `observe` is the `<host>:<port>` where the harness reaches it, if any.

    `addresses` are all its ports as reached from here, by name. `readonly_identity` is a folder
    with the identity by which people may look into it, where it has one itself.
    """

    name: str
    observe: str | None
    log_path: Path
    addresses: Mapping[str, str] = field(default_factory=dict)
    readonly_identity: Path | None = None


@dataclass(frozen=True)
class UnexpectedExit:
    """An exit that nobody declared.

    `returncode` as in subprocess: negative is the signal's number; None where nobody could tell.
    `bundle` is a folder with all that was found at the scene.
    """

    name: str
    returncode: int | None
    log_path: Path
    last_lines: tuple[str, ...]
    bundle: Path | None = None

    @property
    def sentence(self) -> str:
        """One line for people, e.g. `a/kube-scheduler was killed by SIGKILL; its log: ...`."""
        found = f"; diagnostics: {self.bundle}" if self.bundle else ""
        return f"{self.name} {describe_exit(self.returncode)}; its log: {self.log_path}{found}"


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

    async def first_unexpected_exit(self) -> UnexpectedExit:
        """Wait for the first exit that was not declared."""
        ...

    async def stop(self) -> None:
        """End everything that was started; harmless when called twice."""
        ...

    def versions(self) -> dict[str, str]:
        """Version of each component, known once the clusters have started."""
        ...


def describe_exit(returncode: int | None) -> str:
    """Say how a process ended, e.g. `ended with exit code 1`."""
    if returncode is None:
        return "is gone"
    if returncode >= 0:
        return f"ended with exit code {returncode}"
    try:
        return f"was killed by {Signals(-returncode).name}"
    except ValueError:
        return f"was killed by signal {-returncode}"
