"""How many processes a load needs follows from its busiest ten seconds."""

from __future__ import annotations

import pytest

from loaddriver.plan.records import ChurnEvent, DeleteEvent, Plan, PlanHeader, Step
from loaddriver.sizing.load import REQUEST_CPU_SECONDS, LoadNeed, load_lines, load_need
from tests.loaddriver.load_rig import planned


def plan_of(*events: DeleteEvent | ChurnEvent, seconds: float) -> Plan:
    """A set-up, and one step of so many seconds."""
    header = PlanHeader(profile="p", seed=1, clusters=1, pods=1)
    steps = (
        Step(number=0, phase="setup", seconds=0, pods=0, events=0),
        Step(number=1, phase="ramp", seconds=seconds, pods=1, events=len(events)),
    )
    return Plan(header, steps, (), (), tuple(events))


def delete(offset: float, step: int = 1) -> DeleteEvent:
    return DeleteEvent(id="", cluster=0, step=step, offset_seconds=offset, path="/x", name="x")


def churn(offset: float) -> ChurnEvent:
    return ChurnEvent(
        id="", cluster=0, step=1, offset_seconds=offset, namespace="n", workload="w", rank=0
    )


def test_the_busiest_ten_seconds_count_and_the_set_up_does_not() -> None:
    events = [*(delete(0.0, step=0) for _ in range(99)), *(delete(n / 10) for n in range(50))]
    assert load_need(plan_of(*events, delete(15.0), seconds=20)).requests_per_second == 5


def test_a_short_step_has_its_own_length() -> None:
    assert load_need(plan_of(*[delete(0.0)] * 10, seconds=2)).requests_per_second == 5


def test_a_churned_pod_is_two_requests() -> None:
    assert load_need(plan_of(*[churn(0.0)] * 10, seconds=10)).requests_per_second == 2


def test_a_plan_without_requests_needs_one_process() -> None:
    assert load_need(plan_of(seconds=1)).workers == 1


@pytest.mark.parametrize(("cores", "workers", "hosts"), [(0.4, 1, 0), (0.6, 2, 1), (2.4, 5, 2)])
def test_each_worker_keeps_half_a_core_and_one_process_needs_no_host(
    cores: float, workers: int, hosts: int
) -> None:
    need = LoadNeed(cores / REQUEST_CPU_SECONDS)
    assert (need.workers, need.hosts(4)) == (workers, hosts)


def test_a_profile_with_too_few_workers_is_told_how_many_to_write() -> None:
    need = LoadNeed(1000.0)
    assert list(load_lines(need, 3, 2)) == [
        "  load: at most 1,000 requests a second: 3 workers, on 2 hosts of 2 cores beside the "
        "runner's"
    ]
    assert list(load_lines(need, 1, 2))[1:] == [
        "  load.workers is 1: requests will be late; write 3"
    ]
    assert list(load_lines(LoadNeed(10.0), 1, 2)) == [
        "  load: at most 10 requests a second, which one process can send"
    ]


@pytest.mark.parametrize("name", ["smoke", "dev-50", "dev-500"])
def test_profiles_for_two_cores_need_one_process(name: str) -> None:
    assert load_need(planned(name)[1]).workers == 1
