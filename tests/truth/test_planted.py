"""A BigFleet, a provider or a kube-scheduler that got slower or costlier fails a gate by name.

Each defect is planted into a run of a profile as it ships, on real control planes. Before them, the
profile passes without one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from loaddriver.errors import ExitCode
from tests.support.scaletest import ROOT
from tests.truth.changed_roles import changed_python
from tests.truth.truth_rig import Truth

pytestmark = [pytest.mark.truth, pytest.mark.timeout(900)]


@dataclass(frozen=True)
class Plant:
    """A defect of BigFleet's roles, or arguments of the run that make another part slower, and a
    gate that must notice, by its metric.
    """

    gate: str
    profile: str = "smoke"
    defects: Mapping[str, float] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()


DURATIONS, USED = "components.durations", "resources.components"
PLANTS = {
    "decisions cost twice the CPU": Plant(
        f"{DURATIONS}.shardDecisionCpu.meanSeconds",
        profile="dev-50",
        defects={"repeated-decisions": 1},
    ),
    "the pod controller is a second late": Plant("hopsSeconds.seen.mean", defects={"late-pods": 1}),
    "the roll-up is two seconds late": Plant(
        "hopsSeconds.rolledUp.mean", defects={"late-requests": 2}
    ),
    "the shard computes without end": Plant(
        f"{USED}.shard.cpuSecondsPerPod", defects={"computing": 1}
    ),
    "configuring takes half as long again": Plant(
        f"{DURATIONS}.shardConfigurePhase.meanSeconds",
        profile="dev-50",
        arguments=("--set", "fleet.latency.configureSeconds={median: 1.5, p99: 4.5}"),
    ),
    "the operator loses memory": Plant(
        f"{USED}.operator.peakMemoryBytes", profile="dev-50", defects={"leak": 1}
    ),
    "acknowledgements are written twice": Plant(
        "resources.writes.patch-capacityrequests-status.perPod",
        profile="cr-50",
        defects={"repeated-acknowledgements": 1},
    ),
}


class Shipped(Truth):
    """A run of a profile as it ships."""

    profiles = ROOT / "profiles"


@pytest.mark.parametrize("profile", ["smoke", "dev-50", "cr-50"])
def test_without_a_defect_the_profile_passes(profile: str, tmp_path: Path) -> None:
    run = Shipped(tmp_path, profile=profile).finished()
    assert run.code == ExitCode.PASS, run.output


@pytest.mark.parametrize("plant", PLANTS.values(), ids=PLANTS)
def test_a_planted_defect_fails_the_gate_of_its_component(plant: Plant, tmp_path: Path) -> None:
    """Not as an invalid measurement: it is the system's, and the sentence names the component."""
    assert_noticed(plant, tmp_path)


def test_a_kube_scheduler_with_a_slow_client_fails_the_gate_of_its_component(
    tmp_path: Path,
) -> None:
    """Held to 8 requests a second."""
    configuration = tmp_path / "scheduler.yaml"
    connection = {"qps": 8, "burst": 8}
    configuration.write_text(
        yaml.safe_dump({"kind": "KubeSchedulerConfiguration", "clientConnection": connection})
    )
    slow = ("--scheduler-config", str(configuration))
    assert_noticed(Plant("hopsSeconds.scheduled.mean", arguments=slow), tmp_path)


def assert_noticed(plant: Plant, folder: Path) -> None:
    """The run fails, and one of its sentences is the gate's, whose name is the component's."""
    python = changed_python(folder / "python", plant.defects) if plant.defects else None
    run = Shipped(folder / "results", *plant.arguments, profile=plant.profile, python=python)
    run.finished()
    assert run.code == ExitCode.GATE_MISSED, run.output
    [noticed] = [gate for gate in run.whole.gates if gate.metric == plant.gate]
    assert noticed.sentence in run.whole.why
