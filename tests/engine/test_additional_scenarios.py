"""Pods that their gang holds to a domain which others have filled: one more machine there."""

from __future__ import annotations

from dataclasses import replace

from bigfleet.model.labels import HOSTNAME_LABEL
from bigfleet.model.machine import MachineState as S
from bigfleet.model.need import Need, Operator, Requirement
from tests.engine.engine_rig import NOW, RACK, configured, idle, need_of, speculative
from tests.engine.engine_story import Story


def gangs(units: int) -> tuple[str, Need]:
    """Plain pods stand for gangs that fold: they ask for no common domain either."""
    return "east", need_of(4 * units, group="gangs")


def additional(cpu: int = 1, rack: str = "a") -> tuple[str, Need]:
    """Pods that wait in a rack."""
    here = Requirement(RACK, Operator.IN, (rack,))
    return "east", need_of(cpu, here, unit=1, group="additional")


IN_A, IN_B = {RACK: "a"}, {RACK: "b"}


def test_existing_machines_do_not_count_for_additional_needs() -> None:
    """Neither their gangs' machines nor unclaimed ones: other pods fill both."""
    serving = configured("served", labels=IN_A)
    surplus = configured("surplus", labels=IN_A, idle_since=NOW)
    story = Story([serving, surplus, idle("more", labels=IN_A)], gangs(1), additional())
    assert story.cycle() == ["Bootstrap more"]


def test_machines_acquired_for_additional_needs_keep_serving_them() -> None:
    story = Story([configured("served", labels=IN_A), idle("more", labels=IN_A)],
                  gangs(1), additional())  # fmt: skip
    assert story.cycle() == ["Bootstrap more"]
    story.arrive()
    assert [story.cycle() for _ in range(3)] == [[]] * 3
    assert story.short() == {}


def test_a_machine_that_arrives_for_additional_needs_is_not_taken_by_others() -> None:
    """The pods that asked for it have waited for longer, and would ask again."""
    specs = [configured("served", labels=IN_A), idle("arrived", labels=IN_A, last_claimed_by=1),
             speculative("next", labels=IN_A)]  # fmt: skip
    story = Story(specs, gangs(2), additional())
    assert story.cycle() == ["Provision next", "Bootstrap arrived"]


def test_another_rack_does_not_help_additional_needs() -> None:
    story = Story([configured("served", labels=IN_A), idle("elsewhere", labels=IN_B)],
                  gangs(1), additional())  # fmt: skip
    assert story.cycle() == []
    assert story.short() == {1: {"cpu": 1}}


def test_additional_needs_do_not_wait_for_machines_that_are_on_their_way_for_others() -> None:
    """Who requests them has seen that these will be full. In a cluster that grows there are always
    some, and pods waited for them one after the other.
    """
    specs = [configured("served", labels=IN_A), idle("last", labels=IN_A),
             idle("next", labels=IN_A)]  # fmt: skip
    story = Story(specs, gangs(2), additional())
    assert story.cycle() == ["Bootstrap last", "Bootstrap next"]


def test_a_machine_for_additional_needs_has_room_for_a_part_of_its_cluster_s_growth() -> None:
    """Else a cluster that is full of small pods grows by the smallest machines there are. Without
    other pods the machine is as small as can be.
    """
    small, large = (
        idle(name, cpu=cpu, labels=IN_A, price=0.1 * cpu)
        for name, cpu in (("small", 2), ("large", 8))
    )
    served = configured("served", cpu=400, labels=IN_A)
    assert Story([served, small, large], additional()).cycle() == ["Bootstrap small"]
    for pods, found in ((400, "large"), (80, "small")):
        others = "east", need_of(pods, unit=1)
        assert Story([served, small, large], others, additional()).cycle() == [f"Bootstrap {found}"]


def test_the_growth_to_expect_is_a_sample_from_the_middle_of_each_part_of_the_pods() -> None:
    """Two large pods beside four hundred small ones are in none of ten."""
    medium, big = (
        idle(name, cpu=cpu, labels=IN_A, price=0.1 * cpu)
        for name, cpu in (("medium", 11), ("big", 18))
    )
    served = configured("served", cpu=500, labels=IN_A)
    small, large = ("east", need_of(398, unit=1)), ("east", need_of(16, unit=8, group="large"))
    story = Story([served, medium, big], large, small, additional())
    assert story.cycle() == ["Bootstrap medium"]


