"""What was held, over time and in money, beside the least that the pods of the moment need."""

from __future__ import annotations

import pytest

from loaddriver.judge.cost import FleetCost, cost_section
from loaddriver.record.journal import Journal
from loaddriver.record.rows import PodRow
from tests.judge.fleet_rig import fleet, journal, machine, observed, state
from tests.judge.judge_rig import facts, row, summarised

# The soak goes from 40 to 100 s.
PODS = [row(f"u{n}", 0, 1, workload="web") for n in range(4)]


def held(
    nodes: dict[str, tuple[float, float | None]],
    rows: list[PodRow] = PODS,
    told: Journal | None = None,
    **more: object,
) -> FleetCost:
    machines = [machine("m1"), machine("m2"), machine("m3", dollars=3.0)]
    known = facts(fleet=fleet(*machines, **more))
    section = cost_section(known, [observed(nodes)], rows, told)
    assert section is not None
    return section


def test_means_are_over_the_soak_and_weighed_by_time() -> None:
    """One node all the time, another for half of the soak, a third before it."""
    section = held({"m1": (0, None), "m2": (70, None), "m3": (0, 20)})
    assert section.mean_machines == pytest.approx(1.5)
    assert section.mean_dollars_per_hour == pytest.approx(1.5)
    assert section.source == "nodes"


def test_the_end_of_the_ramp_and_of_the_run_are_moments_of_their_own() -> None:
    section = held({"m1": (0, None), "m3": (10, 60)})
    assert section.ramp_end is not None
    assert (section.ramp_end.machines, section.ramp_end.dollars_per_hour) == (2, 4.0)
    assert (section.end.machines, section.end.dollars_per_hour) == (1, 1.0)


def test_idle_machines_that_were_bought_cost_money_until_they_are_given_back() -> None:
    """A node may be long gone; only the shards know that its machine is still paid for."""
    story = [state("m3", 5, "CREATING"), state("m3", 10, "CONFIGURED"), state("m3", 60, "IDLE")]
    kept = held({"m3": (10, 60)}, told=journal(*story))
    assert (kept.end.machines, kept.end.dollars_per_hour, kept.source) == (0, 3.0, "journal")
    given = held({"m3": (10, 60)}, told=journal(*story, state("m3", 90, "SPECULATIVE")))
    assert given.end.dollars_per_hour == 0.0
    assert given.mean_dollars_per_hour == pytest.approx(3.0 * 50 / 60)


def test_bounds_are_of_the_pods_of_the_moment() -> None:
    """Four one-core pods fill a machine; eight need two; those that went need nothing."""
    more = [row(f"v{n}", 0, 1, 50, workload="web") for n in range(4)]
    section = held({"m1": (0, None), "m2": (0, None)}, [*PODS, *more])
    assert section.ramp_end is not None
    assert (section.ramp_end.least_machines, section.end.least_machines) == (2, 1)
    assert section.ramp_end.machines_ratio == 1.0
    assert section.end.machines_ratio == 2.0
    assert section.end.least_dollars_per_hour == pytest.approx(1.0, rel=0.01)
    assert section.end.dollars_ratio == pytest.approx(2.0, rel=0.01)


def test_a_pod_that_waits_counts_and_a_job_that_is_through_does_not() -> None:
    """Batch pods run for 30 s; one without a node asks for one all the same."""
    waiting = [row(f"w{n}", 90, workload="db") for n in range(4)]
    through = [row(f"j{n}", 0, 2, workload="job", archetype="batch") for n in range(4)]
    section = held({"m1": (0, None)}, [*PODS, *waiting, *through])
    assert section.ramp_end is not None
    assert section.ramp_end.least_machines == 1
    assert section.end.least_machines == 2


def test_the_fewest_of_those_held_are_told_beside_the_fewest_of_all() -> None:
    """Small machines were bought, where one large one would have done."""
    rows = [row(f"u{n}", 0, 1, workload="web") for n in range(8)]
    large = machine("large", cores=16)
    small = [machine(f"s{n}") for n in range(3)]
    nodes: dict[str, tuple[float, float | None]] = {each.id: (0.0, None) for each in small}
    section = cost_section(facts(fleet=fleet(large, *small)), [observed(nodes)], rows, None)
    assert section is not None
    end = section.end
    assert (end.machines, end.least_machines, end.least_of_held) == (3, 1, 2)
    assert section.end.held_ratio == 1.5
    assert section.end.held_dollars_ratio == pytest.approx(1.5, rel=0.01)


def test_an_empty_cluster_has_no_ratio() -> None:
    section = held({"m1": (0, None)}, [])
    end = section.end
    assert (end.machines_ratio, end.held_ratio, end.held_dollars_ratio) == (None, None, None)


def test_a_run_without_a_soak_has_no_means() -> None:
    known = facts(fleet=fleet(machine("m1")), soak_started_micros=None)
    section = cost_section(known, [observed({"m1": (0, None)})], PODS, None)
    assert section is not None
    assert (section.mean_machines, section.ramp_end) == (None, None)
    assert section.end.machines == 1


def test_without_a_fleet_there_is_no_section_and_every_gate_on_it_fails() -> None:
    assert summarised(facts(), [observed()], PODS, []).cost is None
    known = facts(fleet=fleet(machine("m1")))
    assert summarised(known, [observed({"m1": (0, None)})], PODS, []).cost is not None


def test_an_autoscaler_that_creates_its_own_machines_is_not_bound_by_the_fleets_number() -> None:
    """Eight pods need two small machines, of which the fleet has one; its nodes have prices."""
    rows = [row(f"u{n}", 0, 1, workload="web") for n in range(8)]
    bought = {name: machine(name) for name in ("kwok-1", "kwok-2", "kwok-3")}
    nodes: dict[str, tuple[float, float | None]] = dict.fromkeys(bought, (0.0, None))
    least = {}
    for own in ({}, bought):
        known = fleet(machine("small"), machine("dear", dollars=9.0), own_nodes=own)
        section = cost_section(facts(fleet=known), [observed(nodes)], rows, None)
        assert section is not None
        assert section.end.dollars_per_hour == (3.0 if own else 0.0)
        least[bool(own)] = section.end.least_dollars_per_hour
    assert least[True] == pytest.approx(2.0, rel=0.01)
    assert least[False] == pytest.approx(10.0, rel=0.01)
