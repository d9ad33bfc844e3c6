from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet.model.need import Taint
from bigfleet.services.provider import inventory
from loaddriver.apportion import apportion, divide, divisible, largest_divisible
from loaddriver.errors import ProfileError
from loaddriver.plan.files import load_plan, plan_bytes, save_plan
from loaddriver.plan.make import make_plan
from loaddriver.plan.records import ChurnEvent, CreateEvent, Plan, Workload
from loaddriver.sizing.inventory import (
    InventoryTaint,
    fleet_inventory,
    rack_sizes,
    save_inventory,
    supply_counts,
)
from tests.loaddriver.load_rig import PROFILES, SHIPPED, planned, shipped


def created(plan: Plan) -> list[CreateEvent]:
    return [event for event in plan.events if isinstance(event, CreateEvent)]


def churned(plan: Plan) -> list[ChurnEvent]:
    return [event for event in plan.events if isinstance(event, ChurnEvent)]


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def bodies(plan: Plan) -> Iterator[tuple[Workload, dict[str, Any]]]:
    workloads = {(each.cluster, each.name): each for each in plan.workloads}
    for event in created(plan):
        if event.step > 0:
            yield workloads[event.cluster, event.name], msgspec.json.decode(event.body)


@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.parametrize("seed", [1, 2])
def test_every_cluster_gets_exactly_its_pods(name: str, seed: int) -> None:
    profile, plan, need = planned(name, seed=seed)
    per_cluster: Counter[int] = Counter()
    for workload in plan.workloads:
        per_cluster[workload.cluster] += workload.replicas
    expected = dict.fromkeys(range(profile.settings.clusters), profile.settings.pods_per_cluster)
    assert per_cluster == expected
    assert sum(step.pods for step in plan.steps) == need.pods == plan.header.pods


