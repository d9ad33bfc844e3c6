"""What runs is left alone, and machines come and go for a reason: counted case by case."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from loaddriver.judge.stability import Stability, stability_section
from loaddriver.record.audit import Removal
from loaddriver.record.journal import Event, Journal
from loaddriver.record.rows import PodRow
from tests.judge.fleet_rig import fleet, journal, life, machine, observed, state
from tests.judge.judge_rig import at, facts, row, summarised, unseen

OPERATOR, SCHEDULER, LOAD = "bigfleet-operator", "system:kube-scheduler", "load-driver"
LOST = "system:serviceaccount:kube-system:pod-garbage-collector"


def removal(pod: str, seconds: float, by: str = OPERATOR) -> Removal:
    return Removal(("load", f"pod-{pod}"), at(seconds), by, by == OPERATOR)


def judged(
    rows: Iterable[PodRow],
    removals: Iterable[Removal] = (),
    told: Journal | None = None,
    **more: object,
) -> Stability:
    """A run of 100 s whose soak begins at 40."""
    ends = {each.name[1]: each.at_micros for each in removals}
    own = [
        replace(each, deleted_micros=ends[each.name]) if each.name in ends else each
        for each in rows
    ]
    known = fleet(machine("m1"), machine("m2"), **more)
    section = stability_section(facts(fleet=known), [observed({}, (*removals,))], own, told)
    assert section is not None
    return section


def pods(number: int = 4) -> list[PodRow]:
    return [row(f"u{n}", 0, 1, workload="web") for n in range(number)]


def test_pods_evicted_or_lost_while_demand_only_grows_are_disturbed() -> None:
    section = judged(pods(), [removal("u0", 5), removal("u1", 6, LOST)])
    assert (section.disrupted_while_growing, section.disrupted) == (2, 2)
    assert section.growing_seconds == 100


def test_what_kube_scheduler_removes_for_higher_priorities_is_counted_apart() -> None:
    """No autoscaler did it, and none could prevent it."""
    section = judged(pods(), [removal("u0", 5, SCHEDULER)])
    assert (section.disrupted, section.disrupted_while_growing, section.preempted) == (0, 0, 1)


def test_demand_no_longer_only_grows_once_an_owner_has_removed_a_pod() -> None:
    section = judged(pods(), [removal("u0", 20, LOAD), removal("u1", 30)])
    assert section.growing_seconds == 20
    assert (section.disrupted_while_growing, section.disrupted) == (0, 1)


def test_demand_no_longer_only_grows_once_a_job_is_through() -> None:
    """Batch pods run for 30 s from their binding on."""
    job = row("j", 0, 2, workload="job", archetype="batch")
    section = judged([*pods(), job], [removal("u1", 31.9), removal("u2", 36)])
    assert section.growing_seconds == 32
    assert section.disrupted_while_growing == 1


def test_who_is_disturbed_later_in_the_ramp_counts_while_demand_is_at_its_highest() -> None:
    """Where Jobs end, more pods may begin meanwhile; from 40 s on the ramp is over."""
    ended, later = removal("u0", 20, LOAD), row("u9", 32, 33, workload="web")
    cases = ((25, 0), (31, 0), (35, 1), (39, 1), (41, 0))
    for seconds, counted in cases:
        section = judged([*pods(), later], [ended, removal("u1", seconds)])
        assert section.disrupted_while_growing == counted


def test_a_job_that_was_interrupted_has_not_made_demand_smaller() -> None:
    """Or else whoever evicts a Job's pod first could evict everybody after it."""
    job = row("j", 0, 2, workload="job", archetype="batch")
    section = judged([*pods(), job], [removal("j", 5), removal("u1", 50)])
    assert section.growing_seconds == 100
    assert (section.disrupted_while_growing, section.job_pods_interrupted) == (2, 1)


