"""A profile's plan with Karpenter as the source of Nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from controlplane.pins import KARPENTER
from controlplane.request import Binaries
from tests.support.scaletest import Scaletest

pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.timeout(1800)]

OVERRIDES = (
    "system=karpenter",
    "clusters=1",
    "podsPerCluster=120",
    "ramp.steps=2",
    "ramp.stepSeconds=10",
    "soak.seconds=5",
    "demandSteps=[]",
    "bursts=[]",
)


def test_karpenters_nodes_serve_the_plan_and_are_priced(tmp_path: Path, binaries: Binaries) -> None:
    """Every pod is bound, its Nodes cost what the fleet's machines cost, and the bare run of the
    same plan has the same Nodes.
    """
    if binaries.karpenter is None:
        pytest.skip(f"no {KARPENTER}: run `python -m controlplane get --also {KARPENTER}`")
    settings = [part for override in OVERRIDES for part in ("--set", override)]
    run = Scaletest.sound(tmp_path, "mixed-50", *settings, "--bare")
    found, bare = run.summary(), run.bare_summary()
    assert found["run"]["system"] == "karpenter"
    assert found["run"]["versions"]["karpenter"] == "1.14.1"
    pods = found["pods"]
    assert pods["bound"] == pods["created"] - pods["withdrawn"] >= 120
    assert found["nodes"]["readyMax"] > 0
    assert found["cost"]["rampEnd"]["dollarsPerHour"] > 0
    assert found["cost"]["rampEnd"]["dollarsRatio"] >= 1.0
    assert bare["run"]["system"] == ""
    assert bare["pods"]["bound"] == bare["pods"]["created"] - bare["pods"]["withdrawn"]
    assert not run.left_overs()
