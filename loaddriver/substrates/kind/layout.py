"""Names, folders and ports of a kind cluster, on this machine, its node and in pods."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from loaddriver.substrates.base import RoleSpec, SubstrateError

ROLE_NAMESPACE = "bigfleet-system"
HARNESS_NAMESPACE = "scaletest-system"
API_SERVER_PORT = 6443
# Every one of them is reached on loopback of this machine; a role takes one per port of its own.
NODE_PORTS = range(30000, 30016)

_ROOT = PurePosixPath("/bigfleet")
# kind makes host names of at most 63 characters from them.
_NAME_CHARACTERS = 48


@dataclass(frozen=True)
class Layout:
    """`data` is the cluster's folder among the run's data, `logs` the folder of all the run's logs.

    The node sees both: its audit log and what roles write are files of this machine from the
    start, so they are whole whatever becomes of the cluster.
    """

    cluster: str
    kind_name: str
    data: Path
    logs: Path

    @property
    def node(self) -> str:
        """The container that is the cluster's only node."""
        return f"{self.kind_name}-control-plane"

    @property
    def credentials(self) -> Path:
        return self.data / "credentials"

    @property
    def config(self) -> Path:
        return self.data / "config"

    @property
    def volumes(self) -> Path:
        return self.data / "volumes"

    @property
    def cluster_logs(self) -> Path:
        return self.logs / self.cluster

    @property
    def audit_log(self) -> Path:
        return self.cluster_logs / "audit.log"

    @property
    def audit_policy(self) -> Path:
        return self.config / "audit-policy.yaml"

    @property
    def scheduler_configuration(self) -> Path:
        return self.config / "scheduler.yaml"

    def mounts(self) -> Iterator[tuple[Path, bool]]:
        """Folders of this machine that the node sees, and whether it may only read them."""
        yield self.credentials, True
        yield self.config, True
        yield self.volumes, False
        yield self.logs, False

    def in_node(self, path: Path) -> Path:
        """Where the node, and whatever mounts the same path from it, sees a file of this machine.

        SubstrateError for one that it does not see.
        """
        for folder, _ in self.mounts():
            if path.is_relative_to(folder):
                return Path(_ROOT / folder.name / path.relative_to(folder))
        raise SubstrateError(
            f"{path} is in no folder that is mounted into the node of {self.cluster}"
        )


def kind_name(cluster: str, run_id: str) -> str:
    """What kind calls a run's cluster; the run's id ends it, so no other run has the same.

    SubstrateError when that is too long for a host name.
    """
    name = f"{cluster}-{re.sub('[^a-z0-9.-]', '-', run_id.lower())}"
    if len(name) > _NAME_CHARACTERS:
        raise SubstrateError(
            f"kind cluster name {name!r} has {len(name)} characters, limit {_NAME_CHARACTERS}; "
            "use a shorter profile or cluster name"
        )
    return name


def object_name(role: RoleSpec) -> str:
    """What the role's objects are called in its cluster."""
    return role.name.rpartition("/")[2]


def service_host(name: str, namespace: str = ROLE_NAMESPACE) -> str:
    """The name under which pods of the same cluster find a Service."""
    return f"{name}.{namespace}.svc.cluster.local"
