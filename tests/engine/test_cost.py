"""What a machine costs a need."""

from __future__ import annotations

import numpy as np
import pytest

from bigfleet.engine.cost import cost_per_useful_unit, effective_cost, is_scarce
from bigfleet.model import penalty


def test_effective_cost_adds_expected_loss_to_the_price() -> None:
    """Dollars per hour: price plus probability times penalty."""
    price, probability = np.array([1.0, 0.3]), np.array([0.05, 0.30])
    costs = effective_cost(price, probability, penalty.bucket(4))
    assert costs.tolist() == pytest.approx([1.2, 1.5])


def test_pinned_forbids_any_probability() -> None:
    """Infinite, except where nothing can happen: then the price alone, not 0 x infinity."""
    costs = effective_cost(np.array([1.0, 2.0]), np.array([0.01, 0.0]), penalty.PINNED)
    assert costs.tolist() == [np.inf, 2.0]


def test_a_machine_is_as_useful_as_its_scarcest_contribution() -> None:
    """Shares: 1/2; capped at 1; 1/4 because of memory; nothing of one resource; free is free."""
    units = np.array([[4, 4], [80, 80], [8, 2], [8, 0], [4, 4]], np.int64)
    costs = np.array([1.0, 1.0, 1.0, 1.0, 0.0])
    found = cost_per_useful_unit(costs, units, np.array([8, 8], np.int64))
    assert found.tolist() == [2.0, 1.0, 4.0, np.inf, 0.0]


def test_covered_resources_do_not_count() -> None:
    """A machine without what is covered already is as useful as any."""
    units = np.array([[8, 0]], np.int64)
    assert cost_per_useful_unit(np.ones(1), units, np.array([8, 0], np.int64)).tolist() == [1.0]


def test_prices_in_proportion_to_size_are_equal() -> None:
    """Rounding in the last digit decides nothing."""
    sizes = np.arange(1, 50, dtype=np.int64)
    found = cost_per_useful_unit(
        np.array(sizes * 0.1, np.float64), sizes[:, None], np.array([1_000], np.int64)
    )
    assert len(set(found.tolist())) == 1


@pytest.mark.parametrize("resource", ["cpu", "memory", "pods", "ephemeral-storage", "storage"])
def test_what_every_machine_has_is_not_scarce(resource: str) -> None:
    """Nor are huge pages."""
    assert not is_scarce(resource)
    assert not is_scarce("hugepages-2Mi")
    assert is_scarce("nvidia.com/gpu")