def test_the_same_profile_and_seed_give_the_same_bytes_in_any_process() -> None:
    """Two versions are compared on one plan, so it must not depend on hash seeds."""
    code = (
        "import sys; from pathlib import Path; from loaddriver.profile.loading import "
        "load_profile;"
        "from loaddriver.plan.make import make_plan; from loaddriver.plan.files import plan_bytes;"
        "sys.stdout.buffer.write(plan_bytes(make_plan(load_profile('dev-50', Path(sys.argv[1])))))"
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-c", code, str(PROFILES)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            cwd=PROFILES.parent,
            capture_output=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert outputs[0] == outputs[1] == plan_bytes(make_plan(shipped("dev-50")))


def test_another_seed_gives_another_plan() -> None:
    assert plan_bytes(planned("smoke", seed=1)[1]) != plan_bytes(planned("smoke", seed=2)[1])


def test_changing_the_churn_keeps_the_ramp() -> None:
    _, calm, _ = planned("dev-50")
    _, busy, _ = planned("dev-50", "soak.churnPodsPerSecond=9", "soak.seconds=90")
    assert created(calm) == created(busy)
    assert len(churned(calm)) == 120
    assert len(churned(busy)) == 810


def test_adding_a_cluster_keeps_the_others() -> None:
    _, two, _ = planned("dev-50")
    _, three, _ = planned("dev-50", "clusters=3")
    assert created(two) == [event for event in created(three) if event.cluster < 2]


def test_a_saved_plan_reads_back_equal(tmp_path: Path) -> None:
    _, plan, _ = planned("smoke")
    save_plan(plan, tmp_path / "plan.jsonl")
    assert load_plan(tmp_path / "plan.jsonl") == plan


def test_a_damaged_plan_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / "plan.jsonl"
    save_plan(planned("smoke")[1], path)
    path.write_bytes(path.read_bytes() + b'{"type":"nonsense"}\n')
    with pytest.raises(ProfileError, match=r"plan\.jsonl line \d+: not a plan line"):
        load_plan(path)


def test_events_are_ordered_and_have_unique_ids() -> None:
    _, plan, _ = planned("dev-50")
    keys = [(event.step, event.offset_seconds) for event in plan.events]
    assert keys == sorted(keys)
    assert len({event.id for event in plan.events}) == len(plan.events)
    assert [step.events for step in plan.steps] == [
        sum(event.step == step.number for event in plan.events) for step in plan.steps
    ]


def test_steps_are_even_and_their_requests_fit_into_them() -> None:
    _, plan, _ = planned("dev-50")
    for step in plan.steps:
        if step.phase == "ramp":
            assert step.pods == pytest.approx(1000, rel=0.3)
    seconds = {step.number: step.seconds for step in plan.steps}
    assert all(0 <= event.offset_seconds <= seconds[event.step] for event in plan.events)


def test_namespaces_and_priorities_exist_before_anything_needs_them() -> None:
    _, plan, _ = planned("dev-50")
    ready = {(event.cluster, event.name) for event in created(plan) if event.step == 0}
    for workload in plan.workloads:
        assert (workload.cluster, workload.namespace) in ready
        assert (workload.cluster, f"scaletest-{workload.priority}") in ready
        assert workload.step > 0


@pytest.mark.parametrize("name", SHIPPED)
def test_gangs_are_whole_and_within_their_limits(name: str) -> None:
    profile, plan, _ = planned(name)
    gangs = [workload for workload in plan.workloads if workload.group]
    assert gangs
    for workload in gangs:
        gang = profile.catalog.archetype(workload.archetype).gang
        assert gang is not None
        assert gang.size.min <= workload.replicas <= gang.size.max


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(("name", "least", "most"), [("dev-50", 45, 60), ("dev-500", 450, 600)])
def test_dev_profiles_need_the_machines_they_are_named_for(
    name: str, least: int, most: int, seed: int
) -> None:
    """Density 100, 15 % of pods in same-rack gangs, most on one machine, some on several."""
    _, plan, need = planned(name, seed=seed)
    assert least <= need.machines_packed <= most
    assert 0.13 <= need.same_rack_share <= 0.17
    spanning = sum(len(size.gang_machines) for size in need.sizes)
    assert 0 < spanning < sum(1 for workload in plan.workloads if workload.group) / 2


def test_pods_select_their_own_machines() -> None:
    _, plan, _ = planned("dev-50")
    for workload, body in bodies(plan):
        spec = body["spec"]["template"]["spec"]
        resources = spec["containers"][0]["resources"]
        assert resources["limits"] == resources["requests"]
        terms = spec["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
        keys = [each["key"] for each in terms[0]["matchExpressions"]]
        assert keys == ["node.kubernetes.io/instance-type", "topology.kubernetes.io/zone"]
        assert spec["priorityClassName"] == f"scaletest-{workload.priority}"
        assert spec["terminationGracePeriodSeconds"] == 1
        assert spec["automountServiceAccountToken"] is False


def test_only_gangs_require_a_rack() -> None:
    _, plan, _ = planned("dev-50")
    for workload, body in bodies(plan):
        template = body["spec"]["template"]
        affinity = template["spec"]["affinity"].get("podAffinity")
        label = template["metadata"]["labels"].get("scaletest.bigfleet/co-location-group")
        assert (affinity is not None) == (label is not None) == (workload.group is not None)
        if affinity:
            term = affinity[REQUIRED][0]
            assert term["topologyKey"] == "topology.bigfleet/rack"
            assert list(term["labelSelector"]["matchLabels"].values()) == [label]


def test_jobs_have_run_seconds_and_penalties_are_dollars() -> None:
    _, plan, _ = planned("smoke")
    for workload, body in bodies(plan):
        annotations = body["spec"]["template"]["metadata"]["annotations"]
        assert ("scaletest.bigfleet/run-seconds" in annotations) == (workload.kind == "Job")
        for penalty in ("interruption", "reclamation"):
            assert re.fullmatch(r"\d+(\.\d+)?", annotations[f"bigfleet.lucy.sh/{penalty}-penalty"])


def test_churn_excludes_jobs_and_has_valid_ranks() -> None:
    _, plan, _ = planned("dev-50")
    workloads = {(each.cluster, each.name): each for each in plan.workloads}
    for event in churned(plan):
        workload = workloads[event.cluster, event.workload]
        assert workload.kind != "Job"
        assert 0 <= event.rank < workload.replicas
        assert event.namespace == workload.namespace


def test_gangs_alone_that_do_not_add_up_are_rejected() -> None:
    profile = shipped(
        "smoke",
        "weights={gpu-training-medium: 1}",
        "fleet.machinesPerRack=16",
        "podsPerCluster=39",
        "ramp.steps=1",
    )
    assert make_plan(profile).header.pods == 39
    with pytest.raises(ProfileError, match=r"podsPerCluster = 7: .* leave 7 pods over"):
        make_plan(
            shipped(
                "smoke",
                "weights={gpu-training-medium: 1}",
                "fleet.machinesPerRack=16",
                "podsPerCluster=7",
                "soak.churnPodsPerSecond=0",
            )
        )


@pytest.mark.parametrize("name", SHIPPED)
def test_the_fleet_has_the_ordered_supply_for_every_pod_size(name: str) -> None:
    profile, _, need = planned(name)
    machines = fleet_inventory(profile, need)
    for size in need.sizes:
        types = profile.catalog.archetype(size.archetype).sizes[size.size].instance_types
        own = [machine for machine in machines if machine.instance_type in types]
        counts = supply_counts(profile.settings, size)
        assert sum(machine.state == "IDLE" for machine in own) == counts["idle"]
        assert len(own) == sum(counts.values()) >= size.machines_claimed
        assert max(rack_sizes(machines, types)) <= profile.settings.fleet.machines_per_rack


def test_machine_ids_are_unique_dns_labels_of_at_most_36_characters() -> None:
    profile, _, need = planned("dev-500")
    ids = [machine.id for machine in fleet_inventory(profile, need)]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,34}[a-z0-9])?", each) for each in ids)


