"""What a pod costs is known by component and by kind of write, and a gate can limit each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from loaddriver.judge.gates import judge_gates
from loaddriver.judge.resources import Resources, component_of, resources_section
from loaddriver.judge.schema import Summary
from loaddriver.record.cpu import CpuTimes, CpuUse, CpuWindow, RemoteUse
from loaddriver.record.recorder import Observations
from loaddriver.record.server_counts import WriteCount
from tests.judge.judge_rig import facts, gate, health, row, summarised, unseen

USED = {
    "runner": 0.5,
    "locust": 0.5,
    "c1/kube-apiserver": 6.0,
    "c2/kube-apiserver": 2.0,
    "shard-0": 3.0,
    "shard-1": 1.0,
}
MEMORY = {"c1/kube-apiserver": 900, "c2/kube-apiserver": 700, "shard-0": 300, "idle": 5}


def use(*used: dict[str, float]) -> CpuUse:
    """Windows of ten seconds on two cores, with two seconds of others in each."""
    windows = [
        CpuWindow(10.0, CpuTimes(sum(each.values()) + 2, 20.0), sum(each.values()), each)
        for each in used or (USED,)
    ]
    return CpuUse(windows, MEMORY, run_peak_memory_bytes=1500)


def cluster(writes: dict[str, WriteCount] | None) -> Observations:
    return replace(unseen(), writes=writes)


def section(
    *writes: dict[str, WriteCount] | None, pods: int = 100, cpu: CpuUse | None = None
) -> Resources:
    found = resources_section(health(cpu=cpu or use()), [cluster(each) for each in writes], pods)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("process", "component"),
    [
        ("c1/kube-apiserver", "kube-apiserver"),
        ("c12/pod-controller", "pod-controller"),
        ("shard-11", "shard"),
        ("coordinator-2", "coordinator"),
        ("provider", "provider"),
        ("provider-hall", "provider"),
        ("runner", "harness"),
        ("locust", "harness"),
    ],
)
def test_processes_of_one_kind_are_one_component(process: str, component: str) -> None:
    assert component_of(process) == component


def test_the_cpu_of_a_pod_adds_up_over_components() -> None:
    """Largest first; the largest process stands for the memory of its component."""
    found = section(cpu=use(USED, USED))
    assert list(found.components) == ["kube-apiserver", "shard", "harness", "idle"]
    apiserver = found.components["kube-apiserver"]
    assert (apiserver.processes, apiserver.cpu_seconds) == (2, 16.0)
    assert apiserver.cpu_seconds_per_pod == pytest.approx(0.16)
    assert apiserver.cpu_share == pytest.approx(16 / 26, abs=1e-4)
    assert apiserver.peak_memory_bytes == 900
    assert found.cpu_seconds == pytest.approx(26.0)
    per_pod = [each.cpu_seconds_per_pod or 0 for each in found.components.values()]
    assert sum(per_pod) == pytest.approx(found.cpu_seconds_per_pod)
    assert found.processes["c2/kube-apiserver"].cpu_seconds == 4.0


def test_the_peak_memory_of_the_run_is_that_of_one_moment() -> None:
    """Peaks of single processes add up to more. Of a run in pods it is unknown."""
    assert section().peak_memory_bytes == 1500
    assert section(cpu=in_pods()).peak_memory_bytes is None


def in_pods(unknown: tuple[str, ...] = ()) -> CpuUse:
    """The harness's own processes here; in pods others, of which some may not tell. All that this
    machine used counts as the run's in its windows.
    """
    here = {name: USED[name] for name in ("runner", "locust")}
    there = {name: used for name, used in USED.items() if name not in (*here, *unknown)}
    window = CpuWindow(10.0, CpuTimes(19.0, 20.0), 19.0, here)
    return CpuUse([window], {"runner": 7}, RemoteUse(there, {"shard-0": 300}, unknown))


def test_the_cpu_of_pods_is_attributed_as_that_of_processes_is() -> None:
    """With the same names, and shares of the run's CPU, not of all that the machine used."""
    here, pods = section(), section(cpu=in_pods())
    assert (pods.cpu_seconds, pods.cpu_seconds_per_pod) == (13.0, 0.13)
    assert pods.processes.keys() == here.processes.keys() - {"idle"}
    for name, each in pods.components.items():
        assert each.cpu_seconds == here.components[name].cpu_seconds
        assert each.cpu_share == here.components[name].cpu_share
    assert pods.components["shard"].peak_memory_bytes == 300
    assert pods.unknown == []
    assert health(cpu=in_pods()).harness_cpu_share == pytest.approx(1 / 13)


