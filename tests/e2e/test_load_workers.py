"""A load from a master and two workers, against a real control plane."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.scaletest import TINY, WITHOUT_BIGFLEET, Scaletest, end_all

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

TWO_WORKERS = ("--set", "load.workers=2")
NAMES = ["worker-1", "worker-2"]


@pytest.fixture(autouse=True)
def no_run_goes_on() -> Iterator[None]:
    """A failing test ends its runs as well."""
    yield
    end_all()


@pytest.mark.alone
def test_two_workers_play_smoke_once_and_each_is_reported(tmp_path: Path) -> None:
    """Every event of the plan has one result, of one of them; CPU and lateness count both."""
    run = Scaletest.sound(tmp_path, "smoke", *TWO_WORKERS)
    assert run.exit_code() == 0, run.output
    summary, plan = run.summary(), (run.folder / "plan.jsonl").read_text().splitlines()
    load, planned = summary["load"], [json.loads(line) for line in plan]
    lines = [json.loads(line) for line in (run.folder / "load.jsonl").read_text().splitlines()]
    results = [line for line in lines if line["type"] == "result"]
    kinds = ("create", "scale", "delete", "churn")
    ids = sorted(line["id"] for line in planned if line["type"] in kinds)
    assert sorted(result["id"] for result in results) == ids
    assert sorted({result["worker"] for result in results}) == sorted(load["workers"]) == NAMES
    workers = load["workers"].values()
    for key in ("requestsPlanned", "requestsSent", "requestsRetried", "requestsFailed"):
        assert sum(worker[key] for worker in workers) == load[key]
    assert max(worker["maxLatenessSeconds"] for worker in workers) == load["maxLatenessSeconds"]
    processes = summary["resources"]["processes"]
    own = [processes[f"locust-{name}"]["cpuSeconds"] for name in NAMES]
    assert all(seconds > 0 for seconds in own)
    harness = summary["resources"]["components"]["harness"]
    assert harness["processes"] == 4
    assert harness["cpuSeconds"] > sum(own)
    assert summary["selfChecks"]["clockOffsetSeconds"]["within"]
    assert "Its workers" in (run.folder / "report.html").read_text()
    assert not run.left_overs()


def test_a_worker_that_is_killed_ends_the_run_with_its_name(tmp_path: Path) -> None:
    """Its share stays unplayed: no other worker has a result of it."""
    tempdir = tmp_path / "tmp"
    tempdir.mkdir()
    more = (*WITHOUT_BIGFLEET, *TWO_WORKERS, "--set", "soak.seconds=30")
    run = Scaletest(tmp_path / "results", "smoke", *TINY, *more, tempdir=tempdir)
    run.await_line("  soak")
    names = {each.environ().get("LOADDRIVER_WORKER"): each for each in run.processes()}
    names["worker-2"].kill()
    assert run.exit_code() == 6, run.output
    assert "locust-worker-2 was killed by SIGKILL" in " ".join(run.summary()["why"])
    lines = [json.loads(line) for line in (run.folder / "load.jsonl").read_text().splitlines()]
    players: dict[str, str] = {}
    for line in lines:
        if line["type"] == "result":
            assert players.setdefault(line["id"], line["worker"]) == line["worker"]
    assert not run.left_overs()