def test_a_machine_with_gpus_for_additional_needs_is_chosen_for_their_pods_alone() -> None:
    """Neither for growth nor for other pending pods, which have their turn and machines without."""
    gpus = {"nvidia.com/gpu": 1}
    small, large = (
        idle(name, cpu=cpu, labels=IN_A, price=price, more=gpus)
        for name, cpu, price in (("small", 4, 1.0), ("large", 64, 1.5))
    )
    pod = "east", need_of(1, unit=1, more=gpus, group="additional")
    others = "east", need_of(60, unit=1)
    story = Story([small, large, idle("ordinary", cpu=64)], pod, others)
    assert story.cycle() == ["Bootstrap small", "Bootstrap ordinary"]
    assert story.short() == {}


def test_machines_for_additional_pods_that_keep_apart_share_the_growth_of_such_pods() -> None:
    """Each of them takes a machine of its own, and the next workloads use the rest of it: of twenty
    machines each has room for a twentieth of them, and one alone for a quarter at most.
    """
    small, large = (
        [idle(f"{name}-{at}", cpu=cpu, labels=IN_A, price=0.1 * cpu) for at in range(20)]
        for name, cpu in (("small", 2), ("large", 8))
    )
    machines = [configured("served", cpu=400, labels=IN_A), *small, *large]

    def keeping_apart(need: Need) -> tuple[str, Need]:
        return "east", replace(need, profile=replace(need.profile, anti_affinity=(HOSTNAME_LABEL,)))

    def ordered(pods: int, *others: tuple[str, Need]) -> list[str]:
        return Story(machines, *others, keeping_apart(additional(pods)[1])).cycle()

    alike = [keeping_apart(need_of(2, unit=2, group=f"{at}")) for at in range(200)]
    assert ordered(1) == ordered(1, ("east", need_of(400, unit=1))) == ["Bootstrap small-0"]
    assert ordered(1, *alike) == ["Bootstrap large-0"]
    assert sorted(ordered(20, *alike)) == sorted(f"Bootstrap small-{at}" for at in range(20))


def test_no_pods_are_evicted_for_additional_needs() -> None:
    """Their first machines exist, and may have been preempted already."""
    victim = configured("victim", "west", labels=IN_A)
    story = Story([configured("served", labels=IN_A), victim], gangs(1), additional(),
                  ("west", need_of(4, group="low", priority=-9)))  # fmt: skip
    assert story.cycle() == []


def test_when_others_fill_that_machine_too_additional_needs_get_another() -> None:
    """One more each time, a speculative one if none is idle."""
    specs = [configured("served", labels=IN_A), idle("first", labels=IN_A),
             speculative("second", labels=IN_A)]  # fmt: skip
    story = Story(specs, gangs(1), additional())
    assert story.settle() == ["Bootstrap first"]
    story.demand = replace(story.demand, needs=[story.demand.needs[0], additional(5)[1]])
    assert story.cycle() == ["Provision second"]


def test_more_additional_pods_do_not_wait_for_the_machine_of_the_first() -> None:
    """That machine will be full."""
    story = Story(
        [idle("first", labels=IN_A), idle("second", labels=IN_A)], gangs(0), additional(4)
    )
    assert story.cycle() == ["Bootstrap first"]
    story.demand = replace(story.demand, needs=[story.demand.needs[0], additional(5)[1]])
    assert story.cycle() == ["Bootstrap second"]


def test_additional_pods_that_still_wait_are_for_the_machine_that_is_still_to_come() -> None:
    """Others run on the one that came first. The second was lost, and the pods waited anew."""
    specs = [configured("first", labels=IN_A, last_claimed_by=1),
             speculative("second", state=S.CREATING, labels=IN_A, last_claimed_by=1)]  # fmt: skip
    story = Story(specs, gangs(0), additional(4))
    assert story.cycle() == []
    story.arrive()
    assert story.cycle() == ["Bootstrap second"]


def test_a_machine_with_pods_of_equal_priority_beside_additional_ones_is_not_preempted() -> None:
    """The additional need claims it; its priority is that of the highest that uses it."""
    specs = [configured("shared", labels=IN_A, last_claimed_by=2), idle("late", cpu=2)]
    urgent = ("east", need_of(2, unit=2, priority=9)), ("west", need_of(4, unit=2, priority=9))
    story = Story(specs, *urgent, additional())
    assert story.cycle() == ["Bootstrap late"]
    assert story.short() == {1: {"cpu": 2}}
