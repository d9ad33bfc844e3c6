"""Load without pods: the plan creates, deletes and replaces CapacityRequests."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from bigfleet.controllers.operator.request_demand import RequestSpec, demand_of
from bigfleet.controllers.pod_controller import pods as pod_types
from bigfleet.controllers.pod_controller.requests import request_for
from loaddriver.plan.manifests import capacity_request_body, workload_body
from loaddriver.plan.records import CreateEvent, DeleteEvent, Plan
from loaddriver.plan.times import REQUESTS_PER_SECOND
from loaddriver.plan.workloads import draw_workloads
from tests.loaddriver.load_rig import planned, shipped

CR = ("load.mode=cr", "anchors=off", "ramp.pacing=fixed")
SHAPES = (
    "soak.seconds=120",
    "demandSteps=[{phase: soak, atSeconds: 20, factor: 0.8},"
    "{phase: soak, atSeconds: 70, factor: 1}]",
    "bursts=[{phase: soak, atSeconds: 5, archetype: memory-cache, pods: 60, durationSeconds: 9}]",
)


def requests(plan: Plan) -> list[CreateEvent]:
    return [e for e in plan.events if isinstance(e, CreateEvent) and "capacityrequests" in e.path]


def alive(plan: Plan, step: int, seconds: float) -> set[str]:
    """The paths of the requests that exist at a moment."""
    there: set[str] = set()
    for event in plan.events:
        if (event.step, event.offset_seconds) > (step, seconds):
            break
        if isinstance(event, CreateEvent):
            there.add(f"{event.cluster}{event.path}/{event.name}")
        elif isinstance(event, DeleteEvent):
            # It must be there, or the request to delete it would fail.
            there.remove(f"{event.cluster}{event.path}")
    return {path for path in there if "capacityrequests" in path}


def test_a_request_equals_that_of_the_pod_controller() -> None:
    """A load without pods must be the same for the rest of BigFleet."""
    profile = shipped("dev-50", "weights=realistic", "podsPerCluster=40000")
    seen: set[str] = set()
    for workload in draw_workloads(profile, 0):
        written = capacity_request_body(workload, profile.catalog, "any")["spec"]
        template = workload_body(workload, profile.catalog)["spec"]["template"]
        pod = {
            "metadata": {"name": "p", "uid": "u", "namespace": "n", **template["metadata"]},
            "spec": {
                **template["spec"],
                "priority": workload.priority,
                "preemptionPolicy": _preemption_policy(template["spec"]["priorityClassName"]),
            },
        }
        by_controller = request_for(msgspec.convert(pod, pod_types.Pod))
        mine, theirs = (
            demand_of("n", msgspec.convert(spec, RequestSpec)) for spec in (written, by_controller)
        )
        assert (mine.profile.fingerprint, mine.group, mine.unit) == (
            theirs.profile.fingerprint,
            theirs.group,
            theirs.unit,
        )
        seen.add(workload.archetype)
    assert len(seen) == 9, "all but the archetype that comes in bursts only"


def _preemption_policy(priority_class: str) -> str:
    """What admission gives a pod of the class."""
    return "Never" if priority_class.endswith("-never") else "PreemptLowerPriority"


def test_every_planned_pod_is_one_request_at_an_even_rate() -> None:
    """No object brings many pods at once, so a step's requests are evenly spaced."""
    profile, plan, need = planned("dev-50", *CR, "soak.churnPodsPerSecond=0")
    assert len(requests(plan)) == profile.settings.pods == need.pods
    assert not any("priorityclasses" in e.path for e in plan.events if isinstance(e, CreateEvent))
    for step in plan.steps:
        if step.phase == "ramp":
            own = [
                e.offset_seconds for e in requests(plan) if (e.cluster, e.step) == (0, step.number)
            ]
            gaps = [after - before for before, after in pairwise(own)]
            assert max(gaps) < 1.01 * step.seconds / len(own)


def test_requests_carry_the_labels_that_rows_are_made_of() -> None:
    _, plan, _ = planned("dev-50", *CR, "soak.churnPodsPerSecond=0")
    for event in requests(plan)[::50]:
        body: dict[str, Any] = msgspec.json.decode(event.body)
        labels = body["metadata"]["labels"]
        archetype = labels["scaletest.bigfleet/archetype"]
        assert body["metadata"]["namespace"] == f"tenant-{archetype}"
        assert event.name.startswith(labels["scaletest.bigfleet/workload"])
        assert labels["scaletest.bigfleet/step"] == str(event.step)
        assert ("coLocation" in body["spec"]) == ("scaletest.bigfleet/co-location-group" in labels)
        assert "ownerReferences" not in body["metadata"]


def test_churn_replaces_requests_and_demand_changes_create_and_delete_them() -> None:
    """At any time exactly the planned number exists, and only existing ones are deleted."""
    _, plan, _ = planned("dev-50", *CR, *SHAPES, "soak.churnPodsPerSecond=4")
    soak = plan.steps[-1].number
    assert len(alive(plan, soak, 4.9)) == 5000
    assert len(alive(plan, soak, 8)) == 5060
    assert len(alive(plan, soak, 60)) == 4000
    assert len(alive(plan, soak, 120)) == 5000
    assert len({event.path + getattr(event, "name", "") for event in requests(plan)}) == len(
        {msgspec.json.decode(e.body)["metadata"]["name"] for e in requests(plan)}
    )


def test_demand_changes_are_sent_at_a_bounded_rate() -> None:
    """500 deletions due at once would make the sender late, and the run invalid."""
    _, plan, _ = planned("dev-50", *CR, *SHAPES, "soak.churnPodsPerSecond=0")
    by_second = Counter(
        (event.cluster, int(event.offset_seconds))
        for event in plan.events
        if event.step == plan.steps[-1].number
    )
    assert max(by_second.values()) <= REQUESTS_PER_SECOND + 1


def test_churn_of_requests_includes_jobs() -> None:
    """A Job's deleted pod is a failed attempt; a deleted request is not."""
    _, plan, _ = planned("dev-50", *CR, "soak.churnPodsPerSecond=20")
    deleted = Counter(e.name.rsplit("-", 2)[0] for e in plan.events if isinstance(e, DeleteEvent))
    assert deleted.total() == 1200
    assert deleted["cpu-batch"] == pytest.approx(1200 * 0.116, rel=0.3)
