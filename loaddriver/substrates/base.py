"""The substrate interface: what the harness needs of the place where it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from signal import Signals
from typing import Protocol

from bigfleet.api.auth.identity import Principal
from loaddriver.errors import InfrastructureError
from loaddriver.process_counters import Readings


class SubstrateError(InfrastructureError):
    """The infrastructure failed, not the system under test.

    The message names the component, its command and its log.
    """


@dataclass(frozen=True)
class Cluster:
    """A running Kubernetes cluster.

    `kubeconfigs` maps an identity of the harness ("admin", "recorder", ...) to a file;
    `audit_log` is None if the harness cannot read it. `own_namespaces` hold the substrate's own
    objects, which are not part of the load. Without `capacity_requests` it lacks BigFleet's CRDs.
    In `probe_namespace` the recorder may write a pod, to measure how late its watches are. If the
    log is a copy of one elsewhere, `catch_up` brings it, and all else that was copied, up to date.
    """

    name: str
    api_server: str
    kubeconfigs: Mapping[str, Path]
    audit_log: Path | None
    own_namespaces: tuple[str, ...] = ()
    capacity_requests: bool = True
    probe_namespace: str = ""
    catch_up: Callable[[], Awaitable[None]] | None = None


@dataclass(frozen=True)
class Capabilities:
    """Properties of a substrate that matter to a reader of the results.

    `audit_log`: the harness can read the API server's log, for timestamps. `own_scheduler`:
    kube-scheduler binds only the load. `own_clock`: timestamps are from this machine's clock.
    `roles_in_pods`: BigFleet runs in pods, not as processes of this machine. `own_clusters`:
    clusters are the run's own, and end with it. `prepares_clusters`: BigFleet's resources are
    installed before the controllers start, which would notice them only half a minute later.
    """

    audit_log: bool
    own_scheduler: bool
    own_clock: bool
    roles_in_pods: bool
    own_clusters: bool = True
    prepares_clusters: bool = False

    @property
    def unprepared_clusters(self) -> bool:
        """Whether BigFleet's resources can be, and are still to be, installed in started clusters:
        others' clusters get none.
        """
        return self.own_clusters and not self.prepares_clusters

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
    """One role to run as `bigfleet <arguments>`, wherever that is, or as `<program> <arguments>` on
    this machine.

    `cluster` is the one it serves, None if it serves all. In `arguments`, `{name}` is replaced
    by a value as the role sees it:

    - of `ports`: the `<host>:<port>` to listen on; `{role/port}` is the address of another role's
      port, which must have been started before, unless it is in `preallocated_ports`; and
      `{name-number}` is its number alone, for programs that take nothing else;
    - of `inputs`: that file or folder, read-only;
    - of `kubeconfigs`: a folder with `<cluster>.kubeconfig` of that identity for each cluster;
    - of `outputs`: a file to write, which appears under that name among the logs;
    - `{identity}`: a folder with its certificate as `peer_identity`;
    - `{state}`: a private folder that persists across restarts;
    - `{etcd}`: the etcd binary, if roles are processes;
    - `{api-server}`: the URL of its cluster's API server for any machine.

    With an `identity` it may use its cluster's API as that user; `--kubeconfig FILE` is added if
    the substrate provides no credentials; a `program` gets KUBECONFIG instead. With `observe_port`
    it counts as started once `GET /readyz` returns 200 there.
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
    program: Path | None = None


@dataclass(frozen=True)
class Endpoint:
    """A running role; `observe` is its `<host>:<port>` for the harness, if any.

    `addresses` are all its ports for the harness, by name. `readonly_identity` is a folder with
    a read-only identity for inspecting it, if it has an identity itself.
    """

    name: str
    observe: str | None
    log_path: Path
    addresses: Mapping[str, str] = field(default_factory=dict)
    readonly_identity: Path | None = None


@dataclass(frozen=True)
class UnexpectedExit:
    """An undeclared exit.

    `returncode` as in subprocess: negative is a signal's number; None if unknown.
    """

    name: str
    returncode: int | None
    log_path: Path
    last_lines: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """One line for people, e.g. `a/kube-scheduler was killed by SIGKILL; its log: ...`."""
        return f"{self.name} {describe_exit(self.returncode)}; its log: {self.log_path}"


class Substrate(Protocol):
    """Runs clusters and BigFleet roles."""

    @property
    def name(self) -> str: ...

    @property
    def capabilities(self) -> Capabilities: ...

    async def start_clusters(self, names: Sequence[str]) -> list[Cluster]:
        """Start all clusters and wait until each is verified.

        Raises SubstrateError; the caller must call `stop` in any case.
        """
        ...

    async def start_role(self, role: RoleSpec) -> Endpoint:
        """Start one BigFleet role, or start it again after a declared exit."""
        ...

    def pids(self) -> dict[str, int]:
        """The process ids of all running components, by name; empty if they run in pods."""
        ...

    async def process_counters(self, *, only_replaceable: bool = False) -> Readings:
        """CPU and memory of components that are no processes of this machine, by name; None for one
        that does not tell. `only_replaceable`: those whose process a run survives. Never raises.
        """
        ...

    def expect_exit(self, name: str) -> None:
        """Declare that the named component will exit."""
        ...

    async def first_unexpected_exit(self) -> UnexpectedExit:
        """Wait for the first undeclared exit."""
        ...

    async def first_worker_exit(self) -> UnexpectedExit:
        """Wait for the first end of a worker of the load from now on; for ever, if the substrate
        has none.
        """
        ...

    async def stop(self) -> None:
        """Stop everything that was started; idempotent."""
        ...

    def versions(self) -> dict[str, str]:
        """The version of each component, once the clusters have started."""
        ...


def describe_exit(returncode: int | None) -> str:
    """Describe how a process ended, e.g. `ended with exit code 1`."""
    if returncode is None:
        return "is gone"
    if returncode >= 0:
        return f"ended with exit code {returncode}"
    try:
        return f"was killed by {Signals(-returncode).name}"
    except ValueError:
        return f"was killed by signal {-returncode}"


class OnThisMachine:
    """What a substrate has whose components are processes of this machine, or not the run's."""

    async def process_counters(self, *, only_replaceable: bool = False) -> Readings:  # noqa: ARG002
        """None: the run's components can be seen as processes."""
        return {}

    async def first_worker_exit(self) -> UnexpectedExit:
        """Wait for ever: workers of the load are the runner's own processes, or elsewhere."""
        never: asyncio.Future[UnexpectedExit] = asyncio.get_running_loop().create_future()
        return await never
