"""Which gangs stay gangs though one machine could hold them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from bigfleet.engine.cycle_memory import CycleMemory
from bigfleet.engine.decide import decide
from bigfleet.engine.fit.folding import fold
from bigfleet.engine.snapshot import NONE, Demand, Fleet
from bigfleet.model.labels import HOSTNAME_LABEL
from bigfleet.model.need import Need, NeedKey
from bigfleet.services.shard.decide.unfolding import (
    UNFOLD_AFTER_CYCLES,
    next_unfolded,
    with_machines,
)
from bigfleet.services.shard.records.wants import KeysOf, Wants
from tests.engine.engine_rig import (
    NO_HOLD,
    NOW,
    RACK,
    Spec,
    configured,
    demand_of,
    fleet_of,
    idle,
    need_of,
    same,
)

# A large machine in use, and small ones of one rack, two of which hold a gang.
LARGE = configured("large", "east", cpu=8, labels={RACK: "r2"}, last_priority=0)
SMALL = [idle(f"m{number}", labels={RACK: "r1"}) for number in range(4)]
PLAIN = need_of(6, unit=6)


def gang(name: str, cpu: int = 6) -> Need:
    return need_of(cpu, same(), unit=cpu // 2, group=f"[{name}]")


def key(fleet: Fleet, need: Need) -> NeedKey:
    return NeedKey(fleet.clusters[0], *need.key)


def play(fleet: Fleet, demand: Demand, cycles: int) -> Iterator[frozenset[NeedKey]]:
    """The unfolded gangs after each cycle, of which no order is carried out."""
    memory, unfolded = CycleMemory(), frozenset[NeedKey]()
    for number in range(cycles):
        folding = fold(fleet, demand, unfolded)
        decision = decide(fleet, folding.demand, memory, NO_HOLD, NOW + number)
        unfolded = next_unfolded(unfolded, demand, folding, fleet.clusters, decision)
        memory = decision.cycle_memory
        yield unfolded


def names(unfolded: frozenset[NeedKey]) -> list[str]:
    return sorted(each.group for each in unfolded)


def waiting(*gangs: Need, specs: tuple[Spec, ...] = (LARGE,)) -> tuple[Fleet, Demand]:
    """Gangs beside pods that fill the large machine."""
    fleet = fleet_of(specs)
    return fleet, demand_of(fleet, [("east", need) for need in (PLAIN, *gangs)])


def test_a_gang_that_waits_in_vain_becomes_a_gang_after_some_cycles() -> None:
    fleet, demand = waiting(gang("a"))
    after = [*map(names, play(fleet, demand, UNFOLD_AFTER_CYCLES + 1))]
    assert after == [[]] * UNFOLD_AFTER_CYCLES + [["[a]"]]


def test_one_gang_a_cycle_is_unfolded_and_stays_so() -> None:
    fleet, demand = waiting(gang("a"), gang("b"))
    after = [*map(names, play(fleet, demand, UNFOLD_AFTER_CYCLES + 3))]
    assert after[-3:] == [["[b]"], ["[a]", "[b]"], ["[a]", "[b]"]]


def test_only_gangs_of_a_size_that_lacks_machines_are_unfolded() -> None:
    """A small one finds room beside the others."""
    fleet, demand = waiting(gang("a"), gang("small", cpu=2))
    *_, last = play(fleet, demand, UNFOLD_AFTER_CYCLES + 1)
    assert names(last) == ["[a]"]


def test_a_gang_with_room_on_one_machine_stays_folded() -> None:
    fleet, demand = waiting(gang("a"), specs=(LARGE, replace(LARGE, name="other")))
    assert not any(play(fleet, demand, UNFOLD_AFTER_CYCLES + 3))


def test_a_gang_of_one_host_stays_folded_however_long_it_waits() -> None:
    """Its domain is one machine: as a gang of several machines it could never be served."""
    pair = need_of(6, same(HOSTNAME_LABEL), unit=3, group="[pair]")
    fleet, demand = waiting(pair)
    assert not any(play(fleet, demand, UNFOLD_AFTER_CYCLES + 3))


def test_a_gang_that_is_gone_is_forgotten() -> None:
    fleet, demand = waiting(gang("a"), gang("b"))
    *_, unfolded = play(fleet, demand, UNFOLD_AFTER_CYCLES + 3)
    _, without = waiting(gang("a"))
    folding = fold(fleet, without, unfolded)
    decision = decide(fleet, folding.demand, CycleMemory(), NO_HOLD, NOW)
    assert names(next_unfolded(unfolded, without, folding, fleet.clusters, decision)) == ["[a]"]


def test_an_unfolded_gang_gets_smaller_machines_of_one_rack() -> None:
    fleet, demand = waiting(gang("a"), specs=(LARGE, *SMALL))
    folded = fold(fleet, demand).demand
    assert [need.profile.same_key for need in folded.needs] == [None, None]
    unfolded = fold(fleet, demand, {key(fleet, gang("a"))}).demand
    assert [need.profile.same_key for need in unfolded.needs] == [None, RACK]


def test_a_group_that_has_machines_of_its_own_stays_one() -> None:
    """Machines of plain and folded needs, and of needs that want none any more, say nothing."""
    fleet, demand = waiting(gang("a"), gang("b"))
    folded = fold(fleet, demand).demand
    keys = [
        *KeysOf(demand, fleet.clusters),
        *(key for key in KeysOf(folded, fleet.clusters) if key.group.startswith("folded:")),
    ]
    assert len(keys) == 4
    wants = Wants(np.array([0, 1, 3, NONE], np.int32), keys)
    numbered = wants.numbered(demand, fleet.clusters)
    assert with_machines(numbered, wants).tolist() == [False, True, False]
    unfolded = fold(fleet, numbered, served_as_gangs=lambda: with_machines(numbered, wants)).demand
    assert [each.profile.same_key for each in unfolded.needs] == [None, RACK, None]