def test_what_a_pod_does_not_tell_is_unknown_and_so_are_its_component_and_the_total() -> None:
    """Not zero: a gate on it must not pass."""
    found = section(cpu=in_pods(("c2/kube-apiserver",)))
    assert found.unknown == ["c2/kube-apiserver"]
    assert (found.cpu_seconds, found.cpu_seconds_per_pod) == (None, None)
    assert list(found.components) == ["shard", "harness"]
    assert found.processes["c1/kube-apiserver"].cpu_seconds == 6.0
    nothing = resources_section(health(cpu=in_pods(tuple(USED)[2:])), [], 1)
    assert nothing is not None
    assert list(nothing.components) == ["harness"]
    limit = gate("resources.components.kube-apiserver.cpuSecondsPerPod", 1)
    own = facts(harness_health=health(cpu=in_pods(("c2/kube-apiserver",))), planned_pods=1)
    assert not summarised(own, [], [row("a", 1, 2)], [limit]).gates[0].passed


def test_the_machine_is_shown_window_by_window() -> None:
    found = section(cpu=use(USED, {"shard-0": 18.0}))
    assert found.windows.seconds == [10, 20]
    assert found.windows.run_share == [0.65, 0.9]
    assert found.windows.others_share == [0.1, 0.1]


def test_writes_of_all_clusters_add_up_and_rejected_ones_stay_apart() -> None:
    found = section(
        {"create pods": WriteCount(90, 1), "patch pods/status": WriteCount(150, 0)},
        {"create pods": WriteCount(10, 2)},
    )
    assert found.writes is not None
    assert list(found.writes) == ["create-pods", "patch-pods-status"]
    pods = found.writes["create-pods"]
    assert pods.what == "create pods"
    assert (pods.count, pods.per_pod, pods.rejected) == (100, 1.0, 3)
    assert found.writes_per_pod == 2.5


def test_writes_of_which_a_part_is_unknown_are_unknown() -> None:
    found = section({"create pods": WriteCount(90, 1)}, None)
    assert (found.writes, found.writes_per_pod) == (None, None)


def test_bytes_of_all_clusters_add_up_unless_one_is_unknown() -> None:
    def per_pod(*moved: int | None) -> float | None:
        observed = [replace(cluster(None), bytes_moved=each) for each in moved]
        found = resources_section(health(cpu=use()), observed, 100)
        assert found is not None
        return found.api_bytes_per_pod

    assert per_pod(9_000, 1_000) == 100.0
    assert per_pod(9_000, None) is None


def test_without_pods_there_are_no_rates() -> None:
    found = section({"create events": WriteCount(5, 0)}, pods=0)
    assert found.cpu_seconds_per_pod is None
    assert found.writes is not None
    assert found.writes["create-events"].per_pod is None


@pytest.mark.parametrize("own", [None, health(cpu=CpuUse(())), health(cpu=use({"runner": 1.0}))])
def test_where_cpu_is_not_known_by_process_there_is_no_section(own: Any) -> None:
    """In existing clusters, processes of pods cannot be attributed."""
    assert resources_section(own, [], 1) is None


def test_a_gate_can_limit_what_a_pod_costs() -> None:
    """A BigFleet that needs twice the CPU fails, although no pod waits longer."""
    limits = [
        gate("resources.components.shard.cpuSecondsPerPod", 0.03),
        gate("resources.components.*.peakMemoryBytes", 1000),
        gate("resources.peakMemoryBytes", 1499),
        gate("resources.writes.create-pods.perPod", 0.5),
    ]
    counted = [cluster({"create pods": WriteCount(1, 0)})]

    def judged(shard: float) -> Summary:
        cpu = use({**USED, "shard-0": shard, "shard-1": 0.0})
        own = facts(harness_health=health(cpu=cpu), planned_pods=1)
        return summarised(own, counted, [row("a", 1, 2)], limits)

    results = judge_gates(msgspec.to_builtins(judged(0.02)), limits)
    assert [each.verdict for each in results] == ["pass", "pass", "fail", "fail"]
    assert not judged(0.04).gates[0].passed
