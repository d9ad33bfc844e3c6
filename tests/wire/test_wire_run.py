"""A small fleet on the wire, from the command to the verdict: one shard dies, another one joins."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from loaddriver.run.folder import finished_runs

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

SMALL = {
    "clusters": "6",
    "distinctClusters": "3",
    "podsPerCluster": "200",
    "connectSeconds": "2",
    "soakSeconds": "90",
    "bigfleet.rollupSeconds": "1",
    "bigfleet.joiningShards": "{number: 1, atSeconds: 2}",
    # A shard that comes back holds what it releases for 30 s: by then the fleet is even.
    "faults": "[{role: shard-0, atSeconds: 42, downSeconds: 1}]",
}


def command(results: Path, tempdir: Path) -> tuple[Sequence[str], dict[str, str]]:
    """A run with a machine lock of its own: what it measures counts for nothing."""
    tempdir.mkdir()
    chosen = [part for key, value in SMALL.items() for part in ("--set", f"{key}={value}")]
    given = [sys.executable, "-m", "loaddriver", "wire", "fleet-4k", "--results", str(results)]
    return [*given, *chosen], {**os.environ, "TMPDIR": str(tempdir)}


def left_of(run_id: str) -> list[str]:
    """Processes of a run."""
    found = []
    for process in psutil.process_iter(["environ", "cmdline"]):
        if run_id in (process.info["environ"] or {}).values():
            found.append(" ".join(process.info["cmdline"] or ()))
    return found


@pytest.fixture(scope="module")
def summary(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("wire")
    given, environment = command(folder / "results", folder / "tmp")
    ended = subprocess.run(given, env=environment, capture_output=True, text=True, check=False)
    # Another test may keep the machine busy, which voids a run.
    assert ended.returncode in (0, 3, 5), ended.stderr
    [run] = finished_runs(folder / "results")
    assert left_of(run.folder.name) == []
    found: dict[str, Any] = json.loads((run.folder / "summary.json").read_text())
    return found


def test_every_cluster_is_served_and_no_session_is_lost_but_by_the_fault(
    summary: dict[str, Any],
) -> None:
    assert summary["fill"]["seconds"] is not None
    assert summary["fill"]["machinesInService"] > 0
    assert summary["sessions"]["connected"] == 6
    assert summary["sessions"]["rejected"] == 0
    assert summary["sessions"]["answerSeconds"]["count"] > 6 * 15
    assert 0 < summary["sessions"]["ended"] < 60


def test_every_shard_is_timed_cycle_by_cycle(summary: dict[str, Any]) -> None:
    shards = summary["shards"]
    assert shards["cycleSeconds"]["count"] == shards["decisionCpuSeconds"]["count"] > 40
    assert 0 < shards["decisionCpuSeconds"]["p50"] <= shards["decisionCpuSeconds"]["max"] < 10
    assert shards["peakMemoryMebibytes"] > 50
    assert shards["cycleCpuSeconds"] > shards["decisionCpuSeconds"]["p50"]


def test_the_shard_that_died_is_back_and_the_one_that_joined_has_its_part(
    summary: dict[str, Any],
) -> None:
    changes = summary["changes"]
    assert (changes["rolesKilled"], changes["rolesRestarted"], changes["shardsJoined"]) == (1, 1, 1)
    assert 0 < changes["restartSeconds"] < 45
    assert 0 < changes["evenSeconds"] < 90
    assert summary["fleet"]["shards"] == 3


def test_an_interrupted_fleet_leaves_nothing_behind(tmp_path: Path) -> None:
    given, environment = command(tmp_path / "results", tmp_path / "tmp")
    with subprocess.Popen(given, env=environment, stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None
        for line in child.stderr:
            if "machines are owned" in line:
                break
        child.send_signal(signal.SIGINT)
        rest = child.stderr.read()
    assert child.returncode == 130, rest
    assert "cleaned up" in rest
    [folder] = [path for path in (tmp_path / "results").iterdir() if path.is_dir()]
    end = time.monotonic() + 5
    while left_of(folder.name) and time.monotonic() < end:
        time.sleep(0.1)
    assert left_of(folder.name) == []
