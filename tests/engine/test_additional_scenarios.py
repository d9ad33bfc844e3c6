"""Pods that their gang holds to a domain which others have filled: one more machine there."""

from __future__ import annotations

from dataclasses import replace

from bigfleet.model.machine import MachineState
from bigfleet.model.need import ADDITIONAL_GROUP, Need, Operator, Requirement
from tests.engine.engine_rig import NOW, RACK, configured, idle, need_of, speculative
from tests.engine.engine_story import Story


def gangs(units: int) -> tuple[str, Need]:
    """Plain pods stand for gangs that fold: they ask for no common domain either."""
    return "east", need_of(4 * units, group="gangs")


def stranded(cpu: int = 1, rack: str = "a") -> tuple[str, Need]:
    """Pods that wait in a rack."""
    here = Requirement(RACK, Operator.IN, (rack,))
    return "east", need_of(cpu, here, unit=1, group=ADDITIONAL_GROUP)


IN_A, IN_B = {RACK: "a"}, {RACK: "b"}


def test_what_is_there_already_does_not_count_for_the_stranded() -> None:
    """Neither what serves their gangs nor what nobody counts: others' pods fill both."""
    serving = configured("served", labels=IN_A)
    surplus = configured("surplus", labels=IN_A, idle_since=NOW)
    story = Story([serving, surplus, idle("more", labels=IN_A)], gangs(1), stranded())
    assert story.cycle() == ["Bootstrap more"]


def test_what_was_fetched_for_them_goes_on_serving_them() -> None:
    story = Story([configured("served", labels=IN_A), idle("more", labels=IN_A)],
                  gangs(1), stranded())  # fmt: skip
    assert story.cycle() == ["Bootstrap more"]
    story.arrive()
    assert [story.cycle() for _ in range(3)] == [[]] * 3
    assert story.short() == {}


def test_another_rack_is_of_no_use_to_them() -> None:
    story = Story([configured("served", labels=IN_A), idle("elsewhere", labels=IN_B)],
                  gangs(1), stranded())  # fmt: skip
    assert story.cycle() == []
    assert story.short() == {1: {"cpu": 1}}


def test_while_a_machine_is_on_its_way_to_their_rack_they_wait_for_it() -> None:
    """It may have room for them: what is slow to come is not bought twice. When it has come,
    kube-scheduler has some seconds to use it.
    """
    specs = [configured("served", labels=IN_A), idle("last", labels=IN_A),
             idle("next", labels=IN_A)]  # fmt: skip
    story = Story(specs, gangs(2), stranded())
    assert story.cycle() == ["Bootstrap last"]
    assert story.cycle() == []
    story.arrive()
    assert story.cycle() == []
    story.now += 10
    assert story.cycle() == ["Bootstrap next"]


def test_a_machine_on_its_way_to_another_rack_or_cluster_does_not_hold_them_up() -> None:
    incoming = replace(configured("far", labels=IN_B), state=MachineState.CONFIGURING)
    strange = replace(configured("west", "west", labels=IN_A), state=MachineState.CONFIGURING)
    story = Story([incoming, strange, idle("more", labels=IN_A)], gangs(1), stranded())
    assert story.cycle() == ["Bootstrap more"]


def test_nobody_is_evicted_for_the_stranded() -> None:
    """What they asked for first is there, and may have been taken from somebody already."""
    victim = configured("victim", "west", labels=IN_A)
    story = Story([configured("served", labels=IN_A), victim], gangs(1), stranded(),
                  ("west", need_of(4, group="low", priority=-9)))  # fmt: skip
    assert story.cycle() == []


def test_when_others_fill_that_machine_too_they_get_another() -> None:
    """Asked for as many times over as it has happened; bought if there is no idle one."""
    specs = [configured("served", labels=IN_A), idle("first", labels=IN_A),
             speculative("second", labels=IN_A)]  # fmt: skip
    story = Story(specs, gangs(1), stranded())
    assert story.settle() == ["Bootstrap first"]
    story.demand = replace(story.demand, needs=[story.demand.needs[0], stranded(5)[1]])
    assert story.cycle() == ["Provision second"]


def test_more_of_them_do_not_wait_for_the_machine_that_the_first_ones_get() -> None:
    """It is known to be full then."""
    story = Story([idle("first", labels=IN_A), idle("second", labels=IN_A)], gangs(0), stranded(4))
    assert story.cycle() == ["Bootstrap first"]
    story.demand = replace(story.demand, needs=[story.demand.needs[0], stranded(5)[1]])
    assert story.cycle() == ["Bootstrap second"]
