"""Kernels that sort, count and number do what the obvious numpy expression does."""

from __future__ import annotations

import numpy as np
import pytest

from bigfleet.engine.kernels.folding import number_rows
from bigfleet.engine.kernels.placed import claim, least_utilized, order_by_row
from bigfleet.engine.kernels.scoring import Machines, PlacementLog
from bigfleet.engine.snapshot import NONE

SEEDS = range(20)


@pytest.mark.parametrize("seed", SEEDS)
def test_placements_are_ordered_by_machine_then_size_and_equal_ones_stay_in_order(
    seed: int,
) -> None:
    """Machines without placements and repeated placements included."""
    random = np.random.default_rng(seed)
    row, key = random.integers(0, 9, 40), random.integers(0, 4, 40)
    assert order_by_row(row, key, 12).tolist() == np.lexsort((key, row)).tolist()


@pytest.mark.parametrize("seed", SEEDS)
def test_the_least_utilized_machines_are_the_first_of_a_stable_sort(seed: int) -> None:
    """By the most used resource; a resource of which a machine has nothing counts as unused."""
    random = np.random.default_rng(seed)
    capacity = random.integers(0, 4, (30, 3))
    free = capacity - np.minimum(random.integers(0, 3, (30, 3)), capacity)
    numbers, flags = np.zeros(30, np.int32), np.zeros(30, np.bool_)
    machines = Machines(capacity, free, numbers, numbers, np.zeros(30, np.int64), flags, numbers)
    among = random.random(30) < 0.7
    used = ((capacity - free) / np.maximum(capacity, 1)).max(axis=1)
    expected = [at for at in np.argsort(used, kind="stable").tolist() if among[at]]
    assert least_utilized(machines, among, 8).tolist() == expected[:8]


@pytest.mark.parametrize("seed", SEEDS)
def test_equal_rows_and_no_others_share_a_number(seed: int) -> None:
    """Numbers follow the order in which rows first appear."""
    rows = np.random.default_rng(seed).integers(-2, 2, (50, 3)) << 40
    numbers, first = number_rows(rows)
    seen: dict[bytes, int] = {}
    expected = [seen.setdefault(row.tobytes(), len(seen)) for row in rows]
    assert numbers.tolist() == expected
    assert first.tolist() == [expected.index(number) for number in range(len(seen))]


def test_an_additional_need_claims_a_machine_before_the_first_in_the_demands_order() -> None:
    """Placements that were undone, and machines that were removed, claim nothing."""
    log = PlacementLog(
        machine=np.array([0, 0, 1, 1, 2, 3], np.int32),
        pod_class=np.array([2, 0, 1, 2, 0, 0], np.int32),
        pods=np.array([1, 1, 1, 1, 0, 1]),
    )
    claimed = np.full(4, NONE, np.int32)
    need, additional = np.array([0, 1, 2], np.int32), np.array([False, False, True])
    claim(log, 6, need, additional, np.array([3, 1, 0, NONE]), claimed)
    assert claimed.tolist() == [NONE, 2, NONE, 2]
    claimed[:] = NONE
    claim(log, 6, need, np.zeros(3, np.bool_), np.array([3, 1, 0, NONE]), claimed)
    assert claimed.tolist() == [NONE, 1, NONE, 0]
