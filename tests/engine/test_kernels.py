"""Kernels that sort, count and number do what the obvious numpy expression does."""

from __future__ import annotations

import numpy as np
import pytest

from bigfleet.engine.kernels.folding import fit_some, lowest_priorities, number_rows
from bigfleet.engine.kernels.placed import arrange, claim, least_utilized, order_by_row
from bigfleet.engine.kernels.scoring import Machines, PlacementLog, pop_at, push_at, sift
from bigfleet.engine.kernels.sorting import order_of
from bigfleet.engine.kernels.term_domains import count_accepting
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


@pytest.mark.parametrize("most", [0, 1, 9, 2**11, 2**40, 2**62])
def test_sorting_by_digits_is_a_stable_sort(most: int) -> None:
    """Whatever the largest key, and without any."""
    keys = np.random.default_rng(1).integers(0, most, 200, endpoint=True)
    assert order_of(keys).tolist() == np.argsort(keys, kind="stable").tolist()
    assert not len(order_of(keys[:0]))


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
    """Its pods are placed first. What was undone, and machines that were removed, claim nothing."""
    log = PlacementLog(
        machine=np.array([0, 0, 1, 1, 2, 3], np.int32),
        pod_class=np.array([2, 0, 2, 1, 0, 0], np.int32),
        pods=np.array([1, 1, 1, 1, 0, 1]),
    )
    claimed = np.full(4, NONE, np.int32)
    need, additional = np.array([0, 1, 2], np.int32), np.array([False, False, True])
    one_cluster, rows = (np.array([0]), np.array([6]), np.array([0])), np.array([3, 1, 0, NONE])
    claim(log, *one_cluster, need, additional, rows, claimed)
    assert claimed.tolist() == [NONE, 2, NONE, 2]
    claimed[:] = NONE
    claim(log, *one_cluster, need, np.zeros(3, np.bool_), rows, claimed)
    assert claimed.tolist() == [NONE, 1, NONE, 0]


@pytest.mark.parametrize("seed", SEEDS)
def test_heaps_that_share_an_array_give_their_keys_in_ascending_order(seed: int) -> None:
    """Also when the smallest key of one is replaced; the other heap stays as it is."""
    random = np.random.default_rng(seed)
    heaps, length, keys = np.full(40, -7), 0, random.integers(0, 50, 20).tolist()
    for key in keys:
        length = push_at(heaps, 10, length, key)
    for key in random.integers(0, 50, 5).tolist():
        keys.remove(min(keys))
        keys.append(key)
        sift(heaps, 10, length, key)
    found = []
    while length:
        found.append(int(heaps[10]))
        length = pop_at(heaps, 10, length)
    assert found == sorted(keys)
    assert {*heaps[:10].tolist(), *heaps[30:].tolist()} == {-7}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_pod_fits_if_one_capacity_has_all_that_it_requests(seed: int) -> None:
    """Only the rows asked for are looked at, and nothing fits where there is no capacity."""
    random = np.random.default_rng(seed)
    sizes, shapes = random.integers(0, 5, (20, 2)), random.integers(0, 5, (seed % 4, 2))
    its = np.flatnonzero(random.random(20) < 0.5)
    expected = [bool((sizes[at] <= shapes).all(axis=1).any()) for at in its.tolist()]
    assert fit_some(sizes, its, shapes).tolist() == expected


@pytest.mark.parametrize("seed", SEEDS)
def test_a_need_is_suited_by_the_machines_that_serve_its_cluster_and_it_accepts(seed: int) -> None:
    """Machines without a cluster suit none."""
    random = np.random.default_rng(seed)
    serving, cluster = random.random(40) < 0.7, random.integers(NONE, 3, 40).astype(np.int32)
    flavour, accepted = random.integers(0, 5, 40).astype(np.int32), random.random((4, 5)) < 0.5
    fit, its = random.integers(0, 4, 6), np.sort(random.integers(0, 3, 6))
    start, found = np.searchsorted(its, np.arange(4)), np.zeros(6, np.int64)
    count_accepting(serving, cluster, flavour, start, fit, accepted, found)
    pairs = zip(its.tolist(), fit.tolist(), strict=True)
    suits = (serving & (cluster == each) & accepted[row][flavour] for each, row in pairs)
    assert found.tolist() == [int(flags.sum()) for flags in suits]


def test_arranged_placements_name_the_size_within_their_need() -> None:
    """Classes are ordered by share within a need, sizes as in the demand."""
    row, pod_class = np.array([5, 3, 5]), np.array([2, 0, 1])
    pods, size = np.array([7, 8, 9]), np.array([1, 0, 2])
    need_of, start = np.array([0, 1, 1], np.int32), np.array([0, 1, 3])
    found = arrange(np.array([1, 0, 2]), row, pod_class, pods, size, need_of, start)
    assert [column.tolist() for column in found] == [[3, 5, 5], [0, 1, 1], [0, 0, 1], [8, 7, 9]]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_flavour_serves_the_lowest_priority_of_its_machines_at_work(seed: int) -> None:
    """Flavours without such a machine serve none."""
    random = np.random.default_rng(seed)
    flavour = random.integers(0, 9, 20).astype(np.int32)
    priority, works = random.integers(-5, 5, 20).astype(np.int32), random.random(20) < 0.5
    expected = np.full(9, np.iinfo(np.int64).max)
    np.minimum.at(expected, flavour[works], priority[works])
    assert lowest_priorities(flavour, priority, works, 9).tolist() == expected.tolist()
