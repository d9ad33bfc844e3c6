"""By how many machines a used-up quota is too small for what is short."""

from __future__ import annotations

import pytest

from bigfleet.model.domain import Domain, region_of
from bigfleet.services.shard.coordination.withheld_machines import WithheldMachines
from bigfleet.services.shard.records.views import FreeMachines
from tests.engine.engine_pods import pods
from tests.engine.engine_rig import RACK, same
from tests.services.shard.coordination.shortfall_rig import short_of


def test_it_is_the_number_of_machines_that_hold_the_unplaced_pods() -> None:
    """Three pods of 4 CPU on machines of 8; no more than there are."""
    row, flavour = short_of(pods((3, 4)))
    for there, lacks in ((9, 2), (1, 1)):
        withheld = [FreeMachines(0, flavour, Domain(RACK, "r1"), 0, there)]
        (lack,) = WithheldMachines({"": "kwok"}, withheld, [flavour]).lacking_to(row)
        assert (lack.provider, lack.region) == ("kwok", region_of(flavour.labels))
        assert lack.machines == lacks


@pytest.mark.parametrize(("racks", "machines"), [((1, 1), []), ((1, 2), [2])])
def test_a_gang_lacks_machines_of_one_domain(racks: tuple[int, int], machines: list[int]) -> None:
    row, flavour = short_of(pods((4, 4), requirements=(same(),), group="gang"))
    withheld = [
        FreeMachines(0, flavour, Domain(RACK, f"r{n}"), 0, each) for n, each in enumerate(racks)
    ]
    found = WithheldMachines({"": "kwok"}, withheld, [flavour]).lacking_to(row)
    assert [each.machines for each in found] == machines


def test_a_young_shortfall_lacks_none() -> None:
    row, flavour = short_of(pods((3, 4)), 5)
    withheld = [FreeMachines(0, flavour, Domain(RACK, "r1"), 0, 9)]
    assert WithheldMachines({"": "kwok"}, withheld, [flavour]).lacking_to(row) == []
