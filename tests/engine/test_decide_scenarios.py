"""Placement and acquisition, by examples with small fleets."""

from __future__ import annotations

import math

import pytest

from bigfleet.engine.snapshot import EngineConfig
from bigfleet.model import penalty
from bigfleet.model.machine import MachineState
from bigfleet.model.need import Operator, Requirement, Spread
from tests.engine.engine_pods import outcome, pods
from tests.engine.engine_rig import (
    ZONE,
    Spec,
    action_names,
    checked,
    configured,
    decided,
    demand_of,
    fleet_of,
    idle,
    need_of,
    same,
    speculative,
)

GPU = "nvidia.com/gpu"


def test_idle_before_speculative() -> None:
    """An idle machine is used before a speculative one, even a cheaper one."""
    assert decided([speculative("s", price=0.1), idle("i", price=9)], need_of(4)) == ["Bootstrap i"]


def test_the_cluster_uses_its_own_machines_first() -> None:
    """A need that its own machines cover causes no action."""
    assert decided([configured("c"), idle("i")], need_of(4)) == []


@pytest.mark.parametrize("state", [MachineState.CONFIGURING, MachineState.CREATING])
def test_a_machine_on_its_way_counts(state: MachineState) -> None:
    """A machine on its way to a need is not ordered twice."""
    cluster = "east" if state is MachineState.CONFIGURING else ""
    incoming = Spec("c", state, cluster=cluster, last_claimed_by=0)
    assert decided([incoming, idle("i")], need_of(4)) == []


@pytest.mark.parametrize("state", [MachineState.DRAINING, MachineState.FAILED])
def test_a_machine_that_leaves_does_not_count(state: MachineState) -> None:
    """Draining and failed machines serve no need."""
    assert decided([Spec("c", state, cluster="east"), idle("i")], need_of(4)) == ["Bootstrap i"]


def test_a_machine_that_is_being_created_serves_all_needs_of_its_cluster() -> None:
    """The earlier need of the same cluster uses what a later one has ordered."""
    incoming = Spec("c", MachineState.CREATING, cpu=8, last_claimed_by=1)
    assert decided([incoming, idle("i")], need_of(4), need_of(4, group="b")) == []


def test_a_machine_that_is_being_created_serves_no_other_cluster() -> None:
    """It was ordered for east, so west gets one of its own."""
    fleet = fleet_of(specs := [Spec("c", MachineState.CREATING, last_claimed_by=1), idle("i")])
    demand = demand_of(fleet, [("west", need_of(4)), ("east", need_of(4))])
    assert action_names(specs, checked(fleet, demand)) == ["Bootstrap i"]


def test_a_machine_that_has_just_arrived_is_for_the_cluster_that_it_was_created_for() -> None:
    """West's need comes first, yet each cluster gets the machine that it chose; else both would
    wait for machines that the other one takes.
    """
    specs = [idle("arrived", last_claimed_by=1), speculative("s")]
    fleet = fleet_of(specs)
    demand = demand_of(fleet, [("west", need_of(4)), ("east", need_of(4, group="b"))])
    assert action_names(specs, checked(fleet, demand)) == ["Provision s", "Bootstrap arrived"]


def test_all_needs_of_its_cluster_share_a_machine_that_has_just_arrived() -> None:
    """As while it was being created, although only one of them is known to have claimed it."""
    specs = [idle("arrived", cpu=8, last_claimed_by=1), speculative("s")]
    assert decided(specs, need_of(4), need_of(4, group="b")) == ["Bootstrap arrived"]


@pytest.mark.parametrize(
    ("priority", "wanted"), [(0, 0), (1, 4)], ids=["not wanted any more", "outranked"]
)
def test_a_machine_that_has_just_arrived_is_not_kept_from_others(
    priority: int, wanted: int
) -> None:
    """From those of a higher priority, and if its own cluster does not take it."""
    specs = [idle("arrived", last_claimed_by=1)]
    fleet = fleet_of(specs)
    urgent, own = need_of(4, priority=priority), need_of(wanted, group="b")
    demand = demand_of(fleet, [("west", urgent), ("east", own)])
    decision = checked(fleet, demand)
    assert [(action.row, action.need) for action in decision.actions] == [(0, 0)]


@pytest.mark.parametrize("state", [MachineState.CREATING, MachineState.DRAINING])
def test_incoming_machines_count_though_the_requesting_need_is_gone(state: MachineState) -> None:
    """The machine is on its way to east; whichever pods are there now will use it."""
    incoming = Spec("c", state, cluster="west" if state is MachineState.DRAINING else "",
                  destination="east")  # fmt: skip
    assert decided([incoming, idle("i")], need_of(4)) == []


def test_machines_of_other_clusters_do_not_count() -> None:
    """Supply is what the cluster itself has."""
    specs = [configured("c", "west"), idle("i")]
    fleet = fleet_of(specs)
    demand = demand_of(fleet, [("east", need_of(4))], reported=["east"])
    assert action_names(specs, checked(fleet, demand)) == ["Bootstrap i"]


