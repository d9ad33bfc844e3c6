"""This machine: its free capacity, and its description for the report."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import psutil

from loaddriver.run.cgroups import memory_left
from loaddriver.sizing.estimate import HostCapacity
from loaddriver.substrates.base import Capabilities


def read_host(results: Path) -> HostCapacity:
    """Read free memory, within the limits of cgroups, free disk for results, and usable cores."""
    existing = next(p for p in (results, *results.parents) if p.exists())
    available, left = psutil.virtual_memory().available, memory_left()
    return HostCapacity(
        cores=len(os.sched_getaffinity(0)),
        memory_available_bytes=available if left is None else min(available, left),
        disk_free_bytes=shutil.disk_usage(existing).free,
    )


def describe(host: HostCapacity, place: Capabilities) -> dict[str, str]:
    """Describe this machine for the report, to tell whether two runs are comparable."""
    memory = {"memoryAvailable": f"{host.memory_available_bytes / 2**30:.1f} GiB"}
    return {
        **place.statements(),
        "cores": str(host.cores),
        # Of one pod among many it would say nothing.
        **({} if place.roles_in_pods else memory),
        "processor": processor(),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def python_versions() -> Mapping[str, str]:
    """Versions of the packages that a result depends on."""
    return {name: _version(name) for name in ("bigfleet", "locust", "grpcio", "numpy")}


def _version(name: str) -> str:
    """Of an installed package; an image has BigFleet itself as plain files."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def processor() -> str:
    """The name of this machine's processor."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
