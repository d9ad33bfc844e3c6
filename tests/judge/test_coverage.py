"""An interval of 95 % holds the true quantile in 95 % of runs, also where pods wait together.

Runs are drawn from a population whose quantiles are known: objects with sizes as the plans have
them, their pods waiting together as much as a case says. What is counted is in how many runs the
interval holds the true quantile.

It does so for other objects on the same machine. Where all pods share a queue near its capacity, it
does not hold what another run finds, and the page says so.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from loaddriver.judge.percentiles import AtLeast, Interval, Quantiles, quantiles
from tests.support.cpu_time import cpu_seconds, slowness

Waits = NDArray[np.float64]
Owners = NDArray[np.int64]
Draw = Callable[[np.random.Generator, int], tuple[Waits, Owners]]

RUNS = 300
# What 95 % may come out as in 300 runs: below 93 % only once in fifteen, below 91 % never.
COVERED = 0.93
_SIZES = ((0.55, 1, 5), (0.30, 6, 25), (0.12, 26, 100), (0.03, 101, 400))


def owners(random: np.random.Generator, objects: int) -> Owners:
    """The object of each pod: many small ones, few large."""
    band = random.choice(len(_SIZES), p=[share for share, _, _ in _SIZES], size=objects)
    lower_bound, most = (np.array([each[end] for each in _SIZES])[band] for end in (1, 2))
    return np.repeat(np.arange(objects), random.integers(lower_bound, most + 1))


def as_one(random: np.random.Generator, objects: int) -> tuple[Waits, Owners]:
    """All pods of an object wait for one machine."""
    of = owners(random, objects)
    return random.exponential(1, objects)[of] + random.uniform(0, 1e-3, len(of)), of


def half_shared(random: np.random.Generator, objects: int) -> tuple[Waits, Owners]:
    """A part of the wait is the object's, another the pod's own."""
    of = owners(random, objects)
    return random.lognormal(0, 1, objects)[of] * random.lognormal(0, 1, len(of)), of


def room_or_machine(random: np.random.Generator, objects: int) -> tuple[Waits, Owners]:
    """Some objects find room, the others wait for their machine."""
    of = owners(random, objects)
    found = random.random(objects) < 0.5
    machine = 5 + 2 * random.exponential(1, objects)
    return np.where(found, 0.0, machine)[of] + random.exponential(0.1, len(of)), of


def some_slow(random: np.random.Generator, objects: int) -> tuple[Waits, Owners]:
    """A few objects meet a slow machine, with all their pods."""
    of = owners(random, objects)
    slow = np.where(random.random(objects) < 0.04, 10.0, 0.0)
    return slow[of] + random.exponential(1, len(of)), of


def one_by_one(random: np.random.Generator, objects: int) -> tuple[Waits, Owners]:
    """An object's pods are served one after the other, so large ones wait longer."""
    of = owners(random, objects)
    turn = np.arange(len(of)) - np.searchsorted(of, of)
    return random.exponential(1, objects)[of] * (1 + turn / 100), of


def intervals(found: Quantiles) -> dict[float, Interval]:
    return {0.5: found.p50_interval, 0.9: found.p90_interval, 0.99: found.p99_interval}


def holds(interval: Interval, truth: float) -> bool:
    """An open end holds all beyond it."""
    low, high = interval
    assert isinstance(low, float)
    return low <= truth and (isinstance(high, AtLeast) or (high or 0.0) >= truth)


@cache
def truths(draw: Draw) -> dict[float, float]:
    """The true quantiles, as those of very many objects."""
    waits, _ = draw(np.random.default_rng(1), 100_000)
    levels = (0.5, 0.9, 0.99)
    return dict(zip(levels, np.quantile(waits, levels).tolist(), strict=True))


def covered(draw: Draw, objects: int, level: float, runs: int = RUNS) -> tuple[float, float]:
    """Of runs, the share whose interval holds the true quantile, drawing objects; and the share in
    which it is closed.
    """
    truth = truths(draw)[level]
    random = np.random.default_rng(2)
    held = closed = 0
    for _ in range(runs):
        waits, of = draw(random, objects)
        ours = intervals(quantiles(waits.tolist(), objects=of.tolist()))[level]
        held += holds(ours, truth)
        closed += isinstance(ours[1], float)
    return held / runs, closed / runs


def covered_by_pods(draw: Draw, objects: int, level: float) -> float:
    """The share that holds it, drawing pods."""
    truth = truths(draw)[level]
    random = np.random.default_rng(2)
    runs = (draw(random, objects)[0].tolist() for _ in range(RUNS))
    return sum(holds(intervals(quantiles(ended))[level], truth) for ended in runs) / RUNS


@pytest.mark.parametrize("draw", [as_one, half_shared, room_or_machine, some_slow, one_by_one])
@pytest.mark.parametrize(
    ("objects", "level", "mostly"), [(30, 0.5, 0.5), (150, 0.5, 0.9), (250, 0.9, 0.9)]
)
def test_an_interval_holds_what_it_claims_where_pods_wait_together(
    draw: Draw, objects: int, level: float, mostly: float
) -> None:
    """And it is mostly a closed one: it does not hold by saying nothing."""
    share, closed = covered(draw, objects, level)
    assert share >= COVERED
    assert closed >= mostly