def test_a_jobs_pod_that_is_through_is_neither_interrupted_nor_disturbed() -> None:
    """The garbage collector removes what is left of it with its Node, which was empty."""
    job = row("j", 0, 2, workload="job", archetype="batch")
    later = row("u9", 33, 34, workload="web")
    section = judged([*pods(), job, later], [removal("j", 36, LOST)])
    assert (section.job_pods_interrupted, section.disrupted) == (0, 0)
    assert section.disrupted_while_growing == 0


def test_the_rate_is_of_those_that_ran_before_demand_fell() -> None:
    """From 40 s to 70 s: one of four and then of three pods, in half a minute."""
    section = judged(pods(), [removal("u0", 55), removal("u1", 80)], shrinks_at_micros=at(70))
    assert (section.steady_seconds, section.disrupted_while_steady) == (30, 1)
    assert section.disrupted_per_minute_percent == pytest.approx(100 * 2 / 3.5, abs=1e-3)


def told(event: str, name: str, seconds: float, action: str, decided: float) -> Event:
    """An event of an order that was decided at `decided`."""
    return Event(
        at=at(seconds) / 1e6,
        event=event,
        machine=name,
        action=action,
        cluster="c0",
        decided=at(decided) / 1e6,
    )


def decided(name: str, seconds: float, action: str) -> Event:
    return told("decided", name, seconds, action, seconds)


def test_machines_taken_while_demand_only_grows_are_counted_by_decisions() -> None:
    events = journal(
        decided("m1", 5, "Bootstrap"), decided("m1", 20, "Reclaim"), decided("m2", 95, "Reclaim")
    )
    section = judged(pods(), [removal("u0", 90, LOAD)], events)
    assert section.reclaimed_while_growing == 1


def test_a_machine_whose_operator_refuses_is_not_taken() -> None:
    """Its pods do not fit elsewhere, which the shard cannot know."""
    events = journal(
        decided("m1", 20, "Reclaim"),
        told("order-failed", "m1", 22, "Reclaim", decided=20),
        decided("m1", 40, "Reclaim"),
    )
    assert judged(pods(), [], events).reclaimed_while_growing == 1


def test_a_machine_given_back_although_demand_has_not_fallen_is_unexplained() -> None:
    section = judged(pods(), told=journal(*life("m1", 10, 60)))
    assert (section.bought, section.released_within10_minutes) == (1, 1)
    assert section.released_unexplained == 1


def test_demand_that_fell_by_half_a_machine_explains_that_one_goes() -> None:
    """Two of four cores; one core would not."""
    story = journal(*life("m1", 10, 60))
    for gone, unexplained in ((1, 1), (2, 0)):
        ends = [removal(f"u{n}", 50, LOAD) for n in range(gone)]
        assert judged(pods(), ends, story).released_unexplained == unexplained


def test_demand_that_fell_only_after_a_machine_was_taken_does_not_explain_it() -> None:
    """It is drained, and idle for a while, before it is given back."""
    story = [*life("m1", 10, 60), decided("m1", 30, "Reclaim")]
    ends = [removal(f"u{n}", 50, LOAD) for n in range(2)]
    ordered = journal(*sorted(story, key=lambda event: event.at))
    assert judged(pods(), ends, ordered).released_unexplained == 1


def test_demand_is_held_against_its_height_and_not_against_the_moment_of_buying() -> None:
    """One that was bought early in a ramp may go once demand has halved."""
    late = [row(f"l{n}", 15, 16, workload="web") for n in range(4)]
    ends = [removal(f"l{n}", 50, LOAD) for n in range(2)]
    assert judged([*pods(), *late], ends, journal(*life("m1", 10, 60))).released_unexplained == 0


def test_jobs_that_are_through_explain_it_as_well() -> None:
    jobs = [row(f"j{n}", 0, 2, workload="job", archetype="batch") for n in range(2)]
    section = judged([*pods(), *jobs], told=journal(*life("m1", 10, 60)))
    assert section.released_unexplained == 0


