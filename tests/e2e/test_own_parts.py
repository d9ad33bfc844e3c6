"""The guide on parts of one's own does what it says; its runs are in test_exchanged_parts.py."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from controlplane.request import Binaries
from loaddriver.errors import ProfileError
from loaddriver.profile.loading import load_profile
from loaddriver.run.system import component_at, with_components
from tests.support.guides import GUIDES
from tests.support.scaletest import ROOT

GUIDE = "own-parts.md"


def test_the_guides_workload_is_planned_with_its_constraints(tmp_path: Path) -> None:
    """Its commands are run as they are, but in a folder of the test's own."""
    text = (GUIDES / GUIDE).read_text()
    [block] = [b for b in re.findall(r"(?:^    .*\n)+", text, re.M) if "mkdir -p build/mine" in b]
    mine = tmp_path / "mine"
    script = block.replace("build/mine", str(mine))
    script = script.replace(".venv/bin/loaddriver", f"{sys.executable} -m loaddriver")
    done = subprocess.run(
        ["bash", "-euc", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "60 pods" in done.stdout
    assert "checkout" in done.stdout
    profile = load_profile("checkout", mine, ["weights={checkout: 1}", "podsPerCluster=60"])
    [pod] = [each for each in profile.catalog.archetypes if each.name == "checkout"]
    assert (pod.zones, pod.anti_affinity) == (("zone-a", "zone-b"), "hostname")


def test_a_component_that_does_not_exist_is_refused_with_those_that_do(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="expected NAME=PATH of kube-apiserver"):
        component_at(f"scheduler={tmp_path}")
    with pytest.raises(ProfileError, match="is no program"):
        component_at(f"etcd={tmp_path}")


def test_only_the_named_component_is_exchanged(tmp_path: Path, binaries: Binaries) -> None:
    own = tmp_path / "etcd"
    shutil.copy(binaries.etcd, own)
    found = with_components(binaries, {"etcd": own})
    assert found.etcd == own
    assert found.origin["etcd"] == f"given: {own}"
    assert found.kube_scheduler == binaries.kube_scheduler