@pytest.mark.parametrize("draw", [as_one, room_or_machine])
@pytest.mark.parametrize(("objects", "level"), [(150, 0.5), (250, 0.9)])
def test_taking_such_pods_as_independent_claims_far_too_much(
    draw: Draw, objects: int, level: float
) -> None:
    """An interval of single pods, as it is right where pods have nothing to do with each other."""
    assert covered_by_pods(draw, objects, level) < 0.5


@pytest.mark.parametrize("draw", [as_one, some_slow])
def test_a_p99_of_many_objects_is_closed_and_holds(draw: Draw) -> None:
    """As many as the largest run on one machine has."""
    share, closed = covered(draw, 4_000, 0.99, runs=60)
    assert closed == 1
    assert share >= COVERED


def test_few_objects_leave_the_interval_open() -> None:
    """Thousands of pods of a few objects know no p99, and two objects not even a median."""
    two = quantiles([float(n) for n in range(4_000)], objects=[n % 2 for n in range(4_000)])
    assert two.p50 == AtLeast(0.0, required_sample_size=6, effective_sample_size=2)
    assert two.p99 == AtLeast(2000.0, required_sample_size=368, effective_sample_size=2)
    six = quantiles([float(n) for n in range(6_000)], objects=[n // 1_000 for n in range(6_000)])
    assert isinstance(six.p50, float)
    assert isinstance(six.p90, AtLeast)
    assert six.p50_interval == (0.0, 5999.0)


def test_waits_of_fifty_thousand_pods_are_judged_in_a_moment() -> None:
    """A dozen slices of a large run take less than two seconds together."""
    waits, of = half_shared(np.random.default_rng(3), 2_600)
    assert len(waits) > 50_000
    ended, objects = waits.tolist(), [("c1", f"web-{each}") for each in of]
    took = cpu_seconds(lambda: [quantiles(ended, objects=objects) for _ in range(12)])
    assert took < 2 * slowness()


def test_pods_of_many_objects_that_wait_for_few_machines_are_few_draws() -> None:
    """By objects alone, a run claims to know what the next one contradicts."""
    random = np.random.default_rng(4)
    truth = float(np.log(2))  # the median of what a machine takes
    by_object = by_both = closed = 0
    for _ in range(RUNS):
        of = np.repeat(np.arange(120), random.integers(1, 7, 120))
        machine = random.integers(0, 20, 120)[of]
        waits = (random.exponential(1, 20)[machine] + random.uniform(0, 1e-3, len(of))).tolist()
        both = quantiles(waits, (), of.tolist(), machine.tolist()).p50_interval
        by_both += holds(both, truth)
        by_object += holds(quantiles(waits, (), of.tolist()).p50_interval, truth)
        closed += isinstance(both[1], float)
    assert by_both / RUNS >= COVERED
    assert closed / RUNS >= 0.9
    assert by_object / RUNS < 0.7


def shared_queue(
    random: np.random.Generator, objects: int, load: float, capacity_spread: float
) -> tuple[Waits, Owners]:
    """All pods pass one server, first come, first served, at a pod per unit of time on average.

    Objects are due at an even rate of `load` pods, each with all its pods at once. Capacity differs
    between runs by `capacity_spread` (one standard deviation), as a machine's does.
    """
    of = owners(random, objects)
    due = np.searchsorted(of, of) / load
    service = 1 / random.normal(1, capacity_spread) if capacity_spread else 1.0
    position = np.arange(len(of))
    served = service * (position + 1) + np.maximum.accumulate(due - service * position)
    return served - due, of


def covered_in_queue(load: float, capacity_spread: float, objects: int) -> float:
    """Of runs, the share whose interval of the median holds the median over many runs."""
    random = np.random.default_rng(5)
    pool = [shared_queue(random, objects, load, capacity_spread)[0] for _ in range(RUNS)]
    truth, held = float(np.quantile(np.concatenate(pool), 0.5)), 0
    for _ in range(RUNS):
        waits, of = shared_queue(random, objects, load, capacity_spread)
        held += holds(quantiles(waits.tolist(), objects=of.tolist()).p50_interval, truth)
    return held / RUNS


@pytest.mark.parametrize("load", [0.5, 0.7])
def test_below_its_capacity_a_shared_queue_leaves_the_interval_right(load: float) -> None:
    """Though the waits of one run follow each other, and capacity differs by 5 % between runs: this
    is why waits are gated at half of the capacity, or at 0.7 of it at most.
    """
    assert covered_in_queue(load, 0.05, 150) >= COVERED


@pytest.mark.parametrize(
    ("load", "objects", "most"), [(0.95, 150, 0.9), (1.0, 150, 0.7), (1.0, 600, 0.4)]
)
def test_near_its_capacity_the_interval_does_not_hold_what_another_run_finds(
    load: float, objects: int, most: float
) -> None:
    """One queue is one draw, however many objects pass it; more of them make it worse. Only
    repeated runs know how much they differ, which the page says beside its intervals.
    """
    assert covered_in_queue(load, 0.05, objects) <= most