def test_earlier_needs_are_served_first() -> None:
    """Demand order decides which need gets the last machine; the other one reports a shortfall."""
    fleet = fleet_of([idle("i", cpu=4)])
    demand = demand_of(fleet, [("west", need_of(3)), ("east", need_of(5))])
    decision = checked(fleet, demand)
    assert [(a.row, a.need) for a in decision.actions] == [(0, 0)]
    assert [(s.need, s.deficit) for s in decision.shortfalls] == [(1, {"cpu": 5})]


def test_gpu_machines_are_the_last_resort_for_plain_pods() -> None:
    """A free GPU machine is not used as long as a plain one can be created."""
    specs = [idle("gpu", price=0, more={GPU: 8000}), speculative("plain", price=5)]
    assert decided(specs, need_of(4)) == ["Provision plain"]
    assert decided(specs, need_of(8)) == ["Provision plain", "Bootstrap gpu"]


def test_gpu_pods_get_gpu_machines() -> None:
    """For needs that request a scarce resource, cost decides."""
    specs = [idle("gpu", price=0, more={GPU: 8000}), idle("plain", price=5)]
    assert decided(specs, need_of(4, more={GPU: 1000})) == ["Bootstrap gpu"]


@pytest.mark.parametrize(
    ("running", "pending", "price", "acquired"),
    [
        (0, 4, 12.4, "one0 one1 one2 one3"),
        (10, 3, 11.0, "one0 one1 one2"),
        (10, 4, 11.0, "four"),
    ],
    ids=["no dearer one", "none for expected pods", "the cheapest"],
)
def test_gpu_machines_are_acquired_for_exactly_the_pods_that_request_gpus(
    running: int, pending: int, price: float, acquired: str
) -> None:
    """Neither at a higher price per pod nor for pods that may come: others cannot use what is left,
    and an idle GPU costs more than the small machines that are avoided elsewhere.
    """
    specs = [
        *(configured(f"c{n}", cpu=8, more={GPU: 1}, last_claimed_by=0) for n in range(running)),
        *(speculative(f"one{n}", cpu=8, price=2.9, more={GPU: 1}) for n in range(5)),
        speculative("four", cpu=48, price=price, more={GPU: 4}),
    ]
    found = outcome(specs, pods((running + pending, 6), more={GPU: 1}), settings=EngineConfig())
    assert found.actions == [f"Provision {name}" for name in acquired.split()]


@pytest.mark.parametrize(
    ("bucket", "choice"),
    [
        (penalty.bucket(2.0), "spot"),
        (penalty.bucket(4.0), "on-demand"),
        (penalty.PINNED, "steady"),
    ],
)
def test_spot_for_the_tolerant_and_on_demand_for_the_sensitive(bucket: int, choice: str) -> None:
    """On-demand at $1.00 and 5 % against spot at $0.30 and 30 %: even at a penalty of $2.80."""
    on_demand = speculative("on-demand", price=1.0, probability=0.05)
    spot = speculative("spot", price=0.3, probability=0.3)
    steady = speculative("steady", price=1.5)
    need = need_of(4, interruption=bucket)
    assert decided([on_demand, spot, steady], need) == [f"Provision {choice}"]


def test_pinned_takes_what_may_be_interrupted_only_when_nothing_else_is_left() -> None:
    """An infinite cost loses against any finite one, idle or speculative."""
    specs = [idle("spot", price=0, probability=0.01), speculative("steady", price=100)]
    pinned = need_of(8, interruption=penalty.PINNED)
    assert decided(specs, pinned) == ["Provision steady", "Bootstrap spot"]


def test_cost_is_weighed_by_use() -> None:
    """One large machine is created if many small ones would cost more."""
    small = [speculative(f"small-{n}", cpu=4, price=0.24) for n in range(16)]
    assert decided([*small, speculative("large", cpu=64, price=3.2)], need_of(64)) == [
        "Provision large"
    ]
    assert decided([*small, speculative("large", cpu=64, price=3.2)], need_of(4)) == [
        "Provision small-0"
    ]


def test_the_last_machine_fits() -> None:
    """The rest goes to the cheapest machine that holds all of it, not to the best rate."""
    large = [speculative(f"large-{n}", cpu=64, price=3.2) for n in range(2)]
    small = [speculative(f"small-{n}", cpu=4, price=0.24) for n in range(4)]
    assert decided([*large, *small], need_of(67)) == ["Provision large-0", "Provision small-0"]


def test_of_equally_cheap_machines_the_smallest_sufficient_ends() -> None:
    """A large machine stays free for needs that require it."""
    specs = [idle("a-giant", cpu=64, price=0), idle("b-dwarf", cpu=4, price=0)]
    assert decided(specs, need_of(3)) == ["Bootstrap b-dwarf"]


def test_no_machine_is_acquired_that_a_later_one_makes_superfluous() -> None:
    """The small first choice is dropped if the rest needs a machine that holds everything."""
    specs = [idle("small", cpu=4, price=0.1), idle("big", cpu=64, price=9)]
    assert decided(specs, need_of(6)) == ["Bootstrap big"]


