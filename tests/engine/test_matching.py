"""Which labels meet which requirement, as Kubernetes' node selectors have it."""

from __future__ import annotations

import pytest
from engine_rig import EVENLY_BY_ZONE, ZONE, need_of, same

from bigfleet.engine.columns import FlavourColumns
from bigfleet.engine.matching import Matcher, accepts, placement_requirements
from bigfleet.engine.snapshot import Flavour
from bigfleet.model.machine import CapacityType
from bigfleet.model.need import Operator, Requirement

IN_A = Requirement(ZONE, Operator.IN, ("a", "c"))
NOT_A = Requirement(ZONE, Operator.NOT_IN, ("a", "c"))
THERE = Requirement(ZONE, Operator.EXISTS)
AWAY = Requirement(ZONE, Operator.DOES_NOT_EXIST)


@pytest.mark.parametrize(
    ("requirements", "accepted"),
    [
        ((), ["", "a", "b", "c"]),
        ((IN_A,), ["a", "c"]),
        ((Requirement(ZONE, Operator.IN, ()),), []),
        ((NOT_A,), ["", "b"]),
        ((THERE,), ["a", "b", "c"]),
        ((AWAY,), [""]),
        ((same(ZONE),), ["a", "b", "c"]),
        ((NOT_A, THERE), ["b"]),
        ((IN_A, AWAY), []),
    ],
)
def test_operators(requirements: tuple[Requirement, ...], accepted: list[str]) -> None:
    """NotIn takes the absent key, In and Same do not; several conditions all hold."""
    zones = ["", "a", "b", "c"]
    labels: list[dict[str, str]] = [{ZONE: zone} if zone else {} for zone in zones]
    flavours = [Flavour(each, CapacityType.SPOT, 1.0, 0.0, {}) for each in labels]
    matcher = Matcher(FlavourColumns(flavours))
    for _ in range(2):  # the second answer is the remembered one
        flags = matcher.flavours(requirements)
        assert [zone for zone, flag in zip(zones, flags, strict=True) if flag] == accepted
    assert [z for z, each in zip(zones, labels, strict=True) if accepts(requirements, each)] == (
        accepted
    )


def test_hard_spread_wants_its_key() -> None:
    """A machine in no zone takes no pod that is spread over zones; Same makes spread void."""
    spread = placement_requirements(need_of(1, spread=EVENLY_BY_ZONE).profile)
    assert not accepts(spread, {})
    assert accepts(spread, {ZONE: "a"})
    assert accepts(
        placement_requirements(need_of(1, same("rack"), spread=EVENLY_BY_ZONE).profile),
        {"rack": "r"},
    )
