"""podman's configuration for privileged containers on this host."""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass
from pathlib import Path

_CAP_SYS_RESOURCE = 24


@dataclass(frozen=True)
class HostFacts:
    """The facts it depends on. Limits are the highest that this process may pass on."""

    root: bool
    unified_cgroups: bool
    may_raise_limits: bool
    open_files: int
    processes: int

    @classmethod
    def read(cls, root: Path = Path("/")) -> HostFacts:
        """Read the facts of this host and process."""
        status = (root / "proc/self/status").read_text(encoding="ascii", errors="replace")
        # podman lowers its own limit to the largest process id.
        largest_id = int((root / "proc/sys/kernel/pid_max").read_text(encoding="ascii"))
        processes = resource.getrlimit(resource.RLIMIT_NPROC)[1]
        unlimited = processes == resource.RLIM_INFINITY
        return cls(
            root=os.geteuid() == 0,
            unified_cgroups=(root / "sys/fs/cgroup/cgroup.controllers").exists(),
            may_raise_limits=_bounding_set(status) >> _CAP_SYS_RESOURCE & 1 == 1,
            open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[1],
            processes=largest_id if unlimited else min(processes, largest_id),
        )


def _bounding_set(status: str) -> int:
    line = next((line for line in status.splitlines() if line.startswith("CapBnd:")), "CapBnd: 0")
    return int(line.split()[1], 16)


def containers_conf(facts: HostFacts) -> str | None:
    """The text of a containers.conf, or None for rootless podman, which has its own limits.

    podman allows 2,048 threads in a container, and a node has more than that as soon as it runs
    some control planes. crun rejects hosts with both cgroup versions mounted, and podman sets
    limits that require CAP_SYS_RESOURCE.
    """
    if not facts.root:
        return None
    text = "[containers]\npids_limit = 0\n"
    if not facts.may_raise_limits:
        limits = {"nofile": facts.open_files, "nproc": facts.processes}
        stated = ", ".join(f'"{name}={value}:{value}"' for name, value in limits.items())
        text += f"default_ulimits = [{stated}]\n"
    if not facts.unified_cgroups:
        text += '\n[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\n'
    return text
