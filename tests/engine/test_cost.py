"""What a machine costs a need, and in which tier it comes into question."""

from __future__ import annotations

import numpy as np
import pytest

from bigfleet.engine.columns import FlavourColumns
from bigfleet.engine.fit.cost import effective_cost, tiers
from bigfleet.model import penalty
from tests.engine.engine_rig import fleet_of, idle


def test_effective_cost_adds_expected_loss_to_the_price() -> None:
    """Dollars per hour: price plus probability times penalty."""
    price, probability = np.array([1.0, 0.3]), np.array([0.05, 0.30])
    costs = effective_cost(price, probability, penalty.bucket(4))
    assert costs.tolist() == pytest.approx([1.2, 1.5])


def test_pinned_forbids_any_probability() -> None:
    """Infinite, except where nothing can happen: then the price alone, not 0 x infinity."""
    costs = effective_cost(np.array([1.0, 2.0]), np.array([0.01, 0.0]), penalty.PINNED)
    assert costs.tolist() == [np.inf, 2.0]


def test_scarce_resources_come_after_plain_machines_and_infinite_cost_last() -> None:
    """Four tiers: an infinite cost weighs more than any scarce resource, and both weigh most."""
    costs, scarce = np.array([1.0, 9.0, np.inf, np.inf]), np.array([False, True, False, True])
    assert tiers(costs, scarce).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "resource", ["cpu", "memory", "pods", "ephemeral-storage", "storage", "hugepages-2Mi"]
)
def test_what_every_machine_has_is_not_scarce(resource: str) -> None:
    """Nor are huge pages; extended resources are, for needs that do not request them."""
    flavours = fleet_of([idle("m", more={resource: 1}), idle("g", more={"x/gpu": 1})]).flavours
    columns = FlavourColumns(flavours)
    asked = np.zeros(len(columns.resources), np.bool_)
    assert columns.has_other_scarce(asked).tolist() == [False, True]
    asked[columns.column_of["x/gpu"]] = True
    assert columns.has_other_scarce(asked).tolist() == [False, False]
