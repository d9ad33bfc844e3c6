"""Tools for tests that start, look for and end processes of a run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from controlplane.request import Binaries
from loaddriver.substrates.components import ControlPlaneConfig
from loaddriver.substrates.reaper.cleanup import RUN_VARIABLE

ROOT = Path(__file__).parents[2]
# Only a failing test waits this long: machines that run tests may be slow.
PATIENCE_SECONDS = 60.0
# The heap of an API server grows while it starts, and hardly afterwards in a test: at Go's usual
# pace a quarter of the CPU time of a start goes into collecting it.
FEW_OBJECTS = ControlPlaneConfig(gc_percent=800)
SLEEPER = (sys.executable, "-S", "-c", "import time; print('up', flush=True); time.sleep(600)")


def binaries_at(paths: Mapping[str, Path], versions: Mapping[str, str]) -> Binaries:
    """The five binaries by component name."""
    return Binaries(
        kube_apiserver=paths["kube-apiserver"],
        kube_controller_manager=paths["kube-controller-manager"],
        kube_scheduler=paths["kube-scheduler"],
        etcd=paths["etcd"],
        kwok=paths["kwok"],
        versions=dict(versions),
        origin={},
    )


def log_lines(path: Path) -> list[str]:
    """The lines of a log, without the command line that it starts with."""
    return path.read_text().splitlines()[1:]


def marked_processes(run_id: str) -> list[int]:
    """Processes alive that carry the run's marker, found without the code under test."""
    marker = f"{RUN_VARIABLE}={run_id}".encode()
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and _has(entry, marker)]


def _has(entry: str, marker: bytes) -> bool:
    try:
        return marker in Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def script(path: Path, body: str) -> Path:
    """An executable that stands for a broken binary."""
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def start_runner(run_id: str, directory: Path, binaries: Binaries) -> subprocess.Popen[str]:
    """A run in a process of its own; it says `data <path>`, then `ready`."""
    runner = Path(__file__).with_name("substrate_runner.py")
    paths = json.dumps({name: str(path) for name, path in binaries.paths.items()})
    return subprocess.Popen(
        [sys.executable, str(runner), run_id, str(directory), paths],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
    )
