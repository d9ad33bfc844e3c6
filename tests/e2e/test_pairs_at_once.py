"""Both runs of a comparison's pair are played at the same time on real control planes."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from loaddriver.compare.runner import ProcessRunner
from loaddriver.compare.state import SessionSpec, SideSpec
from loaddriver.profile.loading import PROFILES
from loaddriver.report.results import read_summary
from tests.support.scaletest import TINY

pytestmark = pytest.mark.cluster


def test_two_runs_of_a_pair_share_the_machine_and_know_of_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither is refused, and what the other one uses is told apart from what strangers use."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    sides = [SideSpec(label=label, overrides=list(TINY[1::2])) for label in ("base", "head")]
    spec = SessionSpec(
        profile="smoke",
        seed=None,
        least_pairs=2,
        most_pairs=2,
        least_effect=1.1,
        order_seed=1,
        base=sides[0],
        head=sides[1],
        at_once=True,
    )
    folders = [tmp_path / side.label for side in sides]
    for folder in folders:
        folder.mkdir()
    results = ProcessRunner(spec, PROFILES).run(list(zip(sides, folders, strict=True)))
    runs = [read_summary(folder) for folder in results]
    assert all(run.run.at_once and run.pods.bound > 0 for run in runs), [run.why for run in runs]
    assert len({run.run.id for run in runs}) == len(runs)
    for run in runs:
        share = run.self_checks["otherRunCpuShare"].value
        assert share is not None
        assert 0.02 < share < 0.9
    base, head = runs
    assert base.run.started_unix_seconds < head.run.started_unix_seconds
    assert head.run.started_unix_seconds < (
        base.run.started_unix_seconds + base.run.duration_seconds
    ), "the second began while the first was under way"
