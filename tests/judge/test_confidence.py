"""Which samples bracket a quantile is a matter of exact binomial sums."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaddriver.judge.confidence import (
    ERROR_PER_END,
    arrival_batches,
    bracket,
    effective_sample_size,
    required_sample_size,
)
from loaddriver.judge.latency import due_to_bind
from loaddriver.judge.percentiles import AtLeast
from tests.judge.judge_rig import at, row

PORTIONS = st.sampled_from([0.5, 0.9, 0.99])
ERRS = Fraction(str(ERROR_PER_END))


def chances_of_fewer(samples: int, level: float) -> list[Fraction]:
    """By rank from 0: the exact chance that fewer than so many samples lie below the quantile."""
    p = Fraction(str(level))
    chances = (comb(samples, n) * p**n * (1 - p) ** (samples - n) for n in range(samples))
    return list(accumulate(chances, initial=Fraction(0)))


@given(st.integers(0, 140), PORTIONS)
def test_the_ranks_are_the_tightest_that_exact_sums_allow(samples: int, level: float) -> None:
    """As found by trying every rank with fractions instead of floats."""
    fewer = chances_of_fewer(samples, level)
    below = [rank for rank in range(1, samples + 1) if fewer[rank] <= ERRS]
    above = [rank for rank in range(1, samples + 1) if 1 - fewer[rank] <= ERRS]
    assert bracket(samples, level) == (
        max(below) if below else None,
        min(above) if above else None,
    )


@pytest.mark.parametrize(("level", "needed"), [(0.5, 6), (0.9, 36), (0.99, 368)])
def test_a_quantile_needs_samples_on_both_sides(level: float, needed: int) -> None:
    """One sample fewer, and even the largest is not surely above the quantile."""
    assert required_sample_size(level) == needed
    assert bracket(needed, level)[1] == needed
    assert bracket(needed - 1, level)[1] is None


@given(st.integers(1, 200_000), PORTIONS)
def test_ranks_are_in_order_around_the_quantile_whatever_the_size(
    samples: int, level: float
) -> None:
    """And they exist exactly from the needed number on."""
    lower, upper = bracket(samples, level)
    assert (upper is not None) == (samples >= required_sample_size(level))
    if lower is not None and upper is not None:
        assert 1 <= lower <= samples * level + 1
        assert samples * level <= upper <= samples


@given(st.lists(st.integers(0, 9)))
def test_objects_are_as_many_draws_as_they_are_at_most(objects: list[int]) -> None:
    """Fewer where they are unequal; one that has nearly all pods is nearly all there is."""
    sizes = Counter(objects)
    found = effective_sample_size(objects)
    assert found <= len(sizes)
    if sizes:
        assert found == len(objects) ** 2 // sum(size**2 for size in sizes.values())
    equal = len(set(sizes.values())) == 1
    assert (found == len(sizes)) == (equal or not sizes)


def test_a_large_object_among_small_ones_counts_as_what_it_is() -> None:
    """Ninety pods of one object and ten of others are little more than one draw."""
    assert effective_sample_size(["large"] * 90 + list(range(10))) == 1
    assert effective_sample_size(["a", "a", "b", "b", "c", "c"]) == 3
    assert effective_sample_size(range(400)) == 400


def test_pods_of_an_object_that_come_later_are_a_draw_of_their_own() -> None:
    """A churned pod, or those that scaling adds: in whatever order they are given."""
    seconds = [("web", 0), ("web", 9), ("db", 1), ("web", 4), ("web", 20), ("web", 10)]
    came = arrival_batches([(name, at * 1_000_000) for name, at in seconds])
    assert len(set(came)) == 3
    first, second, other, third, last, fourth = came
    assert first == third == second == fourth
    assert last not in (first, other)
    assert effective_sample_size(came) == 36 // (16 + 1 + 1)


def test_pods_of_several_objects_that_waited_for_one_node_are_one_draw() -> None:
    """Ten objects on two nodes are two draws, and know no median; had they found room, ten."""
    waited = [
        row(str(n), 0.0, 5.0, node=f"n{n % 2}", node_was_ready=False, node_ready_micros=at(4.0))
        for n in range(10)
    ]
    assert due_to_bind(waited).p50 == AtLeast(0.0, required_sample_size=6, effective_sample_size=2)
    found = [replace(each, node_was_ready=True) for each in waited]
    assert due_to_bind(found).p50 == 5.0
