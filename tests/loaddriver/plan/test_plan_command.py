"""`loaddriver plan` prints what a run would send, as text or JSON."""

from __future__ import annotations

from pathlib import Path

import pytest

from loaddriver.__main__ import main
from loaddriver.plan.files import load_plan
from tests.loaddriver.load_rig import planned


def test_the_printed_plan_names_profile_seed_steps_and_archetypes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["plan", "smoke", "--seed", "7", "--set", "ramp.steps=3"]) == 0
    output = capsys.readouterr().out
    assert "smoke, seed 7: 200 pods in 1 cluster" in output
    assert all(f"  {step}" in output for step in ("0 setup", "3 ramp", "4 soak", "memory-cache"))


def test_json_output_is_the_plan_that_a_run_saves(
    capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    """So that plans can be compared without a run."""
    assert main(["plan", "smoke", "--seed", "7", "--output", "json"]) == 0
    (tmp_path / "plan.jsonl").write_bytes(capfdbinary.readouterr().out)
    assert load_plan(tmp_path / "plan.jsonl") == planned("smoke", seed=7)[1]


def test_a_plan_of_millions_is_rejected_with_the_flags_for_one_cluster(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["plan", "50k"]) == 2
    advice = capsys.readouterr().err.split("write ")[1].split()
    assert main(["plan", "50k", *advice]) == 0
    assert "25,000 pods in 1 cluster" in capsys.readouterr().out
