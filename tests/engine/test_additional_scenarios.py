"""Pods that their gang holds to a domain which others have filled: one more machine there."""

from __future__ import annotations

from dataclasses import replace

from bigfleet.engine.explain.explain import Explainer
from bigfleet.engine.explain.explanation import Reason
from bigfleet.model.machine import MachineState
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


def test_additional_needs_wait_for_a_machine_on_its_way_to_their_rack() -> None:
    """It may have room for them, so it is not acquired twice. Once it has joined,
    kube-scheduler has a few seconds to use it.
    """
    specs = [configured("served", labels=IN_A), idle("last", labels=IN_A),
             idle("next", labels=IN_A)]  # fmt: skip
    story = Story(specs, gangs(2), additional())
    assert story.cycle() == ["Bootstrap last"]
    assert story.cycle() == []
    explainer = Explainer(story.fleet, story.demand, story.decision)
    assert explainer.reason(1) is Reason.AWAITING_MACHINES
    story.arrive()
    assert story.cycle() == []
    story.now += 10
    assert story.cycle() == ["Bootstrap next"]


def test_additional_needs_of_a_growing_cluster_do_not_wait_for_ever() -> None:
    """Where machines arrive all the time, each could be the one: others fill them first."""
    in_b = Requirement(RACK, Operator.IN, ("b",))
    others = [idle(f"other-{number:02}", labels=IN_B) for number in range(40)]
    story = Story([configured("served", labels=IN_A), idle("more", labels=IN_A), *others],
                  gangs(1), additional(0), ("east", need_of(4, in_b)))  # fmt: skip
    ordered = []
    for units in range(1, 40):
        more = additional(1 if units > 1 else 0)[1]
        story.demand = replace(
            story.demand, needs=[story.demand.needs[0], more, need_of(4 * units, in_b)]
        )
        actions = story.cycle()
        assert [each for each in actions if "other" in each]
        ordered += [story.now for each in actions if each == "Bootstrap more"]
        story.arrive()
    begun = NOW + 1
    assert len(ordered) == 1
    assert 2 <= ordered[0] - begun <= story.settings.additional_wait_seconds + 2


def test_additional_needs_do_not_wait_for_a_machine_of_another_rack_or_cluster() -> None:
    incoming = replace(configured("far", labels=IN_B), state=MachineState.CONFIGURING)
    strange = replace(configured("west", "west", labels=IN_A), state=MachineState.CONFIGURING)
    story = Story([incoming, strange, idle("more", labels=IN_A)], gangs(1), additional())
    assert story.cycle() == ["Bootstrap more"]


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


def test_a_machine_with_pods_of_equal_priority_beside_additional_ones_is_not_preempted() -> None:
    """The additional need claims it; its priority is that of the highest that uses it."""
    specs = [configured("shared", labels=IN_A, last_claimed_by=2), idle("late", cpu=2)]
    urgent = ("east", need_of(2, unit=2, priority=9)), ("west", need_of(4, unit=2, priority=9))
    story = Story(specs, *urgent, additional())
    assert story.cycle() == ["Bootstrap late"]
    assert story.short() == {1: {"cpu": 2}}
