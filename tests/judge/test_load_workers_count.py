"""What the harness costs and how it fares counts the workers of the load, wherever they are."""

from __future__ import annotations

from loaddriver.judge.facts import HarnessHealth
from loaddriver.judge.resources import component_of
from loaddriver.load.workers import WorkerRecord
from loaddriver.record.cpu import CpuTimes, CpuUse, CpuWindow, is_driver
from tests.judge.judge_rig import health

HERE = CpuWindow(
    10.0,
    CpuTimes(10.0, 20.0),
    10.0,
    {"runner": 1.0, "locust": 0.5, "locust-worker-1": 6.0, "etcd": 2.5},
    waits={"runner": 0.1, "locust-worker-1": 2.0},
)


def of_workers(*, elsewhere: bool) -> HarnessHealth:
    worker = WorkerRecord(
        "a",
        events=1,
        cpu_seconds=30.0,
        busiest_cores=0.95,
        worst_wait_share=0.4,
        elsewhere=elsewhere,
    )
    return health(cpu=CpuUse([HERE]), load_workers=(worker,))


def test_a_worker_of_this_machine_is_known_by_its_process_and_counts_once() -> None:
    found = of_workers(elsewhere=False)
    assert found.harness_cpu_seconds == 7.5
    assert found.harness_cpu_share == 0.75
    assert found.busiest_driver_cores == 0.6
    assert found.worst_driver_wait_share == 0.2


def test_a_worker_of_another_host_is_known_by_what_it_says() -> None:
    found = of_workers(elsewhere=True)
    assert found.harness_cpu_seconds == 37.5
    assert found.harness_cpu_share == 37.5 / 40
    assert found.busiest_driver_cores == 0.95
    assert found.worst_driver_wait_share == 0.4


def test_workers_are_processes_of_the_harness() -> None:
    assert component_of("locust-worker-12") == component_of("runner") == "harness"
    assert not is_driver("c1/kube-apiserver")