def test_a_rack_lies_in_one_zone_and_labels_say_the_same_as_fields() -> None:
    profile, _, need = planned("dev-500")
    machines = fleet_inventory(profile, need)
    zones: dict[str, set[str]] = {}
    for machine in machines:
        zones.setdefault(machine.rack, set()).add(machine.zone)
        assert machine.labels == {
            "node.kubernetes.io/instance-type": machine.instance_type,
            "topology.kubernetes.io/zone": machine.zone,
            "topology.bigfleet/rack": machine.rack,
        }
    assert all(len(each) == 1 for each in zones.values())


def test_a_machine_that_a_profile_taints_is_tainted_for_the_provider_too(tmp_path: Path) -> None:
    profile, _, need = planned("smoke")
    (first, second, *_) = fleet_inventory(profile, need)
    slow = InventoryTaint(key="example.com/slow", effect="NoSchedule")
    seed = tmp_path / "inventory.jsonl"
    save_inventory([msgspec.structs.replace(first, taints=(slow,)), second], seed)
    tainted, plain = inventory.read(seed)
    assert tainted.taints == (Taint("example.com/slow", "", "NoSchedule"),)
    assert plain.taints == ()


def test_spot_is_cheaper_than_on_demand_and_idle_costs_nothing() -> None:
    profile, _, need = planned("smoke", "fleet.spotFactor=1")
    prices: dict[str, dict[str, float]] = {}
    for machine in fleet_inventory(profile, need):
        prices.setdefault(machine.instance_type, {})[machine.capacity_type] = machine.price_per_hour
        assert (machine.interruption_probability > 0) == (machine.capacity_type == "SPOT")
    for price in prices.values():
        assert price["BARE_METAL"] == 0 < price["SPOT"] < price["ON_DEMAND"]


@given(st.integers(0, 5000), st.lists(st.floats(0.01, 100), min_size=1, max_size=8))
def test_apportioned_parts_add_up_and_stay_near_their_share(
    total: int, weights: list[float]
) -> None:
    parts = apportion(total, dict(enumerate(weights)))
    assert sum(parts.values()) == total
    for position, weight in enumerate(weights):
        assert abs(parts[position] - total * weight / sum(weights)) <= 1


@given(st.integers(0, 300), st.integers(1, 20), st.integers(0, 20), st.randoms())
def test_divided_pods_make_whole_gangs_only(
    total: int, least: int, extra: int, random: Random
) -> None:
    most = least + extra
    fitting = largest_divisible(total, least, most)
    parts = divide(fitting, least, most, random)
    assert sum(parts) == fitting
    assert all(least <= part <= most for part in parts)
    assert not any(divisible(number, least, most) for number in range(fitting + 1, total + 1))
