"""Preemption in profiles: disruption budgets, priority classes, cluster weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from loaddriver.errors import ProfileError
from loaddriver.plan.make import make_plan
from loaddriver.plan.records import CreateEvent, DeleteEvent, Plan, Workload
from loaddriver.profile.archetypes import DisruptionBudget
from loaddriver.profile.loading import load_profile
from loaddriver.sizing.inventory import fleet_inventory
from tests.loaddriver.load_rig import PROFILES, SHARED, copied_profiles, edit, planned, shipped

NAME = "preemption-50"


def created(plan: Plan, kind: str) -> Iterator[tuple[CreateEvent, dict[str, Any]]]:
    for event in plan.events:
        if isinstance(event, CreateEvent):
            body = msgspec.json.decode(event.body)
            if body["kind"] == kind:
                yield event, body


def budgeted(plan: Plan, archetype: str) -> set[str]:
    own = {each.name for each in plan.workloads if each.archetype == archetype}
    return own & {event.name for event, _ in created(plan, "PodDisruptionBudget")}


@pytest.mark.parametrize(
    ("percent", "replicas", "floor"), [(50, 10, 5), (20, 1, 0), (70, 20, 6), (34, 3, 1), (1, 4, 3)]
)
def test_max_unavailable_is_rounded_up_as_kubernetes_does(
    percent: int, replicas: int, floor: int
) -> None:
    assert DisruptionBudget(max_unavailable_percent=percent).floor(replicas) == floor


def test_a_budget_is_created_before_its_workload_and_selects_its_pods() -> None:
    """So that its pods are always protected."""
    _, plan, _ = planned(NAME)
    order = [event.id for event in plan.events]
    workloads = {(each.cluster, each.name): each for each in plan.workloads}
    budgets = list(created(plan, "PodDisruptionBudget"))
    assert budgets
    for event, body in budgets:
        workload: Workload = workloads[event.cluster, event.name]
        assert event.path == (
            f"/apis/policy/v1/namespaces/{workload.namespace}/poddisruptionbudgets"
        )
        assert body["spec"]["selector"]["matchLabels"] == {
            "scaletest.bigfleet/workload": workload.name
        }
        assert body["spec"]["maxUnavailable"] == "20%"
        assert order.index(event.id) + 1 == order.index(f"{event.cluster}-{event.name}")


def test_only_workloads_whose_archetype_has_a_budget_have_one() -> None:
    _, plan, _ = planned(NAME)
    assert budgeted(plan, "index") == {w.name for w in plan.workloads if w.archetype == "index"}
    assert not budgeted(plan, "render")
    assert not budgeted(plan, "checkout")


def test_the_budget_of_a_burst_is_deleted_with_it(tmp_path: Path) -> None:
    folder = copied_profiles(tmp_path)
    edit(folder / NAME / "profile.yaml", "archetype: checkout", "archetype: index")
    edit(folder / NAME / "profile.yaml", "    index: 2", "    index: 9")
    plan = make_plan(load_profile(NAME, folder))
    gone = {e.id for e in plan.events if isinstance(e, DeleteEvent) and "budgets" in e.path}
    come = {w.name for w in plan.workloads if w.archetype == "index" and w.origin == "burst-0"}
    assert come
    assert gone == {f"1-{name}-budget-delete" for name in come}


def test_archetypes_that_do_not_preempt_have_a_class_with_policy_never() -> None:
    profile, plan, _ = planned(NAME)
    classes = {body["metadata"]["name"]: body for _, body in created(plan, "PriorityClass")}
    assert classes["scaletest-100-never"]["preemptionPolicy"] == "Never"
    assert "preemptionPolicy" not in classes["scaletest-1000000"]
    for _, body in created(plan, "Deployment"):
        name = body["spec"]["template"]["spec"]["priorityClassName"]
        archetype = body["metadata"]["labels"]["scaletest.bigfleet/archetype"]
        assert name.endswith("-never") != profile.catalog.archetype(archetype).preempts


def test_clusters_may_have_different_weights() -> None:
    _, plan, _ = planned(NAME)
    ramp = [each for each in plan.workloads if each.origin == "ramp"]
    assert {w.archetype for w in ramp if w.cluster == 0} == {"render", "index"}
    assert {w.archetype for w in ramp if w.cluster == 1} == {"tiny-stateless"}
    for cluster in (0, 1):
        assert sum(w.replicas for w in ramp if w.cluster == cluster) == 600


def test_a_burst_may_name_one_cluster() -> None:
    _, plan, _ = planned(NAME)
    burst = [each for each in plan.workloads if each.origin.startswith("burst")]
    assert {each.cluster for each in burst} == {1}
    assert sum(each.replicas for each in burst) == 260


def test_an_archetype_with_idle_factor_0_gets_no_machines() -> None:
    """All machines of its type are those of the batch workloads that it preempts."""
    profile, _, need = planned(NAME)
    machines = fleet_inventory(profile, need)
    types = [machine.instance_type for machine in machines]
    render = next(size for size in need.sizes if size.archetype == "render")
    assert types.count("c6a.8xlarge") == render.machines_claimed == 25
    assert types.count("i4i.8xlarge") == types.count("i7i.8xlarge") == 5


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("clusterWeights={c3: {render: 1}}", "clusterWeights.c3 no such cluster (known: c1, c2"),
        ("clusterWeights={c2: {rendr: 1}}", "clusterWeights.c2.weights.rendr no such archetype"),
        (
            "fleet.idleFactorByArchetype={rendr: 1}",
            "fleet.idleFactorByArchetype.rendr no such archetype",
        ),
        (
            "bursts=[{phase: soak, atSeconds: 5, archetype: checkout, pods: 4, durationSeconds: 6, "
            "cluster: west}]",
            "bursts[0].cluster = 'west': no such cluster (known: c1, c2",
        ),
    ],
)
def test_an_unknown_name_is_rejected_with_the_known_ones(override: str, expected: str) -> None:
    with pytest.raises(ProfileError) as caught:
        shipped(NAME, override)
    assert expected in str(caught.value)


def test_a_job_has_no_budget(tmp_path: Path) -> None:
    """Kubernetes computes percentages only with a scale subresource."""
    folder = copied_profiles(tmp_path)
    text = "    runSeconds: 7200\n"
    budget = "    disruptionBudget: {maxUnavailablePercent: 50}\n"
    edit(folder / "catalog.yaml", text, text + budget)
    with pytest.raises(ProfileError, match=r"gpu-training-small\.disruptionBudget"):
        load_profile("dev-50", folder)


def test_plans_without_budgets_have_no_budget_events() -> None:
    """Older plans must stay the same."""
    for path in sorted(PROFILES.glob("*-50/profile.yaml")):
        if path.parent.name in (NAME, *SHARED):
            continue
        _, plan, _ = planned(path.parent.name)
        assert not list(created(plan, "PodDisruptionBudget"))
        assert all("preemptionPolicy" not in body for _, body in created(plan, "PriorityClass"))
