"""The load of profiles with shared machines: sizes, constraints and DaemonSets."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest

from loaddriver.plan.records import RAMP, SETUP_STEP, CreateEvent, Plan, Workload
from loaddriver.plan.workloads import draw_objects, random_stream
from loaddriver.profile.loading import Profile
from tests.loaddriver.load_rig import SHARED, planned_shared

MIXED = "mixed-50"
ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def bodies(plan: Plan, *kinds: str) -> list[dict[str, Any]]:
    made = [event for event in plan.events if isinstance(event, CreateEvent)]
    found = [msgspec.json.decode(event.body) for event in made]
    return [body for body in found if body["kind"] in kinds]


def pod_spec(plan: Plan, archetype: str) -> dict[str, Any]:
    """Of any workload of the archetype."""
    name = next(each.name for each in plan.workloads if each.archetype == archetype)
    body = next(
        body
        for body in bodies(plan, "Deployment", "StatefulSet", "Job")
        if body["metadata"]["name"] == name
    )
    spec: dict[str, Any] = body["spec"]["template"]["spec"]
    return spec


def cores(profile: Profile, workloads: list[Workload]) -> float:
    return sum(
        profile.catalog.archetype(each.archetype).sizes[each.size].cpu_millicores * each.replicas
        for each in workloads
    ) / 1000  # fmt: skip


def ramp_of(plan: Plan) -> list[Workload]:
    return [each for each in plan.workloads if each.origin == RAMP]


# Some dozens of pods are too few for equal sums.
@pytest.mark.parametrize("name", [name for name in SHARED if not name.startswith("handover")])
def test_every_seed_has_the_same_pods_and_about_the_same_cpu(name: str) -> None:
    """Otherwise gates would not hold for all seeds."""
    found = []
    for seed in (1, 2, 3):
        profile, plan, _ = planned_shared(name, seed=seed)
        own = ramp_of(plan)
        assert sum(each.replicas for each in own) == profile.settings.pods
        found.append(cores(profile, own))
    assert max(found) <= 1.05 * min(found)


def test_two_fifths_of_the_pods_request_only_resources() -> None:
    """No class, no selector, no affinity, no spreading, no toleration, no penalty."""
    _, plan, _ = planned_shared(MIXED)
    own = ramp_of(plan)
    plain = [each for each in own if each.archetype in ("default-service", "default-worker")]
    assert sum(each.replicas for each in plain) == 2000
    for archetype in ("default-service", "default-worker"):
        asked = set(pod_spec(plan, archetype))
        assert not asked & {
            "priorityClassName",
            "nodeSelector",
            "affinity",
            "topologySpreadConstraints",
            "tolerations",
        }
    annotations = [
        body["spec"]["template"]["metadata"]["annotations"]
        for body in bodies(plan, "Deployment", "StatefulSet")
        if body["metadata"]["namespace"] == "tenant-default-service"
    ]
    assert annotations
    assert not any(annotations)


def test_sizes_span_three_orders_of_magnitude() -> None:
    """Most pods are small; one in a hundred takes a fifth of the CPU."""
    profile, plan, _ = planned_shared(MIXED)
    own = ramp_of(plan)
    cpu = sorted(
        profile.catalog.archetype(each.archetype).sizes[each.size].cpu_millicores
        for each in own
        for _ in range(each.replicas)
    )
    assert cpu[-1] >= 1000 * cpu[0]
    assert cpu[len(cpu) // 2] < 300
    large = [each for each in own if each.archetype == "large"]
    assert 0.15 < cores(profile, large) / cores(profile, own) < 0.3
    sizes = {(each.archetype, each.size) for each in own}
    assert len(sizes) > 150


def test_an_archetype_gets_its_sizes_by_their_shares_whatever_its_objects() -> None:
    """Objects of up to 100 pods are assigned by cumulative shares, not drawn one by one."""
    profile, _, _ = planned_shared(MIXED)
    archetype = profile.catalog.archetype("default-service")
    for seed in range(5):
        drafts = draw_objects(archetype, 3000, random_stream(seed, "test"))
        assert sum(draft.replicas for draft in drafts) == 3000
        small = sum(d.replicas for d in drafts if archetype.sizes[d.size].cpu_millicores <= 250)
        assert small / 3000 == pytest.approx(0.58, abs=0.03)


def test_pods_select_zones_families_generations_and_capacity_types() -> None:
    _, plan, _ = planned_shared(MIXED)
    assert pod_spec(plan, "production")["nodeSelector"] == {
        "bigfleet.lucy.sh/capacity-type": "on-demand"
    }
    assert pod_spec(plan, "memory-store")["nodeSelector"] == {
        "scaletest.bigfleet/instance-family": "r6"
    }
    assert pod_spec(plan, "newest-processors")["nodeSelector"] == {
        "scaletest.bigfleet/instance-generation": "7"
    }
    [term] = pod_spec(plan, "zonal-b")["affinity"]["nodeAffinity"][_REQUIRED]["nodeSelectorTerms"]
    assert term == {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["zone-b"]}]}


def test_pods_tolerate_the_taints_of_spot_and_of_gpu_machines() -> None:
    _, plan, _ = planned_shared(MIXED)
    assert pod_spec(plan, "batch")["tolerations"] == [
        {"key": "scaletest.bigfleet/spot", "operator": "Exists"}
    ]
    gpu = pod_spec(plan, "gpu-inference")
    assert gpu["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    assert gpu["containers"][0]["resources"]["requests"]["nvidia.com/gpu"] == "1"


def test_spread_and_anti_affinity_select_the_pods_own_workload() -> None:
    """Hard and soft over zones, soft over machines; one of a workload on a machine."""
    _, plan, _ = planned_shared(MIXED)
    zones, machines = pod_spec(plan, "evenly-spread")["topologySpreadConstraints"]
    assert (zones["topologyKey"], zones["whenUnsatisfiable"], zones["maxSkew"]) == (
        ZONE,
        "DoNotSchedule",
        1,
    )
    assert (machines["topologyKey"], machines["whenUnsatisfiable"]) == (HOSTNAME, "ScheduleAnyway")
    soft, _ = pod_spec(plan, "preferably-spread")["topologySpreadConstraints"]
    assert soft["whenUnsatisfiable"] == "ScheduleAnyway"
    [apart] = pod_spec(plan, "kept-apart")["affinity"]["podAntiAffinity"][_REQUIRED]
    assert apart["topologyKey"] == HOSTNAME
    [label] = apart["labelSelector"]["matchLabels"].values()
    assert label in {each.name for each in plan.workloads if each.archetype == "kept-apart"}


def test_gangs_are_whole_and_share_a_rack() -> None:
    _, plan, _ = planned_shared(MIXED)
    gangs = [each for each in plan.workloads if each.archetype == "same-rack-cache"]
    assert gangs
    assert all(each.topology == "sameRack" and 3 <= each.replicas <= 5 for each in gangs)


def test_jobs_end_before_the_run_does() -> None:
    """So that machines become empty by themselves."""
    profile, plan, _ = planned_shared(MIXED)
    jobs = {each.archetype for each in plan.workloads if each.kind == "Job"}
    assert jobs == {"batch", "spot-batch"}
    seconds = [profile.catalog.archetype(name).run_seconds for name in jobs]
    assert max(each for each in seconds if each is not None) < profile.settings.soak.seconds


def test_daemon_sets_are_created_before_the_load() -> None:
    """Four on each machine, a fifth on those with a GPU, all before the first workload."""
    _, plan, _ = planned_shared(MIXED)
    made = [event for event in plan.events if isinstance(event, CreateEvent)]
    agents = [event for event in made if event.path.endswith("/daemonsets")]
    assert {event.step for event in agents} == {SETUP_STEP}
    assert Counter(event.cluster for event in agents) == {0: 5, 1: 5}
    specs = {
        body["metadata"]["name"]: body["spec"]["template"]["spec"]
        for body in bodies(plan, "DaemonSet")
    }
    assert {spec["priorityClassName"] for spec in specs.values()} == {"system-node-critical"}
    assert specs["gpu-driver"]["nodeSelector"] == {"scaletest.bigfleet/accelerator": "nvidia"}
    assert all(
        "labels" in body["spec"]["template"]["metadata"] for body in bodies(plan, "DaemonSet")
    )
    assert not any("workload" in str(body["metadata"]) for body in bodies(plan, "DaemonSet"))


def test_anti_affine_workloads_of_antiaffinity_50_have_2_to_15_replicas() -> None:
    _, plan, _ = planned_shared("antiaffinity-50")
    replicas = Counter(each.replicas for each in ramp_of(plan))
    assert {each.archetype for each in plan.workloads} == {"kept-apart"}
    assert max(replicas) == 15
    # The last workload of a cluster has what is left over.
    assert sum(number for size, number in replicas.items() if size < 2) <= 2


def test_spread_50_has_hard_zone_spread_alone_and_beside_soft_spread_over_machines() -> None:
    _, plan, _ = planned_shared("spread-50")
    pods: Counter[str] = Counter()
    for each in ramp_of(plan):
        assert each.spread
        pods[each.archetype] += each.replicas
    assert pods == {"evenly-spread": 2500, "zone-spread": 2500}
    assert len(pod_spec(plan, "zone-spread")["topologySpreadConstraints"]) == 1
