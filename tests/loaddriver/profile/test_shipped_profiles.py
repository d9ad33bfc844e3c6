"""What every profile in the repository must keep, whoever adds one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import pytest

from loaddriver.judge.schema import Summary
from loaddriver.plan.make import make_plan
from loaddriver.plan.text import plan_lines
from loaddriver.profile.loading import profile_names
from loaddriver.sizing.estimate import run_seconds
from tests.loaddriver.load_rig import PROFILES, SHARED, SHIPPED, SPECIAL, planned, shipped

LARGE = {"5k", "50k", "500k", "1m", "5m"}


def readable(kind: Any, keys: list[str]) -> bool:
    """Whether a path can lead to something in a summary."""
    if not keys or kind is Any:
        return True
    for branch in get_args(kind) or (kind,):
        if isinstance(branch, type) and issubclass(branch, msgspec.Struct):
            hints = get_type_hints(branch)
            names = {f.encode_name: hints[f.name] for f in msgspec.structs.fields(branch)}
            if keys[0] in names and readable(names[keys[0]], keys[1:]):
                return True
    if get_origin(kind) in (dict, Mapping):
        return readable(get_args(kind)[1], keys[1:])
    return any(
        readable(branch, keys) for branch in get_args(kind) if get_origin(branch) in (dict, Mapping)
    )


@pytest.mark.parametrize("name", profile_names(PROFILES))
def test_every_gate_reads_something_that_summaries_have(name: str) -> None:
    """A misspelt path would fail each run, and only at its end."""
    for gate in shipped(name).gates:
        assert readable(Summary, gate.metric.split(".")), f"{name}: {gate.metric}"


@pytest.mark.parametrize("name", profile_names(PROFILES))
def test_a_profile_with_pods_gates_that_the_parts_of_the_fleet_agree(name: str) -> None:
    """A machine without its Node, or demand that a shard has lost, shows in no wait of a pod."""
    profile = shipped(name)
    if profile.settings.load.mode == "pods":
        gates = {(gate.metric, gate.op, gate.limit) for gate in profile.gates}
        assert ("audit.differences", "==", 0) in gates


@pytest.mark.parametrize("path", ["pods.creatd", "pods.created.p99", "latency", "soak.p99"])
def test_a_path_that_no_summary_has_is_found_out(path: str) -> None:
    """Otherwise the rule above would hold for anything."""
    assert not readable(Summary, path.split("."))


@pytest.mark.parametrize("name", profile_names(PROFILES))
def test_a_profile_with_gangs_gates_that_each_is_whole_and_in_one_rack(name: str) -> None:
    """A torn gang once went unnoticed in a passing run, because nothing was said of racks.

    One profile is made of racks so narrow that some gangs hang; not even there may one be torn.
    """
    profile = shipped(name)
    has_gangs = any(each.gang is not None for each in profile.catalog.archetypes)
    if name not in LARGE:
        has_gangs = any(workload.group for workload in make_plan(profile).workloads)
    if not has_gangs or profile.settings.load.mode != "pods":
        return
    gates = {(gate.metric, gate.op, gate.limit) for gate in profile.gates}
    if name == "gang-frag-50":
        assert ("gangs.split", "==", 0) in gates
    else:
        assert {("gangs.completeShare", "==", 1), ("gangs.rackPureShare", "==", 1)} <= gates


# Waits of these are of the load's first pods to its last; those of the other phases have names.
_WHOLE_RUN = ("dueToBindSeconds", "bindLatencySeconds", "waitBands", "hopsSeconds", "placement")
_RAMP = (*_WHOLE_RUN, "ramp.dueToBind", "ramp.bindLatency", "clusters", "archetypes.*")


@pytest.mark.parametrize("name", profile_names(PROFILES))
def test_gated_waits_are_of_arrivals_that_wait_for_nothing(name: str) -> None:
    """A ramp that waits for binding hides a slow system: there, the ramp's length is gated instead,
    and the waits of what comes at fixed times only, in an open stage or in the soak.
    """
    profile = shipped(name)
    metrics = [gate.metric for gate in profile.gates]
    if profile.settings.ramp.pacing == "adaptive":
        assert "ramp.seconds" in metrics
        assert not [metric for metric in metrics if metric.startswith(_RAMP)]
    if profile.settings.ramp.open_stage is not None:
        assert any(metric.startswith("openStage.dueToBindSeconds") for metric in metrics)


@pytest.mark.parametrize("name", ["smoke", "dev-50"])
def test_each_component_has_gates_of_its_own(name: str) -> None:
    """So that one which is slower or costlier than it was fails by its name."""
    gated = {gate.metric for gate in shipped(name).gates}
    hops = {f"hopsSeconds.{hop}.mean" for hop in ("arrived", "seen", "rolledUp", "decided")}
    of_others = {"hopsSeconds.scheduled.mean"}
    if name == "dev-50":  # in smoke a machine waits longer for the cluster than for its provider
        of_others.add("components.durations.shardConfigurePhase.meanSeconds")
    roles = ("shard", "operator", "pod-controller", "kube-apiserver")
    cpu = {f"resources.components.{role}.cpuSecondsPerPod" for role in roles}
    cpu.add("components.durations.shardDecisionCpu.meanSeconds")
    memory = {f"resources.components.{role}.peakMemoryBytes" for role in ("shard", "operator")}
    assert gated >= hops | of_others | cpu | memory | {"resources.writesPerPod"}
    carried = {gate.metric for gate in shipped(name).gates if gate.ratio_to == "calibration"}
    assert carried >= cpu


@pytest.mark.parametrize("name", profile_names(PROFILES))
def test_gated_waits_begin_with_due_times(name: str) -> None:
    """What begins with the creation leaves out how late that was."""
    metrics = [gate.metric for gate in shipped(name).gates]
    assert not [m for m in metrics if "bindLatencySeconds" in m or "ackLatencySeconds" in m]


@pytest.mark.parametrize("name", ["smoke", "dev-50", "shards-8", *SHARED])
def test_a_profile_whose_waits_are_gated_stays_below_the_knee(name: str) -> None:
    """On two cores: 140 pods a second with one cluster, 40 where clusters share them, 20 where each
    workload has few pods and its Nodes are small.
    """
    settings = shipped(name).settings
    capacity = 140 if settings.clusters == 1 else 20 if name in SHARED else 40
    assert settings.pods / settings.phase_seconds("ramp") <= 0.55 * capacity


@pytest.mark.parametrize("name", profile_names(PROFILES))
def test_a_profile_that_counts_preempted_machines_has_pods_that_may_preempt(name: str) -> None:
    """BigFleet evicts nothing for pods whose preemptionPolicy is Never."""
    profile = shipped(name)
    if any(g.metric == "disruptions.machinesPreempted" and g.limit > 0 for g in profile.gates):
        archetypes = profile.catalog.archetypes
        lowest = min(archetype.priority for archetype in archetypes)
        assert any(each.preempts and each.priority > lowest for each in archetypes)


def test_every_profile_is_a_rung_or_gates_one_behaviour() -> None:
    """So that a new one is put where the other tests look at it."""
    assert set(profile_names(PROFILES)) == {*SHIPPED, *SPECIAL, *SHARED, *LARGE}


@pytest.mark.parametrize("name", [*SPECIAL, *SHARED])
def test_a_profile_for_one_behaviour_takes_less_than_five_minutes(name: str) -> None:
    """But for the one whose outage alone is five, and those that grow and shrink in one run."""
    minutes = {"fedhpa-3": 12, "mixed-50": 26, **dict.fromkeys(SHARED[1:], 30)}.get(name, 5)
    assert run_seconds(shipped(name).settings) < minutes * 60


@pytest.mark.parametrize("name", [*SHIPPED, *SPECIAL, *SHARED])
def test_a_plan_can_be_read_in_a_terminal(name: str) -> None:
    """Each step, shape and archetype has its line."""
    profile = shipped(name)
    plan = make_plan(profile)
    lines = list(plan_lines(plan, profile.settings))
    assert f"{profile.settings.pods:,} pods" in lines[0]
    assert all(len(line) <= 80 for line in lines)
    text = "\n".join(lines)
    assert text.count("burst in the") == len(profile.settings.bursts)
    assert text.count("demand times") == len(profile.settings.demand_steps)
    for archetype in {workload.archetype for workload in plan.workloads}:
        assert f" {archetype} " in text


def test_a_demand_step_is_told_with_the_pods_before_and_after_it() -> None:
    profile, plan, _ = planned("oscillation-50")
    told = [line.split(": ")[1] for line in plan_lines(plan, profile.settings) if "times" in line]
    assert [line.split(" pods")[0] for line in told] == [
        "from 5,000 to 2,500",
        "from 2,500 to 5,000",
        "from 5,000 to 2,500",
        "from 2,500 to 5,000",
    ]
