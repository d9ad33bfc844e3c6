"""This machine: what it has left for a run, and what a report should say of it."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import psutil

from loaddriver.sizing.estimate import HostCapacity
from loaddriver.substrates.base import Capabilities


def read_host(results: Path) -> HostCapacity:
    """Memory, disk and cores as they are now; disk where the results will lie."""
    there = next(p for p in (results, *results.parents) if p.exists())
    return HostCapacity(
        cores=len(os.sched_getaffinity(0)),
        memory_available_bytes=psutil.virtual_memory().available,
        disk_free_bytes=shutil.disk_usage(there).free,
    )


def describe(host: HostCapacity, place: Capabilities) -> dict[str, str]:
    """For the report: enough to know whether two runs may be compared."""
    return {
        **place.statements(),
        "cores": str(host.cores),
        "memoryAvailable": f"{host.memory_available_bytes / 2**30:.1f} GiB",
        "processor": _processor(),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def python_versions() -> Mapping[str, str]:
    """Versions of the packages that a result depends on."""
    return {name: metadata.version(name) for name in ("bigfleet", "locust", "grpcio", "numpy")}


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
