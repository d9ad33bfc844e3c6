"""Which machines in use by others a shard names with a shortfall."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from bigfleet.engine.explain.shortfall_report import ShortfallGroup
from bigfleet.engine.snapshot import Flavour
from bigfleet.model.domain import Domain
from bigfleet.model.need import Spread
from bigfleet.services.shard.coordination.drainable_domains import OthersBusyMachines
from bigfleet.services.shard.records.views import BusyMachines
from tests.engine.engine_pods import pods
from tests.engine.engine_rig import RACK, ZONE, same
from tests.services.shard.coordination.shortfall_rig import short_of


def named(
    short: ShortfallGroup, flavour: Flavour, *busy: tuple[str, int], coming: Sequence[str] = ()
) -> list[tuple[str, list[str], int]]:
    """Racks, their machines and the highest priority there, for `busy` machines of racks and
    priorities.
    """
    racks = sorted({rack for rack, _ in busy})
    machines = BusyMachines(
        [f"m-{number}" for number in range(len(busy))],
        np.array([racks.index(rack) for rack, _ in busy], np.int32),
        np.array([priority for _, priority in busy], np.int32),
        np.array([rack in coming for rack, _ in busy], np.bool_),
        [flavour] * len(racks),
        [Domain(RACK, rack) for rack in racks],
    )
    known = replace(short, priority=9, pods_per_machine=np.resize(short.pods_per_machine, 9))
    found = OthersBusyMachines(machines, [flavour] * 9).drainable_for(known)
    return [(f.topology_value, [*f.drained_machine_ids], f.drained_priority) for f in found]


@pytest.mark.parametrize(("cycles", "racks"), [(20, []), (21, ["r1"])])
def test_only_an_old_shortfall_names_machines_in_use(cycles: int, racks: list[str]) -> None:
    row, flavour = short_of(pods((2, 4)), cycles)
    assert [rack for rack, *_ in named(row, flavour, ("r1", 1))] == racks


def test_pods_with_topology_constraints_name_none() -> None:
    """What would fit on an empty machine may still not be allowed on it, and evictions are dear."""
    row, flavour = short_of(pods((2, 4)), 21)
    for constrained in (
        replace(row.profile, anti_affinity=(ZONE,)),
        replace(row.profile, spread=(Spread(ZONE, 1, hard=True),)),
    ):
        assert named(replace(row, profile=constrained), flavour, ("r1", 1)) == []


def test_it_names_the_fewest_that_hold_its_pods_those_of_the_lowest_priority_first() -> None:
    """None of its own or a higher priority."""
    row, flavour = short_of(pods((3, 4)), 21)
    busy = ("r1", 5), ("r1", 1), ("r1", 3), ("r2", 0), ("r3", 9)
    assert named(row, flavour, *busy) == [("r1", ["m-1", "m-2"], 3), ("r2", ["m-3"], 0)]


def test_machines_that_are_being_drained_for_it_count() -> None:
    row, flavour = short_of(pods((3, 4)), 21)
    coming = named(row, flavour, ("own", 0), ("r1", 0), ("r1", 0), coming=["own"])
    assert coming == [("r1", ["m-1"], 0)]
    enough = ("own", 0), ("own", 0), ("r1", 0)
    assert named(row, flavour, *enough, coming=["own"]) == []


def test_a_gang_names_only_racks_that_hold_all_of_it() -> None:
    row, flavour = short_of(pods((4, 4), requirements=(same(),), group="gang"), 21)
    found = named(row, flavour, ("r1", 0), ("r2", 0), ("r2", 0))
    assert found == [("r2", ["m-1", "m-2"], 0)]