def test_idle_ties_go_to_the_more_valuable_past() -> None:
    """Among equally cheap machines, the one last held at the higher reclamation penalty."""
    specs = [idle("a"), idle("b", last_penalty=9), idle("c", last_penalty=5)]
    assert decided(specs, need_of(8)) == ["Bootstrap b", "Bootstrap c"]


def test_a_machine_holds_whole_pods_only() -> None:
    """Four cores hold one pod of three cores, not four thirds."""
    specs = [idle(f"i{n}", cpu=4) for n in range(3)]
    assert decided(specs, need_of(6, unit=3)) == ["Bootstrap i0", "Bootstrap i1"]


def test_a_machine_smaller_than_the_unit_is_no_supply() -> None:
    """A pod cannot be cut in two."""
    assert decided([idle("i", cpu=4), configured("c", cpu=4)], need_of(5, unit=5)) == ["Reclaim c"]


def test_a_machine_without_a_resource_holds_no_pod_that_asks_for_it() -> None:
    """Cores alone are of no use to pods of one core and three of memory."""
    specs = [idle("a", cpu=4), idle("b", cpu=4), idle("m", cpu=4, price=7, more={"memory": 10})]
    found = outcome(specs, pods((8, 1, 3)))
    assert (found.actions, found.places, found.short) == (["Bootstrap m"], {"m": {0: 3}}, {0: 5})


def test_keep_order() -> None:
    """Machines fill up in this order, so that the last ones become surplus: those that must
    stay or of unknown disruption cost; the most disruptive; then
    those claimed in the last decision; in service, being configured, being created, draining; the
    cheaper; the more valuable.
    """
    specs = [
        configured("l-plain"),
        configured("k-valuable", last_penalty=9),
        configured("j-cheap", price=0.5),
        configured("i-counted", price=3, last_claimed_by=1),
        configured("h-disturbs", price=8, disruption_cost=1.0),
        configured("g-disturbs-more", price=8, disruption_cost=2.0),
        Spec("f-draining", MachineState.DRAINING, cluster="west", destination="east", price=0.1),
        Spec("e-created", MachineState.CREATING, destination="east", price=0.2),
        Spec("d-configured-soon", MachineState.CONFIGURING, cluster="east", price=0.3),
        configured("c-unknown", price=9, disruption_cost=math.nan),
        configured("b-not-to-go", price=8, disruption_cost=math.inf),
        configured("a-unknown", price=7, disruption_cost=math.nan),
    ]
    order: list[str] = []
    for count in range(1, len(specs) + 1):
        found = outcome(specs, pods((4 * count, 1)), pods(group="nothing"), settings=EngineConfig())
        (new,) = found.places.keys() - {*order}
        order.append(new)
    assert [name[0] for name in order] == [*"abcdefghijkl"]


def test_requirements_are_met_by_every_machine() -> None:
    """A machine with other labels is neither used nor acquired."""
    in_a = Requirement(ZONE, Operator.IN, ("a",))
    specs = [configured("c", labels={ZONE: "b"}), idle("b", labels={ZONE: "b"}),
             idle("a", price=9, labels={ZONE: "a"})]  # fmt: skip
    assert decided(specs, need_of(4, in_a)) == ["Bootstrap a", "Reclaim c"]


def test_soft_spread_decides_between_equals() -> None:
    """The zone with fewer of the need's pods, those already placed included; a price that
    is lower comes first.
    """
    specs = [idle(f"{zone}{n}", labels={ZONE: zone}) for zone in "ab" for n in range(2)]
    softly = (Spread(ZONE, 1, False),)
    assert decided(specs, need_of(8, spread=softly)) == ["Bootstrap a0", "Bootstrap b0"]
    here = configured("here", labels={ZONE: "a"}, last_claimed_by=0)
    assert decided([here, *specs], need_of(8, spread=softly)) == ["Bootstrap b0"]


def test_soft_spread_counts_the_idle_machines_just_acquired() -> None:
    """Of equal speculative machines, the first is one of a zone without an idle one."""
    new = [speculative(zone, labels={ZONE: zone}) for zone in "ab"]
    specs = [idle("here", labels={ZONE: "a"}), *new]
    need = need_of(8, spread=(Spread(ZONE, 1, False),))
    assert decided(specs, need) == ["Bootstrap here", "Provision b"]


def test_a_machine_is_chosen_for_all_of_the_cluster_that_wait() -> None:
    """Two needs of two cores acquire one machine of four that costs more than one of two."""
    small = [speculative(f"small-{n}", cpu=2, price=1.0) for n in range(2)]
    specs = [*small, speculative("large", cpu=4, price=1.5)]
    assert decided(specs, need_of(2)) == ["Provision small-0"]
    assert decided(specs, need_of(2), need_of(2, group="b")) == ["Provision large"]


def test_a_gang_that_fits_nowhere_leaves_others_their_turn() -> None:
    """It keeps the machines that its pods run on, and those that no other need can use."""
    specs = [configured(f"a{n}", labels={"rack": "a"}, last_claimed_by=n) for n in range(2)]
    found = outcome(
        specs, pods((9, 4), requirements=(same(),)), pods((4, 1)), settings=EngineConfig()
    )
    assert found.places == {"a0": {0: 1}, "a1": {1: 4}}
    assert found.short == {0: 8}
