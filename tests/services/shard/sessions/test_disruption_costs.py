"""How often operators are asked what a reclaim would disrupt."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from bigfleet.api.v1alpha1.shard_pb2 import DisruptionReport, MachineDisruption
from bigfleet.services.shard.sessions.disruption_costs import DisruptionCosts

CANDIDATES = {"c": ["m-1", "m-2"]}


class Asking:
    """Cycles of a shard with one cluster, a second apart, for a hold of a minute."""

    def __init__(self) -> None:
        self._costs = DisruptionCosts(60.0, 600.0, 1.0)
        self._now = 0.0

    def for_seconds(
        self,
        seconds: int,
        *,
        surplus: Collection[str] = (),
        growing: bool = False,
        fell: Mapping[str, float] | None = None,
        search_seconds: int = 1,
    ) -> list[float]:
        """When the operator was asked, which answers each time that it has nothing to release.
        Surplus machines are looked for every `search_seconds`.
        """
        asked = []
        for _ in range(seconds):
            found = {} if self._now % search_seconds else {"c": list(surplus)}
            grows = {"c"} if growing else ()
            for cluster, inquiry in self._costs.inquiries(
                CANDIDATES, found, fell or {}, grows, self._now
            ):
                assert list(inquiry.surplus_machine_ids) == list(surplus)
                self._costs.take(cluster, DisruptionReport(), self._now, lambda _: True)
                asked.append(self._now)
            self._now += 1
        return asked


def test_while_machines_are_surplus_their_operator_is_asked_every_ten_seconds() -> None:
    assert Asking().for_seconds(31, surplus=["m-1"]) == [0, 10, 20, 30]


def test_an_operator_with_nothing_to_release_is_asked_ever_less_often() -> None:
    assert Asking().for_seconds(700) == [0, 20, 60, 140, 300, 460, 620]


def test_between_searches_as_many_machines_are_surplus_as_were_found_last() -> None:
    """The operator is told of them, and asked as often as if all cycles looked for them."""
    assert Asking().for_seconds(31, surplus=["m-1"], search_seconds=4) == [0, 10, 20, 30]
    assert Asking().for_seconds(300, search_seconds=10) == [0, 20, 60, 140]


def test_once_demand_falls_the_operator_is_asked_every_ten_seconds_again() -> None:
    """As it is once less runs on a Node that takes no new pods."""
    asking = Asking()
    asking.for_seconds(301)
    assert asking.for_seconds(15, fell={"c": 300.5}) == [310]


def test_while_its_cluster_grows_an_operator_is_asked_as_rarely_as_can_be() -> None:
    """Also if some of its demand falls, and machines are surplus: what runs there stays anyway."""
    asking = Asking()
    fell = {"c": 1000.0}
    assert asking.for_seconds(400, surplus=["m-1"], growing=True, fell=fell) == [0, 160, 320]
    assert asking.for_seconds(12, surplus=["m-1"], fell=fell) == [400, 410]


class BatchMachine:
    """Reports about one machine that runs a batch pod or none, at a moment each."""

    def __init__(self) -> None:
        self._costs = DisruptionCosts(60.0, 600.0, 1.0)

    def is_released(self, at_seconds: float, *, batch: bool = True) -> bool:
        """Whether the machine has a cost at which it may go, by a report of that moment."""
        pods = int(batch)
        reported = MachineDisruption(machine_id="m-1", pods=pods, batch_pods=pods, cost=pods)
        self._costs.take("c", DisruptionReport(machines=[reported]), at_seconds, lambda _: True)
        return math.isfinite(self._costs.known(at_seconds, lambda _: ())["m-1"])


def test_batch_pods_have_their_wait_to_end() -> None:
    machine = BatchMachine()
    assert [machine.is_released(at) for at in range(0, 601, 150)] == [False] * 4 + [True]


def test_batch_pods_of_a_machine_that_ran_none_in_between_have_a_wait_of_their_own() -> None:
    machine = BatchMachine()
    assert not machine.is_released(0)
    assert machine.is_released(150, batch=False)
    assert [machine.is_released(at) for at in range(300, 901, 150)] == [False] * 4 + [True]


def test_batch_pods_of_a_machine_not_asked_about_for_long_have_a_wait_of_their_own() -> None:
    """Those that it ran a day ago have long ended."""
    machine = BatchMachine()
    assert not machine.is_released(0)
    assert not machine.is_released(86_400)


class StubbornMachine:
    """A machine that its cluster's operator does not let go, tried whenever it may be."""

    def __init__(self) -> None:
        self.costs = DisruptionCosts(60.0, 600.0, 1.0)

    def must_stay(self, at_seconds: float) -> bool:
        return math.isinf(self.costs.known(at_seconds, lambda _: ()).get("m-1", 0.0))

    def refusals(self, begin: int, seconds: int) -> list[int]:
        """When the operator refused, in that time."""
        refused = []
        for at in range(begin, begin + seconds):
            if not self.must_stay(at):
                refused.append(at)
                self.costs.refused("m-1", "c", at)
        return refused


def test_a_machine_whose_reclaim_is_refused_is_tried_ever_less_often() -> None:
    assert StubbornMachine().refusals(0, 1600) == [0, 25, 75, 175, 375, 775, 1375]


def test_a_machine_whose_reclaim_was_refused_may_go_once_its_operator_says_so() -> None:
    machine = StubbornMachine()
    machine.refusals(0, 200)
    empty = DisruptionReport(machines=[MachineDisruption(machine_id="m-1")])
    machine.costs.take("c", DisruptionReport(), 190, lambda _: True)
    assert machine.must_stay(200)
    machine.costs.take("c", empty, 200, lambda _: True)
    assert [machine.must_stay(at) for at in (200, 226, 300)] == [False] * 3


def test_what_an_operator_refused_is_forgotten_after_a_while_and_once_the_machine_has_left() -> (
    None
):
    machine = StubbornMachine()
    machine.refusals(0, 200)
    assert machine.refusals(1000, 30) == [1000, 1025]
    machine.costs.accepted("m-1")
    assert machine.refusals(1030, 30) == [1030, 1055]
