"""Disruptions are counted by cause, and budgets are held against what stayed bound."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from loaddriver.judge.disruptions import Budgets, Disruptions, disruptions_section
from loaddriver.record.audit import AuditTimestamps, Removal
from loaddriver.record.journal import Event, Journal
from loaddriver.record.rows import PodRow
from tests.judge.judge_rig import at, facts, row, summarised, unseen

OPERATOR, SCHEDULER = "bigfleet-operator", "system:kube-scheduler"
LOST = "system:serviceaccount:kube-system:pod-garbage-collector"
REPLICA_SETS = "system:serviceaccount:kube-system:replicaset-controller"


def pods(number: int) -> list[PodRow]:
    """Of one workload, bound from second 1 on."""
    return [row(f"u{n}", 0, 1, workload="web") for n in range(number)]


def removal(pod: int, seconds: float, by: str = OPERATOR) -> Removal:
    return Removal(("load", f"pod-u{pod}"), at(seconds), by, by == OPERATOR)


def judged(
    rows: list[PodRow],
    removals: Iterable[Removal],
    floor: int | None = None,
    journal: Journal | None = None,
    refused: int = 0,
) -> Disruptions:
    log = AuditTimestamps(removals=list(removals))
    log.failed["create pods/eviction 429"] = refused
    observed = replace(unseen(), audit=log)
    floors = {} if floor is None else {("c0", "web"): floor}
    section = disruptions_section([observed], rows, journal, floors)
    assert section is not None
    return section


def test_pods_are_counted_by_who_removed_them() -> None:
    ends = [removal(0, 5), removal(1, 6, SCHEDULER), removal(2, 7, LOST), removal(3, 8)]
    section = judged(pods(5), ends, refused=7)
    assert (section.evictions, section.refused, section.evicted_twice) == (2, 7, 0)
    counted = {cause: number for cause, number in section.removed.items() if number}
    assert counted == {"evicted": 2, "preempted": 1, "lost": 1}
    assert section.archetypes["tiny-stateless"] == section.removed


def test_a_cause_that_nobody_had_is_a_nought_that_a_gate_can_read() -> None:
    """A missing key would be unreadable, and so fail."""
    section = judged(pods(1), [])
    assert section.removed["preempted"] == 0
    assert section.archetypes["tiny-stateless"]["lost"] == 0


def test_a_pod_of_which_two_evictions_were_granted_was_evicted_twice() -> None:
    assert judged(pods(2), [removal(0, 5), removal(0, 7)]).evicted_twice == 1


def test_a_pod_without_a_node_loses_no_place() -> None:
    """Its controller may delete it while it waits."""
    section = judged([row("u0", 0)], [removal(0, 5, REPLICA_SETS)])
    assert section.removed["controller"] == 0


def test_a_budget_is_kept_while_enough_pods_stay_bound() -> None:
    """Two of four may go; those who replaced them make room for the next."""
    replaced = [row(f"u{n}", 5, 6, workload="web") for n in (4, 5)]
    ends = [removal(0, 3), removal(1, 4), removal(2, 7), removal(3, 8)]
    section = judged([*pods(4), *replaced], ends, floor=2)
    assert section.budgets == Budgets(count=1, touched=1, breached=0, min_surplus=0)


def test_a_budget_is_breached_by_one_pod_too_many_whoever_took_it() -> None:
    """A Node that goes with its pods disregards budgets as much as a wrong eviction does."""
    for last in (OPERATOR, SCHEDULER, LOST):
        ends = [removal(0, 3), removal(1, 4), removal(2, 5, last)]
        section = judged(pods(4), ends, floor=2)
        assert section.budgets == Budgets(count=1, touched=1, breached=1, min_surplus=-1)


def test_no_budget_protects_from_its_own_controller() -> None:
    """A workload that is deleted or scaled down asks for no permission."""
    ends = [removal(n, 5, REPLICA_SETS) for n in range(4)]
    section = judged(pods(4), ends, floor=2)
    assert section.budgets == Budgets(count=1, touched=0, breached=0, min_surplus=None)


def test_preemptions_are_counted_by_grace_and_by_machine() -> None:
    """A machine that is preempted twice counts as one machine, and as two decisions."""

    def decided(machine: str, action: str, grace: float) -> Event:
        return Event(at=1.0, event="decided", machine=machine, action=action, grace=grace)

    stories = {
        "m1": [decided("m1", "Preempt", 10), decided("m1", "Preempt", 10)],
        "m2": [decided("m2", "Preempt", 30)],
        "m3": [decided("m3", "Reclaim", 600)],
    }
    section = judged(pods(1), [], journal=Journal(stories, 0))
    assert section.preemptions == {"grace10s": 2, "grace30s": 1}
    assert section.machines_preempted == 2


def test_without_an_audit_log_nobody_knows_and_every_gate_on_it_fails() -> None:
    """A watch does not say who removed a pod."""
    assert disruptions_section([unseen()], pods(1), None, {}) is None
    assert summarised(facts(), [unseen()], pods(1), []).disruptions is None
