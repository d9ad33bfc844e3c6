"""What an audit finds: each planted difference by its name, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from bigfleet.audit.compare import compare
from bigfleet.audit.compare.fleet_index import FleetIndex
from bigfleet.audit.compare.machines import to_inspect
from bigfleet.audit.differences import EXPLANATIONS, Kind, difference, settle
from bigfleet.audit.observations import (
    DomainRow,
    InspectedMachine,
    Observation,
    ProviderView,
    SeenNode,
    SeenRequest,
)
from bigfleet.model.machine import MachineState
from bigfleet.model.need import NeedKey
from tests.audit.observed import (
    MACHINES,
    NOW,
    R1,
    R2,
    decided,
    healthy,
    in_rack,
    with_cluster,
    with_coordinator,
    with_machines,
    with_shard,
    without_machine,
)

_S, _K = MachineState, Kind
Plant = Callable[[Observation], Observation]


def found(seen: Observation) -> list[tuple[Kind, str]]:
    """The kinds and objects of the differences."""
    return [(each.kind, each.object) for each in compare(seen)]


def test_a_healthy_fleet_has_no_differences() -> None:
    assert compare(healthy()) == []


def test_a_fleet_without_a_coordinator_has_one_shard_that_owns_all() -> None:
    seen = healthy()
    alone = replace(
        seen.shards["s1"],
        machines=decided(*MACHINES),
        pods={**seen.shards["s1"].pods, **seen.shards["s2"].pods},
        reported={"east", "west"},
        connected={"east", "west"},
    )
    assert compare(replace(seen, coordinator=None, shards={"s1": alone})) == []


def test_every_kind_says_what_it_means_and_what_to_do() -> None:
    assert set(EXPLANATIONS) == set(Kind)
    assert all(each.meaning and each.remedy for each in EXPLANATIONS.values())


def stray_node(seen: Observation, machine: str, cluster: str) -> Observation:
    nodes = [*seen.clusters[cluster].nodes, SeenNode(machine, machine, NOW - 60)]
    return with_cluster(seen, cluster, nodes=nodes)


def s1_lists(seen: Observation, *more: str) -> Observation:
    machines = [each for each in MACHINES if each.id in ("m-1", "m-2", *more)]
    return with_shard(seen, "s1", machines=decided(*machines))


def unlisted(seen: Observation) -> Observation:
    seen = with_shard(seen, "s1", machines=decided(MACHINES[1]))
    return replace(seen, inspected={("s1", "m-1"): None})


def other_state(seen: Observation) -> Observation:
    seen = with_shard(seen, "s1", machines=decided(in_rack("m-1", "r1", _S.IDLE), MACHINES[1]))
    return replace(seen, inspected={("s1", "m-1"): InspectedMachine(_S.IDLE, "")})


def untaken(seen: Observation) -> Observation:
    seen = with_shard(seen, "s1", machines=decided(MACHINES[0]))
    why = "its domain is r1, which this shard does not own"
    return replace(seen, inspected={("s1", "m-2"): InspectedMachine(_S.IDLE, "", "", why)})


def bound_to_nobodys_cluster(seen: Observation) -> Observation:
    return with_machines(seen, in_rack("m-4", "r2", _S.CONFIGURED, "ghost"))


def silent(seen: Observation) -> Observation:
    shards = {"s1": seen.shards["s1"]}
    return replace(seen, shards=shards, unavailable={"shard s2": "s2 does not answer"})


def one_more_bought(seen: Observation) -> Observation:
    seen = with_machines(seen, *(in_rack(f"m-{n}", "r1", _S.IDLE) for n in (5, 6)))
    more = [in_rack(f"m-{n}", "r1", _S.IDLE) for n in (5, 6)]
    return with_shard(seen, "s1", machines=decided(*MACHINES[:2], *more))


NEED = "need east/f1"
PLANTED: dict[str, tuple[Plant, Kind, str]] = {
    "a CONFIGURED machine has no Node": (
        lambda seen: with_cluster(seen, "east", nodes=[]),
        _K.MACHINE_WITHOUT_NODE,
        "machine m-1",
    ),
    "a Node is a machine that no provider lists": (
        lambda seen: stray_node(seen, "m-9", "east"),
        _K.NODE_WITHOUT_MACHINE,
        "Node m-9 of cluster east",
    ),
    "a Node is a machine of another cluster": (
        lambda seen: stray_node(seen, "m-3", "east"),
        _K.NODE_IN_ANOTHER_CLUSTER,
        "Node m-3 of cluster east",
    ),
    "a Node is an idle machine": (
        lambda seen: stray_node(seen, "m-2", "east"),
        _K.NODE_OF_FREE_MACHINE,
        "Node m-2 of cluster east",
    ),
    "a bound machine is not listed by its cluster's shard": (
        unlisted,
        _K.MACHINE_NOT_LISTED,
        "machine m-1",
    ),
    "a shard has a machine in another state": (other_state, _K.MACHINE_STATE, "machine m-1"),
    "a shard has a machine that no provider lists": (
        lambda seen: without_machine(seen, "m-2"),
        _K.MACHINE_UNKNOWN_TO_PROVIDER,
        "machine m-2",
    ),
    "two providers list a machine": (
        lambda seen: replace(
            seen, providers=[*seen.providers, ProviderView("cloud", {"m-4": MACHINES[3]})]
        ),
        _K.MACHINE_OF_TWO_PROVIDERS,
        "machine m-4",
    ),
    "two shards have a bound machine": (
        lambda seen: s1_lists(seen, "m-3"),
        _K.MACHINE_OF_TWO_SHARDS,
        "machine m-3",
    ),
    "a machine is bound to a cluster that nobody knows": (
        bound_to_nobodys_cluster,
        _K.MACHINE_OF_UNKNOWN_CLUSTER,
        "machine m-4",
    ),
    "two shards decide about a domain": (
        lambda seen: s1_lists(seen, "m-4"),
        _K.DOMAIN_OF_TWO_SHARDS,
        f"domain {R2}",
    ),
    "a shard decides about a domain of another": (
        lambda seen: with_shard(s1_lists(seen, "m-4"), "s2", machines=decided(MACHINES[2])),
        _K.DOMAIN_OF_ANOTHER_SHARD,
        f"domain {R2}",
    ),
    "no shard has a domain": (
        lambda seen: with_shard(
            with_coordinator(seen, domains={R1: DomainRow("s1")}),
            "s2",
            machines=decided(MACHINES[2]),
        ),
        _K.DOMAIN_WITHOUT_SHARD,
        f"domain {R2}",
    ),
    "a shard leaves its domain to others": (untaken, _K.DOMAIN_NOT_TAKEN, f"domain {R1}"),
    "a cluster has no session with its shard": (
        lambda seen: with_shard(seen, "s1", connected=set()),
        _K.CLUSTER_NOT_SERVED,
        "cluster east",
    ),
    "two shards have needs of a cluster": (
        lambda seen: with_shard(
            seen, "s2", pods={**seen.shards["s2"].pods, NeedKey("east", "f1", ""): 2}
        ),
        _K.CLUSTER_OF_TWO_SHARDS,
        "cluster east",
    ),
    "a shard counts fewer pods than there are requests": (
        lambda seen: with_shard(seen, "s1", pods={NeedKey("east", "f1", ""): 1}),
        _K.NEEDS_DIFFER,
        NEED,
    ),
    "a shard holds more machines than its quota": (
        one_more_bought,
        _K.QUOTA_EXCEEDED,
        "quota of s1 at kwok a",
    ),
    "a request's Pod is gone": (
        lambda seen: with_cluster(seen, "east", pods={"uid-1"}),
        _K.REQUEST_WITHOUT_POD,
        "CapacityRequest web/p2 of cluster east",
    ),
    "an UpcomingNode is left of a machine that is not coming": (
        lambda seen: with_cluster(seen, "east", upcoming={"m-4": NOW - 60}),
        _K.UPCOMING_NODE_LEFT_BEHIND,
        "UpcomingNode m-4 of cluster east",
    ),
    "an AvailableCapacity is left of a need that is gone": (
        lambda seen: with_cluster(
            seen, "east", available={**seen.clusters["east"].available, "ac-0": NOW - 60}
        ),
        _K.AVAILABLE_CAPACITY_LEFT_BEHIND,
        "AvailableCapacity ac-0 of cluster east",
    ),
    "a shard does not answer": (silent, _K.SOURCE_UNAVAILABLE, "shard s2"),
    "a provider's record is invalid": (
        lambda seen: replace(
            seen, providers=[replace(seen.providers[0], rejected={"m-8": "has no zone"})]
        ),
        _K.RECORD_INVALID,
        "machine m-8",
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_difference_is_found_by_name_and_alone(name: str) -> None:
    """One defect is one difference: no other kind is named with it."""
    plant, kind, about = PLANTED[name]
    assert found(plant(healthy())) == [(kind, about)]


def test_every_kind_is_planted() -> None:
    assert {kind for _, kind, _ in PLANTED.values()} == set(Kind)


def test_an_order_under_way_is_no_difference() -> None:
    """A decision sees the state that an order leads to; a closer look shows the real one."""
    draining = in_rack("m-1", "r1", _S.DRAINING, "east")
    seen = with_shard(healthy(), "s1", machines=decided(draining, MACHINES[1]))
    assert list(to_inspect(FleetIndex(seen))) == [("s1", "m-1")]
    inspected = InspectedMachine(_S.CONFIGURED, "east", order="Reclaim")
    assert found(replace(seen, inspected={("s1", "m-1"): inspected})) == []


def test_where_too_many_differ_for_a_closer_look_the_last_decision_counts() -> None:
    """No difference is left out because there are many."""
    wrong = in_rack("m-1", "r1", _S.IDLE)
    seen = with_shard(healthy(), "s1", machines=decided(wrong, MACHINES[1]))
    assert found(seen) == [(_K.MACHINE_STATE, "machine m-1")]
    seen = with_shard(healthy(), "s1", machines=decided(MACHINES[1]))
    assert found(seen) == [(_K.MACHINE_NOT_LISTED, "machine m-1")]


def test_a_shard_that_dies_before_the_closer_look_is_named_and_its_machines_are_not() -> None:
    seen = with_shard(healthy(), "s1", machines=decided(MACHINES[1]))
    seen = replace(seen, unavailable={"shard s1": "no answer"})
    assert found(seen) == [(_K.SOURCE_UNAVAILABLE, "shard s1")]


def test_speculative_machines_beyond_a_quota_are_no_difference() -> None:
    """A shard leaves them out of its decisions, and inspection shows that it has them."""
    seen = with_shard(healthy(), "s2", machines=decided(MACHINES[2]))
    assert list(to_inspect(FleetIndex(seen))) == [("s2", "m-4")]
    inspected = {("s2", "m-4"): InspectedMachine(_S.SPECULATIVE, "")}
    assert found(replace(seen, inspected=inspected)) == []


def test_a_domain_that_moves_is_no_difference() -> None:
    """Machines that are reserved in it stay with the shard that releases it."""
    seen = s1_lists(healthy(), "m-4")
    moving = {R1: DomainRow("s1"), R2: DomainRow("s2", "releasing")}
    assert found(with_coordinator(seen, domains=moving)) == []


def test_a_gang_that_is_still_growing_is_no_difference() -> None:
    """The operator reports it once it is complete, or half a minute after its last request."""
    seen = healthy()
    gang = [SeenRequest("web/g1", ("f2", "g"), members=3, created=NOW - 5)]
    requests = [*seen.clusters["east"].requests, *gang]
    assert found(with_cluster(seen, "east", requests=requests)) == []
    late = replace(with_cluster(seen, "east", requests=requests), at=NOW + 300)
    assert found(late) == [(_K.NEEDS_DIFFER, "need east/f2/g")]


def test_invalid_and_terminating_requests_are_in_no_need() -> None:
    seen = healthy()
    requests = [*seen.clusters["east"].requests, SeenRequest("web/bad", None)]
    assert found(with_cluster(seen, "east", requests=requests)) == []


def test_what_a_silent_provider_would_list_is_not_guessed() -> None:
    """Its machines may be there: only its silence is a difference."""
    seen = replace(healthy(), providers=[], unavailable={"provider p": "no answer"})
    assert found(seen) == [(_K.SOURCE_UNAVAILABLE, "provider p")]


def test_a_cluster_that_is_being_removed_need_not_be_served() -> None:
    seen = with_shard(healthy(), "s1", connected=set())
    assert found(with_coordinator(seen, removing={"east"})) == []


def test_only_what_is_said_twice_lasts() -> None:
    """A machine on its way is in another state, or in none, the next time."""
    joining = difference(Kind.MACHINE_STATE, "machine m-1", provider="IDLE", shard="s: CREATING")
    joined = difference(Kind.MACHINE_STATE, "machine m-1", provider="CONFIGURED", shard="s: IDLE")
    stuck = difference(Kind.NODE_WITHOUT_MACHINE, "Node m-2 of cluster east", provider="no")
    result = settle([joining, stuck], [joined, stuck])
    assert list(result.lasting) == [stuck]
    assert set(result.in_transit) == {joining, joined}


def test_a_source_that_fails_twice_in_other_words_lasts() -> None:
    first = difference(Kind.SOURCE_UNAVAILABLE, "shard s1", error="refused")
    second = difference(Kind.SOURCE_UNAVAILABLE, "shard s1", error="timed out")
    result = settle([first], [second])
    assert (list(result.lasting), list(result.in_transit)) == ([second], [])
