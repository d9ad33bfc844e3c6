"""A load that could not be sent in time is a finding of the run, not its end."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from loaddriver.errors import LoadTimeoutError
from loaddriver.load.files import StepReleased
from loaddriver.load.process import LoadProcess
from loaddriver.load.progress import LoadProgress
from loaddriver.plan.make import make_plan
from loaddriver.record.live_counts import LiveCounts
from loaddriver.run import load_phases
from loaddriver.run.load_phases import LoadPhases
from loaddriver.run.load_section import unplayed_reasons
from loaddriver.run.recorders import ClusterRecorders
from tests.record.record_rig import result
from tests.run.run_rig import smoke


class SlowLoad(LoadProcess):
    """Never finishes sending the soak."""

    def release(self, release: StepReleased) -> None:
        pass

    def step_finished(self, step: int) -> bool:  # noqa: ARG002
        return True

    async def wait_for_step(self, step: int, deadline_seconds: float) -> None:
        if step:
            raise LoadTimeoutError(f"timed out after {deadline_seconds:g} s")


class OneCluster(ClusterRecorders):
    """Recorders of a cluster in which nothing happens."""

    def __init__(self) -> None:
        super().__init__()
        self._counts = LiveCounts()

    @property
    def live_counts_by_cluster(self) -> list[LiveCounts]:
        return [self._counts]


async def test_a_soak_that_cannot_be_sent_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever was too slow, what bound until then is measured, and the verdict says who it was."""
    for name in ("RELEASE_NOTICE_SECONDS", "_QUIET_PERIOD_SECONDS", "_POLL_INTERVAL_SECONDS"):
        monkeypatch.setattr(load_phases, name, 0.01)
    profile = smoke("ramp.pacing=fixed", "ramp.steps=1", "ramp.stepSeconds=1", "soak.seconds=1")
    settings, plan = profile.settings, make_plan(profile)
    load = SlowLoad(plan, [], tmp_path)
    soak = msgspec.structs.replace(settings.soak, seconds=0.1)
    ramp = msgspec.structs.replace(settings.ramp, step_seconds=0.1, max_step_p99_seconds=0.1)
    phases = LoadPhases(plan, ramp, soak, load, OneCluster(), lambda: None)
    await phases.play()
    assert phases.run_progress.phase == "finishing"
    unsent = "The soak's requests were not all sent within 60 s of its end."
    assert phases.run_progress.unsent == unsent
    [reason] = unplayed_reasons(LoadProgress(planned=3), unsent)
    assert (reason.sentence, reason.overload) == (unsent, True)


@pytest.mark.parametrize(
    ("status", "detail", "overload"),
    [
        (429, "too many requests", True),
        (503, "", True),
        (0, "no response: timed out", True),
        (403, "forbidden", False),
        (409, "exists", False),
        (0, "a bug in the load process: KeyError('x')", False),
    ],
)
def test_a_failed_request_may_be_the_systems_only_if_the_server_could_not_serve_it(
    status: int, detail: str, overload: bool
) -> None:
    """A request that is refused, or that the driver could not make, is the harness's."""
    failed = msgspec.structs.replace(result("a", "web", status), ok=False, detail=detail)
    busy = msgspec.structs.replace(result("b", "web", 503), ok=False)
    progress = LoadProgress(planned=2).with_result(busy).with_result(failed)
    [reason] = unplayed_reasons(progress, "")
    assert reason.overload == overload
    assert reason.sentence.startswith("2 of the load's requests failed; first failure: b: HTTP 503")