def test_a_machine_goes_when_the_jobs_that_it_served_are_through() -> None:
    """Although other demand grows; not while one of them runs, or if other pods ran there, too."""
    more = [row(f"l{n}", 20, 21, workload="web") for n in range(9)]
    story = journal(*life("m1", 10, 60))
    for started, archetype, unexplained in ((12, "batch", 0), (40, "batch", 1), (12, "", 1)):
        own = row("j", 11, started, workload="job", archetype=archetype, node="m1")
        section = judged([*pods(), *more, own], told=story)
        assert section.released_unexplained == unexplained


def test_a_machine_that_was_bought_for_nothing_is_counted() -> None:
    """Whatever explains its release; a pod that was bound to it earlier or later does not count."""
    story = journal(*life("m1", 10, 60))
    for bound, unused in ((None, 1), (5, 1), (12, 0), (70, 1)):
        own = row("u0", 0, bound, workload="web", node="" if bound is None else "m1")
        assert judged([own], told=story).released_unused == unused
    assert judged(pods()).released_unused is None


def test_a_machine_that_failed_is_given_back_for_that_reason() -> None:
    """A spot machine that was interrupted, for one."""
    story = [*life("m1", 10, 60), state("m1", 55, "FAILED")]
    section = judged(pods(), told=journal(*story))
    assert (section.released_within10_minutes, section.released_unexplained) == (1, 0)
    earlier = [state("m1", 2, "FAILED"), state("m1", 4, "SPECULATIVE")]
    assert judged(pods(), told=journal(*life("m1", 10, 60), *earlier)).released_unexplained == 1


def test_machines_that_were_there_from_the_start_are_not_bought() -> None:
    known = fleet(machine("m1", state="IDLE"))
    story = journal(state("m1", 10, "CONFIGURING"), state("m1", 50, "IDLE"))
    section = stability_section(facts(fleet=known), [observed()], pods(), story)
    assert section is not None
    assert (section.bought, section.released_within10_minutes) == (0, 0)


def test_the_rate_of_buying_is_that_of_the_steady_time() -> None:
    """One before the soak, one within it, which is a minute long."""
    story = journal(state("m1", 10, "CREATING"), state("m2", 50, "CREATING"))
    section = judged(pods(), told=story)
    assert (section.bought, section.bought_per_minute) == (2, 1.0)


def test_pods_that_never_got_a_node_while_one_was_to_be_had_are_counted() -> None:
    """Not those that had hardly come, nor those that no free machine could hold."""
    waiting = row("w", 10, workload="web")
    young = row("y", 80, workload="web")
    taken = [state("m1", 5, "CONFIGURED"), state("m2", 5, "CONFIGURED")]
    free = journal(taken[0])
    assert judged([waiting, young], told=free).unschedulable_despite_supply == 1
    assert judged([waiting], told=journal(*taken)).unschedulable_despite_supply == 0
    withdrawn = row("g", 10, deleted=60, workload="web")
    assert judged([withdrawn], told=free).unschedulable_despite_supply == 1


def test_requests_for_additional_machines_are_told_per_thousand_pods() -> None:
    seen = observed()
    assert seen.audit is not None
    seen.audit.additional["load", "x-additional-1"] = at(5)
    section = stability_section(facts(fleet=fleet(machine("m1"))), [seen], pods(4), None)
    assert section is not None
    assert (section.additional_requests, section.additional_requests_per1000_pods) == (1, 250.0)


def test_what_only_journals_know_is_unreadable_without_them() -> None:
    """So that a gate on it fails, instead of passing on a nought that nobody counted."""
    section = judged(pods())
    assert (section.bought, section.released_unexplained) == (None, None)
    assert (section.reclaimed_while_growing, section.unschedulable_despite_supply) == (None, None)


def test_without_an_audit_log_or_a_fleet_there_is_no_section() -> None:
    assert summarised(facts(), [observed()], pods(), []).stability is None
    known = facts(fleet=fleet(machine("m1")))
    assert stability_section(known, [unseen()], pods(), None) is None
    assert summarised(known, [observed()], pods(), []).stability is not None
